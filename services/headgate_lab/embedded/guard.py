"""A server that ends with us, however we end.

A small shell runs between this process and the server: it waits on a pipe that only we hold, and ends the server when
the operating system closes that pipe. Both are in a session of their own, out of Ctrl-C's reach.
"""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Final

import psutil

from headgate.provisioning.errors import EmbeddedError
from headgate.provisioning.killed import await_killed
from headgate.provisioning.time_scale import scaled_seconds

GONE_SECONDS: Final = 60
"""For the operating system to take away what was killed."""

# `read` is part of the shell, so that no process is left waiting when the server ends first.
_GUARD: Final = """\
signal=$1; shift
exec 3<&0
"$@" 3<&- & server=$!
(read -r _ <&3; kill -$signal $server) & guard=$!
wait $server; code=$?
kill $guard 2>/dev/null
exit $code
"""


def start_guarded(
    command: Sequence[str],
    *,
    name: str,
    signal_name: str,
    log: BinaryIO,
    env: Mapping[str, str] | None = None,
    **whom: Any,
) -> "subprocess.Popen[bytes]":
    """Start ``command`` under a guard called ``name``; ``signal_name`` ends it in order ("INT", "TERM").

    ``whom`` are subprocess arguments for the user and the folder. The guard is the process returned.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, name, signal_name, *command],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env=env,
        **whom,
    )


def stop_guarded(guard: "subprocess.Popen[bytes]", seconds: float, what: str) -> None:
    """End the server in order. EmbeddedError, once it is killed, if it takes longer."""
    # The guard ends the server when it sees this end of file.
    if guard.stdin is not None:
        guard.stdin.close()
    try:
        guard.wait(seconds)
    except subprocess.TimeoutExpired as error:
        kill_guarded(guard)
        raise EmbeddedError(f"{what} did not stop in {seconds:g} s: killed") from error


def kill_guarded(guard: "subprocess.Popen[bytes]") -> None:
    """SIGKILL the guard, the server and its children; a port or shared memory is free only once all are gone."""
    family = []
    if guard.poll() is None:  # else its number may belong to another process by now
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(guard.pid).children(recursive=True)
    guard.kill()
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    await_killed(guard, "a server's guard")
    psutil.wait_procs(family, timeout=scaled_seconds(GONE_SECONDS))
    if guard.stdin is not None:
        guard.stdin.close()
