"""What becomes of a span: ``decide`` makes of its state and an input another state, and effects to be performed.

The states are in states.py, what is told and asked for in inputs.py, which action answers which signal in
transitions.py. A span's state is no record of the log, so there is no ``evolve``: ``decide`` gives the new state, and
nothing else makes one. Whoever performs an effect answers it with an input; timers are inputs, too.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from headgate.agent.span.failures import back_off, counted, went_on, worst
from headgate.agent.span.inputs import (
    Add,
    BatchOver,
    CallFailed,
    Close,
    Completed,
    Effect,
    Failed,
    JoinLane,
    LaneLost,
    LeaveLane,
    Looked,
    Open,
    Opened,
    Passed,
    Placed,
    Remove,
    Seal,
    Sealed,
    SentBack,
    Settle,
    Settled,
    Slowed,
    SpanInput,
    SpanResult,
    TellFailure,
    TellRestart,
)
from headgate.agent.span.progress import SpanProgress, adopted, completed, opened, passed, settled
from headgate.agent.span.states import Phase, Span, Stop
from headgate.agent.span.transitions import TRANSITIONS, Action, UnknownTransitionError, signal_of
from headgate.records.control import TaskState

__all__ = ["ACTIONS", "Step", "decide"]

ERROR_LENGTH_MAX: Final = 1_000
"""Java's stack traces belong into the log, not onto a control topic."""


class Step(msgspec.Struct, frozen=True):
    """The new state, None if nothing is left of the span, and what is to be done, in order."""

    span: Span | None
    effects: tuple[Effect, ...] = ()


def decide(span: Span | None, given: SpanInput, now: float) -> Step:
    """The step that ``given`` makes; ``now`` in monotonic seconds. Raises UnknownTransitionError, LowerEpochError."""
    phase, signal = Phase.ABSENT if span is None else span.phase, signal_of(span, given)
    action = TRANSITIONS.get((phase, signal))
    if action is None:
        raise UnknownTransitionError(f"{signal} ({given}) for a span that is {phase}: {span}")
    return ACTIONS[action](span, given, now)


def _to(span: Span, phase: Phase, now: float, *effects: Effect, **changes: Any) -> Step:
    return Step(replace(span, phase=phase, since=now, **changes), effects)


def _off(span: Span) -> tuple[Effect, ...]:
    return () if span.lane is None else (LeaveLane(span.lane),)


def _keep(span: Span | None, _given: SpanInput, _now: float) -> Step:
    return Step(span)


# --- wishes -----------------------------------------------------------------------------------------------------------


def _begin(span: Span | None, given: Add, now: float) -> Step:
    new = Span(given.task, given.life, given.primary, Phase.OPENING, now, failures_max=given.failures_max)
    return Step(new, (*(() if span is None else _off(span)), Open(given.primary)))


def _begin_closing(span: Span | None, given: Close, now: float) -> Step:
    new = Span(given.task, given.life, primary=True, phase=Phase.SEALING, since=now, stop=Stop.SEAL)
    return Step(new, (*(() if span is None else _off(span)), Seal(claim=True)))


def _renewed(span: Span, given: Add) -> Span:
    """Under an epoch that the sink has not been claimed with; what the log asked for before is over."""
    if given.task.epoch > span.task.epoch:
        return replace(span, task=given.task, primary=given.primary, claimed=False)
    return replace(span, primary=given.primary)


def _renew(span: Span, given: Add, _now: float) -> Step:
    return Step(_renewed(span, given))


def _promise(span: Span, _given: Add, now: float) -> Step:
    promised = replace(span, primary=True)
    is_served = span.phase is Phase.READING and span.served is TaskState.PREPARED
    return _to(promised, Phase.CLAIMING, now, Open(primary=True)) if is_served else Step(promised)


def _claim(span: Span, given: Add, now: float) -> Step:
    renewed = _renewed(span, given)
    return _to(renewed, Phase.CLAIMING, now, Open(primary=True)) if renewed.primary else Step(renewed)


def _forget(_span: Span, _given: SpanInput, _now: float) -> Step:
    return Step(None)


# --- opening ----------------------------------------------------------------------------------------------------------


def _reopen(span: Span, given: SpanInput, now: float) -> Step:
    span = _renewed(span, given) if isinstance(given, Add) else span
    phase = Phase.OPENING if span.lane is None else Phase.CLAIMING
    return _to(span, phase, now, Open(span.primary), retry_at=None)


def _enter(span: Span, given: Opened, now: float) -> Step:
    return _to(span, Phase.WAITING, now, **_seen(span, given))


