"""A server that ends with us, however we end.

A small shell stands between us and the server: it waits on a pipe that only we hold, and ends the server when the
operating system closes that pipe. Both are in a session of their own, out of Ctrl-C's reach.
"""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Final

import psutil

from headgate.provisioning.errors import EmbeddedError
from headgate.provisioning.pace import patience

__all__ = ["kill_kept", "start_kept", "stop_kept"]

GONE_SECONDS: Final = 60
"""For the operating system to take away what was killed."""

# `read` is part of the shell, so that no process is left waiting when the server ends first.
_KEEPER: Final = """\
signal=$1; shift
exec 3<&0
"$@" 3<&- & server=$!
(read -r _ <&3; kill -$signal $server) & keeper=$!
wait $server; code=$?
kill $keeper 2>/dev/null
exit $code
"""


def start_kept(
    command: Sequence[str],
    *,
    name: str,
    signal_name: str,
    log: BinaryIO,
    env: Mapping[str, str] | None = None,
    **whom: Any,
) -> "subprocess.Popen[bytes]":
    """Start ``command`` under a keeper called ``name``; ``signal_name`` ends it in order ("INT", "TERM").

    ``whom`` are subprocess arguments that say as which user and in which folder. The keeper is the process returned.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", _KEEPER, name, signal_name, *command],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env=env,
        **whom,
    )


def stop_kept(keeper: "subprocess.Popen[bytes]", seconds: float, what: str) -> None:
    """End the server in order. EmbeddedError, once it is killed, if it takes longer."""
    # The keeper ends the server when it sees this end of file.
    if keeper.stdin is not None:
        keeper.stdin.close()
    try:
        keeper.wait(seconds)
    except subprocess.TimeoutExpired as error:
        kill_kept(keeper)
        raise EmbeddedError(f"{what} did not stop in {seconds:g} s: killed") from error


def kill_kept(keeper: "subprocess.Popen[bytes]") -> None:
    """SIGKILL the keeper, the server and its children; a port or shared memory is free only once all are gone."""
    family = []
    if keeper.poll() is None:  # else its number may be somebody else's by now
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(keeper.pid).children(recursive=True)
    keeper.kill()
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    keeper.wait()
    psutil.wait_procs(family, timeout=patience(GONE_SECONDS))
    if keeper.stdin is not None:
        keeper.stdin.close()
