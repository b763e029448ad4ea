"""A writer's transactional.id, for whoever holds it: the writer itself, or the owner that fences it.

Transactions are short: an open one keeps every reader of its partitions from what stands behind it, and a writer that
is killed leaves one open until the broker ends it. What became of a commit that was not confirmed is never guessed:
the position on the log says it, after the id was taken anew.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.connection import PASSING_CODES, KafkaConnection, is_fenced
from headgate.eventlog.leaders import ask_offsets
from headgate.eventlog.log import FencedError, LogError
from headgate.generation.core.outbox import Written
from headgate.generation.shell.wire import decode_written, positions_partition, positions_topic

__all__ = ["Outgoing", "WriterProducer", "read_written", "transactional_id"]

TRANSACTION_TIMEOUT_MS: Final = 5_000
"""After which the broker ends a transaction of a writer that died in it, at its next look (every 10 s by default)."""

COMMIT_SECONDS_MAX: Final = 4.0
"""One batch's transaction takes some 10 ms; it has to be over before the broker ends it."""

INIT_SECONDS_MAX: Final = 10.0
"""Taking an id takes 0.05 to 1 s."""

READ_SECONDS_MAX: Final = 30.0
"""For the positions of one partition: beyond every transaction's time-out of a neighbour that was killed."""


class Outgoing(msgspec.Struct, frozen=True):
    """One record of a transaction."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def transactional_id(cluster: str, name: str, writer: str) -> str:
    """The id of a writer of a set: the same for all its lives, so each fences the one before."""
    return f"{cluster}.generation.{name}.{writer}"


class WriterProducer:
    """One holder of a writer's id, from ``init`` on until somebody else takes it."""

    def __init__(self, connection: KafkaConnection, cluster: str, name: str, writer: str) -> None:
        self._connection = connection
        self._id = transactional_id(cluster, name, writer)
        self._producer: Producer = connection.client(
            Producer,
            client_id=self._id,
            transactional_id=self._id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            message_timeout_ms=TRANSACTION_TIMEOUT_MS,
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
        )

    def init(self) -> None:
        """Take the id: every earlier holder can write no more, and its open transaction is ended. Raises LogError."""
        deadline = time.monotonic() + INIT_SECONDS_MAX
        while True:
            try:
                self._producer.init_transactions(max(0.1, deadline - time.monotonic()))
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() >= deadline:
                    raise self._told("taking its transactional.id", error) from error
            else:
                return

    def commit(self, records: Sequence[Outgoing]) -> None:
        """All in one transaction. After a LogError (FencedError) this holder is over: make a new one, and look."""
        deadline = time.monotonic() + COMMIT_SECONDS_MAX
        try:
            self._producer.begin_transaction()
            for record in records:
                self._produce(record, deadline)
            self._producer.commit_transaction(max(0.1, deadline - time.monotonic()))
        except KafkaException as error:
            raise self._told("writing a transaction", error) from error
        except BufferError as error:
            raise LogError(f"{self._id}: the local queue stays full") from error

    def close(self) -> None:
        """Let go; an open transaction is ended by the next holder or by the broker."""
        self._producer.purge()

    def _produce(self, record: Outgoing, deadline: float) -> None:
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    partition=record.partition,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                )
            except BufferError:
                if time.monotonic() >= deadline:
                    raise
                self._producer.poll(0.05)
            else:
                return

    def _told(self, what: str, error: KafkaException) -> LogError:
        if is_fenced(error):
            return FencedError(f"{self._id} was fenced: another process has taken it, or it paused for too long")
        return self._connection.failed(f"{self._id}: {what}", error)


def read_written(connection: KafkaConnection, topic: str, writer: str) -> Written:
    """How far a writer is, by the log. Ask after its id was taken, else it may move. Raises LogError, NotOursError.

    Its record may stand behind a transaction of a neighbour that is still open: then that is waited for.
    """
    partition = TopicPartition(positions_topic(topic), positions_partition(writer))
    # Not asked of the consumer: its end would be the one of what can be read now, before all open transactions.
    latest = ask_offsets(connection, {partition: OffsetSpec.latest()}, f"asking for the end of {partition.topic}")
    high = latest[partition].offset
    consumer: Any = connection.client(
        Consumer,
        client_id="headgate-positions",
        group_id="headgate-reader",
        isolation_level="read_committed",
        enable_partition_eof=True,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_wait_max_ms=50,
    )
    deadline = time.monotonic() + READ_SECONDS_MAX
    value: bytes | None = None
    try:
        # By a number: "from the beginning" would be asked of the broker, half a second later.
        consumer.assign([TopicPartition(partition.topic, partition.partition, 0)])
        end = 0
        while end < high:
            message = consumer.poll(0.5)
            if time.monotonic() > deadline:
                raise LogError(
                    f"{partition.topic}/{partition.partition} cannot be read to {high}, only to {end}: another "
                    "writer's transaction stays open"
                )
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() in PASSING_CODES:
                continue
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise connection.failed(f"reading {partition.topic}", KafkaException(error))
            end = message.offset() if error is not None else message.offset() + 1
            if error is None and message.key() == writer.encode():
                value = message.value()
    except KafkaException as error:
        raise connection.failed(f"reading {partition.topic}", error) from error
    finally:
        consumer.close()
    return decode_written(value)
