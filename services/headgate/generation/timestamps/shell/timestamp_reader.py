"""TimestampReader: lists the streams to read, one generation after the other.

    with TimestampReader.open("orders", "billing", bootstrap="127.0.0.1:9092") as reader:
        for generation in reader.generations():
            is_over = reader.is_over(generation)
            read_all(generation.streams, generation.timestamp_ms, generation.end_ms)
            if is_over:
                reader.left(generation.timestamp_ms)

A generation is listed with all its streams. A reader is registered when it is opened, until ``forget``. What a
registered reader has not left is kept.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from headgate.eventlog.clock import wall_ms
from headgate.eventlog.connection import KafkaProperty
from headgate.eventlog.log import Log
from headgate.generation.shell.own_log import WithOwnLog
from headgate.generation.shell.tail import GenerationTail
from headgate.generation.timestamps.core.timeline import GenerationError
from headgate.generation.timestamps.core.timestamp_views import PublishedGeneration, published_of
from headgate.records.base import Fact
from headgate.records.timestamps import TimestampLeft, TimestampReaderKey

NONE_LEFT: Final = -1


class TimestampReader(WithOwnLog):
    """One process of a reader. Use it from one thread. ``close`` it, or use it as a context manager."""

    def __init__(self, log: Log, name: str, reader: str, *, now_ms: Callable[[], int] = wall_ms) -> None:
        """Register the reader if it is not registered. ``now_ms``: the wall clock, in ms since 1970.

        Raises LogError, GenerationError where a row is missing.
        """
        self._name, self._reader, self._now_ms = name, reader, now_ms
        self._tail = GenerationTail(log, name, f"timestamp-reader-{reader}")
        self._tail.read_to_end()
        self._published = published_of(self._tail.state.timestamps, name)
        known = self._tail.state.timestamps.readers.get(name, {}).get(reader)
        self._left_ms = NONE_LEFT if known is None else known.left_ms
        if known is None:
            self._say(NONE_LEFT)

    @classmethod
    def open(
        cls,
        name: str,
        reader: str,
        *,
        bootstrap: str,
        cluster: str = "headgate",
        kafka: dict[str, KafkaProperty] | None = None,
    ) -> Self:
        """Open a reader of timestamp set ``name`` on a Kafka cluster. Raises LogError, GenerationError."""
        return cls._opened(lambda log: cls(log, name, reader), bootstrap, cluster, kafka)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def left_ms(self) -> int:
        """The last generation that it has left, -1 for none."""
        return self._left_ms

    def generations(self, timeout_seconds: float = 0.0) -> tuple[PublishedGeneration, ...]:
        """Those that it has not left, ascending, after what has come since was read.

        Waits at most so long for news. Raises LogError, GenerationError where a row is missing.
        """
        has_news = False
        while self._tail.follow(timeout_seconds):
            has_news, timeout_seconds = True, 0.0
        if has_news:
            self._published = published_of(self._tail.state.timestamps, self._name)
        return tuple(each for each in self._published if each.timestamp_ms > self._left_ms)

    def is_over(self, generation: PublishedGeneration) -> bool:
        """Whether all changes of a generation have been written by now.

        Ask before you read its streams: a change can still arrive between a reading and a later question.
        """
        return generation.over_ms is not None and self._now_ms() >= generation.over_ms

    def left(self, timestamp_ms: int) -> None:
        """Report that all changes of this generation and of those before it are read. They may then be removed.

        Raises LogError; GenerationError for a generation that is not published, or whose changes may still come.
        """
        if timestamp_ms <= self._left_ms:
            return
        found = next((each for each in self._published if each.timestamp_ms == timestamp_ms), None)
        if found is None:
            raise GenerationError(f"{self._name} has no published generation {timestamp_ms}")
        if found.end_ms is None:
            raise GenerationError(f"generation {timestamp_ms} of {self._name} has no successor: it still operates")
        if not self.is_over(found):
            wait_seconds = ((found.over_ms or found.end_ms) - self._now_ms()) / 1000
            raise GenerationError(
                f"generation {timestamp_ms} of {self._name} cannot be left yet: changes of it can be written for "
                f"another {wait_seconds:.1f} s. Read its streams again after over_ms ({found.over_ms}), then leave it"
            )
        self._say(timestamp_ms)
        self._left_ms = timestamp_ms

    def forget(self) -> None:
        """Nothing has to wait for this reader any more. Raises LogError."""
        self._tail.say(Fact(TimestampReaderKey(self._name, self._reader), None))

    def close(self) -> None:
        """Stop reading. What the reader has not left is kept until ``forget``. Idempotent."""
        self._tail.close()
        self._close_own_log()

    def _say(self, left_ms: int) -> None:
        report = TimestampLeft(left_ms, self._now_ms())
        self._tail.say(Fact(TimestampReaderKey(self._name, self._reader), report))
