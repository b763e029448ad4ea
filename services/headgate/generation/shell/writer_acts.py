"""A writer's acts (core/life.py) on Kafka: its transactional.id, its transactions, its reports."""

import time

from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import LogError
from headgate.generation.core.life import Act, Report, Simple, Write
from headgate.generation.core.outbox import Batch, Change, Written
from headgate.generation.shell.producer import Outgoing, WriterProducer, read_written
from headgate.generation.shell.shared_tail import WriterTail
from headgate.generation.shell.wire import (
    change_headers,
    encode_written,
    positions_partition,
    positions_topic,
)
from headgate.records.base import Fact
from headgate.records.generation import WriterKey

__all__ = ["WriterActs"]


class WriterActs:
    """Of one writer, for one life after the other; used by one thread."""

    def __init__(self, log: KafkaLog, name: str, writer: str, tail: WriterTail) -> None:
        self._log, self._name, self._writer, self._tail = log, name, writer, tail
        self._producer: WriterProducer | None = None

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
                return read_written(self._log.connection, self._topic(), self._writer)
            case Write(batch=batch):
                self._commit(self._outgoing(batch))
            case Report():
                self.say(act, life)
        return None

    def say(self, report: Report, life: int, *, leaving: bool = False) -> None:
        """Write a life's report. Raises LogError."""
        record = report.record(time.time_ns() // 1_000_000, leaving=leaving)
        self._tail.say(Fact(WriterKey(self._name, self._writer, life), record))

    def let_go(self) -> None:
        """The life is over: its producer is. Idempotent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _take_id(self) -> None:
        self.let_go()
        self._producer = WriterProducer(self._log.connection, self._log.cluster, self._name, self._writer)
        self._producer.init()

    def _outgoing(self, batch: Batch) -> list[Outgoing]:
        topic = self._topic()
        records = [
            Outgoing(topic, partition, change.key, change.value, self._headers(change))
            for change, partition in batch.changes
        ]
        where = positions_partition(self._writer)
        position = Outgoing(positions_topic(topic), where, self._writer.encode(), encode_written(batch.after))
        return [*records, position]

    def _headers(self, change: Change) -> list[tuple[str, bytes | None]]:
        return [*change.headers, *change_headers(self._writer, change.position)]

    def _commit(self, records: list[Outgoing]) -> None:
        if self._producer is None:
            raise LogError(f"writer {self._writer} has not started")
        self._producer.commit(records)

    def _topic(self) -> str:
        return self._tail.state.sets[self._name].topic
