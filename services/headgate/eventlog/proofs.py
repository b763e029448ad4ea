"""Whether readers get what a producer has committed, which is proved before it writes to a partition again.

A broker confirms a commit before it writes the transaction's markers, and loses some of them if it is killed then
(docs/bugs.md, B20). The next marker of the same producer id in such a partition also ends what was lost there: an abort
undoes what was confirmed. It does not matter who aborts: the producer, the broker when the transaction times out, or
the next one to take the id. So a producer begins no transaction in a partition before its last commit there can be
read (docs/adr/0126). Owners, Kafka sinks and change logs' writers all do it here.
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from confluent_kafka import IsolationLevel, Message
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.hanging import first_hidden
from headgate.eventlog.leaders import offsets_of
from headgate.eventlog.log import Partition

__all__ = ["Proofs"]

PROOF_SECONDS_MAX: Final = 1.0
"""How long a transaction waits until the former one can be read. Neighbours' transactions in its partitions take less.
"""

READABLE_POLL_SECONDS: Final = 0.002
"""A broker writes the markers of a transaction within some milliseconds after it has confirmed the commit."""

_WHAT: Final = "asking whether what was committed can be read"


class Proofs:
    """Where one producer has committed, and not seen since that readers get all of it. Not thread-safe."""

    def __init__(self, connection: KafkaConnection, may_be_mine: Callable[[Message], bool]) -> None:
        """``may_be_mine``: whether the producer, or an earlier one of its id, may have written a record."""
        self._connection = connection
        self._may_be_mine = may_be_mine
        self._ends: dict[Partition, int | None] = {}
        """Partition → the offset behind the last record there; None until it is asked for."""
        self._neighbours: dict[Partition, int] = {}
        """Partition → where another producer's open transaction begins, in front of the records."""

    def committed(self, ends: Mapping[Partition, int | None]) -> None:
        """Record what was committed: the offset behind the last record of each partition, None if it is not known."""
        self._ends.update(ends)

    def seen(self, positions: Mapping[Partition, int]) -> None:
        """Readers of committed records have got so far, so what is below needs no question."""
        for partition, end in [*self._ends.items()]:
            if end is not None and positions.get(partition, 0) >= end:
                self._prove(partition)

    def of_topic(self, topic: str) -> set[Partition]:
        """Partitions of a topic where nothing is proved yet."""
        return {partition for partition in self._ends if partition.topic == topic}

    def lost(self, partitions: Collection[Partition]) -> set[Partition]:
        """Those of ``partitions`` where a broker has lost the end of what was committed.

        Waits until it can be read, for PROOF_SECONDS_MAX at most. What is hidden behind another producer's
        transaction is neither lost nor proved. Raises LogError if a partition does not answer.
        """
        asked = self._ends.keys() & set(partitions)
        if not asked:
            return set()
        if unknown := [partition for partition in asked if self._ends[partition] is None]:
            self._ends.update(offsets_of(self._connection, unknown, OffsetSpec.latest(), _WHAT))
        hidden = self._await_readable(asked)
        for partition in asked - hidden.keys():
            self._prove(partition)
        met = {partition for partition, offset in hidden.items() if self._neighbours.get(partition) != offset}
        mine = {
            Partition(str(first.topic()), int(first.partition() or 0))
            for first in first_hidden(self._connection, met)
            if self._may_be_mine(first)
        }
        self._neighbours.update({partition: hidden[partition] for partition in met - mine})
        return mine

    def _await_readable(self, asked: Collection[Partition]) -> dict[Partition, int]:
        """Where something is still hidden, and its first offset. A neighbour that is known is not waited for."""
        deadline = time.monotonic() + PROOF_SECONDS_MAX
        left = asked
        while True:
            stable = offsets_of(self._connection, left, OffsetSpec.latest(), _WHAT, IsolationLevel.READ_COMMITTED)
            hidden = {
                partition: offset for partition, offset in stable.items() if offset < (self._ends[partition] or 0)
            }
            is_open = any(self._neighbours.get(partition) != offset for partition, offset in hidden.items())
            if not is_open or time.monotonic() >= deadline:
                return hidden
            left = hidden
            time.sleep(READABLE_POLL_SECONDS)

    def _prove(self, partition: Partition) -> None:
        self._ends.pop(partition, None)
        self._neighbours.pop(partition, None)
