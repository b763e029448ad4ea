"""No process that a command has started outlives it, even if it is killed with SIGKILL and cannot clean up.

Every service gets a mark in its environment, which all processes that it starts inherit. A small guard process, in a
session of its own, waits on a pipe that only the command holds. If the operating system closes the pipe before the
command has sent its goodbye, the guard kills every process that carries the mark. A parent-death signal would not do:
it is sent when the *thread* that started the child ends, it is not inherited by Spark's JVM and its workers, and those
may be frozen, so that a pipe of their own does not wake them. SIGKILL ends frozen processes too.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from uuid import uuid4

import psutil

from headgate.provisioning.killed import await_killed
from headgate.provisioning.time_scale import scaled_seconds

MARK: Final = "STARTED_BY_HEADGATE"
"""Environment variable of everything that is started here."""

_TOKEN: Final = f"{os.getpid()}-{uuid4().hex}"

QUIET_SECONDS: Final = 2.0
"""How long no marked process must be found: one that was just being started shows its mark only when it runs."""

LOOK_SECONDS: Final = 0.2

GOODBYE: Final = "goodbye"
GOODBYE_SECONDS_MAX: Final = 60.0
"""The guard has nothing left to do then but to end."""


def marked() -> dict[str, str]:
    """The mark, to be put into the environment of what is started."""
    return {MARK: _TOKEN}


@contextmanager
def no_orphans() -> Iterator[int]:
    """Within, our sudden death ends all processes that carry our mark; gives the guard's process id.

    Afterwards nothing guards them: end them before.
    """
    command = [sys.executable, "-m", "headgate_lab.parts.orphans", _TOKEN]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True, cwd="/")
    try:
        yield guard.pid
    finally:
        try:
            # The guard may have been killed; then the message has no receiver.
            with suppress(BrokenPipeError):
                guard.communicate(GOODBYE, timeout=scaled_seconds(GOODBYE_SECONDS_MAX))
        except subprocess.TimeoutExpired:  # it has nothing left to do
            guard.kill()
            await_killed(guard, "the guard against orphans")


def _carriers(token: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == token:
                found.append(process)
        except psutil.Error:
            continue  # gone, or not ours to ask
    return found


def _kill_all(token: str) -> None:
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < QUIET_SECONDS:
        for process in _carriers(token):
            quiet_since = time.monotonic()
            try:
                process.kill()
            except psutil.Error:
                continue
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    if sys.stdin.read() != GOODBYE:
        _kill_all(sys.argv[1])
