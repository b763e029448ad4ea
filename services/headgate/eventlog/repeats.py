"""A log filter that drops and counts repeated lines.

While no broker answers, each client tries several times a second, and logs each attempt: half a minute of that was a
thousand lines, in which the few that matter could not be found.
"""

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Final

REPEAT_SECONDS: Final = 30.0
"""A line like another comes again after so long, with how many were left out."""

KINDS_MAX: Final = 200
"""Kinds of lines that are remembered; with more, all are forgotten."""

_PARTICULARS: Final = re.compile(r"\[[^\]]*\]|\b[0-9a-f]{12}\b|(?<=heartbeat )\d+|\d+ of \d+|\d+(?=ms)|[\d.]+(?= s\b)")
"""Clients and threads in brackets, sessions, counts and times: but for these, lines of one kind are the same."""


class Repeats(logging.Filter):
    """For a logger. Lines above ``level_max`` are all written. Any thread may use it."""

    def __init__(self, level_max: int = logging.CRITICAL, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._level_max = level_max
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        if record.levelno > self._level_max:
            return True
        text = record.getMessage()
        kind, now = _PARTICULARS.sub("#", text), self._clock()
        with self._lock:
            since, left_out = self._seen.get(kind, (None, 0))
            if since is not None and now - since < REPEAT_SECONDS:
                self._seen[kind] = (since, left_out + 1)
                return False
            if len(self._seen) >= KINDS_MAX:
                self._seen.clear()
            self._seen[kind] = (now, 0)
        if left_out:
            record.msg, record.args = f"{text} (and {left_out} lines like it before)", ()
        return True
