"""Reads partitions of the log inside a task: from exactly the offsets it is told, in offset order per partition.

A reader lives as long as its worker process and keeps fetching while its task decodes and writes, so the next task
finds rows waiting. Where it stands is never the truth: each ``read`` says where every partition begins; what a reader
has fetched below that is dropped, and if it stands elsewhere it starts there anew. It has no group, commits nothing,
and sees committed records only. An offset that the log no longer has is an error of its partition, never a skip.
"""

import itertools
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import methodcaller
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headgate.eventlog.connection import PASSING_CODES
from headgate.sources.fetching import fetching, pace_ms
from headgate.sources.offsets import OffsetExpiredError, SourceError, SourceUnreachableError

__all__ = ["Chunk", "LogReader", "Reading"]

POLL_ROWS: Final = 10_000
"""Rows asked for at once: their objects exist beside those already decoded."""

GATHER_SECONDS: Final = 0.01
"""Once rows have come, how long the next ones are waited for; a batch costs more than that."""

STALL_SECONDS: Final = 0.5
"""The same while the log is known to hold much more: a fetch under load takes so long. Then what is there is taken."""

ROW_SECONDS: Final = 10e-6
"""What a row takes to be applied. Rows that are known to be there are waited for no longer than they will take then:
all in the batch wait with them, and the next batch brings them too."""

LEADERS_ASKED_MAX: Final = 64
"""Topics whose leaders a reader asks for, a request each. More come at a start, when nobody waits for them yet."""

SKIP_ROWS_MAX: Final = 20_000
"""A gap between where the reader stands and where it shall begin that is read over; a larger one is jumped."""

_EOF: Final = KafkaError._PARTITION_EOF
_LOST: Final = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
_PASSING: Final = PASSING_CODES | {KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION}
"""librdkafka tells of these and goes on trying."""

_place = methodcaller("partition")


class Reading(msgspec.Struct, frozen=True):
    """One partition: the first offset wanted, and up to where the log is known to hold something."""

    topic: str
    partition: int
    start: int
    until: int


class Chunk(msgspec.Struct, frozen=True):
    """Rows of one partition in offset order, column by column; or, with ``error``, why it cannot be read."""

    topic: str
    partition: int
    offsets: Sequence[int] = ()
    appended_ms: Sequence[int] = ()
    keys: Sequence[bytes | None] = ()
    values: Sequence[bytes | None] = ()
    error: SourceError | None = None


def _worth(rows: int) -> float:
    """How long so many rows are worth waiting for, in seconds."""
    return min(STALL_SECONDS, rows * ROW_SECONDS)


