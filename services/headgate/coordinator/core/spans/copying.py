"""Copies rows of one table from its source while its changes are not applied (docs/adr/0110).

    accepted ──▶ the table is paused for the request ──▶ all its spans are sealed ──▶ it is resumed, and its span's
    record names the request ──▶ the agent claims, copies, then replicates: done, or fails: failed

Both ends of the table's pause are those of a pause on request (pausing.py), so no other transition exists. The agent
that holds the span copies between its claim and its first batch. If a role fails under such a record because of the
copy, its error becomes the request's outcome; the table then resumes without the copy.

A whole table is copied in turns, and the log is applied between them (docs/adr/0114): its agent reports that the table
replicates and is being copied until all of it is. Until then it can be neither moved nor divided.

The term records which request each table is copied for. A new owner resumes accepted requests. A request that is
deleted before its outcome is withdrawn.

A table whose rows are copied when it joins its feed (docs/adr/0116) has a request, too. The feed's owner makes it, in
the transaction in which the table joins, and deletes it when the rows are copied. The table need not be paused for it,
because no agent has it yet. A table without these rows is not what the feed asks for, so an error does not end the
copy: it is retried like any other failure of the span, until a client deletes the request.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.outcomes import no_such_feed, refuse, waits_for_upgrade
from headgate.coordinator.core.spans import pausing
from headgate.records.control import (
    FeedRecorded,
    OperationKind,
    OperationRequested,
    OutcomeStatus,
    PausedTable,
    ReplicationState,
    SpanDispatched,
    TaskState,
    WantedState,
)
from headgate.records.error_codes import COPY_FAILED, COPYING_CODES
from headgate.records.fitting import fitted_text
from headgate.records.keys import OutcomeKey, RequestKey, SpanKey
from headgate.records.row_copies import RowCopy, is_snapshot, read_row_copy, snapshot_request
from headgate.records.spans import paused_table

__all__ = ["ask", "begin_snapshots", "settle", "take_back", "take_back_lost", "take_up", "why_not_copied_yet"]


def ask(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    """Start a resync_table."""
    feed, reason = pausing.feed_of(draft, requested)
    if feed is None or reason is not None:
        return refuse(draft, request, reason or no_such_feed(draft, requested.feed))
    rows = read_row_copy(requested.spec)
    if not isinstance(rows, RowCopy):
        return refuse(draft, request, rows)
    table = requested.table or ""
    reason = _why_not(draft, feed, requested.feed, table)
    if reason is not None:
        return refuse(draft, request, reason)
    by = fitted_text(f"{requested.requested_by}, to copy rows from the source")
    entry = PausedTable(table, by, draft.now.wall_ms, request)
    changed = replace(feed, paused=tuple(sorted((*feed.paused, entry), key=lambda each: each.table)))
    reason = waits_for_upgrade(draft, changed)
    if reason is not None:
        return refuse(draft, request, reason)
    pausing.write(draft, requested.feed, changed)
    draft.term.copies[requested.feed, table] = request
    draft.settle(request, OutcomeStatus.ACCEPTED, "the table is being drained and sealed; then its rows are copied")
    return None


def _why_not(draft: CoordinatorDraft, feed: FeedRecorded, name: str, table: str) -> str | None:
    paused = paused_table(feed, table)
    if paused is not None:
        return f"table {table!r} is paused by {paused.by}. Try again when it replicates"
    if (name, table) in draft.term.copies:
        return f"rows of table {table!r} are being copied already, for request {draft.term.copies[name, table]}"
    if (name, table) in draft.term.divisions:
        return f"table {table!r} is being split or merged. Try again when that is done"
    if sum(plan.table == table for plan in feed.spans) > 1:
        return (
            f"table {table!r} is split, and the rows of a key are one part's. Merge it first: "
            f"headgate table merge {name} {table}"
        )
    if feed.target_ts is not None:
        return f"feed {name!r} ends at a target_ts, and rows of the source are newer than that"
    return None


def begin_snapshots(draft: CoordinatorDraft, name: str, feed_id: str, copies: Mapping[str, str]) -> None:
    """Request copies for tables that join the feed now. ``copies``: table → which rows, as in FeedResolved."""
    for table, rows in sorted(copies.items()):
        request = snapshot_request(feed_id, table)
        draft.put(RequestKey(request), _requested(draft, name, table, rows))
        draft.put_outcome(OutcomeKey(request), OutcomeStatus.ACCEPTED, "rows are copied before the table replicates")
        draft.term.copies[name, table] = request


def _requested(draft: CoordinatorDraft, name: str, table: str, rows: str) -> OperationRequested:
    return OperationRequested(
        kind=OperationKind.RESYNC_TABLE,
        feed=name,
        spec=rows,
        table=table,
        agent=None,
        requested_by="snapshot: initial",
        requested_ms=draft.now.wall_ms,
    )


def why_not_copied_yet(draft: CoordinatorDraft, name: str, copies: Mapping[str, str]) -> str | None:
    """Why these copies cannot be requested yet: not every live process could read that (docs/adr/0008)."""
    return next(
        (
            why
            for table, rows in copies.items()
            if (why := waits_for_upgrade(draft, _requested(draft, name, table, rows))) is not None
        ),
        None,
    )


def take_up(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    """Resume a resync_table that an earlier owner accepted; its progress is in the records of feed and span."""
    draft.term.copies[requested.feed, requested.table or ""] = request


def take_back(draft: CoordinatorDraft, request: str) -> None:
    """The client has deleted the request: the table continues without the copy."""
    for (name, table), copying in list(draft.term.copies.items()):
        if copying == request:
            _end(draft, name, table)


def take_back_lost(draft: CoordinatorDraft) -> None:
    """For a new owner: resume tables that are paused for a request that was deleted while the shard had no owner."""
    for name, feed in sorted(draft.state.feeds.items()):
        for paused in feed.paused:
            if paused.copy is not None and paused.copy not in draft.state.requests:
                _resume(draft, name, paused.table)
        for plan in feed.spans:
            key = SpanKey(name, plan.span)
            record = draft.span(key)
            if record is not None and record.copy is not None and record.copy not in draft.state.requests:
                draft.put_span(key, replace(record, owner_rev=draft.term.owner_rev, copy=None))


def settle(draft: CoordinatorDraft) -> None:
    """After a round: resume tables that are sealed, and settle requests whose rows are copied."""
    for (name, table), request in sorted(draft.term.copies.items()):
        feed, record = draft.feed(name), draft.span(SpanKey(name, table))
        if feed is None or feed.wanted is WantedState.REMOVED:
            _settle(draft, request, OutcomeStatus.FAILED, "the feed is being removed")
            del draft.term.copies[name, table]
        elif paused_table(feed, table) is not None:
            if not pausing.is_written(draft, name, feed, table):
                _resume(draft, name, table)
        elif record is not None and record.copy == request:
            _settle_copy(draft, name, table, record)


def _settle_copy(draft: CoordinatorDraft, name: str, table: str, record: SpanDispatched) -> None:
    """Settle the request of a table that an agent was assigned together with it, if the copy has ended."""
    request = draft.term.copies[name, table]
    if record.state is ReplicationState.REPLICATING and _is_copied(draft, SpanKey(name, table), record):
        _settle(draft, request, OutcomeStatus.DONE, "the rows are copied, and the table replicates")
        _end(draft, name, table)
    elif is_snapshot(request):
        return
    elif record.state is ReplicationState.ABSENT and (record.last_error or "").startswith(f"{COPY_FAILED}:"):
        draft.settle(request, OutcomeStatus.FAILED, f"{record.last_error}. The table resumes without it")
        _end(draft, name, table)


def _settle(draft: CoordinatorDraft, request: str, status: OutcomeStatus, reason: str) -> None:
    """Settle a request; no client waits for one that the owner has made, so it is deleted."""
    if is_snapshot(request):
        draft.put(RequestKey(request), None)
        draft.put(OutcomeKey(request), None)
    else:
        draft.settle(request, status, reason)


def _is_copied(draft: CoordinatorDraft, key: SpanKey, record: SpanDispatched) -> bool:
    """Whether the primary's newest report is that the span replicates, with nothing left to copy."""
    word = draft.state.word_of_primary(key, record)
    return word is not None and word.state is TaskState.REPLICATING and word.error_code not in COPYING_CODES


def _end(draft: CoordinatorDraft, name: str, table: str) -> None:
    """The request is over or withdrawn: the table continues to replicate, or is resumed from its checkpoint."""
    key = SpanKey(name, table)
    request, record = draft.term.copies.pop((name, table)), draft.span(key)
    if record is not None and record.copy == request:
        changed = replace(record, owner_rev=draft.term.owner_rev, copy=None)
        if (record.last_error or "").startswith(f"{COPY_FAILED}:"):
            changed = replace(changed, failures=0, last_error=None)
            draft.cancel_timer("retry", key)
            draft.term.retry_due.put(key)
            draft.set_timer("schedule", "", 0.0)
        draft.put_span(key, changed)
    feed = draft.feed(name)
    paused = None if feed is None else paused_table(feed, table)
    if paused is not None and paused.copy == request:
        _resume(draft, name, table)


def _resume(draft: CoordinatorDraft, name: str, table: str) -> None:
    feed = draft.feed(name)
    if feed is not None:
        pausing.write(draft, name, replace(feed, paused=tuple(each for each in feed.paused if each.table != table)))
