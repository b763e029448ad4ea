"""A feed's life: from an operator's request to its outcome.

    create ──accepted──ResolveFeed──▶ recorded (running) ◀──resume── stopped
                                        │  └──────pause──accepted──▶ every span sealed ──▶ stopped
                                        └──remove──accepted──▶ every span sealed ──ForgetFeed──▶ keys deleted

Every request gets one outcome: ``refused`` (nothing was changed, and why), ``done``, ``failed``, or ``accepted``
while it is
under way. A request with an outcome is never looked at again, so a duplicate, or a replay, does nothing. When the
operator deletes
the request, having read the outcome, the owner deletes the outcome. A create whose request is deleted while it is being
resolved is taken back.

``wanted`` is the operator's wish, ``state`` what is. A feed is ``stopped`` only when each of its spans is sealed or
was never dispatched. ``warning`` means that a table has failed and does not replicate again yet; the others go on.
"""

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from headgate.coordinator import relocation, spans
from headgate.coordinator.draft import Draft
from headgate.coordinator.effects import (
    EffectFailed,
    FeedForgotten,
    FeedRefused,
    FeedResolved,
    ForgetFeed,
    ResignOwner,
    ResolveFeed,
)
from headgate.coordinator.index import is_broken
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
from headgate.records.keys import FeedKey, FeedProgressKey, OutcomeKey, ProgressKey, SpanKey, TaskKey
from headgate.records.names import InvalidNameError, check_name

__all__ = [
    "answer_request",
    "catch_up",
    "finish_effect",
    "forget_outcome",
    "retry_forget",
    "retry_resolve",
    "settle_feed",
]

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
            _create(draft, request, wish)
        case OperationKind.PAUSE_FEED:
            _want(draft, request, wish, WantedState.STOPPED)
        case OperationKind.REMOVE_FEED:
            _want(draft, request, wish, WantedState.REMOVED)
        case OperationKind.RESUME_FEED:
            _resume(draft, request, wish)
        case OperationKind.MOVE_TABLE:
            _move(draft, request, wish)
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
        case OperationKind.CREATE_FEED:
            draft.add_effect(ResolveFeed(request, wish.feed, wish.spec or ""))
        case OperationKind.REBALANCE_FEED:
            relocation.ask_rebalance(draft, request, wish)
        case OperationKind.DRAIN_AGENT:
            relocation.ask_drain(draft, request, wish)
        case _:
            pass


def finish_effect(draft: Draft, effect: Any, result: Any) -> None:
    """The service's answer to ResolveFeed or ForgetFeed."""
    match effect, result:
        case ResolveFeed(), EffectFailed():
            if effect.request in draft.state.requests:
                reason = f"under way, but: {result.reason}; tried again every {EFFECT_RETRY_SECONDS:.0f} s"
                draft.settle(effect.request, OutcomeStatus.ACCEPTED, reason)
                draft.set_timer("resolve", effect.request, EFFECT_RETRY_SECONDS)
        case ResolveFeed(), FeedRefused():
            draft.settle(effect.request, OutcomeStatus.REFUSED, result.reason)
        case ResolveFeed(), FeedResolved():
            _record(draft, effect, result)
        case ForgetFeed(), EffectFailed():
            draft.set_timer("forget", effect.feed, EFFECT_RETRY_SECONDS)
        case ForgetFeed(), FeedForgotten():
            _delete(draft, effect)
        case _:
            raise TypeError(f"{type(result).__name__} is no answer to {type(effect).__name__}")


def retry_resolve(draft: Draft, request: str) -> None:
    """Ask again what a feed means; it could not be found out."""
    placed, outcome = draft.state.requests.get(request), draft.outcome(request)
    if placed is not None and outcome is not None and outcome.status is OutcomeStatus.ACCEPTED:
        draft.add_effect(ResolveFeed(request, placed.request.feed, placed.request.spec or ""))


def retry_forget(draft: Draft, name: str) -> None:
    """Ask again to clean up after a feed; the sink did not answer."""
    draft.term.forgetting.discard(name)
    draft.feeds_touched.add(name)


def settle_feed(draft: Draft, name: str) -> None:
    """Bring a feed's state in line with its spans, and say so to whoever asked for it."""
    feed = draft.feed(name)
    if feed is None:
        return
    open_count, broken_count = draft.count_spans(name)
    if feed.wanted is not WantedState.RUNNING and not open_count:
        if feed.wanted is WantedState.STOPPED:
            _change(draft, name, feed, FeedState.STOPPED)
            if feed.state is not FeedState.STOPPED:
                draft.settle(feed.request, OutcomeStatus.DONE, "stopped: every table is sealed at the sink")
        elif name not in draft.term.forgetting:
            draft.term.forgetting.add(name)
            draft.add_effect(ForgetFeed(name, feed.feed_id, feed.spec))
        return
    _change(draft, name, feed, FeedState.WARNING if broken_count else FeedState.NORMAL)


