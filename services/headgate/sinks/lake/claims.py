"""Who may write which rows: claims and seals, in the table's ledger and then in the table.

A commit of rows reads the table, then the ledger, and commits on the version of the table that it has read. So it is
enough that a claim writes the ledger first and then moves the table's version: a process that has read the ledger
before has read the table before, and is refused.

1. Read the table and the ledger. What the rules of every sink refuse (sinks/fence.py) is refused here.
2. Write the ledger, on exactly the version that was read, or start over.
3. Commit the ledger's version into the table (``FENCE``), unless a later claim has. Now the positions are final.
   The first one also binds the table to its ledger (lake/binding.py).
4. Read the ledger of feeds once more: of a feed that was forgotten in between, nothing may be written.
"""

from collections.abc import Callable, Mapping

import msgspec

from headgate.config.times import show_ts
from headgate.eventlog.clock import wall_ms
from headgate.records.control import Positions
from headgate.records.source_tables import SourceTable
from headgate.records.ts import ts_of_ms
from headgate.sinks import fence
from headgate.sinks.contract import (
    Claim,
    FeedIdentity,
    OffsetRange,
    SinkFencedError,
    SinkRefusedError,
)
from headgate.sinks.fence import FenceRow
from headgate.sinks.known_columns import KnownColumns
from headgate.sinks.lake.attempts import until_committed
from headgate.sinks.lake.binding import (
    LEDGER,
    RELEASED,
    Binding,
    binding_of,
    check_bound,
    other_ledger,
    refuse_other_ledger,
)
from headgate.sinks.lake.ledger import Copying, Feeds, Holding, Holdings, KeptColumns, LedgerEntry, Row, Source, Written
from headgate.sinks.lake.tables import (
    FENCE,
    POSITIONS,
    ConflictError,
    Lake,
    Stamp,
    VersionedTable,
    copy_key,
    feed_key,
    positions_in,
)
from headgate.sinks.row_copying import CopyMark
from headgate.sinks.source_tables import check_same, source_table_of, text_of

__all__ = ["Claims", "about_attempt", "about_claim"]

Rows = Mapping[int, FenceRow]


class _Read(msgspec.Struct, frozen=True):
    """A table, and the ledger that was read after it."""

    table: VersionedTable | None
    ledger: LedgerEntry | None
    holdings: Holdings


