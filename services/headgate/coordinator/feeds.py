"""A feed's life: from an operator's request to its outcome.

    create ──accepted──ResolveFeed──▶ recorded (running) ◀──resume── stopped
                                        │  └──────pause──accepted──▶ every span sealed ──▶ stopped ──update──▶ stopped
                                        │  └──target reached──▶ every span sealed ──▶ finished
                                        └──remove──accepted──▶ every span sealed ──ForgetFeed──▶ keys deleted

Every request gets one outcome: ``refused`` (nothing was changed, and why), ``done``, ``failed``, or ``accepted``
while it is
under way. A request with an outcome is never looked at again, so a duplicate, or a replay, does nothing. When the
operator deletes
the request, having read the outcome, the owner deletes the outcome. A create whose request is deleted while it is being
resolved is taken back.

``wanted`` is the operator's wish, ``state`` what is. A feed is ``stopped`` only when each of its spans is sealed or
was never dispatched. ``warning`` means that a table has failed and does not replicate again yet; the others go on.
``failed`` means that such tables were given up: tried again for half an hour without progress (docs/error-codes.md).
A feed with a target_ts ends by itself: once there is evidence for each of its tables that every change up to there is
at the sink, and a look at the source after that has found no other table, the owner wants it ``finished``, and it is
when every span is sealed.
"""

from typing import Any, Final

from msgspec.structs import replace

from headgate.coordinator import acceptance, checkpoint, discovery, dividing, relocation, spans
from headgate.coordinator.draft import Draft
from headgate.coordinator.effects import (
    DiscoverTables,
    EffectFailed,
    FeedForgotten,
    ForgetFeed,
    ResignOwner,
    ResolveFeed,
    ResolveStart,
)
from headgate.coordinator.index import is_broken
from headgate.coordinator.outcomes import FINISHED_ADVICE, change_wish, no_such_feed, refuse, supersede
from headgate.coordinator.schedulers.move import seat_of
from headgate.coordinator.scheduling import seats_of
from headgate.records.control import (
    FeedRecorded,
    FeedState,
    OperationKind,
    OperationRequested,
    OutcomeStatus,
    SetState,
    SpanPlan,
    WantedState,
)
from headgate.records.error_codes import PARTITIONS_GROWN
from headgate.records.keys import FeedKey, FeedProgressKey, OutcomeKey, SpanKey

__all__ = [
    "answer_request",
    "catch_up",
    "conclude",
    "delete_piece",
    "finish_effect",
    "forget_outcome",
    "give_up",
    "retry_forget",
    "settle_feed",
]

STUCK_SECONDS_MAX: Final = 1800.0
"""Longest time that broken tables are tried again without any of them making progress (TiCDC's
changefeed-error-stuck-duration): beyond, only a person can help, and should be told."""

DELETES_PER_DECISION_MAX: Final = 1_000
"""Spans whose keys are deleted in one decision, each with those of a few dead sessions: the transaction of a turn stays
below TURN_FACTS_MAX (eventlog/term.py), and the turn far below a lease."""

EFFECT_RETRY_SECONDS: Final = 5.0
"""Pause before an effect that could not be run is asked for again."""


def answer_request(draft: Draft, request: str) -> None:
    """Look at a request without an outcome."""
    placed = draft.state.requests.get(request)
    if placed is None or draft.outcome(request) is not None:
        return
    wish = placed.request
    match wish.kind:
        case OperationKind.CREATE_FEED:
            acceptance.create(draft, request, wish)
        case OperationKind.UPDATE_FEED:
            acceptance.update(draft, request, wish)
        case OperationKind.PAUSE_FEED:
            _want(draft, request, wish, WantedState.STOPPED)
        case OperationKind.REMOVE_FEED:
            _want(draft, request, wish, WantedState.REMOVED)
        case OperationKind.RESUME_FEED:
            _resume(draft, request, wish)
        case OperationKind.MOVE_TABLE:
            _move(draft, request, wish)
        case OperationKind.SPLIT_TABLE | OperationKind.MERGE_TABLE:
            dividing.ask(draft, request, wish)
        case OperationKind.REBALANCE_FEED:
            relocation.ask_rebalance(draft, request, wish)
        case OperationKind.DRAIN_AGENT:
            relocation.ask_drain(draft, request, wish)
        case OperationKind.RESIGN_OWNER:
            reason = f"the owner of term {draft.term.owner_rev} gives shard {draft.state.shard} back"
            draft.settle(request, OutcomeStatus.DONE, reason)
            draft.add_effect(ResignOwner(request))


