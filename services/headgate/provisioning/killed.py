"""Waiting for a child process that was killed."""

import subprocess
from typing import Final

from headgate.provisioning.errors import EmbeddedError
from headgate.provisioning.time_scale import scaled_seconds

KILLED_SECONDS_MAX: Final = 60.0
"""The kernel ends a killed process at once, unless a disk or a network file system holds it up."""


def await_killed(process: subprocess.Popen[bytes] | subprocess.Popen[str], what: str) -> None:
    """Return when the killed process has ended. Raises EmbeddedError if it does not."""
    seconds = scaled_seconds(KILLED_SECONDS_MAX)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired as error:
        raise EmbeddedError(
            f"{what} (process {process.pid}) was killed but has not ended within {seconds:g} s. The kernel holds it, "
            "mostly in a read or write of a disk: look at the machine's disks and network file systems"
        ) from error
