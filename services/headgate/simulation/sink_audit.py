"""Guarantee 1 of design §9, and 6 as far as order goes, as books kept beside the sink.

They ask no machine and no fence anything: they are told of each thing at the moment it becomes visible, and know by
themselves what may come after it.
"""

from headgate.records.control import Epoch, Positions
from headgate.sinks.contract import Claim

__all__ = ["SinkAudit", "Violation", "end_of", "ts_of"]


class Violation(Exception):  # noqa: N818 - a finding, not an error of the program
    """A guarantee does not hold; the message begins with its number in design §9."""


def ts_of(offset: int) -> int:
    """The source time of the change at ``offset``: known to all, so that checkpoints can be checked."""
    return 1_000 + offset


def end_of(ts: int) -> int:
    """The offset behind the last change that is not after ``ts``; where a feed with that target ends."""
    return max(0, ts - ts_of(0) + 1)


class SinkAudit:
    """Guarantee 1, and 6 as far as order goes: who wrote what, in the sink's own order."""

    def __init__(self) -> None:
        self.applied_to: dict[tuple[str, str], Positions] = {}
        """(feed_id, table) → how far each partition has been written."""
        self.writes = 0
        self._top: dict[tuple[str, str], Epoch] = {}
        self._shut: set[tuple[str, str]] = set()
        self._holder: dict[str, str] = {}
        self._gone: set[str] = set()
        self.stopped: set[str] = set()
        """Feeds (by id) that the log calls stopped or removed: nothing of theirs may be written."""

    def claimed(self, claim: Claim, positions: Positions) -> None:
        """A claim is above every other, continues what was written, and finds nobody else's feed at the table."""
        place = self._check_feed(claim, "claimed")
        top = self._top.get(place)
        if top is not None and claim.epoch <= top:
            raise Violation(f"1: {claim.table} claimed under {claim.epoch} after {top}")
        self._top[place] = claim.epoch
        self._shut.discard(place)
        self._holder[claim.table] = claim.identity.feed_id
        known = self.applied_to.setdefault(place, dict(claim.start))
        if known != positions:
            raise Violation(f"6: {claim.table} claimed at {positions}, but {known} was written")

    def applied(self, claim: Claim, partition: int, begin: int, end: int) -> None:
        """A write is under the highest epoch, open, and begins where the last one ended."""
        place = self._check_feed(claim, "written")
        self.writes += 1
        top = self._top.get(place)
        if top is None or claim.epoch < top:
            raise Violation(f"1: {claim.table} written under {claim.epoch} after {top} had claimed it")
        if place in self._shut:
            raise Violation(f"1: {claim.table} written under {claim.epoch}, which is sealed")
        known = self.applied_to[place]
        if known[partition] != begin or end < begin:
            raise Violation(f"6: {claim.table}/{partition}: [{begin}, {end}) written after {known[partition]}")
        known[partition] = end

    def sealed(self, claim: Claim) -> None:
        """Nothing may be written under this epoch any more."""
        self._shut.add((claim.identity.feed_id, claim.table))
        self._holder.pop(claim.table, None)

    def forgotten(self, feed_id: str) -> None:
        """Nothing may be written for this feed any more."""
        self._gone.add(feed_id)

    def is_open(self, feed_id: str, table: str) -> bool:
        """Whether somebody may still write the table for the feed."""
        place = (feed_id, table)
        return place in self._top and place not in self._shut

    def _check_feed(self, claim: Claim, what: str) -> tuple[str, str]:
        feed_id = claim.identity.feed_id
        if feed_id in self._gone:
            raise Violation(f"1: {claim.table} {what} under {claim.epoch} for feed {feed_id}, which was removed")
        if feed_id in self.stopped:
            raise Violation(f"1: {claim.table} {what} under {claim.epoch} for feed {feed_id}, which is stopped")
        holder = self._holder.get(claim.table)
        if holder not in (None, feed_id):
            raise Violation(f"1: {claim.table} {what} for feed {feed_id}, held by feed {holder}")
        return feed_id, claim.table
