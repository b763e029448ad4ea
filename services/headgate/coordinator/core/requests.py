"""Handles operators' requests: each one gets one outcome, and its work is started.

``refused`` (nothing was changed, and why), ``done``, ``failed``, or ``accepted`` while it is under way. A request with
an outcome is never processed again, so a duplicate, or a replay, does nothing. When the operator has read the outcome
and deletes the request, the owner deletes the outcome. A create whose request is deleted while it is being resolved is
withdrawn.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.feeds import acceptance, discovery
from headgate.coordinator.core.feeds.feed_lifecycle import spans_of
from headgate.coordinator.core.outcomes import (
    FINISHED_ADVICE,
    change_wish,
    no_such_agent,
    no_such_feed,
    no_such_table,
    refuse,
    supersede,
    waits_for_upgrade,
)
from headgate.coordinator.core.scheduling import relocation
from headgate.coordinator.core.scheduling.round_view import capacity_of
from headgate.coordinator.core.spans import copying, dividing, maintaining, pausing, span_lifecycle
from headgate.coordinator.schedulers.move import session_with_capacity
from headgate.records.control import (
    FeedRecorded,
    FeedState,
    OperationKind,
    OperationRequested,
    OutcomeStatus,
    ReplicationState,
    SpanPlan,
    WantedState,
)
from headgate.records.keys import OutcomeKey, SpanKey
from headgate.records.name_lists import number_of
from headgate.runtime.machine import ResignOwner


def answer_request(draft: CoordinatorDraft, request: str) -> None:
    """Process a request without an outcome."""
    placed = draft.state.requests.get(request)
    if placed is None or draft.outcome(request) is not None:
        return
    requested = placed.request
    _ANSWERS[requested.kind](draft, request, requested)


def forget_outcome(draft: CoordinatorDraft, request: str) -> None:
    """Delete the outcome of a request that the operator has deleted."""
    relocation.take_back(draft, request)
    copying.take_back(draft, request)
    maintaining.take_back(draft, request)
    if request in draft.state.outcomes:
        draft.put(OutcomeKey(request), None)


def catch_up(draft: CoordinatorDraft) -> None:
    """Once a new owner's barrier is over: finish what the previous owner has left undone."""
    state = draft.state
    for request in sorted(set(state.outcomes) - set(state.requests)):
        forget_outcome(draft, request)
    for request in sorted(state.requests, key=lambda name: (state.requests[name].offset, name)):
        outcome, requested = state.outcomes.get(request), state.requests[request].request
        if outcome is None:
            answer_request(draft, request)
        elif outcome.status is OutcomeStatus.ACCEPTED:
            _take_up(draft, request, requested)
    copying.take_back_lost(draft)
    maintaining.take_back_lost(draft)
    draft.feeds_touched.update(state.feeds)


