"""The log readers that a Python worker keeps between tasks: one per lane, since each fetches ahead of the next task.

A reader asks the brokers for all its partitions ten times a second, rows or none; a thousand partitions at rest would
cost a broker a quarter of a core. So one that no task has asked for in a while is let go, by a thread of its own: the
lane rests or has ended, and nobody else would tell the worker. A new one costs ten milliseconds.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from headgate.sources.reader import LogReader

__all__ = ["READERS_MAX", "READER_IDLE_SECONDS", "KeptReader", "Readers"]

READERS_MAX: Final = 4
"""As many lanes as a worker serves at a time; the reader of the lane served longest ago is closed for a fifth one."""

READER_IDLE_SECONDS: Final = 10.0
"""A table with a change every few seconds keeps its reader."""

LOOK_SECONDS: Final = 1.0
"""How often idle readers are looked for."""


class KeptReader:
    """A lane's reader, and which share of the lane's batch it was used for last, if any."""

    def __init__(self, reader: LogReader) -> None:
        self.reader = reader
        self.share: int | None = None
        self.used_at = 0.0


class Readers:
    """All of one worker. A worker runs one task at a time; only the look for idle readers comes between."""

    def __init__(
        self,
        open_reader: Callable[[Mapping[str, str]], LogReader] = LogReader,
        now: Callable[[], float] = time.monotonic,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._open = open_reader
        self._now = now
        self._look_seconds = look_seconds
        self._lock = threading.Lock()
        self._kept: dict[str, KeptReader] = {}
        self._is_watched = False

    @contextmanager
    def lent(self, lane: str, properties: Mapping[str, str]) -> Iterator[KeptReader]:
        """The reader of ``lane``, for one task. If the task fails it is closed: where it stands nobody knows."""
        with self._lock:
            kept = self._kept.pop(lane, None) or KeptReader(self._open(properties))
            for other in list(self._kept)[: max(0, len(self._kept) + 1 - READERS_MAX)]:
                self._kept.pop(other).reader.close()
            try:
                yield kept
            except BaseException:
                kept.reader.close()
                raise
            kept.used_at = self._now()
            self._kept[lane] = kept
            if not self._is_watched:
                self._is_watched = True
                threading.Thread(target=self._watch, name="headgate-idle-readers", daemon=True).start()

    def close_idle(self) -> bool:
        """Let those go that no task has asked for; whether any is left."""
        with self._lock:
            now = self._now()
            for lane in [lane for lane, kept in self._kept.items() if now - kept.used_at > READER_IDLE_SECONDS]:
                self._kept.pop(lane).reader.close()
            self._is_watched = bool(self._kept)
            return self._is_watched

    def _watch(self) -> None:
        while True:
            time.sleep(self._look_seconds)
            if not self.close_idle():
                return