def _change(draft: Draft, name: str, feed: FeedRecorded, state: FeedState) -> None:
    if feed.state is state:
        return
    code, _, text = _first_error(draft, name).partition(": ") if state is FeedState.WARNING else ("", "", "")
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


def _refuse(draft: Draft, request: str, reason: str) -> None:
    draft.settle(request, OutcomeStatus.REFUSED, reason)


def _create(draft: Draft, request: str, wish: OperationRequested) -> None:
    try:
        check_name("feed", wish.feed)
    except InvalidNameError as error:
        return _refuse(draft, request, str(error))
    if wish.spec is None:
        return _refuse(draft, request, "the request has no spec: say what to read and where to write")
    reason = _name_is_taken(draft, request, wish.feed)
    if reason is not None:
        return _refuse(draft, request, reason)
    draft.settle(request, OutcomeStatus.ACCEPTED, "looking at the source topics and the sink")
    draft.add_effect(ResolveFeed(request, wish.feed, wish.spec))
    return None


def _name_is_taken(draft: Draft, request: str, name: str) -> str | None:
    feed = draft.feed(name)
    if feed is not None and feed.wanted is WantedState.REMOVED:
        return f"feed {name!r} is still being removed: try again when it is gone"
    if feed is not None:
        return f"feed {name!r} exists: choose another name, or remove it first"
    for other, placed in sorted(draft.state.requests.items()):
        outcome = draft.outcome(other)
        is_under_way = outcome is not None and outcome.status is OutcomeStatus.ACCEPTED
        if (
            other != request
            and is_under_way
            and (placed.request.kind, placed.request.feed)
            == (
                OperationKind.CREATE_FEED,
                name,
            )
        ):
            return f"feed {name!r} is being created by request {other}"
    return None


def _record(draft: Draft, effect: ResolveFeed, result: FeedResolved) -> None:
    placed, outcome = draft.state.requests.get(effect.request), draft.outcome(effect.request)
    if placed is None or outcome is None or outcome.status is not OutcomeStatus.ACCEPTED:
        return None
    reason = _name_is_taken(draft, effect.request, effect.feed) or _why_not(draft, result)
    if reason is not None:
        return _refuse(draft, effect.request, reason)
    record = FeedRecorded(
        feed_id=f"{draft.state.shard}-{placed.offset}",
        owner_rev=draft.term.owner_rev,
        incarnation=1,
        spec=result.spec,
        spans=tuple(sorted(result.spans, key=lambda plan: plan.span)),
        wanted=WantedState.RUNNING,
        state=FeedState.NORMAL,
        error_code=None,
        error=None,
        request=effect.request,
        changed_ms=draft.now.wall_ms,
    )
    draft.put(FeedKey(effect.feed), record)
    draft.settle(effect.request, OutcomeStatus.DONE, f"created with {len(record.spans)} tables")
    draft.set_timer("schedule", "", 0.0)
    return None


def _why_not(draft: Draft, result: FeedResolved) -> str | None:
    names = [plan.span for plan in result.spans]
    if not names:
        return "no table is to be replicated: check source.topics or source.topic_pattern"
    if len(set(names)) != len(names):
        return "two spans have one name: check sink.table, which names tables after topics"
    sink = _sink_of(result.spec)
    if sink is None:
        return "the spec has no sink.type and sink.dsn"
    tables = {plan.table for plan in result.spans}
    for name, other in sorted(draft.state.feeds.items()):
        shared = sorted(tables & {plan.table for plan in other.spans}) if _sink_of(other.spec) == sink else []
        if shared:
            return f"table {shared[0]} is already written by feed {name!r}: a table has one writer"
    return None


class _SinkPart(msgspec.Struct):
    type: str
    dsn: str


class _SpecPart(msgspec.Struct):
    sink: _SinkPart


def _sink_of(spec: str) -> tuple[str, str] | None:
    """Where a feed writes, as text that is equal for equal databases (effects.FeedResolved)."""
    try:
        part = msgspec.json.decode(spec, type=_SpecPart)
    except msgspec.MsgspecError:
        return None
    return part.sink.type, part.sink.dsn


def _want(draft: Draft, request: str, wish: OperationRequested, wanted: WantedState) -> None:
    feed = draft.feed(wish.feed)
    if feed is None:
        return _refuse(draft, request, _no_such_feed(draft, wish.feed))
    if feed.wanted is WantedState.REMOVED:
        return _refuse(draft, request, f"feed {wish.feed!r} is being removed")
    if feed.wanted is wanted:
        reason = "is stopped already" if feed.state is FeedState.STOPPED else "is being stopped already"
        return _refuse(draft, request, f"feed {wish.feed!r} {reason}")
    _supersede(draft, feed, request)
    draft.settle(request, OutcomeStatus.ACCEPTED, "every table is being drained and sealed")
    _change_wish(draft, wish.feed, feed, wanted, request)
    return None