def _take_up(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    """Resume what an earlier owner has accepted; everything else is in the records of feeds and spans."""
    match requested.kind:
        case OperationKind.CREATE_FEED | OperationKind.UPDATE_FEED | OperationKind.RESUME_FEED:
            acceptance.ask_again(draft, request)
        case OperationKind.SPLIT_TABLE | OperationKind.MERGE_TABLE:
            dividing.take_up(draft, request, requested)
        case OperationKind.PAUSE_TABLE:
            pausing.take_up(draft, request, requested)
        case OperationKind.RESYNC_TABLE:
            copying.take_up(draft, request, requested)
        case OperationKind.OPTIMIZE_TABLE:
            maintaining.take_up(draft, request, requested)
        case OperationKind.REBALANCE_FEED:
            relocation.ask_rebalance(draft, request, requested)
        case OperationKind.DRAIN_AGENT:
            relocation.ask_drain(draft, request, requested)
        case _:
            pass


def _want(draft: CoordinatorDraft, request: str, requested: OperationRequested, wanted: WantedState) -> None:
    feed = draft.feed(requested.feed)
    if feed is None:
        return refuse(draft, request, no_such_feed(draft, requested.feed))
    if requested.abandon_sink and not feed.abandoned:
        return _abandon(draft, request, requested, feed)
    if feed.wanted is WantedState.REMOVED:
        return refuse(draft, request, f"feed {requested.feed!r} is being removed")
    if feed.wanted is WantedState.FINISHED and wanted is WantedState.STOPPED:
        return refuse(draft, request, f"feed {requested.feed!r} has reached its target_ts: {FINISHED_ADVICE}")
    if feed.wanted is wanted:
        reason = "is stopped already" if feed.state is FeedState.STOPPED else "is being stopped already"
        return refuse(draft, request, f"feed {requested.feed!r} {reason}")
    supersede(draft, feed, request)
    draft.settle(request, OutcomeStatus.ACCEPTED, "every table is being drained and sealed")
    change_wish(draft, requested.feed, feed, wanted, request)
    return None


def _abandon(draft: CoordinatorDraft, request: str, requested: OperationRequested, feed: FeedRecorded) -> None:
    """Remove a feed without its sink, even one that is already being removed and cannot be sealed."""
    changed = replace(feed, abandoned=True)
    reason = waits_for_upgrade(draft, changed)
    if reason is not None:
        return refuse(draft, request, reason)
    supersede(draft, feed, request)
    draft.settle(request, OutcomeStatus.ACCEPTED, "every agent stops its tables; the sink is not asked any more")
    change_wish(draft, requested.feed, changed, WantedState.REMOVED, request)
    return None


def _resume(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    feed = draft.feed(requested.feed)
    if feed is None:
        return refuse(draft, request, no_such_feed(draft, requested.feed))
    is_removed = feed.wanted is WantedState.REMOVED
    reason = (
        f"feed {requested.feed!r} is being removed" if is_removed else discovery.why_not_resumed(feed, requested.feed)
    )
    if reason is not None:
        return refuse(draft, request, reason)
    if requested.spec is not None:
        return acceptance.rewind(draft, request, requested)
    if feed.wanted is WantedState.FINISHED:
        return refuse(draft, request, f"feed {requested.feed!r} has reached its target_ts: {FINISHED_ADVICE}")
    failed = [key for key in spans_of(feed, requested.feed) if _waits_after_failure(draft, key)]
    if feed.wanted is WantedState.RUNNING and not failed:
        return refuse(draft, request, f"feed {requested.feed!r} runs already")
    draft.cancel_timer("stuck", requested.feed)
    for key in failed:
        draft.cancel_timer("retry", key)
        draft.term.retry_due.put(key)
    supersede(draft, feed, request)
    change_wish(draft, requested.feed, feed, WantedState.RUNNING, request)
    retries = f"; retries {number_of(len(failed), 'failed table')} now" if failed else ""
    draft.settle(request, OutcomeStatus.DONE, f"running{retries}")
    return None


def _waits_after_failure(draft: CoordinatorDraft, key: SpanKey) -> bool:
    record = draft.span(key)
    return record is not None and record.state is ReplicationState.ABSENT and record.failures > 0


def _move(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    feed = draft.feed(requested.feed)
    if feed is None:
        return refuse(draft, request, no_such_feed(draft, requested.feed))
    if feed.wanted is not WantedState.RUNNING:
        return refuse(draft, request, f"feed {requested.feed!r} is {feed.state}, wanted {feed.wanted}: resume it first")
    plans = [plan for plan in feed.spans if requested.table is not None and requested.table in (plan.table, plan.span)]
    reason = _what_is_unknown(draft, requested, feed, plans)
    reason = reason or _why_not_movable(draft, requested, plans) or _why_no_target(draft, requested, plans[0])
    if reason is not None:
        return refuse(draft, request, reason)
    target = session_with_capacity(_sessions_of(draft, requested.agent), capacity_of(draft))
    if target is None:
        reason = "its capacity is reached, or it opens too many tables just now"
        return refuse(draft, request, f"agent {requested.agent!r} has no free capacity: {reason}")
    draft.settle(request, OutcomeStatus.ACCEPTED, f"{requested.agent} prepares the table")
    span_lifecycle.begin_move(draft, SpanKey(requested.feed, plans[0].span), target, request)
    return None


def _what_is_unknown(
    draft: CoordinatorDraft, requested: OperationRequested, feed: FeedRecorded, plans: list[SpanPlan]
) -> str | None:
    if not plans:
        return no_such_table(feed, requested.feed, requested.table)
    return None if _sessions_of(draft, requested.agent) else no_such_agent(draft, requested.agent)


def _why_not_movable(draft: CoordinatorDraft, requested: OperationRequested, plans: list[SpanPlan]) -> str | None:
    if len(plans) > 1:
        return f"table {requested.table!r} has several spans; name one: {', '.join(plan.span for plan in plans)}"
    paused = dividing.why_paused(draft, requested.feed, plans[0].span)
    if paused is not None:
        return paused
    record = draft.span(SpanKey(requested.feed, plans[0].span))
    reason = span_lifecycle.why_not_movable(requested.table or "", record)
    return None if reason is None else f"table {reason}"


def _why_no_target(draft: CoordinatorDraft, requested: OperationRequested, plan: SpanPlan) -> str | None:
    record = draft.span(SpanKey(requested.feed, plan.span))
    if record is not None and record.primary is not None and record.primary.agent == requested.agent:
        return f"table {requested.table!r} is on {requested.agent} already"
    targets = [session for session in _sessions_of(draft, requested.agent) if draft.is_target(session)]
    if not targets:
        return f"agent {requested.agent!r} is stopping or being drained, or has not answered the owner yet"
    return None


def _sessions_of(draft: CoordinatorDraft, agent: str | None) -> list[tuple[str, str]]:
    return [session for session in draft.state.index.live.in_order() if session[0] == agent and draft.is_live(session)]


def _pause(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    _want(draft, request, requested, WantedState.STOPPED)


def _remove(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    _want(draft, request, requested, WantedState.REMOVED)


def _resign(draft: CoordinatorDraft, request: str, _requested: OperationRequested) -> None:
    reason = f"the owner of term {draft.term.owner_rev} gives shard {draft.state.shard} back"
    draft.settle(request, OutcomeStatus.DONE, reason)
    draft.add_effect(ResignOwner(request))


_ANSWERS: Final[Mapping[OperationKind, Callable[[CoordinatorDraft, str, OperationRequested], None]]] = {
    OperationKind.CREATE_FEED: acceptance.create,
    OperationKind.UPDATE_FEED: acceptance.update,
    OperationKind.PAUSE_FEED: _pause,
    OperationKind.REMOVE_FEED: _remove,
    OperationKind.RESUME_FEED: _resume,
    OperationKind.MOVE_TABLE: _move,
    OperationKind.SPLIT_TABLE: dividing.ask,
    OperationKind.MERGE_TABLE: dividing.ask,
    OperationKind.PAUSE_TABLE: pausing.pause,
    OperationKind.RESUME_TABLE: pausing.resume,
    OperationKind.RESYNC_TABLE: copying.ask,
    OperationKind.OPTIMIZE_TABLE: maintaining.ask,
    OperationKind.REBALANCE_FEED: relocation.ask_rebalance,
    OperationKind.DRAIN_AGENT: relocation.ask_drain,
    OperationKind.RESIGN_OWNER: _resign,
}
"""The handler of each kind of request."""
