"""A stretch of a source topic, record by record: for what looks back at the log, and not for what is replicated."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headgate.eventlog.connection import PASSING_CODES, KafkaConnection
from headgate.eventlog.log import LogError

__all__ = ["RecordGoneError", "read_stretch"]

READ_SECONDS_MAX: Final = 15.0
"""Without a single record in all that time the broker is taken for gone."""

POLL_SECONDS: Final = 0.1


class RecordGoneError(LogError):
    """A record is no longer on its topic."""


def read_stretch(connection: KafkaConnection, topic: str, partition: int, start: int, end: int) -> Iterator[Message]:
    """Every committed record of [start, end) in order. Raises RecordGoneError if ``start`` has expired, LogError."""
    with _consumer(connection) as consumer:
        low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=READ_SECONDS_MAX)
        if low > start:
            raise RecordGoneError(f"{topic}[{partition}]: everything below offset {low} has expired; {start} was asked")
        if start >= end:
            return
        consumer.assign([TopicPartition(topic, partition, start)])
        while (message := _next(connection, consumer, f"{topic}[{partition}] from {start} on")) is not None:
            if message.offset() >= end:
                return
            yield message


@contextmanager
def _consumer(connection: KafkaConnection) -> Iterator[Consumer]:
    consumer = connection.client(
        Consumer,
        client_id="headgate-records",
        group_id="headgate-records",  # librdkafka wants one; nothing is ever committed to it
        isolation_level="read_committed",
        enable_partition_eof=True,
        enable_auto_commit=False,
        auto_offset_reset="error",
    )
    try:
        yield consumer
    except KafkaException as error:
        raise connection.failed("reading source records", error) from error
    finally:
        consumer.close()


def _next(connection: KafkaConnection, consumer: Consumer, what: str) -> Message | None:
    """The next record; None at the end of the partition. Raises LogError."""
    deadline = time.monotonic() + READ_SECONDS_MAX
    while time.monotonic() < deadline:
        message = consumer.poll(POLL_SECONDS)
        error = None if message is None else message.error()
        if message is None or (error is not None and error.code() in PASSING_CODES):
            continue
        if error is None:
            return message
        if error.code() == KafkaError._PARTITION_EOF:
            return None
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise RecordGoneError(f"{what}: no such offset any more: {error.str()}")
        raise connection.failed(f"reading {what}", KafkaException(error))
    raise connection.unreachable(f"reading {what}")
