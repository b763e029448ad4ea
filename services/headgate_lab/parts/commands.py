"""A ``headgate`` command as people type it, run for them."""

import json
import subprocess
from collections.abc import Collection, Mapping
from typing import Final

from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.parts.processes import HEADGATE, ServiceError, environment

__all__ = ["run_command"]

COMMAND_SECONDS_MAX: Final = 600.0
"""For one command, however slow its own start is."""


def run_command(settings: Mapping[str, str], *arguments: str, accepted: Collection[int] = (0,)) -> dict[str, object]:
    """Run a ``headgate … -o json`` command; return its answer. Raises ServiceError with the command's output.

    ``accepted`` are the exit codes with which it gives an answer.
    """
    command = [*HEADGATE, *arguments]
    seconds = scaled_seconds(COMMAND_SECONDS_MAX)
    typed = f"headgate {' '.join(arguments)}"
    try:
        done = subprocess.run(
            command, env=environment(settings), capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"{typed} did not end within {seconds:.0f} s") from error
    if done.returncode not in accepted:
        raise ServiceError(f"{typed} ended with exit code {done.returncode}: {done.stderr.strip()}")
    answer: dict[str, object] = json.loads(done.stdout)
    return answer
