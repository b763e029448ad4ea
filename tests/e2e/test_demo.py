"""The end-to-end run: the demo itself, whole processes on real parts, with an agent and the owner killed on the way.

It is the same command that people type, only shorter; what it finds out is asserted here once more, and what it says of
itself (that nothing is left over) is looked up on the machine.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.e2e

DEMO = (sys.executable, "-m", "headgate", "demo", "--short", "--output", "json")

RUN_SECONDS_MAX = 540
"""Two minutes on an idle machine with two cores; a busy one may take several times that."""

STARTED = re.compile(r"their logs are in (\S+)/logs")


class Demo:
    """A running demo and what it has said so far."""

    def __init__(self, folder: Path) -> None:
        self.said = folder / "stderr"
        self.answer = folder / "stdout"
        with self.said.open("wb") as said, self.answer.open("wb") as answer:
            self.process = subprocess.Popen(
                DEMO, stdin=subprocess.DEVNULL, stdout=answer, stderr=said, start_new_session=True
            )

    def folder(self) -> str:
        """The folder of its databases and logs, once the services are being started."""
        deadline = time.monotonic() + RUN_SECONDS_MAX
        while (found := STARTED.search(self.said.read_text())) is None:
            assert self.process.poll() is None, self.said.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return found[1]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    running = Demo(tmp_path)
    yield running
    if running.process.poll() is None:
        running.process.send_signal(signal.SIGINT)
        running.process.wait(60)


def belonging_to(folder: str) -> list[str]:
    """Living processes that name the folder in their command line or environment."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
            lives = process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if lives and process.pid != os.getpid() and any(folder in word for word in words):
            found.append(f"{process.pid} {process.name()}")
    return found


@pytest.mark.timeout(RUN_SECONDS_MAX + 60)
def test_a_live_database_is_kept_in_step_through_kills_of_agents_and_owner(demo: Demo) -> None:
    folder = demo.folder()
    assert belonging_to(folder)
    code = demo.process.wait(RUN_SECONDS_MAX)
    assert code == 0, demo.said.read_text() + demo.answer.read_text()
    report = json.loads(demo.answer.read_text())
    value = {name: figure["value"] for name, figure in report["figures"].items()}
    assert report["holds"] is True
    assert report["findings"] == []
    assert value["tables"] >= 4
    assert value["rows_compared"] > 10_000
    assert value["changes_audited"] > value["rows_compared"]
    assert value["claims_and_seals_audited"] > value["tables"], "the faults moved tables, which are claims"
    for nothing in ("differences", "double_writes", "false_lease_losses", "processes_left_over"):
        assert value[nothing] == 0
    for fault in ("agent_killed", "agent_frozen", "owner_killed"):
        assert value[f"failover_{fault}_s"] > 0
    assert belonging_to(folder) == []
    assert not Path(folder).exists()


@pytest.mark.timeout(RUN_SECONDS_MAX)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_running(demo: Demo, number: signal.Signals) -> None:
    folder = demo.folder()
    assert belonging_to(folder)
    demo.process.send_signal(number)
    assert demo.process.wait(120) == 130
    assert belonging_to(folder) == []
    assert not Path(folder).exists()


@pytest.mark.timeout(RUN_SECONDS_MAX)
def test_a_killed_demo_leaves_nothing_running(demo: Demo) -> None:
    folder = demo.folder()
    assert belonging_to(folder)
    demo.process.kill()
    deadline = time.monotonic() + 60
    while left := belonging_to(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    shutil.rmtree(folder)