class LogReader:
    """A consumer that is told for every read where to begin. ``ends``: where the log ended when its end was met."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = dict(properties)
        self._consumer: Any = None
        self._pace_ms = 0
        self._asked: set[str] = set()
        self._next: dict[tuple[str, int], int] = {}
        self.ends: dict[tuple[str, int], int] = {}

    def read(self, readings: Sequence[Reading], rows_max: int, wait_seconds: float) -> Iterator[Chunk]:
        """What is there, at most ``rows_max`` rows; nothing if nothing comes within ``wait_seconds``.

        Raises SourceUnreachableError when the client itself is beyond repair.
        """
        starts = {(one.topic, one.partition): one.start for one in readings}
        until = {(one.topic, one.partition): one.until for one in readings}
        self._stand(starts, backlog=sum(max(0, one.until - one.start) for one in readings))
        one_topic = len({topic for topic, _ in self._next}) == 1
        missing = self._missing(until)
        rows, patience = 0, time.monotonic() + max(wait_seconds, _worth(missing))
        while rows < rows_max:
            asked = min(POLL_ROWS, rows_max - rows)
            messages = self._consume(asked, GATHER_SECONDS if rows else wait_seconds)
            # Taken note of as a whole first: rows of a read that is broken off must not count as skipped.
            for chunk in list(self._chunks(messages, starts, one_topic=one_topic)):
                rows += len(chunk.offsets)
                yield chunk
            if len(messages) == asked:
                continue
            now = time.monotonic()
            before, missing = missing, self._missing(until)
            if missing:
                if missing < before:
                    patience = now + _worth(missing)
                if now < patience:
                    continue
            if rows or now >= patience or all(place in self.ends for place in starts):
                return

    def ahead(self, readings: Sequence[Reading]) -> dict[tuple[str, int], int]:
        """Up to where the log goes beyond what has been read, by the last fetches; asks nobody."""
        found = {}
        for place in ((one.topic, one.partition) for one in readings):
            if place in self._next:
                _, end = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
                if end > self._next[place]:  # below 0 while nothing is known
                    found[place] = end
        return found

    def close(self) -> None:
        """Let go. Idempotent."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._asked.clear()
        self._next.clear()
        self.ends.clear()

    def _missing(self, until: Mapping[tuple[str, int], int]) -> int:
        """How many rows partitions are said to hold more, of those whose end has not come."""
        return sum(max(0, end - self._next.get(place, end)) for place, end in until.items() if place not in self.ends)

    def _stand(self, starts: Mapping[tuple[str, int], int], backlog: int) -> None:
        """Where every partition begins; those of other tasks are kept while there is little to read."""
        far = {place: start for place, start in starts.items() if not self._is_near(place, start)}
        if backlog > SKIP_ROWS_MAX and len(starts) != len(self._next):
            # Much to read: what it has fetched of others' partitions is in the way.
            self._begin_at(starts)
        elif self._consumer is None or len(far) == len(self._next) or self._is_outgrown(self._next.keys() | far):
            self._begin_at({**self._next, **far})
        elif far:
            self._turn_to(far)

    def _is_outgrown(self, places: Collection[tuple[str, int]]) -> bool:
        """Whether so many partitions want a slower pace than the client has; it cannot change its own."""
        return self._consumer is not None and pace_ms(len(places)) > 2 * self._pace_ms

    def _is_near(self, place: tuple[str, int], start: int) -> bool:
        at = self._next.get(place)
        return at is not None and 0 <= start - at <= SKIP_ROWS_MAX

    def _begin_at(self, starts: Mapping[tuple[str, int], int]) -> None:
        if self._is_outgrown(starts):
            self.close()
        self._next = dict(starts)
        self.ends.clear()
        if self._consumer is None:
            self._pace_ms = pace_ms(len(starts))
            self._consumer = Consumer({**fetching(len(starts)), **self._properties})
            self._asked = {topic for topic, _ in starts}  # it looks for leaders as soon as it is connected
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in sorted(self._next.items())])
        self._ask_for_leaders(self._next)

    def _turn_to(self, far: Mapping[tuple[str, int], int]) -> None:
        """Some begin elsewhere, or are new; what has been fetched of all others stays."""
        known = [TopicPartition(*place) for place in sorted(far) if place in self._next]
        if known:
            self._consumer.incremental_unassign(known)
        self._consumer.incremental_assign([TopicPartition(*place, offset) for place, offset in sorted(far.items())])
        self._next.update(far)
        for place in far:
            self.ends.pop(place, None)
        self._ask_for_leaders(far)

    def _ask_for_leaders(self, places: Collection[tuple[str, int]]) -> None:
        """Of topics that are new to the client, which looks for leaders by itself but once a second; does not wait."""
        topics = {topic for topic, _ in places} - self._asked
        if len(topics) <= LEADERS_ASKED_MAX:
            for topic in sorted(topics):
                with suppress(KafkaException):  # no time for the answer, which the client takes note of all the same
                    self._consumer.list_topics(topic, timeout=0)
        self._asked |= topics

    def _consume(self, count: int, timeout: float) -> list[Message]:
        try:
            # The client waits until it has all that is asked for; for the first one only is it worth waiting long.
            messages: list[Message] = self._consumer.consume(1, timeout)
            if messages and count > 1:
                messages += self._consumer.consume(count - 1, GATHER_SECONDS)
        except KafkaException as error:
            self.close()
            raise SourceUnreachableError(f"the source cannot be read: {error.args[0].str()}") from error
        return messages

    def _chunks(
        self, messages: list[Message], starts: Mapping[tuple[str, int], int], *, one_topic: bool
    ) -> Iterator[Chunk]:
        if any(message.error() is not None for message in messages):
            yield from self._events([message for message in messages if message.error() is not None], starts)
            messages = [message for message in messages if message.error() is None]
        by_place = _place if one_topic else (lambda message: (message.topic(), message.partition()))
        for _, group in itertools.groupby(messages, by_place):
            run = list(group)
            place = (run[0].topic(), run[0].partition())
            end = run[-1].offset() + 1
            self._next[place] = end
            if self.ends.get(place, end) < end:  # (the end may have been met behind these very rows)
                del self.ends[place]
            start = starts.get(place)
            if start is None or end <= start:
                continue
            if run[0].offset() < start:
                run = [message for message in run if message.offset() >= start]
            yield Chunk(
                *place,
                offsets=[message.offset() for message in run],
                appended_ms=[message.timestamp()[1] for message in run],
                keys=[message.key() for message in run],
                values=[message.value() for message in run],
            )

    def _events(self, messages: Sequence[Message], starts: Mapping[tuple[str, int], int]) -> Iterator[Chunk]:
        for message in messages:
            error = message.error()
            topic, partition = message.topic(), message.partition()
            if error.code() == _EOF:
                self.ends[topic, partition] = message.offset()
            elif error.fatal() or topic is None:
                if error.code() not in _PASSING:
                    self.close()
                    raise SourceUnreachableError(f"the source cannot be read: {error.str()}")
            elif error.code() not in _PASSING:
                # It would not be told again: the next read of this partition must begin anew.
                if self._next.pop((topic, partition), None) is not None:
                    self._consumer.incremental_unassign([TopicPartition(topic, partition)])
                if (topic, partition) not in starts:
                    continue  # of an earlier read's partition: whoever asks for it again is told again
                kind = OffsetExpiredError if error.code() in _LOST else SourceUnreachableError
                yield Chunk(topic, partition, error=kind(f"{topic}[{partition}]: {error.str()}"))
