"""What a process ignores once it has run a test of Spark, and that it ignores it no sooner."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import ROOT

FILE = """
import gc, socket
import pytest

server = socket.create_server(("127.0.0.1", 0))
left = []

{mark}
def test_that_leaves_a_socket():
    left.append(socket.create_connection(server.getsockname()))

def test_behind_it():
    left.clear()
    gc.collect()
    server.close()
"""


@pytest.mark.parametrize(("mark", "is_ignored"), [("@pytest.mark.spark", True), ("", False)])
def test_an_open_socket_is_an_error_until_spark_has_run(tmp_path: Path, mark: str, is_ignored: bool) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\nmarkers = spark\n")
    (tmp_path / "test_file.py").write_text(FILE.format(mark=mark))
    plugins = ["-p", "fixtures.left_by_spark", "-p", "no:cacheprovider", "-p", "no:randomly"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "test_file.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (run.returncode == 0, "ResourceWarning" in run.stdout) == (is_ignored, not is_ignored), run.stdout
