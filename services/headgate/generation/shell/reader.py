"""ChangeReader: reads a change log in the order in which each key was written, over all its generations.

For programs and checks; the replication of tables reads through Spark. It reads only streams whose parents are read to
their ENDs (core/reading.py), and says on the topic generation how far it is, so that nothing it needs is retired.
Where it stands is the caller's to keep: ``positions`` and ``done``, in one transaction with what was done.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headgate.eventlog.kafka import KafkaLog
from headgate.generation.core.reading import Gap, Reading, StreamReading, Verdict
from headgate.generation.core.state import current_of
from headgate.generation.core.stream_id import StreamId
from headgate.generation.shell.tail import GenerationTail
from headgate.generation.shell.wire import given_headers, marker_in, writer_in
from headgate.records.base import Fact
from headgate.records.generation import ReaderKey, ReaderReported

__all__ = ["ChangeReader", "ReadChange"]

MESSAGES_MAX: Final = 1_000
"""Messages of one look."""


class ReadChange(msgspec.Struct, frozen=True):
    """One change as it stands on the log."""

    key: bytes | None
    value: bytes | None
    writer: str
    position: int
    partition: int
    offset: int
    generation: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


class ChangeReader:
    """One reader's process."""

    def __init__(
        self,
        log: KafkaLog,
        name: str,
        reader: str,
        *,
        strict: bool = False,
        positions: Mapping[StreamId, int] | None = None,
        done: Iterable[StreamId] = (),
    ) -> None:
        """Go on from a checkpoint, or from the oldest generation. Raises LogError."""
        self._log, self._name, self._id = log, name, reader
        self._reading = Reading(name, strict=strict, done=done)
        self._resume_at = dict(positions or {})
        self._tail = GenerationTail(log, name, f"reader-{reader}")
        self._tail.read_to_end()
        self._said = -1
        self._assigned: dict[int, StreamReading] = {}
        self.gaps: list[Gap] = []
        self._consumer: Any = log.connection.client(
            Consumer,
            client_id=f"headgate-{reader}",
            group_id="headgate-reader",
            isolation_level="read_committed",
            enable_partition_eof=True,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="earliest",
            fetch_wait_max_ms=20,
        )

    @property
    def positions(self) -> dict[StreamId, int]:
        """Next offset of every stream that is being read."""
        return {stream: each.next_offset for stream, each in self._reading.streams.items() if not each.is_read}

    @property
    def done(self) -> frozenset[StreamId]:
        """Streams that are read to their ends."""
        return frozenset(stream for stream, each in self._reading.streams.items() if each.is_read)

    @property
    def refused(self) -> int:
        """Records that stood behind their writer's END."""
        return self._reading.refused

    def poll(self, timeout_seconds: float) -> list[ReadChange]:
        """The next changes, waiting at most so long for the first. Raises LogError, NotOursError."""
        self._follow()
        if not self._assigned:
            time.sleep(min(timeout_seconds, 0.02))
            return []
        changes: list[ReadChange] = []
        first = self._consumer.poll(timeout_seconds)
        messages = [] if first is None else [first, *self._consumer.consume(MESSAGES_MAX, 0)]
        for message in messages:
            changes += self._take(message)
        return changes

    def close(self) -> None:
        """Stop reading; what is retired from now on waits for this reader all the same, until ``forget``."""
        self._consumer.close()
        self._tail.close()

    def forget(self) -> None:
        """Nothing has to wait for this reader any more. Raises LogError."""
        self._tail.say(Fact(ReaderKey(self._name, self._id), None))

    def _follow(self) -> None:
        while self._tail.follow(0.0):
            pass
        record = self._tail.state.sets.get(self._name)
        if record is None or current_of(record) is None:
            return
        self.gaps += self._reading.learn(self._tail.state)
        known = {stream: at for stream, at in self._resume_at.items() if stream in self._reading.streams}
        self._reading.resume_at(known)
        self._resume_at = {stream: at for stream, at in self._resume_at.items() if stream not in known}
        if self._reading.read_epoch() > self._said:
            self._said = self._reading.read_epoch()
            report = ReaderReported(self._said, time.time_ns() // 1_000_000)
            self._tail.say(Fact(ReaderKey(self._name, self._id), report))
        self._assign(record.topic)

    def _assign(self, topic: str) -> None:
        wanted = {each.stream.partition: each for each in self._reading.readable()}
        gone = [number for number, each in self._assigned.items() if wanted.get(number) is not each]
        if gone:
            self._consumer.incremental_unassign([TopicPartition(topic, number) for number in gone])
        new = [number for number, each in wanted.items() if self._assigned.get(number) is not each]
        if new:
            self._consumer.incremental_assign(
                [TopicPartition(topic, number, wanted[number].next_offset) for number in new]
            )
        self._assigned = wanted

    def _take(self, message: Any) -> list[ReadChange]:
        reading = self._assigned.get(message.partition())
        error = message.error()
        if reading is None or reading.is_read:
            return []
        stream, offset = reading.stream, message.offset()
        if error is not None:
            if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                return []  # librdkafka looks for the coordinator of its group, of which nothing of ours asks anything
            if error.code() != KafkaError._PARTITION_EOF:
                raise self._log.connection.failed(f"reading {message.topic()}", KafkaException(error))
            self._note(self._reading.passed(stream.id, offset, 0))
            return []
        if reading.end is not None and offset >= reading.end:
            self._note(self._reading.passed(stream.id, reading.end, 0))
            return []
        if offset > reading.next_offset and reading.next_offset < self._start_of(message):
            self._note(self._reading.passed(stream.id, offset, offset))
        marker = marker_in(message.headers())
        writer, position = writer_in(message.headers())
        if self._reading.take(stream.id, offset, writer, marker) is not Verdict.DELIVER:
            return []
        return [
            ReadChange(
                message.key(),
                message.value(),
                writer,
                position,
                message.partition(),
                offset,
                stream.generation,
                given_headers(message.headers()),
            )
        ]

    def _start_of(self, message: Any) -> int:
        """Where the partition begins: asked only where offsets jump, which they do at every transaction's end."""
        low, _ = self._consumer.get_watermark_offsets(TopicPartition(message.topic(), message.partition()), cached=True)
        return int(low)

    def _note(self, gap: Gap | None) -> None:
        if gap is not None:
            self.gaps.append(gap)
