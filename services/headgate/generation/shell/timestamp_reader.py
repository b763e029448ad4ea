"""TimestampReader: which streams there are to be read, generation by generation, for programs that read in that order.

    reader = TimestampReader(log, "orders", "billing")
    for generation in reader.generations():
        read_all(generation.streams, generation.timestamp_ms, generation.end_ms)
        reader.left(generation.timestamp_ms)

A generation that is seen is seen with all its streams. What a registered reader has not left is not removed: it is
registered when it is opened, until ``forget``.
"""

import time
from typing import Final

from headgate.eventlog.log import Log
from headgate.generation.core.timeline import GenerationError
from headgate.generation.core.timestamp_views import PublishedGeneration, published_of
from headgate.generation.shell.tail import GenerationTail
from headgate.records.base import Fact
from headgate.records.timestamps import TimestampLeft, TimestampReaderKey

__all__ = ["TimestampReader"]

NONE_LEFT: Final = -1


class TimestampReader:
    """One reader's process. Use it from one thread."""

    def __init__(self, log: Log, name: str, reader: str) -> None:
        """Registers the reader, unless it is. Raises LogError, GenerationError where a row is missing."""
        self._name, self._reader = name, reader
        self._tail = GenerationTail(log, name, f"timestamp-reader-{reader}")
        self._tail.read_to_end()
        self._published = published_of(self._tail.state.timestamps, name)
        known = self._tail.state.timestamps.readers.get(name, {}).get(reader)
        self._left_ms = NONE_LEFT if known is None else known.left_ms
        if known is None:
            self._say(NONE_LEFT)

    @property
    def left_ms(self) -> int:
        """The last generation that it has left, -1 for none."""
        return self._left_ms

    def generations(self, timeout_seconds: float = 0.0) -> tuple[PublishedGeneration, ...]:
        """Those that it has not left, ascending, after what has come meanwhile was read.

        Waits at most so long for news. Raises LogError, GenerationError where a row is missing.
        """
        has_news = False
        while self._tail.follow(timeout_seconds):
            has_news, timeout_seconds = True, 0.0
        if has_news:
            self._published = published_of(self._tail.state.timestamps, self._name)
        return tuple(each for each in self._published if each.timestamp_ms > self._left_ms)

    def left(self, timestamp_ms: int) -> None:
        """All changes up to this generation, itself included, are read: it and those before may be removed.

        Raises LogError; GenerationError for one that is not published, or has no end yet.
        """
        if timestamp_ms <= self._left_ms:
            return
        found = next((each for each in self._published if each.timestamp_ms == timestamp_ms), None)
        if found is None:
            raise GenerationError(f"{self._name} has no published generation {timestamp_ms}")
        if found.end_ms is None:
            raise GenerationError(f"generation {timestamp_ms} of {self._name} has no successor: it still operates")
        self._say(timestamp_ms)
        self._left_ms = timestamp_ms

    def forget(self) -> None:
        """Nothing has to wait for this reader any more. Raises LogError."""
        self._tail.say(Fact(TimestampReaderKey(self._name, self._reader), None))

    def close(self) -> None:
        """Stop reading; what it has not left is kept all the same, until ``forget``. Idempotent."""
        self._tail.close()

    def _say(self, left_ms: int) -> None:
        report = TimestampLeft(left_ms, time.time_ns() // 1_000_000)
        self._tail.say(Fact(TimestampReaderKey(self._name, self._reader), report))
