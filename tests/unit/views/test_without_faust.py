"""Nobody but the views needs Faust: the command works without it, and says what is missing."""

import subprocess
import sys

from headgate.provisioning.installing import installing

WITHOUT_FAUST = """
import sys
sys.modules.update(dict.fromkeys(("faust", "aiokafka", "mode")))
from headgate.cli.main import app
app(["serve", "views"])
"""


def test_the_command_works_without_faust_and_serve_views_says_what_is_missing() -> None:
    refused = subprocess.run([sys.executable, "-c", WITHOUT_FAUST], capture_output=True, text=True, check=False)
    assert refused.returncode == 10
    assert installing("views") in refused.stderr