def forget_outcome(draft: Draft, request: str) -> None:
    """The operator has deleted the request: its outcome goes too."""
    relocation.take_back(draft, request)
    if request in draft.state.outcomes:
        draft.put(OutcomeKey(request), None)


def catch_up(draft: Draft) -> None:
    """A new owner, its barrier over: what the last one has left undone."""
    state = draft.state
    for request in sorted(set(state.outcomes) - set(state.requests)):
        forget_outcome(draft, request)
    for request in sorted(state.requests, key=lambda name: (state.requests[name].offset, name)):
        outcome, wish = state.outcomes.get(request), state.requests[request].request
        if outcome is None:
            answer_request(draft, request)
        elif outcome.status is OutcomeStatus.ACCEPTED:
            _take_up(draft, request, wish)
    draft.feeds_touched.update(state.feeds)


def _take_up(draft: Draft, request: str, wish: OperationRequested) -> None:
    """What an owner before me has accepted; what is not here is in the records of feeds and spans."""
    match wish.kind:
        case OperationKind.CREATE_FEED | OperationKind.UPDATE_FEED | OperationKind.RESUME_FEED:
            acceptance.ask_again(draft, request)
        case OperationKind.SPLIT_TABLE | OperationKind.MERGE_TABLE:
            dividing.take_up(draft, request, wish)
        case OperationKind.REBALANCE_FEED:
            relocation.ask_rebalance(draft, request, wish)
        case OperationKind.DRAIN_AGENT:
            relocation.ask_drain(draft, request, wish)
        case _:
            pass


def finish_effect(draft: Draft, effect: Any, result: Any) -> None:
    """The service's answer to an effect."""
    match effect, result:
        case ((ResolveFeed() | ResolveStart()), _):
            acceptance.finish(draft, effect, result)
        case DiscoverTables(), _:
            discovery.finish(draft, effect, result)
            if draft.term.last_looks.get(effect.feed):
                conclude(draft, effect.feed, draft.state.index.feed(effect.feed).least_resolved_ts())
        case ForgetFeed(), EffectFailed():
            draft.set_timer("forget", effect.feed, EFFECT_RETRY_SECONDS)
        case ForgetFeed(), FeedForgotten():
            _delete(draft, effect)
        case _:
            raise TypeError(f"{type(result).__name__} is no answer to {type(effect).__name__}")


def retry_forget(draft: Draft, name: str) -> None:
    """Ask again to clean up after a feed; the sink did not answer."""
    draft.term.forgetting.discard(name)
    draft.feeds_touched.add(name)


def settle_feed(draft: Draft, name: str) -> None:
    """Bring a feed's state in line with its spans, and say so to whoever asked for it."""
    feed = draft.feed(name)
    if feed is None:
        return
    discovery.watch(draft, name, feed)
    open_count, broken_count = draft.count_spans(name)
    if feed.wanted is not WantedState.RUNNING:
        draft.cancel_timer("stuck", name)
    if feed.wanted is not WantedState.RUNNING and not open_count:
        if feed.wanted is WantedState.STOPPED:
            _end(draft, name, feed, FeedState.STOPPED)
            if feed.state is not FeedState.STOPPED:
                draft.settle(feed.request, OutcomeStatus.DONE, "stopped: every table is sealed at the sink")
        elif feed.wanted is WantedState.FINISHED:
            _end(draft, name, feed, FeedState.FINISHED)
        elif name not in draft.term.forgetting:
            draft.term.forgetting.add(name)
            draft.add_effect(ForgetFeed(name, feed.feed_id, feed.spec))
        return
    if not draft.failing_count(name):
        draft.cancel_timer("stuck", name)
    if not broken_count:
        _change(draft, name, feed, FeedState.NORMAL)
    elif feed.state is not FeedState.FAILED:
        if feed.wanted is WantedState.RUNNING and not draft.has_timer("stuck", name):
            draft.set_timer("stuck", name, STUCK_SECONDS_MAX)
        _change(draft, name, feed, FeedState.WARNING)


def conclude(draft: Draft, name: str, resolved_ts: int | None) -> None:
    """All tables of the feed are complete up to ``resolved_ts``: if that is its target, nothing more is wanted of it.

    Unless there are others by now: a table that has come since the last look may have changes before the target.
    """
    feed = draft.feed(name)
    if feed is None or feed.wanted is not WantedState.RUNNING or feed.target_ts is None or resolved_ts is None:
        return
    if resolved_ts >= feed.target_ts and discovery.has_all(draft, name):
        change_wish(draft, name, feed, WantedState.FINISHED, None)


