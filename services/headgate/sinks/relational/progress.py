"""The fence of a relational sink: claim, seal and advance, each one transaction over the rows of ``headgate.progress``.

Every statement that counts is conditional on the row's current content, under the row's lock. That content is the
truth, whatever the log or a lane believes. What a row allows and refuses is decided in sinks/fence.py. The statements
are in databases/progress.py and, where databases differ, in each one's ``progress``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from headgate.databases.progress import ClaimedRows, FeedKey, ProgressRow, ProgressTables
from headgate.records.control import Epoch, Positions
from headgate.records.identifiers import earlier_spelling, namesake, normal_table, split_table
from headgate.records.slices import slice_of, whole_table
from headgate.records.source_tables import SourceTable
from headgate.sinks.contract import ChangeBatch, Claim, FeedIdentity, OffsetRange
from headgate.sinks.fence import (
    FenceRow,
    beside,
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
from headgate.sinks.known_columns import KnownColumns
from headgate.sinks.relational.session import Session
from headgate.sinks.row_copying import CopyMark
from headgate.sinks.source_tables import check_same, source_table_of, text_of

__all__ = ["Progress", "claimed_rows", "held_names", "moves_of"]

S = TypeVar("S", bound=Session)


def _old_spellings(claim: Claim, table: str) -> list[str]:
    """Other names that older versions kept a table's rows under: as the feed writes it, and with fewer or no quotes.

    Without any only where the feed gives no schema. Where it gives one, that text is the name of another table. Older
    versions have no slices, and without its slice such a name is that of the whole table.
    """
    if slice_of(table) is not None:
        return []
    space, relation = split_table(table)
    found = [earlier_spelling(space, relation), *([claim.table] if '"' in claim.table else [])]
    if split_table(claim.table)[0] is None and space is not None:
        found.append(f"{space}.{relation}")
    return [old for old in found if old != table]


def held_names(*tables: str) -> list[str]:
    """What a claim of these tables holds, or the end of a feed that writes them, in the one order of all of them.

    Of each its name, the whole table's, and the one under which older versions stored that. Slices come first, so that
    a predecessor that hangs is distinguished from other slices' claims.
    """
    wholes = set(map(whole_table, tables))
    found = {*tables, *map(normal_table, tables), *wholes, *filter(None, map(namesake, wholes))}
    return sorted(found, key=lambda name: (slice_of(name) is None, name))


def claimed_rows(claim: Claim, table: str, feed: FeedKey) -> ClaimedRows:
    """The rows of a claim, under the table's one spelling."""
    return ClaimedRows(feed, table, claim.topic, claim.topic_id, claim.epoch, claim.incarnation, claim.start)


