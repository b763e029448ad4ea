"""Reads a range of a source topic, record by record, for inspection and not for replication."""

from collections.abc import Iterator
from typing import Final

from confluent_kafka import IsolationLevel, Message
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.lasting_reader import OffsetGoneError
from headgate.eventlog.leaders import offsets_of
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.partition_reader import PartitionReader, read_to

__all__ = ["RecordGoneError", "read_stretch"]

READ_SECONDS_MAX: Final = 15.0
"""If no record comes in all that time, the broker counts as gone."""


class RecordGoneError(LogError):
    """A record is no longer on its topic."""


def read_stretch(connection: KafkaConnection, topic: str, partition: int, start: int, end: int) -> Iterator[Message]:
    """Every committed record of [start, end) in order. Raises RecordGoneError if ``start`` has expired, LogError.

    It ends earlier before a transaction that is still open.
    """
    at = Partition(topic, partition)
    stable = offsets_of(connection, [at], OffsetSpec.latest(), f"reading {topic}", IsolationLevel.READ_COMMITTED)
    with PartitionReader(connection, {at: start}, client_id="headgate-records") as reader:
        try:
            yield from read_to(reader, {at: min(end, stable[at])}, READ_SECONDS_MAX)
        except OffsetGoneError as error:
            raise RecordGoneError(str(error)) from error
