"""The fence: one row per (cluster, feed, table, topic, partition) in ``headgate.progress``.

A row holds the epoch of the last claim, whether it is closed, and the next offset to apply. Every statement that
counts is conditional on what the row says now, under the row's lock; what it says is the truth, whatever log or lane
believe. What a row allows and refuses is decided in sinks/fence.py; how each database takes a lock, and writes the
statements that differ, is in its dialect's ``progress``.

Besides: ``headgate.removed``, the feeds that must not come back, and ``headgate.source_tables`` (see source_tables).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

from headgate.records.control import Epoch, Positions
from headgate.records.identifiers import split_table
from headgate.records.source_tables import SourceTable
from headgate.sinks.contract import ChangeBatch, Claim, FeedIdentity, OffsetRange
from headgate.sinks.fence import (
    FenceRow,
    check_advance,
    check_claim,
    check_seal,
    is_at_epoch,
    is_same_claim,
    positions_of,
    removed,
    start_or_rows,
    still_open,
    stranger,
)
from headgate.sinks.relational.session import Session
from headgate.sinks.relational.source_tables import check_same, source_table_of, text_of

__all__ = ["FEED", "MINE", "Progress", "Values"]

S = TypeVar("S", bound=Session)

Values = dict[str, object]

FEED = "cluster_id = %(cluster)s AND feed_id = %(feed_id)s"
MINE = f"{FEED} AND table_name = %(table)s AND topic = %(topic)s"


def _old_spellings(claim: Claim, table: str) -> list[str]:
    """Other names that older versions kept a table's rows under: as the feed writes it, and without any quotes.

    The latter only where the feed gives no schema. Where it gives one, that text is the name of another table.
    """
    space, relation = split_table(table)
    found = [claim.table] if '"' in claim.table else []
    if split_table(claim.table)[0] is None and space is not None:
        found.append(f"{space}.{relation}")
    return [old for old in found if old != table]


class Progress(ABC, Generic[S]):
    """The rows, over one session."""

    PARTITION: ClassVar[str]
    """What the partition's column is called."""
    THESE: ClassVar[str]
    """Condition for the rows of ``%(partitions)s``, besides MINE."""
    NOW: ClassVar[str]
    REMEMBER_REMOVED: ClassVar[str]
    """Statement that adds a feed to ``headgate.removed``, if it is not there."""

    def __init__(self, session: S) -> None:
        self.session = session

    # --- what a dialect brings ---

    @abstractmethod
    def _has(self, table: str) -> bool:
        """Whether ``headgate.<table>`` is there."""

    @abstractmethod
    def _create(self) -> None:
        """Create all of it, whatever is there already; two sessions may do so at once. Outside of any transaction."""

    @abstractmethod
    def name_to_claim(self, claim: Claim) -> str:
        """The table's one spelling (``Table.name``), which its rows are kept under, whether or not the table exists.

        Rows alone decide who may write. A table that was dropped, or that we have lost our rights to, must not keep its
        feed from being paused or removed, so this asks nothing of the table itself.
        """

    def name_claimed(self, claim: Claim) -> str:
        """The name under which the claim's epoch has claimed the table, even if the name means another one by now."""
        return self.name_to_claim(claim)

    @abstractmethod
    def _limit_wait(self, seconds: float) -> None:
        """No statement of this transaction waits longer for a lock."""

    @abstractmethod
    def _hold_table(self, values: Values) -> None:
        """Until the transaction's end nobody else claims ``%(table)s``, or forgets a feed that writes it."""

    @abstractmethod
    def _read_locked(self, values: Values) -> dict[int, FenceRow]:
        """``_read``, with a lock on the rows until the transaction's end."""

    @abstractmethod
    def _raise(self, claim: Claim, values: Values) -> None:
        """Create or raise the claim's rows to its epoch, open; a higher incarnation starts anew, none goes back."""

    @abstractmethod
    def _move(self, ranges: Mapping[int, OffsetRange], values: Values) -> int:
        """Move what is at ``expected`` under the open epoch to ``next``, locking in partition order; how many rows."""

    @abstractmethod
    def _store_source_table(self, values: Values) -> str:
        """Keep ``%(source_table)s``, unless this incarnation has one; what is there now."""

    def _values(self, claim: Claim, table: str) -> Values:
        """What the statements need to know of a claim."""
        return {
            "cluster": claim.identity.cluster_id,
            "feed_id": claim.identity.feed_id,
            "feed": claim.identity.feed,
            "table": table,
            "topic": claim.topic,
            "topic_id": claim.topic_id,
            "owner_rev": claim.epoch.owner_rev,
            "n": claim.epoch.n,
            "incarnation": claim.incarnation,
            "partitions": sorted(claim.start),
        }

    def _feed_values(self, identity: FeedIdentity) -> Values:
        """What they need to know of a feed."""
        return {"cluster": identity.cluster_id, "feed_id": identity.feed_id, "feed": identity.feed}

    # --- the rules ---

    def exists(self) -> bool:
        """Whether Headgate has ever claimed anything here."""
        return self._has("progress")

    def ensure(self) -> None:
        """Create what is missing, on first use."""
        if not self._has("source_tables"):  # the newest of them
            self._create()

    def refuse_strangers(self, identity: FeedIdentity, table: str) -> None:
        """SinkConflictError if another feed, or a feed of another cluster, holds the table open."""
        open_elsewhere = (
            "SELECT DISTINCT cluster_id, feed_id, feed FROM headgate.progress WHERE table_name = %(table)s "
            "AND NOT closed AND (cluster_id <> %(cluster)s OR feed_id <> %(feed_id)s) ORDER BY cluster_id, feed_id"
        )
        found = self.session.execute(open_elsewhere, self._feed_values(identity) | {"table": table})
        for cluster_id, feed_id, feed in found:
            raise stranger(identity, table, FeedIdentity(cluster_id, feed_id, feed))

    def claim(self, claim: Claim, table: str, lock_wait_seconds: float) -> Positions:
        """Raise the epoch of the claim's rows to the claim's, in one transaction; the positions to go on from."""
        values = self._values(claim, table)
        with self.session.transaction():
            self._limit_wait(lock_wait_seconds)
            self._enter(claim, table, values)
            self._rename_rows(claim, values)
            self.refuse_strangers(claim.identity, table)
            rows = self._read(values)
            if is_same_claim(claim, rows):  # answered without a lock: a late attempt of this epoch may hold it
                return positions_of(rows)
            check_claim(claim, table, self._read_locked(values))
            self._raise(claim, values)
            return positions_of(self._read(values))

    def seal(self, claim: Claim, table: str, lock_wait_seconds: float) -> Positions:
        """Close the claim's epoch for good, raising its rows to it where they are not; the final positions.

        In one transaction: a claim of its own before it would be refused where another feed holds the table, or could
        come alone, and late, and leave the rows open.
        """
        values = self._values(claim, table)
        with self.session.transaction():
            self._limit_wait(lock_wait_seconds)
            self._enter(claim, table, values)
            self._rename_rows(claim, values)
            rows = self._read_locked(values)
            check_seal(claim, table, rows)
            if not is_at_epoch(claim, rows):
                # Whose topic the offsets are of stays as it is: nothing is read.
                self._raise(claim, values | {"topic_id": None})
            self.session.execute(
                f"UPDATE headgate.progress SET closed = TRUE, updated_at = {self.NOW} WHERE {MINE} AND {self.THESE} "
                "AND owner_rev = %(owner_rev)s AND n = %(n)s AND NOT closed",
                values,
            )
            return positions_of(self._read(values))

    def _enter(self, claim: Claim, table: str, values: Values) -> None:
        """One claim or seal per table at a time: two feeds must not both find it free. None of a removed feed."""
        self._hold_table(values)
        for (when,) in self.session.execute(f"SELECT removed_at FROM headgate.removed WHERE {FEED}", values):
            raise removed(claim.identity, table, when)

    def _rename_rows(self, claim: Claim, values: Values) -> None:
        """Move rows that an older version has kept under another spelling to the table's one spelling.

        Its positions count. Nobody writes under the old spelling: it is this feed's, whose claim holds the table.
        """
        for old in _old_spellings(claim, str(values["table"])):
            if self.session.execute(f"SELECT 1 FROM headgate.progress WHERE {MINE} LIMIT 1", values):
                return
            if self.session.execute(f"SELECT 1 FROM headgate.progress WHERE {MINE} LIMIT 1", values | {"table": old}):
                for kept in ("progress", "source_tables"):
                    self.session.execute(
                        f"UPDATE headgate.{kept} SET table_name = %(table)s "
                        f"WHERE {FEED} AND table_name = %(old)s AND topic = %(topic)s",
                        values | {"old": old},
                    )

    def positions(self, claim: Claim) -> Positions:
        """The positions a claim would go on from: the sink's, or ``start`` where it has none of this incarnation."""
        if not self.exists():
            return dict(claim.start)
        table = self.name_to_claim(claim)
        values = self._values(claim, table)
        named = [values, *(values | {"table": old} for old in _old_spellings(claim, table))]
        rows = next(filter(None, map(self._read, named)), {})
        return start_or_rows(claim, table, rows)

    def advance(self, claim: Claim, table: str, ranges: Mapping[int, OffsetRange]) -> None:
        """Move every partition from exactly ``expected`` to ``next`` under the claim's open epoch, or raise.

        Within the caller's transaction, which must roll back on an error. Rows are locked in partition order.
        """
        values = self._values(claim, table) | {"partitions": sorted(ranges)}
        if self._move(ranges, values) != len(ranges):
            check_advance(claim, table, ranges, self._read(values))

    def source_table(self, claim: Claim) -> SourceTable | None:
        """See Sink.source_table."""
        rows = self.session.execute(
            f"SELECT source_table FROM headgate.source_tables WHERE {MINE} AND incarnation = %(incarnation)s",
            self._values(claim, self.name_to_claim(claim)),
        )
        return source_table_of(str(rows[0][0])) if rows else None

    def store_source_table(self, batch: ChangeBatch, table: str) -> None:
        """Within the batch's transaction, once its claim has been found to be the sink's. Raises SinkMovedError."""
        if batch.source_table is not None:
            values = self._values(batch.claim, table) | {"source_table": text_of(batch.source_table)}
            check_same(batch.claim, table, batch.source_table, self._store_source_table(values))

    def forget(self, identity: FeedIdentity) -> None:
        """Delete a feed's rows, if none is open, and remember that it was removed: one small row for ever."""
        if not self.exists():
            return
        self.ensure()
        mine, execute = self._feed_values(identity), self.session.execute
        with self.session.transaction():
            tables = execute(
                f"SELECT DISTINCT table_name FROM headgate.progress WHERE {FEED} ORDER BY table_name", mine
            )
            for (table,) in tables:
                # Before the rows' own locks, as claims do: a claim either comes first, or finds the feed removed.
                self._hold_table(mine | {"table": str(table)})
            rows = execute(
                f"SELECT table_name, closed FROM headgate.progress WHERE {FEED} "
                f"ORDER BY table_name, topic, {self.PARTITION} FOR UPDATE",
                mine,
            )
            unsealed = {str(table) for table, closed in rows if not closed}
            if unsealed:
                raise still_open(identity, unsealed)
            execute(f"DELETE FROM headgate.progress WHERE {FEED}", mine)
            execute(f"DELETE FROM headgate.source_tables WHERE {FEED}", mine)
            execute(self.REMEMBER_REMOVED, mine)

    def _read(self, values: Values, *, suffix: str = "") -> dict[int, FenceRow]:
        rows = self.session.execute(
            f"SELECT {self.PARTITION}, owner_rev, n, incarnation, next_offset, closed, topic_id FROM headgate.progress "
            f"WHERE {MINE} AND {self.THESE} ORDER BY {self.PARTITION} {suffix}",
            values,
        )
        return {
            int(partition): FenceRow(Epoch(owner_rev, n), incarnation, next_offset, bool(closed), topic_id)
            for partition, owner_rev, n, incarnation, next_offset, closed, topic_id in rows
        }