def _resume(draft: Draft, request: str, wish: OperationRequested) -> None:
    feed = draft.feed(wish.feed)
    if feed is None:
        return _refuse(draft, request, _no_such_feed(draft, wish.feed))
    if feed.wanted is WantedState.REMOVED:
        return _refuse(draft, request, f"feed {wish.feed!r} is being removed")
    failed = [key for key in _spans_of(feed, wish.feed) if _waits_after_failure(draft, key)]
    if feed.wanted is WantedState.RUNNING and not failed:
        return _refuse(draft, request, f"feed {wish.feed!r} runs already")
    for key in failed:
        draft.cancel_timer("retry", key)
        draft.term.retry_due.put(key)
    _supersede(draft, feed, request)
    _change_wish(draft, wish.feed, feed, WantedState.RUNNING, request)
    draft.settle(request, OutcomeStatus.DONE, f"running; {len(failed)} failed tables are tried again now")
    return None


def _waits_after_failure(draft: Draft, key: SpanKey) -> bool:
    record = draft.span(key)
    return record is not None and record.state is SetState.ABSENT and record.failures > 0


def _supersede(draft: Draft, feed: FeedRecorded, request: str) -> None:
    outcome = None if feed.request is None else draft.outcome(feed.request)
    if outcome is not None and outcome.status is OutcomeStatus.ACCEPTED:
        draft.settle(feed.request, OutcomeStatus.FAILED, f"superseded by request {request}")


def _change_wish(draft: Draft, name: str, feed: FeedRecorded, wanted: WantedState, request: str) -> None:
    changed = replace(
        feed,
        owner_rev=draft.term.owner_rev,
        wanted=wanted,
        # A stopped feed that is resumed runs from here on; settle_feed finds out how well.
        state=FeedState.NORMAL if wanted is WantedState.RUNNING else feed.state,
        request=request,
        changed_ms=draft.now.wall_ms,
    )
    draft.put(FeedKey(name), changed)
    draft.feeds_touched.add(name)
    # The spans concerned are in the index once this is evolved; the next round, at once, takes them from there.
    draft.set_timer("schedule", "", 0.0)


def _no_such_feed(draft: Draft, name: str) -> str:
    known = ", ".join(sorted(draft.state.feeds)[:_NAMES_SHOWN_MAX]) or "none"
    return f"there is no feed {name!r}; known are: {known}"


_NAMES_SHOWN_MAX: Final = 20
"""Names in an error message: more would hide it."""


def _spans_of(feed: FeedRecorded, name: str) -> list[SpanKey]:
    return [SpanKey(name, plan.span) for plan in feed.spans]


def _move(draft: Draft, request: str, wish: OperationRequested) -> None:
    feed = draft.feed(wish.feed)
    if feed is None:
        return _refuse(draft, request, _no_such_feed(draft, wish.feed))
    if feed.wanted is not WantedState.RUNNING:
        return _refuse(draft, request, f"feed {wish.feed!r} is {feed.state}, wanted {feed.wanted}: resume it first")
    plans = [plan for plan in feed.spans if wish.table is not None and wish.table in (plan.table, plan.span)]
    reason = _why_not_movable(draft, wish, plans) or _why_no_target(draft, wish, plans[0])
    if reason is not None:
        return _refuse(draft, request, reason)
    target = seat_of(_sessions_of(draft, wish.agent), seats_of(draft))
    if target is None:
        reason = "its capacity is reached, or it opens too many tables just now"
        return _refuse(draft, request, f"agent {wish.agent!r} has no free seat: {reason}")
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
    """Every key of the feed that is the owner's: dispatch, checkpoint, words of dead sessions, at last the feed's own.

    Words of live sessions are theirs; they go with the session (membership.sweep).
    """
    name, state = effect.feed, draft.state
    feed = draft.feed(name)
    draft.term.forgetting.discard(name)
    if feed is None or feed.feed_id != effect.feed_id or feed.wanted is not WantedState.REMOVED:
        return
    for key in _spans_of(feed, name):
        draft.term.loads.forget(key)
        if key in state.spans:
            draft.put_span(key, None)
        for session in sorted(state.tasks.get(key, ())):
            if session in state.ended:
                draft.put(TaskKey(key.feed, key.span, *session), None)
        for session in sorted(state.progress.get(key, ())):
            if session in state.ended:
                draft.put(ProgressKey(key.feed, key.span, *session), None)
    if name in state.feed_progress:
        draft.put(FeedProgressKey(name), None)
    draft.put(FeedKey(name), None)
    draft.settle(feed.request, OutcomeStatus.DONE, "removed: the sink holds nothing of Headgate's for it any more")
