"""Ends transactions whose end a broker has lost (docs/bugs.md, B20), for writers that cannot write a harmless record.

An owner's successor ends one with a record of its own (``writers.KafkaTransactionalWriter.end_hanging``). A Kafka
sink's target topics and a change log's streams have readers who would see such a record. There, the transaction is
ended by its markers alone (markers.py). Which way, decides the broker's own log of transactions (decisions.py).
"""

import logging
from collections.abc import Collection, Iterable
from typing import Final

from confluent_kafka import IsolationLevel, Message
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.decisions import Decided, decision_on, decisions_of
from headgate.eventlog.leaders import offsets_of
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.markers import write_markers
from headgate.eventlog.partition_reader import PartitionReader, read_to

__all__ = ["HangingTransactions", "first_hidden", "hidden_of"]

_log = logging.getLogger(__name__)

FIRST_SECONDS_MAX: Final = 10.0
"""For reading the first records of open transactions."""


def hidden_of(connection: KafkaConnection, partitions: Collection[Partition]) -> dict[Partition, int]:
    """Partitions in which records are hidden from readers of committed records → the first of them. Raises LogError."""
    what = "asking up to where partitions can be read"
    stable = offsets_of(connection, partitions, OffsetSpec.latest(), what, IsolationLevel.READ_COMMITTED)
    ends = offsets_of(connection, partitions, OffsetSpec.latest(), what)
    return {partition: stable[partition] for partition, end in ends.items() if stable[partition] < end}


def first_hidden(connection: KafkaConnection, partitions: Collection[Partition]) -> list[Message]:
    """Per partition the first record of the earliest transaction that is open there, if one is. Raises LogError."""
    start = hidden_of(connection, partitions)
    if not start:
        return []
    ends = {partition: offset + 1 for partition, offset in start.items()}
    with PartitionReader(connection, start, client_id="headgate-hidden", is_uncommitted=True) as reader:
        return list(read_to(reader, ends, FIRST_SECONDS_MAX))


class HangingTransactions:
    """Ends what ids have left open in partitions of one cluster, as it was decided."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection

    def end(self, transactional_ids: Iterable[str], hidden: Collection[Partition]) -> str:
        """End what the ids have open in ``hidden``, which no transaction that the brokers know of explains.

        Each id that has written there is taken in turn, which fences its producer, until nothing is hidden any more:
        name the most probable first. Returns why records are still hidden, as far as it is known, and an empty text if
        all were ended. Raises LogError.
        """
        left, why = hidden_of(self._connection, hidden), []
        for transactional_id in dict.fromkeys(transactional_ids):
            if not left:
                break
            try:
                found = self._decided(transactional_id, left)
            except LogError as error:
                why.append(f"what became of the last transaction of {transactional_id} cannot be found out: {error}")
                continue
            if found is None:
                continue
            write_markers(self._connection, transactional_id, found.partitions, found.decision)
            _log.warning(
                "a transaction of %s whose end a broker has lost (docs/bugs.md, B20) is ended as decided, by %s: %s",
                transactional_id,
                found.decision.name.lower(),
                _places(found.partitions),
            )
            before = left
            left = {at: offset for at, offset in hidden_of(self._connection, left).items() if offset == before[at]}
        if left and not why:
            why.append(f"no transaction of Headgate is known to be open in {_places(left)}")
        return "; ".join(why)

    def is_suspect(self, transactional_id: str, hidden: Collection[Partition]) -> bool:
        """Whether ``end`` might end something of the id: not before the broker is done with its last transaction.

        Raises LogError.
        """
        return decision_on(decisions_of(self._connection, transactional_id).found, hidden) is not None

    def _decided(self, transactional_id: str, hidden: Collection[Partition]) -> Decided | None:
        """None also while the broker knows of a transaction of the id, which it ends by itself."""
        known = decisions_of(self._connection, transactional_id)
        return decision_on(known.found, hidden) if known.is_over else None


def _places(partitions: Collection[Partition]) -> str:
    return ", ".join(f"{each.topic}/{each.number}" for each in sorted(partitions))