class Claims:
    """The claims on tables of one lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def claim(self, claim: Claim) -> Positions:
        """See Sink."""

        def check(read: _Read, rows: Rows) -> None:
            self._refuse_others(read, claim.table, claim.identity)
            _check_not_restored(claim, read.table, read.holdings)
            if not fence.is_same_claim(claim, rows):
                fence.check_claim(claim, claim.table, rows)

        return self._change(claim, check, is_closed=False)

    def seal(self, claim: Claim) -> Positions:
        """See Sink."""
        return self._change(claim, lambda _, rows: fence.check_seal(claim, claim.table, rows), is_closed=True)

    def positions(self, claim: Claim) -> Positions:
        """See Sink."""
        read = self._read(claim)
        return fence.start_or_rows(claim, claim.table, _rows(claim, read.table, read.holdings))

    def source_table(self, claim: Claim) -> SourceTable | None:
        """See Sink."""
        holding = _holding(claim, self._read(claim).holdings)
        source = None if holding is None else holding.source
        return None if source is None or source.incarnation != claim.incarnation else source_table_of(source.table)

    def is_new(self, claim: Claim) -> bool:
        """See Untouched."""
        read = self._read(claim)
        holding = _holding(claim, read.holdings)
        feed = feed_key(claim.identity.cluster_id, claim.identity.feed_id)
        if feed in self._lake.feeds.read()[1].removed_ms:
            return False
        if holding is None:
            return True
        return read.table is None and not _table_ids(claim, holding)

    def check_held(self, claim: Claim, ranges: Mapping[int, OffsetRange], table: VersionedTable) -> None:
        """Raise SinkError unless the claim is the sink's, and at the beginnings of ``ranges``, in this very table.

        ``table`` was read before this is called.
        """
        self._check_read(claim, ranges, table, _Read(table, *self._lake.ledger(claim.table).read()))

    def held_table(self, claim: Claim, ranges: Mapping[int, OffsetRange]) -> VersionedTable:
        """The table, read before its claim is found to be the sink's. Raises what ``check_held`` does.

        SinkRefusedError if the table does not exist.
        """
        table = self._lake.table(claim.table)
        if table is None:
            self.check_is_ours(claim, None)
            raise SinkRefusedError(f"table {claim.table} does not exist")
        self.check_held(claim, ranges, table)
        return table

    def check_open(self, claim: Claim, table: VersionedTable) -> None:
        """Raise SinkError unless the claim is the sink's, in all its partitions and in this very table.

        ``table`` was read before this is called.
        """
        read = _Read(table, *self._lake.ledger(claim.table).read())
        at = fence.start_or_rows(claim, claim.table, _rows(claim, table, read.holdings))
        ranges = {partition: OffsetRange(offset, offset) for partition, offset in at.items()}
        self._check_read(claim, ranges, table, read)

    def _check_read(self, claim: Claim, ranges: Mapping[int, OffsetRange], table: VersionedTable, read: _Read) -> None:
        self._check_rows(claim, ranges, table, read.holdings)
        _check_not_restored(claim, table, read.holdings)
        check_bound(claim.table, table.ledger, read.ledger, self._lake.ledger(claim.table).place)

    def record_source(
        self, claim: Claim, ranges: Mapping[int, OffsetRange], table: VersionedTable, met: SourceTable
    ) -> None:
        """The same, and store the source table of the topic. Raises SinkMovedError if it is known to be another."""

        def recorded(holding: Holding) -> Holding:
            known = holding.source
            if known is not None and known.incarnation >= claim.incarnation:
                check_same(claim, claim.table, met, known.table)
                return holding
            return msgspec.structs.replace(holding, source=Source(claim.incarnation, text_of(met)))

        self._change_holding(claim, ranges, table, recorded)

    def known_columns(self, claim: Claim) -> KnownColumns:
        """See ColumnKeepingSink."""
        return _known_columns(claim, _holding(claim, self._read(claim).holdings))

    def change_known_columns(
        self,
        claim: Claim,
        ranges: Mapping[int, OffsetRange],
        table: VersionedTable,
        change: Callable[[KnownColumns], KnownColumns],
    ) -> None:
        """Change what is kept of the table's columns. Raises what ``check_held`` does."""

        def changed(holding: Holding) -> Holding:
            known = _known_columns(claim, holding)
            wanted = change(known)
            return (
                holding
                if wanted == known
                else msgspec.structs.replace(holding, known=KeptColumns(claim.incarnation, wanted))
            )

        self._change_holding(claim, ranges, table, changed)

    def copied(self, claim: Claim, request: str, table: VersionedTable | None) -> CopyMark:
        """How far the request to copy the claim's table is."""
        holding = _holding(claim, self._lake.ledger(claim.table).read()[1])
        copying = None if holding is None else holding.copying
        if table is None or copying is None:
            return CopyMark(request=request)
        return copying.reached(request, table.id, table.transaction(copy_key(claim)))

    def begin_range(
        self, claim: Claim, ranges: Mapping[int, OffsetRange], table: VersionedTable, mark: CopyMark
    ) -> int:
        """The number of a range at whose end the request is at ``mark``. The commit of its rows has the number.

        Raises what ``check_held`` does.
        """
        number = (table.transaction(copy_key(claim)) or 0) + 1

        def begun(holding: Holding) -> Holding:
            done = CopyMark(request=mark.request)
            if holding.copying is not None:
                done = holding.copying.reached(mark.request, table.id, number - 1)
            return msgspec.structs.replace(holding, copying=Copying(table.id, number, done, mark))

        self._change_holding(claim, ranges, table, begun)
        return number

    def forget(self, identity: FeedIdentity) -> None:
        """See Sink. A claim that began before may have written the ledger since, so its rows are removed last."""
        feed = feed_key(identity.cluster_id, identity.feed_id)
        tables = self._lake.feeds.read()[1].tables.get(feed, ())
        unsealed = {table for table in tables if self._is_open(table, identity)}
        if unsealed:
            raise fence.still_open(identity, unsealed)
        removed = self._change_feeds(
            lambda feeds: (
                feeds
                if feed in feeds.removed_ms
                else msgspec.structs.replace(feeds, removed_ms=feeds.removed_ms | {feed: wall_ms()})
            )
        )
        for table in removed.tables.get(feed, ()):
            self._drop(table, identity)

    def refuse_others(self, table: str, identity: FeedIdentity) -> None:
        """Raise SinkConflictError if another feed holds the table open, or the table is bound to another ledger."""
        self._refuse_others(_Read(self._lake.table(table), *self._lake.ledger(table).read()), table, identity)

    def _refuse_others(self, read: _Read, table: str, identity: FeedIdentity) -> None:
        self._refuse_other_ledger(read, table)
        mine = identity.cluster_id, identity.feed_id
        is_open = [each for each in read.holdings.all if each.is_open and (each.cluster, each.feed_id) != mine]
        if not is_open:
            return
        removed = self._lake.feeds.read()[1].removed_ms
        for each in is_open:
            if feed_key(each.cluster, each.feed_id) not in removed:
                theirs = FeedIdentity(each.cluster, each.feed_id, each.feed)
                kept = f"its ledger, {self._lake.ledger(table).place}, and then the table's property {LEDGER}"
                raise fence.stranger(identity, table, theirs, kept)

    def _refuse_other_ledger(self, read: _Read, table: str) -> None:
        if read.table is not None:
            refuse_other_ledger(table, read.table.ledger, read.ledger, self._lake.ledger(table).place)

    def check_is_ours(self, claim: Claim, table: VersionedTable | None) -> None:
        """Raise SinkError if the table is not the one that the feed has written to, or is another ledger's."""
        read = _Read(table, *self._lake.ledger(claim.table).read())
        self._refuse_other_ledger(read, claim.table)
        holding = _holding(claim, read.holdings)
        if holding is not None:
            _check_same_table(claim, table, _table_ids(claim, holding))

    def _change_holding(
        self,
        claim: Claim,
        ranges: Mapping[int, OffsetRange],
        table: VersionedTable,
        change: Callable[[Holding], Holding],
    ) -> None:
        """Change the claim's holding, on the version of the ledger by which the claim is the sink's."""

        def attempt() -> None:
            ledger, holdings = self._lake.ledger(claim.table).read()
            self._check_rows(claim, ranges, table, holdings)
            holding = _holding(claim, holdings)
            assert holding is not None  # noqa: S101 - its rows were checked
            changed = change(holding)
            if changed != holding:
                self._lake.ledger(claim.table).write(ledger, holdings.with_(changed))

        until_committed(about_attempt(claim), attempt)

    # --- the procedure ------------------------------------------------------------------------------------------------

    def _change(self, claim: Claim, check: Callable[[_Read, Rows], None], *, is_closed: bool) -> Positions:

        def attempt() -> tuple[Holding, Written]:
            read = self._read(claim)
            holding = _holding(claim, read.holdings)
            check(read, _rows(claim, read.table, read.holdings))
            raised = _raised(claim, holding, read.table, is_closed=is_closed)
            if raised == holding and read.ledger is not None:
                return raised, Written(read.ledger.id, read.ledger.version)
            return raised, self._lake.ledger(claim.table).write(read.ledger, read.holdings.with_(raised))

        with self._lake.as_sink_errors(about_attempt(claim)):
            self._register(claim)
            raised, written = until_committed(about_attempt(claim), attempt)
            table = self._impose(claim.table, written, about_claim(claim), is_claimed=not is_closed)
            self._not_removed(claim)
            incarnations = {partition: raised.rows[partition].incarnation for partition in claim.start}
            starts = {partition: raised.rows[partition].start for partition in claim.start}
            return starts | positions_in(table, claim, incarnations)

    def _impose(
        self, name: str, written: Written, about: Mapping[str, str], *, is_claimed: bool
    ) -> VersionedTable | None:
        """Have the table refuse processes that read an earlier version of its ledger; the table as it is then.

        A table that is bound to another ledger refuses them already; ``is_claimed``: raise SinkConflictError then.
        """
        place, stamp = self._lake.ledger(name).place, Stamp({FENCE: written.version}, about)

        def attempt() -> VersionedTable | None:
            table = self._lake.table(name)
            bound = None if table is None else binding_of(table.ledger)
            if table is None or (bound is not None and bound.id != written.id and not is_claimed):
                return table
            if bound is not None and bound.id != written.id:
                raise other_ledger(name, bound, place)
            if bound is not None and _fenced(table) >= written.version:
                return table
            if bound is None:
                table.bind(Binding(written.id, place).text, stamp)
            else:
                table.mark(stamp)
            raise ConflictError  # what was read is not the newest any more, by our own commit

        return until_committed(name, attempt)

    def _release(self, name: str, written: Written, about: Mapping[str, str]) -> None:
        """Let another ledger have the table, unless a claim that came later has it."""

        def attempt() -> None:
            table = self._lake.table(name)
            bound = None if table is None else binding_of(table.ledger)
            if table is None or bound is None or bound.id != written.id or _fenced(table) >= written.version:
                return
            table.bind(RELEASED, Stamp({FENCE: written.version}, about))

        until_committed(name, attempt)

    def _register(self, claim: Claim) -> None:
        """Have the feed know its table, so that it can be forgotten. Raises SinkFencedError if it was removed."""
        feed = feed_key(claim.identity.cluster_id, claim.identity.feed_id)

        def registered(feeds: Feeds) -> Feeds:
            if feed in feeds.removed_ms:
                raise self._removed(claim, feeds.removed_ms[feed])
            tables = feeds.tables.get(feed, ())
            if claim.table in tables:
                return feeds
            return msgspec.structs.replace(feeds, tables=feeds.tables | {feed: (*tables, claim.table)})

        self._change_feeds(registered)

    def _change_feeds(self, change: Callable[[Feeds], Feeds]) -> Feeds:
        def attempt() -> Feeds:
            ledger, feeds = self._lake.feeds.read()
            changed = change(feeds)
            if changed != feeds:
                self._lake.feeds.write(ledger, changed)
            return changed

        return until_committed(f"changing the ledger of feeds, {self._lake.feeds.place}", attempt)

    def _not_removed(self, claim: Claim) -> None:
        feed = feed_key(claim.identity.cluster_id, claim.identity.feed_id)
        removed_ms = self._lake.feeds.read()[1].removed_ms.get(feed)
        if removed_ms is not None:
            raise self._removed(claim, removed_ms)

    def _removed(self, claim: Claim, at_ms: int) -> SinkFencedError:
        return fence.removed(claim.identity, claim.table, show_ts(ts_of_ms(at_ms)))

    def _is_open(self, table: str, identity: FeedIdentity) -> bool:
        holdings = self._lake.ledger(table).read()[1]
        return any(
            each.is_open
            for each in holdings.all
            if (each.cluster, each.feed_id) == (identity.cluster_id, identity.feed_id)
        )

    def _drop(self, table: str, identity: FeedIdentity) -> None:
        """Remove the feed from a table's ledger. Repeated, because the answer to any step may be lost."""
        about = {"headgate.feed": identity.feed}

        def attempt() -> tuple[Holdings, Written] | None:
            ledger, holdings = self._lake.ledger(table).read()
            if ledger is None:
                return None
            rest = holdings.without(identity.cluster_id, identity.feed_id)
            if rest == holdings:
                return rest, Written(ledger.id, ledger.version)
            return rest, self._lake.ledger(table).write(ledger, rest)

        dropped = until_committed(f"removing feed {identity.feed} from the ledger of {table}", attempt)
        if dropped is None:
            return
        rest, written = dropped
        if rest.all:
            self._impose(table, written, about, is_claimed=False)
        else:
            self._release(table, written, about)

    def _read(self, claim: Claim) -> _Read:
        with self._lake.as_sink_errors(f"reading {claim.table}"):
            return _Read(self._lake.table(claim.table), *self._lake.ledger(claim.table).read())

    def _check_rows(
        self, claim: Claim, ranges: Mapping[int, OffsetRange], table: VersionedTable, holdings: Holdings
    ) -> None:
        rows = _rows(claim, table, holdings)
        mine = [row for p in ranges if (row := rows.get(p)) is not None and row.epoch == claim.epoch and not row.closed]
        holding = _holding(claim, holdings)
        if holding is None or len(mine) < len(ranges):
            fence.check_advance(claim, claim.table, ranges, rows)
        else:
            _check_same_table(claim, table, {holding.rows[partition].table_id for partition in ranges})
        if any(rows[partition].next_offset != span.expected for partition, span in ranges.items()):
            fence.check_advance(claim, claim.table, ranges, rows)


