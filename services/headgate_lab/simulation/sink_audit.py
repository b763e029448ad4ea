"""Guarantee 1 of docs/guarantees.md, and 6 as far as order goes, as an audit kept beside the sink.

They ask no machine and no fence anything: they see each thing at the moment it becomes visible, and know by
themselves what may come after it.
"""

from collections.abc import Collection

from headgate.records.control import Epoch, Positions
from headgate.sinks.contract import Claim


class Violation(Exception):  # noqa: N818 - a finding, not an error of the program
    """A guarantee does not hold; the message begins with its number in docs/guarantees.md."""


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
        self._top: dict[tuple[str, str, int], Epoch] = {}
        """(feed_id, table, partition) → highest epoch that has claimed it."""
        self._taken_with: dict[tuple[str, str, int], tuple[int, ...]] = {}
        """Partitions that are open → those that were claimed together with it: the span."""
        self._holder: dict[str, str] = {}
        self._gone: set[str] = set()
        self.stopped: set[str] = set()
        """Feeds (by id) that the log calls stopped or removed: nothing of theirs may be written."""
        self.abandoned: set[str] = set()
        """Feeds (by id) that were removed without their sink: only who was over, or is too late, may write for them."""

    def claimed(self, claim: Claim, positions: Positions) -> None:
        """A claim is above every other, continues what was written, and finds no other feed at the table.

        Nor another span of the feed that has one of its partitions and is not sealed.
        """
        feed_id, table = self._check_feed(claim, "claimed")
        known = self.applied_to.setdefault((feed_id, table), {})
        span = tuple(sorted(claim.start))
        for partition in span:
            top = self._top.get((feed_id, table, partition))
            if top is not None and claim.epoch <= top:
                raise Violation(f"1: {claim.table}/{partition} claimed under {claim.epoch} after {top}")
        self._raise(claim, "claimed")
        for partition in span:
            self._taken_with[feed_id, table, partition] = span
            known.setdefault(partition, claim.start[partition])
        self._holder[claim.table] = claim.identity.feed_id
        written = {partition: known[partition] for partition in span}
        if written != positions:
            raise Violation(f"6: {claim.table} claimed at {positions}, but {written} was written")

    def applied(self, claim: Claim, partition: int, begin: int, end: int) -> None:
        """A write is under the highest epoch, open, and begins where the last one ended."""
        feed_id, table = self._check_feed(claim, "written")
        self.writes += 1
        place = (feed_id, table, partition)
        top = self._top.get(place)
        if top is None or claim.epoch < top:
            raise Violation(f"1: {table}/{partition} written under {claim.epoch} after {top} had claimed it")
        if place not in self._taken_with:
            raise Violation(f"1: {table}/{partition} written under {claim.epoch}, which is sealed")
        known = self.applied_to[feed_id, table]
        if known[partition] != begin or end < begin:
            raise Violation(f"6: {claim.table}/{partition}: [{begin}, {end}) written after {known[partition]}")
        known[partition] = end

    def sealed(self, claim: Claim) -> None:
        """Nothing may be written under this epoch, or a lower one, any more, whether it was ever claimed or not."""
        feed_id, table = claim.identity.feed_id, claim.table
        if feed_id in self._gone:
            raise Violation(f"1: {table} sealed under {claim.epoch} for feed {feed_id}, which was removed")
        self._raise(claim, "sealed")
        for partition in claim.start:
            self._taken_with.pop((feed_id, table, partition), None)
        if not self.is_open(feed_id, table):
            self._holder.pop(table, None)

    def forgotten(self, feed_id: str) -> None:
        """Nothing may be written for this feed any more."""
        self._gone.add(feed_id)

    def deleted(self, feed_id: str) -> None:
        """What a person has removed is not held, and nothing may be written for it any more."""
        if feed_id not in self.abandoned:
            raise Violation(f"1: the rows of feed {feed_id} are deleted, which was not removed without its sink")
        self.abandoned.remove(feed_id)
        self._gone.add(feed_id)
        for place in [place for place in self._taken_with if place[0] == feed_id]:
            del self._taken_with[place]
        self._holder = {table: holder for table, holder in self._holder.items() if holder != feed_id}

    def is_open(self, feed_id: str, table: str, partitions: Collection[int] | None = None) -> bool:
        """Whether a session may still write a partition of the table, or one of these, for the feed."""
        if partitions is not None:
            return any((feed_id, table, partition) in self._taken_with for partition in partitions)
        return any(place[:2] == (feed_id, table) for place in self._taken_with)

    def _raise(self, claim: Claim, what: str) -> None:
        """The epoch is none below what was, and nothing of another span is left open by it."""
        span = tuple(sorted(claim.start))
        for partition in span:
            place = (claim.identity.feed_id, claim.table, partition)
            top, before = self._top.get(place), self._taken_with.get(place, span)
            if top is not None and claim.epoch < top:
                raise Violation(f"1: {claim.table}/{partition} {what} under {claim.epoch} after {top}")
            if before != span:
                raise Violation(f"1: {claim.table} {span} {what} under {claim.epoch}, {before} of {top} is not sealed")
            self._top[place] = claim.epoch

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
