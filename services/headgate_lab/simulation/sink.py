"""A database in memory that keeps the fence of sinks/contract.py, and shows an observer all that it lets through.

It is written from the contract, row for row as sinks/relational/progress.py does it in SQL. It is never asked whether
it is right: the observer (sink_audit.py) keeps its own record.
"""

from typing import Final, Protocol

import msgspec

from headgate.records.control import Epoch, Positions
from headgate.sinks.contract import Claim, OffsetRange, SinkConflictError, SinkFencedError, SinkMovedError

HELD_OPEN: Final = "held open by feed "
"""What a refused claim's text has before the id of the feed that writes the table."""


class SinkObserver(Protocol):
    """Hears of everything that becomes visible at the sink, after it has."""

    def claimed(self, claim: Claim, positions: Positions) -> None:
        """The span was taken under the claim's epoch."""
        ...

    def applied(self, claim: Claim, partition: int, begin: int, end: int) -> None:
        """Offsets [begin, end) of a partition were written under the claim's epoch."""
        ...

    def sealed(self, claim: Claim) -> None:
        """The claim's epoch was closed, claimed or not."""
        ...

    def forgotten(self, feed_id: str) -> None:
        """Everything that the sink kept for the feed was removed."""
        ...

    def deleted(self, feed_id: str) -> None:
        """The same, by a person, whatever was open."""
        ...


class _Row(msgspec.Struct):
    epoch: Epoch
    incarnation: int
    next_offset: int
    closed: bool


class SimulatedSink:
    """All sink tables of the world. Every call is one transaction; a raised SinkError has changed nothing."""

    def __init__(self, observer: SinkObserver, *, remembers_removed: bool = True) -> None:
        """Without ``remembers_removed`` it has the bug that was found here: see docs/bugs.md, B1."""
        self._observer = observer
        self._remembers_removed = remembers_removed
        self._rows: dict[tuple[str, str, int], _Row] = {}
        """(feed_id, table, partition) → what the fence knows."""
        self._forgotten: set[str] = set()

    def claim(self, claim: Claim) -> Positions:
        """See Sink.claim."""
        feed_id, table = self._not_forgotten(claim)
        for (other, name, _), held in self._rows.items():
            if name == table and other != feed_id and not held.closed:
                raise SinkConflictError(f"{table}: {HELD_OPEN}{other}")
        rows = {p: self._rows.get((feed_id, table, p)) for p in sorted(claim.start)}
        if all(row and row.epoch == claim.epoch and not row.closed for row in rows.values()):
            return {partition: row.next_offset for partition, row in rows.items() if row}
        for row in rows.values():
            if row is not None and (row.epoch > claim.epoch or (row.epoch == claim.epoch and row.closed)):
                raise SinkFencedError(f"{table}: at epoch {row.epoch}, closed {row.closed}; the claim is {claim.epoch}")
            if row is not None and row.incarnation > claim.incarnation:
                raise SinkConflictError(f"{table}: at incarnation {row.incarnation}, the claim at {claim.incarnation}")
        self._raise(claim, closed=False)
        positions = {partition: row.next_offset for partition, row in self._mine(claim).items()}
        self._observer.claimed(claim, positions)
        return positions

    def apply(self, claim: Claim, ranges: dict[int, OffsetRange]) -> Positions:
        """See SinkWriter.apply: all partitions or none."""
        rows = self._mine(claim)
        for partition, part in ranges.items():
            row = rows.get(partition)
            if row is None or row.epoch != claim.epoch or row.closed:
                raise SinkFencedError(f"{claim.table}: {row} is not open under {claim.epoch}")
            if row.next_offset != part.expected:
                raise SinkMovedError(f"{claim.table}/{partition}: at {row.next_offset}, expected {part.expected}")
        for partition, part in sorted(ranges.items()):
            rows[partition].next_offset = part.next
            self._observer.applied(claim, partition, part.expected, part.next)
        return {partition: row.next_offset for partition, row in rows.items()}

    def seal(self, claim: Claim) -> Positions:
        """See Sink.seal."""
        self._not_forgotten(claim)
        rows = self._mine(claim)
        for row in rows.values():
            if row.epoch > claim.epoch:
                raise SinkFencedError(f"{claim.table}: claimed since under {row.epoch}")
        if rows.keys() != claim.start.keys() or not all(r.epoch == claim.epoch and r.closed for r in rows.values()):
            self._raise(claim, closed=True)
            self._observer.sealed(claim)
        return {partition: row.next_offset for partition, row in self._mine(claim).items()}

    def positions(self, claim: Claim) -> Positions:
        """See Sink.positions."""
        rows = self._mine(claim)
        return {p: rows[p].next_offset if p in rows else claim.start[p] for p in sorted(claim.start)}

    def forget(self, feed_id: str) -> None:
        """See Sink.forget."""
        mine = [place for place in sorted(self._rows) if place[0] == feed_id]
        still_open = [place for place in mine if not self._rows[place].closed]
        if still_open:
            raise SinkConflictError(f"feed {feed_id} still writes {still_open[0][1]}")
        for place in mine:
            del self._rows[place]
        if self._remembers_removed:
            self._forgotten.add(feed_id)
        self._observer.forgotten(feed_id)

    def delete(self, feed_id: str) -> None:
        """What an operator does by hand for a feed that was removed without its sink: its rows go, open as they are."""
        for place in [place for place in self._rows if place[0] == feed_id]:
            del self._rows[place]
        self._forgotten.add(feed_id)
        self._observer.deleted(feed_id)

    def _not_forgotten(self, claim: Claim) -> tuple[str, str]:
        feed_id, table = claim.identity.feed_id, claim.table
        if feed_id in self._forgotten:
            raise SinkFencedError(f"{table}: feed {feed_id} was removed, nothing is written for it any more")
        return feed_id, table

    def _raise(self, claim: Claim, *, closed: bool) -> None:
        rows = self._mine(claim)
        for partition, begin in sorted(claim.start.items()):
            old = rows.get(partition)
            if old is None or old.incarnation < claim.incarnation:
                old = _Row(claim.epoch, claim.incarnation, begin, closed)
            place = (claim.identity.feed_id, claim.table, partition)
            self._rows[place] = _Row(claim.epoch, old.incarnation, old.next_offset, closed)

    def _mine(self, claim: Claim) -> dict[int, _Row]:
        found = {p: self._rows.get((claim.identity.feed_id, claim.table, p)) for p in sorted(claim.start)}
        return {partition: row for partition, row in found.items() if row is not None}
