"""A command that is killed outright leaves nothing running: what it started, and what that started, frozen or not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from headgate.provisioning.time_scale import scaled_seconds
from support.ended import has_ended

pytestmark = pytest.mark.integration

WAIT_SECONDS_MAX = scaled_seconds(90)

SERVICE = """
import subprocess, time
subprocess.Popen(['sleep', '1000'], process_group=0)
subprocess.Popen(['sleep', '1000'], start_new_session=True)
print('ready', flush=True)
time.sleep(1000)
"""

COMMAND = """
import sys, time
from contextlib import nullcontext
from pathlib import Path
from headgate_lab.parts.orphans import no_orphans
from headgate_lab.parts.processes import ServiceProcess

folder, guarded, service = Path(sys.argv[1]), sys.argv[2] == 'guarded', sys.argv[3]
with no_orphans() if guarded else nullcontext():
    services = [ServiceProcess(name, (), {}, folder, program=(sys.executable, '-c', service)) for name in 'ab']
    while not all('ready' in one.log_file.read_text() for one in services):
        time.sleep(0.02)
    trees = [process.pid for one in services for process in one.tree()]
    services[1].freeze()
    print(*trees, flush=True)
    if sys.argv[4] == 'leave':
        for one in services:
            one.kill()
    else:
        time.sleep(1000)
"""


def start(folder: Path, guarded: str, then: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", COMMAND, str(folder), guarded, SERVICE, then]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if not has_ended(pid)]


def test_a_killed_command_takes_everything_with_it(tmp_path: Path) -> None:
    with start(tmp_path, "guarded", "stay") as command:
        assert command.stdout is not None
        trees = [int(word) for word in command.stdout.readline().split()]
        guard = [child.pid for child in psutil.Process(command.pid).children() if child.pid not in trees]
        assert len(trees) >= 4
        assert len(guard) == 1
        command.kill()
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while living([*trees, *guard]):
        assert time.monotonic() < deadline, f"still there: {living([*trees, *guard])}"
        time.sleep(0.05)


def test_without_the_keeper_they_go_on(tmp_path: Path) -> None:
    """What the guard is against, and that the test above can fail."""
    with start(tmp_path, "alone", "stay") as command:
        assert command.stdout is not None
        trees = [int(word) for word in command.stdout.readline().split()]
        command.kill()
    try:
        assert living(trees) == trees
    finally:
        for pid in trees:
            os.kill(pid, signal.SIGKILL)


def test_a_command_that_ends_in_order_ends_its_keeper_too(tmp_path: Path) -> None:
    with start(tmp_path, "guarded", "leave") as command:
        assert command.stdout is not None
        trees = [int(word) for word in command.stdout.readline().split()]
        assert command.wait(WAIT_SECONDS_MAX) == 0
    assert living(trees) == []
