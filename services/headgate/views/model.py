"""All that the views know: the current record of every key, its history, and how far the topics have been read."""

from collections.abc import Mapping
from typing import Protocol

from headgate.eventlog.log import Delivery, Garbage, Partition
from headgate.eventlog.snapshot import Snapshot
from headgate.records.base import Record
from headgate.records.control import SpanProgressed
from headgate.records.keys import ProgressKey
from headgate.records.spans import table_of
from headgate.views.history import History, events_of

__all__ = ["Lags", "ViewsModel"]


class Lags(Protocol):
    """Takes what agents report of their progress (lag.py)."""

    def add(self, feed: str, table: str, before: SpanProgressed | None, now: SpanProgressed, *, is_first: bool) -> None:
        """One report more; ``is_first`` if no report of that session can have been before it."""
        ...


class ViewsModel:
    """Fed record by record, in the order of each partition. Not safe for threads: one event loop has it."""

    def __init__(self, lags: Lags, last: Mapping[Partition, int]) -> None:
        """``last``: the last visible offset of each partition that has one, when the rebuild began."""
        self.snapshot = Snapshot()
        self.history = History()
        self.records = 0
        self._lags = lags
        self._behind = dict(last)
        self._at: dict[Partition, int] = {}

    def take(self, read: Delivery | Garbage, at_ms: int) -> None:
        """One record more; ``at_ms`` is its own time. One that comes again, after a rebalance, is skipped."""
        if read.offset <= self._at.get(read.partition, -1):
            return
        self._at[read.partition] = read.offset
        self.records += 1
        if isinstance(read, Delivery):
            before = self._before(read)
            for event in events_of(before, read, at_ms):
                self.history.add(event)
            if isinstance(read.key, ProgressKey) and isinstance(read.value, SpanProgressed):
                said = before if isinstance(before, SpanProgressed) else None
                # While rebuilding, reports before this one may have been compacted away.
                is_first = before is None and read.partition not in self._behind
                self._lags.add(read.key.feed, table_of(read.key.span), said, read.value, is_first=is_first)
        self.snapshot.take(read)
        if read.offset >= self._behind.get(read.partition, read.offset + 1):
            del self._behind[read.partition]

    @property
    def positions(self) -> dict[Partition, int]:
        """The last offset read of each partition that has been read."""
        return dict(self._at)

    @property
    def behind(self) -> list[str]:
        """Partitions that are not rebuilt yet, as text; empty once everything from before the start is read."""
        return [f"{partition.topic}/{partition.number}" for partition in sorted(self._behind)]

    def _before(self, read: Delivery) -> Record | None:
        standing = self.snapshot.current.get(read.key, {}).get(read.partition)
        return None if standing is None else standing.value