def _go_on(span: Span, given: Opened, now: float) -> Step:
    """On its lane all the while, which reads on."""
    if not given.primary:
        return _to(span, Phase.READING, now, **_seen(span, given))
    return _to(span, Phase.CLAIMED, now, served=TaskState.REPLICATING, **_seen(span, given))


def _seen(span: Span, given: Opened) -> dict[str, Any]:
    return {"claimed": given.primary, "target_ts": given.target_ts, "progress": opened(span.progress, given)}


# --- on a lane --------------------------------------------------------------------------------------------------------


def _place(span: Span, given: Placed, now: float) -> Step:
    phase = Phase.CLAIMED if span.claimed else Phase.READING
    return _to(span, phase, now, JoinLane(given.lane), lane=given.lane)


def _take_over(span: Span, given: Placed, _now: float) -> Step:
    return Step(replace(span, lane=given.lane, losses=0), (*_off(span), JoinLane(given.lane)))


def _show(span: Span, _given: SpanInput, now: float) -> Step:
    """Its lane serves."""
    if span.phase is not Phase.READING:
        return Step(replace(span, served=TaskState.REPLICATING))
    shown = replace(span, served=TaskState.PREPARED)
    return _to(shown, Phase.CLAIMING, now, Open(primary=True)) if span.primary else Step(shown)


def _plan(span: Span, _given: SpanInput, now: float) -> Step:
    return _to(span, Phase.WRITING, now)


def _adopted(span: Span, result: SpanResult | None, now: float) -> Span:
    """What a batch has made visible."""
    if result is None:
        return span
    moved = [p for p, end in result.positions.items() if end > span.positions.get(p, -1)]
    changed = replace(span, failures=went_on(span.failures, moved), progress=adopted(span.progress, result, now))
    return replace(changed, losses=0, error=None) if result.positions else changed


def _passed(span: Span, given: BatchOver | Passed, now: float) -> SpanProgress:
    return passed(span.progress, span.task.plan.topic, span.awaited, given.ends, now)


def _adopt(span: Span, given: BatchOver, now: float) -> Step:
    done = _adopted(span, given.result, now)
    return _to(done, Phase.CLAIMED, now, progress=_passed(done, given, now))


def _adopt_failed(span: Span, given: BatchOver, now: float) -> Step:
    result = given.result
    assert result is not None  # noqa: S101 - a batch without a result of it says of no error
    why = Failed(result.error_code or "", result.error or "", result.retryable)
    return _failed(_adopted(span, result, now), why, now, held=result.held)


def _pass(span: Span, given: Passed, now: float) -> Step:
    return Step(replace(span, progress=_passed(span, given, now)))


def _settle(span: Span, _given: SpanInput, now: float) -> Step:
    return _to(span, Phase.SETTLING, now, Settle())


def _follow(span: Span, given: Settled, now: float) -> Step:
    done = replace(span, progress=settled(span.progress, given.positions))
    return _reopen(done, given, now) if span.lane is None else _to(done, Phase.CLAIMED, now)


def _look(span: Span, given: Looked, _now: float) -> Step:
    if span.primary or given.opening != span.progress.opening:
        return Step(span)
    return Step(replace(span, progress=replace(span.progress, positions=given.positions)))


def _complete(span: Span, given: Completed, _now: float) -> Step:
    if given.opening != span.progress.opening:
        return Step(span)
    progress = completed(span.progress, given.ts, span.target_ts)
    return Step(span if progress == span.progress else replace(span, progress=progress))


def _slow(span: Span, given: Slowed, _now: float) -> Step:
    return Step(replace(span, alone_until=given.until))


# --- off the lane, and failures ---------------------------------------------------------------------------------------


def _leave(span: Span, given: SentBack | LaneLost | Failed, _now: float) -> Step:
    """The call under way goes on; its answer decides."""
    phase = Phase.OPENING if span.phase is Phase.CLAIMING else span.phase
    losses = span.losses + isinstance(given, LaneLost)
    return Step(replace(span, phase=phase, lane=None, losses=losses), _off(span))


def _restart(span: Span, given: SentBack, now: float) -> Step:
    return _to(span, Phase.OPENING, now, *_off(span), TellRestart(given.why), Open(span.primary), lane=None)


def _lose(span: Span, given: LaneLost, now: float) -> Step:
    lost = replace(span, lane=None, losses=span.losses + 1, error=_error(_of_lane(given)))
    return _to(lost, Phase.RETRYING, now, *_off(span), retry_at=now + back_off(lost.losses))


def _fail(span: Span, given: CallFailed | Failed | LaneLost, now: float) -> Step:
    if isinstance(given, LaneLost):
        return _failed(replace(span, losses=span.losses + 1), _of_lane(given), now)
    return _failed(span, given, now)