def about_claim(claim: Claim) -> dict[str, str]:
    """What a commit shows of the claim, to people."""
    return {"headgate.feed": claim.identity.feed, "headgate.epoch": str(claim.epoch)}


def about_attempt(claim: Claim) -> str:
    """How errors name work under a claim."""
    return f"{claim.table} under epoch {claim.epoch}"


def _fenced(table: VersionedTable) -> int:
    """The version of the ledger that the table has; -1 if it has none."""
    found = table.transaction(FENCE)
    return -1 if found is None else found


def _holding(claim: Claim, holdings: Holdings) -> Holding | None:
    return holdings.of(claim.identity.cluster_id, claim.identity.feed_id, claim.topic)


def _rows(claim: Claim, table: VersionedTable | None, holdings: Holdings) -> dict[int, FenceRow]:
    """The claim's rows, with the positions that the table has."""
    holding = _holding(claim, holdings)
    mine = {} if holding is None else {p: row for p, row in holding.rows.items() if p in claim.start}
    reached = positions_in(table, claim, {partition: row.incarnation for partition, row in mine.items()})
    return {partition: row.fence_row(reached.get(partition)) for partition, row in mine.items()}


def _table_ids(claim: Claim, holding: Holding) -> set[str | None]:
    """Ids of the table, as the incarnation's claims have met it."""
    return {row.table_id for row in holding.rows.values() if row.incarnation >= claim.incarnation} - {None}


