"""Maintains a table of a lake on request, while its feed runs (docs/adr/0135).

    accepted ──▶ its span's record names the request ──▶ the agent maintains the table between two batches, and reports
    what it did: done, or failed

The table stays with its agent, under its epoch. An agent that takes the table over before that is done finds the
request in the span's record and begins again, which is harmless. A table that is split has one of its parts maintain
all of it.

The term records which requests wait; a new owner resumes accepted requests. A request that is deleted before its
outcome is withdrawn: the agent completes what it has started.
"""

from msgspec.structs import replace

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.outcomes import no_such_feed, refuse, waits_for_upgrade
from headgate.coordinator.core.spans import pausing
from headgate.records.control import (
    FeedRecorded,
    OperationRequested,
    OutcomeStatus,
    ReplicationState,
    SpanDispatched,
    WantedState,
)
from headgate.records.keys import SpanKey
from headgate.records.spans import paused_table, table_of

__all__ = ["ask", "settle", "take_back", "take_back_lost", "take_up"]


def ask(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    """Start an optimize_table."""
    feed, reason = pausing.feed_of(draft, requested)
    if feed is None or reason is not None:
        return refuse(draft, request, reason or no_such_feed(draft, requested.feed))
    table = requested.table or ""
    key = SpanKey(requested.feed, next(plan.span for plan in feed.spans if plan.table == table))
    record = draft.span(key)
    reason = _why_not(draft, feed, key, table, record)
    if record is None or record.primary is None or reason is not None:
        return refuse(draft, request, reason or f"table {table!r} is on no agent yet. Try again when it replicates")
    changed = replace(record, owner_rev=draft.term.owner_rev, maintain=request)
    reason = waits_for_upgrade(draft, changed)
    if reason is not None:
        return refuse(draft, request, reason)
    draft.put_span(key, changed)
    draft.term.maintenances[key] = request
    draft.settle(request, OutcomeStatus.ACCEPTED, f"{record.primary.agent} optimizes the table between two batches")
    return None


def _why_not(
    draft: CoordinatorDraft, feed: FeedRecorded, key: SpanKey, table: str, record: SpanDispatched | None
) -> str | None:
    paused = paused_table(feed, table)
    if paused is not None:
        return f"table {table!r} is paused by {paused.by}. Resume it first: headgate table resume {key.feed} {table}"
    if (key.feed, table) in draft.term.copies:
        return f"rows of table {table!r} are being copied. Optimize it when that is done"
    if (key.feed, table) in draft.term.divisions:
        return f"table {table!r} is being split or merged. Optimize it when that is done"
    if key in draft.term.maintenances:
        return f"table {table!r} is being optimized already, for request {draft.term.maintenances[key]}"
    if record is not None and record.state is not ReplicationState.REPLICATING:
        return f"table {table!r} is in {record.state}. Try again when it is replicating"
    return None


def take_up(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    """Resume an optimize_table that an earlier owner accepted."""
    feed = draft.feed(requested.feed)
    for plan in () if feed is None else feed.spans:
        key = SpanKey(requested.feed, plan.span)
        record = draft.span(key)
        if record is not None and record.maintain == request:
            draft.term.maintenances[key] = request
            return
    draft.settle(request, OutcomeStatus.FAILED, "the table was divided otherwise, or is gone")


def take_back(draft: CoordinatorDraft, request: str) -> None:
    """The client has deleted the request."""
    for key, waiting in list(draft.term.maintenances.items()):
        if waiting == request:
            _end(draft, key)


def take_back_lost(draft: CoordinatorDraft) -> None:
    """For a new owner: end what was asked by requests that were deleted while the shard had no owner."""
    for name, feed in sorted(draft.state.feeds.items()):
        for plan in feed.spans:
            key = SpanKey(name, plan.span)
            record = draft.span(key)
            if record is not None and record.maintain is not None and record.maintain not in draft.state.requests:
                _end(draft, key)


def settle(draft: CoordinatorDraft) -> None:
    """After a round: settle the requests whose agent has reported, and those that have become void."""
    for key, request in sorted(draft.term.maintenances.items()):
        feed, record = draft.feed(key.feed), draft.span(key)
        reason = _why_void(feed, key, record, request)
        word = None if record is None else draft.state.word_of_primary(key, record)
        if reason is not None:
            draft.settle(request, OutcomeStatus.FAILED, reason)
        elif word is not None and word.maintained == request:
            status = OutcomeStatus.FAILED if word.maintenance_failed else OutcomeStatus.DONE
            draft.settle(request, status, word.maintenance or "")
        else:
            continue
        _end(draft, key)


def _why_void(feed: FeedRecorded | None, key: SpanKey, record: SpanDispatched | None, request: str) -> str | None:
    if feed is None or feed.wanted is WantedState.REMOVED:
        return "the feed is being removed"
    if feed.wanted is not WantedState.RUNNING:
        return "the feed was paused before that"
    if paused_table(feed, table_of(key.span)) is not None:
        return "the table was paused before that"
    if record is None or record.maintain != request:
        return "the table was divided otherwise before that. Try again"
    return None


def _end(draft: CoordinatorDraft, key: SpanKey) -> None:
    draft.term.maintenances.pop(key, None)
    record = draft.span(key)
    if record is not None and record.maintain is not None:
        draft.put_span(key, replace(record, owner_rev=draft.term.owner_rev, maintain=None))
