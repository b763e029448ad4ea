"""The end-to-end run: `headgate demo` itself, which kills services on real parts and compares source and target.

This is the command that people type, with less time between the faults. The tests assert its findings again and look
for processes that it has left behind. `make test` kills one agent; `make test-long` inflicts every fault, and ends
demos by signals. (That servers end with whoever started them is in integration/embedded/test_servers.py.)
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest
import yaml

from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.demo.faults import FaultKind

pytestmark = pytest.mark.e2e

DEMO = (sys.executable, "-m", "headgate", "demo", "--short", "--output", "json")

LEASE_SECONDS = "20"
"""No lease may be lost that nothing was done to, and other tests use the processors."""

QUIET_SECONDS = "6"
"""Of writing without a fault, in all: what is compared is mostly what the source begins with."""

RUN_SECONDS_MAX = scaled_seconds(1500)
"""Two minutes on an idle machine with two cores; a busy one may take several times that."""

END_SECONDS_MAX = scaled_seconds(300)
"""For all that was started to end."""

STARTED = re.compile(r"their logs are in (\S+)/logs")


class Demo:
    """A running demo and what it has said so far."""

    def __init__(self, folder: Path, command: Sequence[str] = DEMO) -> None:
        self.said = folder / "stderr"
        self.answer = folder / "stdout"
        with self.said.open("wb") as said, self.answer.open("wb") as answer:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=answer, stderr=said, start_new_session=True
            )

    def folder(self) -> str:
        """The folder of its databases and logs, once the services are being started."""
        deadline = time.monotonic() + RUN_SECONDS_MAX
        while (found := STARTED.search(self.said.read_text())) is None:
            assert self.process.poll() is None, self.said.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return found[1]


@contextmanager
def running(folder: Path, command: Sequence[str]) -> Iterator[Demo]:
    """A demo that is interrupted if it still runs at the end."""
    demo = Demo(folder, command)
    try:
        yield demo
    finally:
        if demo.process.poll() is None:
            demo.process.send_signal(signal.SIGINT)
            demo.process.wait(END_SECONDS_MAX)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    with running(tmp_path, DEMO) as demo:
        yield demo


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
@pytest.mark.parametrize(
    "faults",
    [(FaultKind.AGENT_KILLED,), pytest.param(tuple(FaultKind), marks=pytest.mark.long)],
    ids=["one_kill", "all_faults"],
)
def test_a_live_database_is_kept_in_step_through_faults(faults: tuple[FaultKind, ...], tmp_path: Path) -> None:
    given = [
        *DEMO,
        "--duration",
        QUIET_SECONDS,
        "--lease-seconds",
        LEASE_SECONDS,
        *(word for fault in faults for word in ("--fault", fault)),
    ]
    with running(tmp_path, given) as demo:
        _the_demo_holds(demo, faults)


def _the_demo_holds(demo: Demo, faults: tuple[FaultKind, ...]) -> None:
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
    assert value["verify_rows"] > 10_000
    for nothing in ("differences", "verify_differences", "double_writes", "false_lease_losses", "processes_left_over"):
        assert value[nothing] == 0
    for fault in FaultKind:
        assert (value.get(f"failover_{fault}_s", 0) > 0) is (fault in faults)
    assert belonging_to(folder) == []
    assert not Path(folder).exists()


@pytest.mark.long
@pytest.mark.timeout(RUN_SECONDS_MAX)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_running(demo: Demo, number: signal.Signals) -> None:
    folder = demo.folder()
    assert belonging_to(folder)
    demo.process.send_signal(number)
    assert demo.process.wait(END_SECONDS_MAX) == 130
    assert belonging_to(folder) == []
    assert not Path(folder).exists()


@pytest.mark.long
@pytest.mark.timeout(RUN_SECONDS_MAX)
def test_a_killed_demo_leaves_nothing_running(demo: Demo) -> None:
    folder = demo.folder()
    assert belonging_to(folder)
    demo.process.kill()
    deadline = time.monotonic() + END_SECONDS_MAX
    while left := belonging_to(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    shutil.rmtree(folder)


@pytest.mark.long
@pytest.mark.timeout(RUN_SECONDS_MAX)
def test_what_is_up_says_where_it_is_and_ends_when_its_broker_is_gone(tmp_path: Path) -> None:
    with running(tmp_path, (sys.executable, "-m", "headgate", "up", "--agents", "1")) as up:
        deadline = time.monotonic() + RUN_SECONDS_MAX
        while "Ctrl-C stops everything" not in (said := up.answer.read_text()):
            assert up.process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.2)
        folder = re.search(r"logs\s+(\S+)/logs", said)
        assert folder is not None
        for name in ("coordinator-1", "coordinator-2", "agent-1"):
            address = re.search(rf"^{name}\s+http://([^:]+):(\d+)/readyz", said, re.MULTILINE)
            assert address is not None, said
            connection = HTTPConnection(address[1], int(address[2]), timeout=END_SECONDS_MAX)
            connection.request("GET", "/readyz")
            assert connection.getresponse().status == 200
            connection.close()
        told = _a_feed_of_ones_own(said, tmp_path)
        assert told == (0, ""), told[1]
        words = {process: " ".join(_words(process)) for process in psutil.process_iter()}
        jvms = [process for process, said in words.items() if folder[1] in said and "GatewayServer" in said]
        assert len(jvms) == 1, jvms
        jvms[0].kill()
        assert up.process.wait(END_SECONDS_MAX) == 50
        said = up.answer.read_text()
        assert "the Kafka broker, with Kafka Connect in its process: its process has ended; its log is" in said
        assert belonging_to(folder[1]) == []


def _a_feed_of_ones_own(said: str, folder: Path) -> tuple[int, str]:
    """By somebody who pastes what was printed into another terminal, and writes a feed as the documentation has it."""
    pasted = re.search(r"^\s+(export HEADGATE_.*)$", said, re.MULTILINE)
    shown = re.search(r"as in (\S+\.yaml)", said)
    assert pasted is not None, said
    assert shown is not None, said
    spec = yaml.safe_load(Path(shown[1]).read_text(encoding="utf-8"))
    own = {
        "feed": "mine",
        "source": spec["source"] | {"topics": [topic for topic in spec["source"]["topics"] if "orders" in topic]},
        "sink": spec["sink"] | {"table": "public.mine"},
    }
    file = folder / "mine.yaml"
    file.write_text(yaml.safe_dump(own), encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    command = f"{pasted[1]}; {sys.executable} -m headgate feed create {file} --dry-run >&2 && "
    command += f"{sys.executable} -m headgate feed create {file} --timeout {END_SECONDS_MAX:g} >/dev/null"
    done = subprocess.run(
        ["bash", "-c", command], env=clean, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
    )
    return done.returncode, "" if done.returncode == 0 else done.stderr


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
