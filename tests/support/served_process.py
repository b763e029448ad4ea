"""`headgate serve …` as a process of its own, which logs into a file.

The demo's services are trees, which freeze and die as a whole: headgate_lab/parts/processes.py.
"""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headgate.provisioning.time_scale import scaled_seconds

ANSWER_SECONDS: Final = scaled_seconds(120.0)
"""For a probe to answer, or for a process that has to end to be gone."""


def log_lines(file: Path) -> list[dict[str, Any]]:
    """What a service has logged as JSON, but for a line that is still being written."""
    whole = file.read_bytes().rpartition(b"\n")[0].decode("utf-8")
    return [json.loads(line) for line in whole.split("\n") if line.startswith("{") and line.endswith("}")]


class ServedEndedError(Exception):
    """A service has ended before it logged what the caller waits for; the message contains its log."""


class ServedProcess:
    """Made running. The caller has to kill it."""

    def __init__(
        self,
        log_file: Path,
        *arguments: str,
        module: Sequence[str] = ("headgate",),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``module``: what Python runs instead, with its own arguments. ``environment``: all of it, ours if None."""
        self.log_file = log_file
        with log_file.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *module, "serve", *arguments],
                stderr=out,
                env=None if environment is None else dict(environment),
            )

    @property
    def log(self) -> str:
        """All that it has logged."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def lines(self) -> list[dict[str, Any]]:
        """Its log, if it is JSON."""
        return log_lines(self.log_file)

    def said(self, event: str) -> dict[str, Any] | None:
        """The last line of this event. Raises ServedEndedError."""
        if self.process.poll() is not None:
            raise ServedEndedError(
                f"{self.log_file.name}: it has ended with code {self.process.returncode}: {self.log}"
            )
        return next((line for line in reversed(self.lines()) if line.get("event") == event), None)

    def answer(self, path: str) -> tuple[int, str]:
        """Status and text of a page; status 0 before it has started.

        Raises ServedEndedError, and OSError if it does not answer.
        """
        started = self.said("started")
        if started is None:
            return 0, "not started"
        try:
            page = f"http://127.0.0.1:{started['http_port']}{path}"
            with urllib.request.urlopen(page, timeout=ANSWER_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        self.process.kill()
        self.process.wait(ANSWER_SECONDS)
