"""Nobody but the views needs Faust: the command works without it, and says what is missing."""

import subprocess
import sys

WITHOUT_FAUST = """
import sys
sys.modules.update(dict.fromkeys(("faust", "aiokafka", "mode")))
from headgate.cli.main import app
import headgate.cli.agent_part, headgate.coordinator.shell.service
app()
"""


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_FAUST, *arguments], capture_output=True, text=True, check=False
    )


def test_every_other_command_works_and_serve_views_says_what_is_missing() -> None:
    assert run("version").returncode == 0
    refused = run("serve", "views")
    assert refused.returncode == 10
    assert "pip install 'headgate[views]'" in refused.stderr
