"""Dead letters as they are stored in their topic, and how they are removed permanently.

A tombstone hides a dead letter at once. Its bytes go when Kafka's log cleaner has seen both in closed segments, and the
broker closes a segment only when a record is written to it after ``segment.ms``. On a quiet topic that may be never. So
a process that removes dead letters also repeats the tombstones of those whose bytes still exist: the second tombstone
closes the segment of the first (docs/adr/0105).
"""

from collections.abc import Iterable
from contextlib import closing
from typing import Final

import msgspec

from headgate.eventlog.log import Delivery, Garbage, Log, Partition
from headgate.eventlog.replay import read_to_end
from headgate.eventlog.sharding import DEADLETTER, place
from headgate.records.base import Fact
from headgate.records.control import ChangeQuarantined
from headgate.records.keys import DeadLetterKey

__all__ = ["DeadLetters", "read_dead_letters", "remove_dead_letters"]

WRITE_SECONDS_MAX: Final = 30.0
"""For the broker to acknowledge one batch."""

BATCH_MAX: Final = 1_000
"""Tombstones written at once: far below what the client's queue takes."""


class DeadLetters(msgspec.Struct):
    """What one shard's partition holds, read up to offset ``end``.

    ``current``: the newest record of each key. ``removed``: keys that were removed, and whose bytes are still there.
    """

    shard: int
    end: int
    current: dict[DeadLetterKey, ChangeQuarantined] = {}
    removed: set[DeadLetterKey] = set()

    def take(self, read: Delivery | Garbage) -> None:
        """One record more, in the order of the partition."""
        if not isinstance(read, Delivery) or not isinstance(read.key, DeadLetterKey):
            return
        if isinstance(read.value, ChangeQuarantined):
            self.current[read.key] = read.value
            self.removed.discard(read.key)
        elif self.current.pop(read.key, None) is not None:
            self.removed.add(read.key)


def read_dead_letters(log: Log, shard: int) -> DeadLetters:
    """The dead letters of a shard. Raises LogError."""
    partition = Partition(DEADLETTER, shard)
    found = DeadLetters(shard, log.end_offsets([partition])[partition])
    for read in read_to_end(log, [partition]):
        found.take(read)
    return found


def remove_dead_letters(log: Log, found: DeadLetters, keys: Iterable[DeadLetterKey], client: str) -> None:
    """Write tombstones for ``keys``, and keep what was set aside under one of them since ``found`` was read.

    Raises LogError. What was removed by then stays removed, and the call may be repeated.
    """
    doomed = sorted(keys, key=DeadLetterKey.text)
    with closing(log.writer(client)) as writer:
        for start in range(0, len(doomed), BATCH_MAX):
            facts = [Fact(key, None) for key in doomed[start : start + BATCH_MAX]]
            writer.write([place(fact, found.shard) for fact in facts], WRITE_SECONDS_MAX)
        newer = _set_aside_since(log, found, set(doomed))
        if newer:
            writer.write([place(fact, found.shard) for fact in newer], WRITE_SECONDS_MAX)


def _set_aside_since(log: Log, found: DeadLetters, keys: set[DeadLetterKey]) -> list[Fact]:
    """Dead letters that our tombstones hide, written by an agent after ``found`` was read, and therefore not judged."""
    partition = Partition(DEADLETTER, found.shard)
    since = DeadLetters(found.shard, found.end)
    hidden: dict[DeadLetterKey, Fact] = {}
    for read in read_to_end(log, [partition], start={partition: found.end}):
        since.take(read)
        if isinstance(read, Delivery) and isinstance(read.key, DeadLetterKey) and read.value is not None:
            hidden[read.key] = Fact(read.key, read.value)
    return [fact for key, fact in hidden.items() if key in keys & since.removed]