def give_up(draft: Draft, name: str) -> None:
    """The feed has had broken tables for too long, none of which has written anything: nobody tries them any more.

    Its other tables go on. A table that is just being tried may still heal the feed; else an operator's resume does.
    """
    feed = draft.feed(name)
    if feed is None or feed.wanted is not WantedState.RUNNING or not draft.count_spans(name)[1]:
        return
    changed = replace(
        feed,
        owner_rev=draft.term.owner_rev,
        state=FeedState.FAILED,
        error=f"given up after {STUCK_SECONDS_MAX / 60:.0f} min without progress: {feed.error or 'see why'}",
        changed_ms=draft.now.wall_ms,
    )
    draft.put(FeedKey(name), changed)
    for key in _spans_of(feed, name):
        record = draft.span(key)
        if record is not None and spans.is_given_up(draft, key, record):
            draft.cancel_timer("retry", key)
            draft.term.retry_due.discard(key)


def _end(draft: Draft, name: str, feed: FeedRecorded, state: FeedState) -> None:
    """Every span is sealed. Where it stopped is written with it: the next owner counts no word of those who sealed."""
    if feed.state is not state:
        checkpoint.write(draft, name)
    _change(draft, name, feed, state)


def _change(draft: Draft, name: str, feed: FeedRecorded, state: FeedState) -> None:
    if feed.state is state:
        return
    code, _, text = _first_error(draft, name).partition(": ") if state is FeedState.WARNING else ("", "", "")
    if feed.error_code == PARTITIONS_GROWN:  # for good, whatever its tables do on the way
        code, text = feed.error_code, feed.error or ""
    changed = replace(
        feed,
        owner_rev=draft.term.owner_rev,
        state=state,
        error_code=code or None,
        error=text or None,
        changed_ms=draft.now.wall_ms,
    )
    draft.put(FeedKey(name), changed)


def _first_error(draft: Draft, name: str) -> str:
    for key in sorted(draft.spans_touched.get(name, ())):
        record = draft.span(key)
        if record is not None and is_broken(record):
            return f"{(record.last_error or 'unknown').partition(': ')[0]}: {key.span}: {record.last_error}"
    return "unknown: see why"


# --- requests -------------------------------------------------------------------------------------------------


def _want(draft: Draft, request: str, wish: OperationRequested, wanted: WantedState) -> None:
    feed = draft.feed(wish.feed)
    if feed is None:
        return refuse(draft, request, no_such_feed(draft, wish.feed))
    if feed.wanted is WantedState.REMOVED:
        return refuse(draft, request, f"feed {wish.feed!r} is being removed")
    if feed.wanted is WantedState.FINISHED and wanted is WantedState.STOPPED:
        return refuse(draft, request, f"feed {wish.feed!r} has reached its target_ts: {FINISHED_ADVICE}")
    if feed.wanted is wanted:
        reason = "is stopped already" if feed.state is FeedState.STOPPED else "is being stopped already"
        return refuse(draft, request, f"feed {wish.feed!r} {reason}")
    supersede(draft, feed, request)
    draft.settle(request, OutcomeStatus.ACCEPTED, "every table is being drained and sealed")
    change_wish(draft, wish.feed, feed, wanted, request)
    return None


def _resume(draft: Draft, request: str, wish: OperationRequested) -> None:
    feed = draft.feed(wish.feed)
    if feed is None:
        return refuse(draft, request, no_such_feed(draft, wish.feed))
    is_removed = feed.wanted is WantedState.REMOVED
    reason = f"feed {wish.feed!r} is being removed" if is_removed else discovery.why_not_resumed(feed, wish.feed)
    if reason is not None:
        return refuse(draft, request, reason)
    if wish.spec is not None:
        return acceptance.rewind(draft, request, wish)
    if feed.wanted is WantedState.FINISHED:
        return refuse(draft, request, f"feed {wish.feed!r} has reached its target_ts: {FINISHED_ADVICE}")
    failed = [key for key in _spans_of(feed, wish.feed) if _waits_after_failure(draft, key)]
    if feed.wanted is WantedState.RUNNING and not failed:
        return refuse(draft, request, f"feed {wish.feed!r} runs already")
    draft.cancel_timer("stuck", wish.feed)
    for key in failed:
        draft.cancel_timer("retry", key)
        draft.term.retry_due.put(key)
    supersede(draft, feed, request)
    change_wish(draft, wish.feed, feed, WantedState.RUNNING, request)
    draft.settle(request, OutcomeStatus.DONE, f"running; {len(failed)} failed tables are tried again now")
    return None


