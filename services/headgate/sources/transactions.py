"""Debezium's topic of transaction ends: checks that it can be used, and reads it beside the tables.

A table's last applied change shows how far the table is in the order of commits. After a restart that change is read
again: it is right before the sink's position. ENDs are then read from a little earlier on, by the records' own times,
which one producer writes in the order in which it sends.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.leaders import ask_offsets
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.partition_reader import PartitionReader
from headgate.formats.change import ChangeError
from headgate.formats.transactions import End, TransactionProgress, decode_end, standing_of
from headgate.sources.offsets import RECORD_TIME_MARGIN_MS, SourceError, SourceUnreachableError, end_offsets
from headgate.sources.records import RecordGoneError, read_stretch

__all__ = [
    "EndReader",
    "TransactionsUnusableError",
    "check_transactions",
    "collection_of",
    "first_end",
    "look_back",
    "rests_at",
    "unusable",
]

LOOK_BACK_RECORDS: Final = 100
"""How far before a table's position a change with a transaction is searched: tombstones and rows of an incremental
snapshot have none. If none is found, the table's next change shows it."""

LAST_LOOK_RECORDS: Final = 1
READ_RECORDS: Final = 10_000
"""ENDs asked for at once."""


class TransactionsUnusableError(SourceError):
    """The ends of transactions that the feed names cannot be evidence for its tables."""

    code = "source_transactions"


def collection_of(transaction_topic: str, topic: str) -> str | None:
    """What ENDs call the table of ``topic``; None if the two topics are not of one connector."""
    prefix = transaction_topic.rpartition(".")[0] + "."
    return topic.removeprefix(prefix) if topic.startswith(prefix) else None


def check_transactions(
    connection: KafkaConnection, transaction_topic: str, present: Mapping[str, int], topics: Iterable[str]
) -> None:
    """Raise TransactionsUnusableError unless ``transaction_topic`` covers all ``topics``; SourceUnreachableError.

    ``present``: every topic of the broker → number of partitions.
    """
    partitions = present.get(transaction_topic)
    if partitions is None:
        raise TransactionsUnusableError(
            f"source.transaction_topic {transaction_topic} does not exist. Set provide.transaction.metadata=true in "
            "the connector, which creates it with the first transaction, or correct the name "
            "(<topic.prefix>.transaction)"
        )
    if partitions != 1:
        raise TransactionsUnusableError(
            f"source.transaction_topic {transaction_topic} has {partitions} partitions, so the order of commits is "
            "lost. Let the connector write to a topic with one partition"
        )
    for topic in topics:
        wrong = unusable(transaction_topic, topic, present[topic])
        if wrong is not None:
            raise TransactionsUnusableError(wrong)
    try:
        end = end_offsets(connection, {transaction_topic: 1})[transaction_topic][0]
        low = _first(connection, transaction_topic)
        for message in read_stretch(connection, transaction_topic, 0, max(low, end - LAST_LOOK_RECORDS), end):
            decode_end(message.value())
    except ChangeError as error:
        raise TransactionsUnusableError(
            f"source.transaction_topic {transaction_topic} does not hold the ends of transactions: {error}"
        ) from error
    except RecordGoneError:
        pass  # expired this moment: nothing is there to be looked at
    except LogError as error:
        raise SourceUnreachableError(str(error)) from error


def unusable(transaction_topic: str, topic: str, partitions: int) -> str | None:
    """Why ENDs cannot show how far the table of ``topic`` is; None if they can."""
    if collection_of(transaction_topic, topic) is None:
        return (
            f"topic {topic} does not belong to the connector that writes source.transaction_topic "
            f"{transaction_topic}, because its name does not begin with {transaction_topic.rpartition('.')[0]}. If "
            "a transform renames topics, remove the option"
        )
    if partitions != 1:
        return (
            f"topic {topic} has {partitions} partitions. The ends of transactions count all changes of a table, so "
            "only a table in one partition shows which changes are missing. Remove source.transaction_topic, or "
            "let the connector write the table to one partition"
        )
    return None


def look_back(connection: KafkaConnection, topic: str, position: int) -> tuple[TransactionProgress, int | None]:
    """How far a topic's records before ``position`` are, and the time (ms) of the last of them, None without any.

    Raises SourceError.
    """
    try:
        low = _first(connection, topic)
        standing, appended_ms = TransactionProgress(), None
        for message in read_stretch(connection, topic, 0, max(low, position - LOOK_BACK_RECORDS), position):
            appended_ms = message.timestamp()[1]
            said = standing_of(message.value())
            if said is not None and (said.tail is not None or standing.tail is None):
                standing = said
    except LogError as error:
        raise SourceUnreachableError(str(error)) from error
    return standing, appended_ms


def rests_at(connection: KafkaConnection, topic: str, position: int) -> bool:
    """Whether the topic has no record at or behind ``position``. Raises SourceError."""
    try:
        end = end_offsets(connection, {topic: 1})[topic][0]
        return next(read_stretch(connection, topic, 0, position, end), None) is None
    except LogError as error:
        raise SourceUnreachableError(str(error)) from error


def first_end(connection: KafkaConnection, transaction_topic: str, appended_ms: int | None) -> int:
    """Where to begin with ENDs for a table whose last applied record has this time; None: with the first there is.

    Raises SourceUnreachableError.
    """
    try:
        if appended_ms is None:
            return _first(connection, transaction_topic)
        since = OffsetSpec.for_timestamp(max(0, appended_ms - RECORD_TIME_MARGIN_MS))
        found = _asked(connection, transaction_topic, since)
        return found if found >= 0 else end_offsets(connection, {transaction_topic: 1})[transaction_topic][0]
    except LogError as error:
        raise SourceUnreachableError(str(error)) from error


def _first(connection: KafkaConnection, topic: str) -> int:
    return _asked(connection, topic, OffsetSpec.earliest())


def _asked(connection: KafkaConnection, topic: str, which: OffsetSpec) -> int:
    place = TopicPartition(topic, 0)
    return int(ask_offsets(connection, {place: which}, "looking for the ends of transactions")[place].offset)


class EndReader:
    """Reads a transaction topic from an offset on. ``next`` is its position."""

    def __init__(self, connection: KafkaConnection, topic: str, start: int) -> None:
        self._at = Partition(topic, 0)
        # ENDs that have expired unread are an error, and never skipped.
        self._reader = PartitionReader(connection, {self._at: start}, client_id="headgate-transactions")
        self.next = start

    def go_to(self, start: int) -> None:
        """Read from ``start`` on."""
        self.next = start
        self._reader.assign({self._at: start})

    def read(self, seconds: float) -> list[tuple[int, End]]:
        """(offset, END) of what has come, in order. Raises SourceError, ChangeError."""
        ends = []
        for message in self._gathered(seconds):
            end = decode_end(message.value())
            if end is not None:
                ends.append((message.offset(), end))
            self.next = message.offset() + 1
        return ends

    def _gathered(self, seconds: float) -> list[Message]:
        """What comes within the time: a turn for each END alone would cost more than all of them together."""
        deadline = time.monotonic() + seconds
        found: list[Message] = []
        try:
            while len(found) < READ_RECORDS and (left := deadline - time.monotonic()) > 0:
                found += self._reader.poll(READ_RECORDS - len(found), left)
        except LogError as failure:
            if not found:
                raise SourceUnreachableError(str(failure)) from failure
        return found

    def close(self) -> None:
        """Let go."""
        self._reader.close()