def _check_same_table(claim: Claim, table: VersionedTable | None, ids: set[str | None]) -> None:
    if not ids or (table is not None and table.id in ids):
        return
    if ids == {None}:
        raise SinkRefusedError(f"{claim.table}: the table was created after it was claimed. It is claimed again")
    what = "does not exist" if table is None else "was deleted and re-created"
    raise SinkRefusedError(
        f"table {claim.table} {what}, and the rows that Headgate has written to it are missing. Restore it, "
        f"or pause the feed and run `headgate feed resume {claim.identity.feed} --from earliest`, which applies all "
        "changes of the source topic again"
    )


def _check_not_restored(claim: Claim, table: VersionedTable | None, holdings: Holdings) -> None:
    """Raise SinkRefusedError if changes that the positions cover are not in the table any more.

    A new incarnation has no positions yet, so it begins with the table as it is.
    """
    holding = _holding(claim, holdings)
    rows = {} if holding is None else {p: r.incarnation for p, r in holding.rows.items() if p in claim.start}
    current = {partition: number for partition, number in rows.items() if number >= claim.incarnation}
    if table is None or not positions_in(table, claim, current) or not table.is_set_back_behind(POSITIONS):
        return
    raise SinkRefusedError(
        f"table {claim.table} was set back to an earlier version, so changes that Headgate has written are missing. "
        "Restore the version before that, or pause the feed and run "
        f"`headgate feed resume {claim.identity.feed} "
        "--from earliest`, which applies all changes of the source topic again"
    )