def _of_lane(given: LaneLost) -> Failed:
    return Failed("lane_lost", given.why, retryable=True)


def _error(why: CallFailed | Failed) -> tuple[str, str, bool]:
    return why.code, why.text[:ERROR_LENGTH_MAX], why.retryable


def _failed(span: Span, why: CallFailed | Failed, now: float, held: tuple[int, ...] = ()) -> Step:
    """Try again later, or report it. A seal is tried for as long as it may succeed.

    ``held``: the partitions that it keeps from going on; none where it is the span's as a whole.
    """
    is_ending = span.stop is not Stop.NOT
    failures = counted(span.failures, held)
    left = replace(span, failures=failures, error=_error(why), lane=None)
    if why.retryable and (is_ending or worst(failures) <= span.failures_max):
        delay = back_off(worst(failures))
        phase = Phase.RESEALING if is_ending else Phase.RETRYING
        return _to(left, phase, now, *_off(span), TellFailure(why.code, why.text, delay), retry_at=now + delay)
    return _to(left, Phase.FAILED, now, *_off(span), TellFailure(why.code, why.text, None), retry_at=None)


# --- ending -----------------------------------------------------------------------------------------------------------


def _wanted(span: Span, given: SpanInput) -> Span:
    """With the stop that it asks for, if it asks for one."""
    match given:
        case Remove(seal=seal):
            return replace(span, stop=Stop.SEAL if seal else Stop.PLAIN)
        case Close():
            return replace(span, stop=Stop.SEAL)
        case _:
            return span


def _drain(span: Span, given: SpanInput, now: float) -> Step:
    return _to(_wanted(span, given), Phase.DRAINING, now)


def _recall(span: Span, given: SpanInput, now: float) -> Step:
    return _to(_wanted(span, given), Phase.RECALLED, now, *_off(span), lane=None)


def _give_up(span: Span, given: SpanInput, _now: float) -> Step:
    """A seal that was asked for is not tried any more."""
    return Step(_wanted(span, given))


def _end(span: Span, given: SpanInput, now: float) -> Step:
    """Neither a batch nor a call has it any more."""
    span, left = _wanted(span, given), _off(span)
    if span.stop is Stop.PLAIN:
        return _to(span, Phase.STOPPED, now, *left, lane=None, error=None, retry_at=None)
    return _to(span, Phase.SEALING, now, *left, Seal(claim=not span.claimed), lane=None, retry_at=None)


def _adopt_last(span: Span, given: BatchOver, now: float) -> Step:
    return _end(_adopted(span, given.result, now), given, now)


def _end_opened(span: Span, given: Opened, now: float) -> Step:
    return _end(replace(span, **_seen(span, given)), given, now)


def _end_settled(span: Span, given: Settled, now: float) -> Step:
    return _end(replace(span, progress=settled(span.progress, given.positions)), given, now)


def _end_failed(span: Span, given: CallFailed, now: float) -> Step:
    return _end(span, given, now) if span.stop is Stop.PLAIN else _fail(span, given, now)


def _close(span: Span, given: Sealed, now: float) -> Step:
    progress = replace(span.progress, positions=given.positions)
    return _to(span, Phase.STOPPED, now, progress=progress, error=None)


ACTIONS: Final[dict[Action, Callable[[Any, Any, float], Step]]] = {
    Action.KEEP: _keep,
    Action.BEGIN: _begin,
    Action.RENEW: _renew,
    Action.REOPEN: _reopen,
    Action.PROMISE: _promise,
    Action.CLAIM: _claim,
    Action.ENTER: _enter,
    Action.GO_ON: _go_on,
    Action.PLACE: _place,
    Action.TAKE_OVER: _take_over,
    Action.SHOW: _show,
    Action.PLAN: _plan,
    Action.ADOPT: _adopt,
    Action.ADOPT_FAILED: _adopt_failed,
    Action.ADOPT_LAST: _adopt_last,
    Action.NOTE_READ: _pass,
    Action.SETTLE: _settle,
    Action.FOLLOW: _follow,
    Action.LEAVE: _leave,
    Action.RESTART: _restart,
    Action.LOSE: _lose,
    Action.FAIL: _fail,
    Action.DRAIN: _drain,
    Action.RECALL: _recall,
    Action.END: _end,
    Action.END_OPENED: _end_opened,
    Action.END_SETTLED: _end_settled,
    Action.END_FAILED: _end_failed,
    Action.GIVE_UP: _give_up,
    Action.BEGIN_CLOSING: _begin_closing,
    Action.CLOSE: _close,
    Action.FORGET: _forget,
    Action.LOOK: _look,
    Action.COMPLETE: _complete,
    Action.SLOW: _slow,
}
