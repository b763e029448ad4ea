"""A writer's acts (changelog/core/life.py) on Kafka: its transactional.id, its transactions, its reports.

The topic's ``max.message.bytes`` is read whenever the id is taken, so that a change that is too large is refused before
it is on its way.
"""

import time
from typing import ClassVar

from headgate.eventlog.clock import wall_ms
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import LogError
from headgate.generation.changelog.core.life import Act, FollowReport, Simple, Write
from headgate.generation.changelog.core.outbox import Batch, PendingChange, Written
from headgate.generation.changelog.core.pacing import BatchPace
from headgate.generation.changelog.shell.producer import (
    CommitTimedOutError,
    Outgoing,
    RecordTooLargeError,
    WriterProducer,
    ended_lost_changes,
    read_written,
)
from headgate.generation.changelog.shell.shared_tail import WriterTail
from headgate.generation.changelog.shell.wire import (
    MESSAGE_BYTES_MAX,
    change_headers,
    encode_written,
    positions_partition,
    positions_topic,
)
from headgate.records.base import Fact
from headgate.records.generation import WriterKey
from headgate.sources.topic_settings import topic_settings


class ChangeRefusedError(LogError):
    """Kafka does not take a change, however often it is tried. ``position``: which one."""

    code: ClassVar[str] = "change-refused"

    def __init__(self, text: str, position: int) -> None:
        super().__init__(text)
        self.position = position


class WriterActs:
    """The acts of one writer, for one incarnation after the other. Not thread-safe."""

    def __init__(self, log: KafkaLog, name: str, writer: str, tail: WriterTail, pace: BatchPace) -> None:
        """``pace`` determines how long a transaction may take, and learns from each."""
        self._log, self._name, self._writer, self._tail = log, name, writer, tail
        self._pace = pace
        self._producer: WriterProducer | None = None
        self.limit_bytes = MESSAGE_BYTES_MAX
        """The largest batch that the topic takes, as far as this writer may know (the right DescribeConfigs)."""

    @property
    def has_id(self) -> bool:
        """Whether a life has taken the writer's id."""
        return self._producer is not None

    def carry_out(self, act: Act, life: int) -> Written | None:
        """Do one act of a life; its answer. Raises LogError, NotOursError."""
        match act:
            case Simple.TAKE_ID:
                self._take_id()
            case Simple.READ_RECORDS:
                self._tail.read_to_end()
            case Simple.READ_WRITTEN:
                return read_written(*self._place())
            case Write(batch=batch):
                self._commit(batch)
            case FollowReport():
                self.say(act, life)
        return None

    def say(self, report: FollowReport, life: int, *, leaving: bool = False) -> None:
        """Write a life's report. Raises LogError."""
        record = report.record(wall_ms(), leaving=leaving)
        self._tail.say(Fact(WriterKey(self._name, self._writer, life), record))

    def let_go(self) -> None:
        """The life is over: its producer is. Idempotent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _take_id(self) -> None:
        self._make_producer()
        if ended_lost_changes(*self._place()):
            self._make_producer()

    def _make_producer(self) -> None:
        self.let_go()
        self.limit_bytes = self._topic_limit()
        self._producer = WriterProducer(
            self._log.connection,
            self._log.cluster,
            self._name,
            self._writer,
            seconds=self._pace.seconds,
            limit_bytes=self.limit_bytes,
        )
        self._producer.init()

    def _place(self) -> tuple[KafkaConnection, str, str, str, str]:
        """Connection, cluster, change log, its topic, writer."""
        return self._log.connection, self._log.cluster, self._name, self._topic(), self._writer

    def _topic_limit(self) -> int:
        """Without the right to read it, brokers refuse what is too large, which ends the writer with an error."""
        topic = self._topic()
        known, _ = topic_settings(self._log.connection, [topic])
        limit = known.get(topic, {}).get("max.message.bytes")
        return min(int(limit or MESSAGE_BYTES_MAX), MESSAGE_BYTES_MAX)

    def _outgoing(self, batch: Batch) -> list[Outgoing]:
        topic = self._topic()
        records = [
            Outgoing(topic, partition, change.key, change.value, self._headers(change))
            for change, partition in batch.changes
        ]
        where = positions_partition(self._writer)
        position = Outgoing(positions_topic(topic), where, self._writer.encode(), encode_written(batch.after))
        return [*records, position]

    def _headers(self, change: PendingChange) -> list[tuple[str, bytes | None]]:
        return [*change.headers, *change_headers(self._writer, change.position)]

    def _commit(self, batch: Batch) -> None:
        if self._producer is None:
            raise LogError(f"writer {self._writer} has not started")
        began = time.monotonic()
        try:
            self._producer.commit(self._outgoing(batch))
        except CommitTimedOutError:
            self._pace.timed_out(batch)
            raise
        except RecordTooLargeError as error:
            self._pace.refused(batch)
            if len(batch.changes) > 1:
                raise
            change, _ = batch.changes[0]
            raise ChangeRefusedError(
                f"writer {self._writer} of {self._name}: Kafka refused the change at position {change.position}, of "
                f"{change.size_bytes} bytes with its key and headers, because of its size. All changes before it are "
                "written. Raise max.message.bytes of the change log's topic, or make the change smaller",
                change.position,
            ) from error
        self._pace.committed(batch, time.monotonic() - began)

    def _topic(self) -> str:
        return self._tail.state.sets[self._name].topic