def _raised(claim: Claim, holding: Holding | None, table: VersionedTable | None, *, is_closed: bool) -> Holding:
    """The claim's rows at its epoch."""
    identity = claim.identity
    rows = {} if holding is None else dict(holding.rows)
    for partition, start in claim.start.items():
        old = rows.get(partition)
        is_new = old is None or old.incarnation < claim.incarnation
        kept_topic = None if old is None or is_new else old.topic_id
        kept_table = None if old is None or is_new else old.table_id
        rows[partition] = Row(
            epoch=(claim.epoch.owner_rev, claim.epoch.n),
            incarnation=claim.incarnation if old is None or is_new else old.incarnation,
            start=start if old is None or is_new else old.start,
            closed=is_closed,
            topic_id=kept_topic if is_closed else claim.topic_id or kept_topic,  # who closes reads nothing
            table_id=kept_table or (None if table is None else table.id),
        )
    source = None if holding is None else holding.source
    copying = None if holding is None else holding.copying
    known = None if holding is None else holding.known
    return Holding(identity.cluster_id, identity.feed_id, identity.feed, claim.topic, rows, source, copying, known)


def _known_columns(claim: Claim, holding: Holding | None) -> KnownColumns:
    """What is kept of the table, of an earlier incarnation only what still holds."""
    known = None if holding is None else holding.known
    if known is None:
        return KnownColumns()
    return known.columns if known.incarnation == claim.incarnation else known.columns.in_later_incarnation()