class Progress(ABC, Generic[S]):
    """The rules over one session, and ``tables``, the statements over the same one."""

    def __init__(self, session: S, tables: ProgressTables) -> None:
        self.session = session
        self.tables = tables

    # --- what a dialect brings ---

    @abstractmethod
    def name_to_claim(self, claim: Claim) -> str:
        """The table's one spelling (``Table.name``), which its rows are kept under, whether or not the table exists.

        With the slice that the claim is of.

        Rows alone decide who may write. A table that was dropped, or that we have lost our rights to, must not keep its
        feed from being paused or removed, so this asks nothing of the table itself.
        """

    def name_claimed(self, claim: Claim) -> str:
        """The name under which the claim's epoch has claimed the table, even if the name means another one by now."""
        return self.name_to_claim(claim)

    def feed(self, identity: FeedIdentity, epoch: Epoch | None = None) -> FeedKey:  # noqa: ARG002 - dialects need it
        """The feed as rows name it; ``epoch``: of the claim that it is for."""
        return FeedKey(identity.cluster_id, identity.feed_id, identity.feed)

    def rows(self, claim: Claim, table: str) -> ClaimedRows:
        """The rows of a claim, as this session writes them."""
        return claimed_rows(claim, table, self.feed(claim.identity, claim.epoch))

    # --- the rules ---

    def exists(self) -> bool:
        """Whether Headgate has ever claimed anything here."""
        return self.tables.has("progress")

    def ensure(self) -> None:
        """Create what is missing, on first use."""
        if not self.tables.has("source_tables"):  # the newest of them
            self.tables.create()

    def refuse_strangers(self, identity: FeedIdentity, table: str) -> None:
        """SinkConflictError if another feed, or a feed of another cluster, holds the table open."""
        self._refuse_strangers(identity, self.feed(identity), table)

    def _refuse_strangers(self, identity: FeedIdentity, feed: FeedKey, table: str) -> None:
        for other in self.tables.open_elsewhere(feed, table):
            raise stranger(identity, table, FeedIdentity(other.cluster_id, other.feed_id, other.feed))

    def claim(self, claim: Claim, table: str, lock_wait_seconds: float) -> Positions:
        """Raise the epoch of the claim's rows to the claim's, in one transaction; the positions to resume from."""
        mine = self.rows(claim, table)
        with self.session.transaction():
            self.tables.limit_wait(lock_wait_seconds)
            self._enter(claim, mine)
            self._rename_rows(claim, mine)
            self._refuse_strangers(claim.identity, mine.feed, table)
            other = self.tables.open_beside(mine)
            if other is not None:
                raise beside(claim, table, other)
            rows = _fence_rows(self.tables.read(mine))
            if is_same_claim(claim, rows):  # answered without a lock: a late attempt of this epoch may hold it
                return positions_of(rows)
            check_claim(claim, table, _fence_rows(self.tables.read_locked(mine)))
            self.tables.raise_to(mine)
            return positions_of(_fence_rows(self.tables.read(mine)))

    def seal(self, claim: Claim, table: str, lock_wait_seconds: float) -> Positions:
        """Close the claim's epoch permanently, raising its rows to it where they are not; the final positions.

        In one transaction: a claim of its own before it would be refused where another feed holds the table, or could
        come alone, and late, and leave the rows open.
        """
        mine = self.rows(claim, table)
        with self.session.transaction():
            self.tables.limit_wait(lock_wait_seconds)
            self._enter(claim, mine)
            self._rename_rows(claim, mine)
            rows = _fence_rows(self.tables.read_locked(mine))
            check_seal(claim, table, rows)
            if not is_at_epoch(claim, rows):
                # Whose topic the offsets are of stays as it is: nothing is read.
                self.tables.raise_to(replace(mine, topic_id=None))
            self.tables.close(mine)
            return positions_of(_fence_rows(self.tables.read(mine)))

    def _enter(self, claim: Claim, mine: ClaimedRows) -> None:
        """One claim or seal per table at a time: two feeds must not both find it free. None of a removed feed."""
        for name in held_names(mine.table):
            self.tables.hold_table(mine.feed, name)
        when = self.tables.removed_at(mine.feed)
        if when is not None:
            raise removed(claim.identity, mine.table, when)

    def _rename_rows(self, claim: Claim, mine: ClaimedRows) -> None:
        """Move rows that an older version has kept under another spelling to the table's one spelling.

        Its positions count. No client writes under the old spelling: it is this feed's, whose claim holds the table.
        """
        for old in _old_spellings(claim, mine.table):
            if self.tables.has_rows(mine):
                return
            if self.tables.has_rows(replace(mine, table=old)):
                self.tables.rename(mine, old)

    def positions(self, claim: Claim) -> Positions:
        """The positions a claim would resume from: the sink's, or ``start`` where it has none of this incarnation."""
        if not self.exists():
            return dict(claim.start)
        table = self.name_to_claim(claim)
        mine = self.rows(claim, table)
        spellings = [mine, *(replace(mine, table=old) for old in _old_spellings(claim, table))]
        rows = next(filter(None, map(self.tables.read, spellings)), {})
        return start_or_rows(claim, table, _fence_rows(rows))

    def is_new(self, claim: Claim) -> bool:
        """See Untouched."""
        if not self.exists():
            return True
        self.ensure()
        mine = self.rows(claim, self.name_to_claim(claim))
        if self.tables.removed_at(mine.feed) is not None:
            return False
        if slice_of(mine.table) is not None and self.tables.has_other_slices(mine):
            return False
        return self.tables.partitions(mine) <= claim.start.keys() and self.positions(claim) == dict(claim.start)

    def advance(self, claim: Claim, table: str, ranges: Mapping[int, OffsetRange]) -> None:
        """Move every partition from exactly ``expected`` to ``next`` under the claim's open epoch, or raise.

        Within the caller's transaction, which must roll back on an error. Rows are locked in partition order.
        """
        mine = self.rows(claim, table)
        if self.tables.move(mine, moves_of(ranges)) != len(ranges):
            check_advance(claim, table, ranges, _fence_rows(self.tables.read(mine, list(ranges))))

    def source_table(self, claim: Claim) -> SourceTable | None:
        """See Sink.source_table."""
        text = self.tables.source_table(self.rows(claim, self.name_to_claim(claim)))
        return None if text is None else source_table_of(text)

    def copied(self, claim: Claim, request: str) -> CopyMark:
        """See RowCopyingSink."""
        text = self.tables.copy_mark(self.rows(claim, self.name_claimed(claim)), request)
        return CopyMark(request=request) if text is None else msgspec.json.decode(text, type=CopyMark)

    def store_copy_mark(self, claim: Claim, table: str, mark: CopyMark) -> None:
        """Within a transaction that has found the claim to be the sink's."""
        self.tables.store_copy_mark(self.rows(claim, table), mark.request, msgspec.json.encode(mark).decode())

    def known_columns(self, claim: Claim) -> KnownColumns:
        """See ColumnKeepingSink."""
        return _known_columns(claim, self.tables.known_columns(self.rows(claim, self.name_claimed(claim))))

    def keep_columns(self, claim: Claim, table: str, columns: Collection[str]) -> None:
        """Keep that rows were written while the table had these columns. Within their transaction, at its end."""
        if columns:
            self.change_known_columns(claim, table, lambda known: known.with_applied(columns))

    def change_known_columns(self, claim: Claim, table: str, change: Callable[[KnownColumns], KnownColumns]) -> None:
        """Within a transaction that has found the claim to be the sink's: parts of a table change them in turn."""
        mine = self.rows(claim, table)
        self.tables.lock_known_columns(mine, msgspec.json.encode(KnownColumns()).decode())
        known = _known_columns(claim, self.tables.known_columns(mine, is_locked=True))
        changed = change(known)
        if changed != known:
            self.tables.store_known_columns(mine, msgspec.json.encode(changed).decode())

    def store_source_table(self, batch: ChangeBatch, table: str) -> None:
        """Within the batch's transaction, once its claim has been found to be the sink's. Raises SinkMovedError."""
        if batch.source_table is not None:
            mine = self.rows(batch.claim, table)
            stored = self.tables.store_source_table(mine, text_of(batch.source_table))
            check_same(batch.claim, table, batch.source_table, stored)

    def forget(self, identity: FeedIdentity) -> None:
        """Delete a feed's rows, if none is open, and remember that it was removed: one small row, permanently."""
        if not self.exists():
            return
        self.ensure()
        mine = self.feed(identity)
        with self.session.transaction():
            for name in held_names(*self.tables.tables_of(mine)):
                # Before the rows' own locks, as claims do: a claim either comes first, or finds the feed removed.
                self.tables.hold_table(mine, name)
            unsealed = {table for table, closed in self.tables.lock_feed(mine) if not closed}
            if unsealed:
                raise still_open(identity, unsealed)
            self.tables.forget(mine)


def _known_columns(claim: Claim, kept: tuple[int, str] | None) -> KnownColumns:
    """What is kept of the table, of an earlier incarnation only what still holds."""
    if kept is None:
        return KnownColumns()
    incarnation, text = kept
    known = msgspec.json.decode(text, type=KnownColumns)
    return known if incarnation == claim.incarnation else known.in_later_incarnation()


def moves_of(ranges: Mapping[int, OffsetRange]) -> dict[int, tuple[int, int]]:
    """The ranges of a batch as the statements take them."""
    return {partition: (span.expected, span.next) for partition, span in ranges.items()}


def _fence_rows(rows: Mapping[int, ProgressRow]) -> dict[int, FenceRow]:
    return {
        partition: FenceRow(row.epoch, row.incarnation, row.next_offset, row.closed, row.topic_id)
        for partition, row in rows.items()
    }