def _waits_after_failure(draft: Draft, key: SpanKey) -> bool:
    record = draft.span(key)
    return record is not None and record.state is SetState.ABSENT and record.failures > 0


def _spans_of(feed: FeedRecorded, name: str) -> list[SpanKey]:
    return [SpanKey(name, plan.span) for plan in feed.spans]


def _move(draft: Draft, request: str, wish: OperationRequested) -> None:
    feed = draft.feed(wish.feed)
    if feed is None:
        return refuse(draft, request, no_such_feed(draft, wish.feed))
    if feed.wanted is not WantedState.RUNNING:
        return refuse(draft, request, f"feed {wish.feed!r} is {feed.state}, wanted {feed.wanted}: resume it first")
    plans = [plan for plan in feed.spans if wish.table is not None and wish.table in (plan.table, plan.span)]
    reason = _why_not_movable(draft, wish, plans) or _why_no_target(draft, wish, plans[0])
    if reason is not None:
        return refuse(draft, request, reason)
    target = seat_of(_sessions_of(draft, wish.agent), seats_of(draft))
    if target is None:
        reason = "its capacity is reached, or it opens too many tables just now"
        return refuse(draft, request, f"agent {wish.agent!r} has no free seat: {reason}")
    draft.settle(request, OutcomeStatus.ACCEPTED, f"{wish.agent} prepares the table")
    spans.begin_move(draft, SpanKey(wish.feed, plans[0].span), target, request)
    return None


def _why_not_movable(draft: Draft, wish: OperationRequested, plans: list[SpanPlan]) -> str | None:
    if not plans:
        return f"feed {wish.feed!r} has no table {wish.table!r}"
    if len(plans) > 1:
        return f"table {wish.table!r} has several spans; name one: {', '.join(plan.span for plan in plans)}"
    record = draft.span(SpanKey(wish.feed, plans[0].span))
    if not spans.is_movable(record):
        where = "waiting for an agent" if record is None or record.primary is None else f"in {record.state}"
        return f"table {wish.table!r} is {where}: try again when it is replicating"
    return None


def _why_no_target(draft: Draft, wish: OperationRequested, plan: SpanPlan) -> str | None:
    sessions = _sessions_of(draft, wish.agent)
    if not sessions:
        known = ", ".join(sorted({agent for agent, _ in draft.state.index.live.in_order()})) or "none"
        return f"there is no live agent {wish.agent!r}; known are: {known}"
    record = draft.span(SpanKey(wish.feed, plan.span))
    if record is not None and record.primary is not None and record.primary.agent == wish.agent:
        return f"table {wish.table!r} is on {wish.agent} already"
    targets = [session for session in sessions if draft.is_target(session)]
    if not targets:
        return f"agent {wish.agent!r} is stopping or being drained, or has not answered the owner yet"
    return None


def _sessions_of(draft: Draft, agent: str | None) -> list[tuple[str, str]]:
    return [session for session in draft.state.index.live.in_order() if session[0] == agent and draft.is_live(session)]


# --- the end --------------------------------------------------------------------------------------------------


def _delete(draft: Draft, effect: ForgetFeed) -> None:
    """The sink has forgotten the feed: so does the log, piece by piece."""
    feed = draft.feed(effect.feed)
    if feed is None or feed.feed_id != effect.feed_id or feed.wanted is not WantedState.REMOVED:
        draft.term.forgetting.discard(effect.feed)
        return
    delete_piece(draft, effect.feed)


def delete_piece(draft: Draft, name: str) -> None:
    """Delete the next keys of the feed that are the owner's: dispatch, words of dead sessions, at last the feed's own.

    Words of live sessions are theirs, and theirs to delete. An owner that follows between two
    pieces finds a feed to be removed whose spans are closed or gone: it has the sink forget it again, and goes on.
    """
    state, feed = draft.state, draft.feed(name)
    if feed is None or feed.wanted is not WantedState.REMOVED:
        draft.term.forgetting.discard(name)
        return
    left = [key for key in _spans_of(feed, name) if key in state.spans]
    for key in left[:DELETES_PER_DECISION_MAX]:
        draft.forget_span(key)
    if len(left) > DELETES_PER_DECISION_MAX:
        draft.set_timer("delete", name, 0.0)
        return
    draft.term.forgetting.discard(name)
    if name in state.feed_progress:
        draft.put(FeedProgressKey(name), None)
    draft.put(FeedKey(name), None)
    draft.settle(feed.request, OutcomeStatus.DONE, "removed: the sink holds nothing of Headgate's for it any more")
