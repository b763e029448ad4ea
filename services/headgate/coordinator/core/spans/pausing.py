"""Pauses one table of a running feed, and resumes it (docs/adr/0108).

The feed's record names its paused tables. Their spans are not wanted, so they end like those of a paused feed: they are
closed, sealed at the sink, and assigned to no agent until the table is resumed. No other transition exists.

A request to pause is done when every span of the table is sealed. The term records which requests wait for that; a new
owner resumes accepted requests.
"""

from msgspec.structs import replace

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.outcomes import no_such_feed, no_such_table, refuse, waits_for_upgrade
from headgate.coordinator.core.span_predicates import is_open
from headgate.coordinator.core.spans import span_lifecycle
from headgate.records.control import FeedRecorded, OperationRequested, OutcomeStatus, PausedTable, WantedState
from headgate.records.fitting import fitted_text
from headgate.records.keys import FeedKey, SpanKey
from headgate.records.spans import paused_table

__all__ = ["feed_of", "is_written", "pause", "resume", "settle", "take_up", "write"]


def pause(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    """Start a pause_table."""
    feed, reason = feed_of(draft, requested)
    if feed is None or reason is not None:
        return refuse(draft, request, reason or no_such_feed(draft, requested.feed))
    table = requested.table or ""
    paused = paused_table(feed, table)
    if paused is not None:
        return refuse(draft, request, f"table {table!r} is paused already, by {paused.by}")
    if (requested.feed, table) in draft.term.copies:
        return refuse(draft, request, f"rows of table {table!r} are being copied. Pause it when that is done")
    if (requested.feed, table) in draft.term.divisions:
        return refuse(draft, request, f"table {table!r} is being split or merged. Pause it when that is done")
    entry = PausedTable(table, fitted_text(requested.requested_by), draft.now.wall_ms)
    changed = replace(feed, paused=tuple(sorted((*feed.paused, entry), key=lambda each: each.table)))
    reason = waits_for_upgrade(draft, changed)
    if reason is not None:
        return refuse(draft, request, reason)
    write(draft, requested.feed, changed)
    draft.term.pauses[requested.feed, table] = request
    draft.settle(request, OutcomeStatus.ACCEPTED, "the table is being drained and sealed")
    return None


def resume(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    """Answer a resume_table."""
    feed, reason = feed_of(draft, requested)
    if feed is None or reason is not None:
        return refuse(draft, request, reason or no_such_feed(draft, requested.feed))
    table = requested.table or ""
    paused = paused_table(feed, table)
    if paused is None:
        return refuse(draft, request, f"table {table!r} is not paused")
    if paused.copy is not None:
        return refuse(draft, request, f"table {table!r} is paused by {paused.by}. It resumes by itself")
    write(draft, requested.feed, replace(feed, paused=tuple(each for each in feed.paused if each.table != table)))
    waiting = draft.term.pauses.pop((requested.feed, table), None)
    if waiting is not None:
        draft.settle(waiting, OutcomeStatus.FAILED, f"superseded by request {request}")
    draft.settle(request, OutcomeStatus.DONE, "the table resumes from its checkpoint")
    return None


def take_up(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    """Resume a pause_table that an earlier owner accepted; what it asks for is in the feed's record."""
    draft.term.pauses[requested.feed, requested.table or ""] = request


def settle(draft: CoordinatorDraft) -> None:
    """After a round: settle pauses whose tables are sealed, and those that have become void."""
    for (name, table), request in sorted(draft.term.pauses.items()):
        feed = draft.feed(name)
        if feed is None or feed.wanted is WantedState.REMOVED:
            draft.settle(request, OutcomeStatus.FAILED, "the feed is being removed")
        elif paused_table(feed, table) is None:
            draft.settle(request, OutcomeStatus.FAILED, "the table was resumed")
        elif is_written(draft, name, feed, table):
            continue
        else:
            for key in sorted(_spans_of(draft, name, feed, table)):
                span_lifecycle.forget_failures(draft, key)
            draft.settle(request, OutcomeStatus.DONE, "paused: the table is sealed at the sink")
        del draft.term.pauses[name, table]


def feed_of(draft: CoordinatorDraft, requested: OperationRequested) -> tuple[FeedRecorded | None, str | None]:
    """The feed, and why none of its tables can be paused or resumed."""
    feed = draft.feed(requested.feed)
    if feed is None:
        return None, no_such_feed(draft, requested.feed)
    if feed.wanted is not WantedState.RUNNING:
        return feed, f"feed {requested.feed!r} is {feed.state}, wanted {feed.wanted}: resume it first"
    if all(plan.table != requested.table for plan in feed.spans):
        return feed, no_such_table(feed, requested.feed, requested.table)
    return feed, None


def is_written(draft: CoordinatorDraft, name: str, feed: FeedRecorded, table: str) -> bool:
    """Whether an agent may still write a span of the table, or one that it was divided into before."""
    return any(is_open(draft.span(key)) for key in _spans_of(draft, name, feed, table))


def _spans_of(draft: CoordinatorDraft, name: str, feed: FeedRecorded, table: str) -> set[SpanKey]:
    """The spans of the table, with those that it was divided into before."""
    whole = SpanKey(name, table)
    planned = [SpanKey(name, plan.span) for plan in feed.spans if plan.table == table]
    return {whole, *planned, *draft.state.index.overlapping(whole)}


def write(draft: CoordinatorDraft, name: str, feed: FeedRecorded) -> None:
    """Record other paused tables of the feed, and review their spans next."""
    draft.put(FeedKey(name), replace(feed, owner_rev=draft.term.owner_rev, changed_ms=draft.now.wall_ms))
    draft.feeds_touched.add(name)
    # The spans concerned are in the index once this is evolved; the next round, at once, takes them from there.
    draft.set_timer("schedule", "", 0.0)
