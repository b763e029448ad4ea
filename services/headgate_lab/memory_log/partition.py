"""What a partition of the in-memory log is made of: records with holes between them, transactions, and the cleaner."""

from bisect import bisect_left
from enum import Enum, auto
from operator import attrgetter
from typing import Final

import msgspec

from headgate.eventlog.log import Partition
from headgate.records.base import Key, Record

_OFFSET: Final = attrgetter("offset")


class Fate(Enum):
    """What has become of a transaction."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


class Transaction:
    """An open or ended transaction; its records look up their fate here."""

    def __init__(self) -> None:
        self.fate = Fate.OPEN
        self.first_offsets: dict[Partition, int] = {}
        self.entries: list[tuple[Partition, LogEntry]] = []


class LogEntry(msgspec.Struct, frozen=True):
    """One data record on the log: ``key`` is text for records that cannot be understood, which have a ``fault``."""

    offset: int
    key: Key | str
    value: Record | None
    transaction: Transaction | None
    fault: str | None = None
    newer: bool = False
    level: int = 1
    """Schema level that a reader meets in it: a process that reads less ends on it."""

    def identity(self) -> str:
        """The key as the cleaner compares it: its text."""
        return self.key if isinstance(self.key, str) else self.key.text()

    def committed(self) -> bool:
        """Whether read_committed readers are given it, once they come to it."""
        return self.transaction is None or self.transaction.fate is Fate.COMMITTED


class PartitionLog:
    """Records in offset order, with holes; ``start`` moves up by retention, ``end`` is the next offset."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.start = 0
        self.end = 0
        self.open: set[Transaction] = set()

    def last_stable(self, partition: Partition) -> int:
        """The first offset of the oldest open transaction, else the end."""
        if not self.open:
            return self.end
        return min(transaction.first_offsets[partition] for transaction in self.open)

    def index(self, offset: int) -> int:
        """Index of the first entry at or above ``offset``."""
        return bisect_left(self.entries, offset, key=_OFFSET)

    def between(self, start: int, stop: int) -> list[LogEntry]:
        """The records (also aborted ones) with start <= offset < stop."""
        return self.entries[self.index(start) : self.index(stop)]

    def compact(self, partition: Partition, *, before: int | None, drop_tombstones: bool) -> None:
        """See MemoryBroker.compact."""
        stable = self.last_stable(partition)
        limit = stable if before is None else min(before, stable)
        cleaned = [entry for entry in self.entries if entry.offset < limit and entry.committed()]
        newest = {entry.identity(): entry.offset for entry in cleaned}
        kept = [
            entry
            for entry in cleaned
            if newest[entry.identity()] == entry.offset
            and not (drop_tombstones and entry.value is None and entry.fault is None)
        ]
        self.entries = kept + self.entries[self.index(limit) :]

    def retain_from(self, partition: Partition, offset: int) -> None:
        """See MemoryBroker.retain_from."""
        self.start = max(self.start, min(offset, self.last_stable(partition)))
        del self.entries[: self.index(self.start)]
