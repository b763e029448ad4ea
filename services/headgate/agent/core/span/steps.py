"""The actions of the table (transitions.py): each returns a new state, and effects in order."""

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from headgate.agent.core.span.failures import back_off, counted, went_on, worst
from headgate.agent.core.span.inputs import (
    Add,
    BatchOver,
    CallFailed,
    Close,
    Completed,
    CopiedOn,
    DropCopy,
    Effect,
    Failed,
    JoinLane,
    LaneLost,
    LeaveLane,
    Limited,
    Looked,
    MaintainFor,
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
from headgate.agent.core.span.progress import (
    SpanProgress,
    adopted,
    all_applied,
    completed,
    limited,
    opened,
    passed,
    settled,
    waiting,
)
from headgate.agent.core.span.states import Span, Stop, TaskPhase
from headgate.records.control import TaskState
from headgate.records.name_lists import shown_names

ERROR_LENGTH_MAX: Final = 1_000
"""Java's stack traces belong into the log, not onto a control topic."""


class SpanStep(msgspec.Struct, frozen=True):
    """The new state, None if nothing is left of the span, and the effects, in order."""

    span: Span | None
    effects: tuple[Effect, ...] = ()


def _to(span: Span, phase: TaskPhase, now: float, *effects: Effect, **changes: Any) -> SpanStep:
    return SpanStep(replace(span, phase=phase, since=now, **changes), effects)


def _off(span: Span) -> tuple[Effect, ...]:
    return () if span.lane is None else (LeaveLane(span.lane),)


def keep(span: Span | None, _given: SpanInput, _now: float) -> SpanStep:
    """Nothing comes of it."""
    return SpanStep(span)


# --- requests ---------------------------------------------------------------------------------------------------------


def begin(span: Span | None, given: Add, now: float) -> SpanStep:
    """A new run, whatever the one before was doing."""
    new = Span(given.task, given.life, given.primary, TaskPhase.OPENING, now, failures_max=given.failures_max)
    return SpanStep(new, (*(() if span is None else _off(span)), Open(given.primary)))


def begin_closing(span: Span | None, given: Close, now: float) -> SpanStep:
    """A run that only closes the epoch of a writer that is lost."""
    new = Span(given.task, given.life, primary=True, phase=TaskPhase.SEALING, since=now, stop=Stop.SEAL)
    return SpanStep(new, (*(() if span is None else _off(span)), Seal()))


def _renewed(span: Span, given: Add) -> Span:
    """Under an epoch that the sink has not been claimed with; what the log asked for before is over."""
    if given.task.epoch > span.task.epoch:
        return replace(span, task=given.task, primary=given.primary, claimed=False)
    return replace(span, primary=given.primary)


def renew(span: Span, given: Add, _now: float) -> SpanStep:
    """The call under way is of the role before: its answer will be asked for again."""
    return SpanStep(_renewed(span, given))


def promise(span: Span, _given: Add, now: float) -> SpanStep:
    """To be written; the claim waits for the lane, or for the answer under way."""
    promised = replace(span, primary=True)
    is_served = span.phase is TaskPhase.READING and span.served is TaskState.PREPARED
    return _to(promised, TaskPhase.CLAIMING, now, Open(primary=True)) if is_served else SpanStep(promised)


def claim(span: Span, given: Add, now: float) -> SpanStep:
    """A warm span continues under a later epoch; if that writes, it is claimed."""
    renewed = _renewed(span, given)
    return _to(renewed, TaskPhase.CLAIMING, now, Open(primary=True)) if renewed.primary else SpanStep(renewed)


def forget(_span: Span, _given: SpanInput, _now: float) -> SpanStep:
    """Nothing is left."""
    return SpanStep(None)


# --- opening ----------------------------------------------------------------------------------------------------------


def reopen(span: Span, given: SpanInput, now: float) -> SpanStep:
    """Source and sink are asked, under what is wanted by now."""
    span = _renewed(span, given) if isinstance(given, Add) else span
    phase = TaskPhase.OPENING if span.lane is None else TaskPhase.CLAIMING
    return _to(span, phase, now, Open(span.primary), retry_at=None)


def enter(span: Span, given: Opened, now: float) -> SpanStep:
    """Open: it waits for a lane."""
    return _to(span, TaskPhase.WAITING, now, copied_at=now, **_seen(span, given))


def go_on(span: Span, given: Opened, now: float) -> SpanStep:
    """On its lane all the while, which reads on."""
    if not given.primary:
        return _to(span, TaskPhase.READING, now, **_seen(span, given))
    return _to(span, TaskPhase.CLAIMED, now, served=TaskState.REPLICATING, **_seen(span, given))


def _seen(span: Span, given: Opened) -> dict[str, Any]:
    progress = opened(span.progress, given)
    seen: dict[str, Any] = {"claimed": given.primary, "target_ts": given.target_ts, "lacking": {}}
    seen["advice"] = given.advice
    seen["commit_interval_seconds"] = given.commit_interval_seconds
    seen["copying"] = given.copying if span.task.copy is not None else None
    seen |= _kept_up(span, given)
    if given.backlog:
        return {**seen, "progress": progress}
    # With nothing left to apply there is nothing that could still fail. With a backlog the next batch shows it.
    return {**seen, "progress": all_applied(progress), "error": None}


def _kept_up(span: Span, given: Opened) -> dict[str, Any]:
    """What is known of the maintenance of its sink's table."""
    known: dict[str, Any] = {"is_maintained": False, "maintain_at": given.maintain_at}
    done = given.maintained
    if done is None:
        return known
    known["maintained"] = done
    return {**known, "maintain_for": None} if done.request == span.maintain_for else known


def _recovered(span: Span) -> Span:
    """Without its error, if every partition that failed has been read beyond its position and had nothing to apply.

    A batch without rows of the span reports no position, so the error would otherwise stay until the next change.
    """
    if span.error is None:
        return span
    is_stuck = any(p in span.positions and span.reached(p) <= span.positions[p] for p in span.failures)
    return span if is_stuck else replace(span, error=None, progress=all_applied(span.progress))


# --- on a lane --------------------------------------------------------------------------------------------------------


def place(span: Span, given: Placed, now: float) -> SpanStep:
    """On its first lane since it was opened."""
    phase = TaskPhase.CLAIMED if span.claimed else TaskPhase.READING
    return _to(span, phase, now, JoinLane(given.lane), lane=given.lane)


def take_over(span: Span, given: Placed, _now: float) -> SpanStep:
    """From one lane to another one, between two batches."""
    return SpanStep(replace(span, lane=given.lane, losses=0), (*_off(span), JoinLane(given.lane)))


def show(span: Span, _given: SpanInput, now: float) -> SpanStep:
    """Its lane serves."""
    if span.phase is not TaskPhase.READING:
        return SpanStep(replace(span, served=TaskState.REPLICATING))
    shown = replace(span, served=TaskState.PREPARED)
    return _to(shown, TaskPhase.CLAIMING, now, Open(primary=True)) if span.primary else SpanStep(shown)


def plan(span: Span, _given: SpanInput, now: float) -> SpanStep:
    """A batch has it."""
    return _to(span, TaskPhase.WRITING, now, progress=waiting(span.progress, now))


def _adopted(span: Span, result: SpanResult | None, now: float) -> Span:
    """What a batch has made visible."""
    if result is None:
        return replace(span, progress=replace(span.progress, waits_since=None))
    moved = [p for p, end in result.positions.items() if end > span.positions.get(p, -1)]
    changed = replace(span, failures=went_on(span.failures, moved), progress=adopted(span.progress, result, now))
    return replace(changed, losses=0, error=None) if result.positions else changed


def _passed(span: Span, given: BatchOver | Passed, now: float) -> SpanProgress:
    return passed(span.progress, span.task.plan.topic, span.awaited, given.ends, now)


def adopt(span: Span, given: BatchOver, now: float) -> SpanStep:
    """What the batch has made visible; nothing else of the span precedes its end."""
    done = _adopted(span, given.result, now)
    return _to(_recovered(replace(done, progress=_passed(done, given, now))), TaskPhase.CLAIMED, now)


def adopt_failed(span: Span, given: BatchOver, now: float) -> SpanStep:
    """What the batch has made visible before its error."""
    result = given.result
    assert result is not None  # noqa: S101 - a batch without a result of it reports no error
    text = ". ".join(filter(None, (result.error, span.advice if result.lacking else "")))
    why = Failed(result.error_code or "", text, result.retryable)
    done = replace(_adopted(span, result, now), lacking=result.lacking)
    return _failed(done, why, now, held=result.held)


def note_read(span: Span, given: Passed, now: float) -> SpanStep:
    """A batch went by in which it had nothing."""
    return SpanStep(_recovered(replace(span, progress=_passed(span, given, now))))


def settle(span: Span, _given: SpanInput, now: float) -> SpanStep:
    """The sink is to follow what has been read."""
    return _to(span, TaskPhase.SETTLING, now, Settle())


def copy_on(span: Span, _given: SpanInput, now: float) -> SpanStep:
    """More rows are copied before the next batch, if some are left. That is done as it is opened, off its lane."""
    if span.copying is None:
        return SpanStep(span)
    return _to(span, TaskPhase.OPENING, now, *_off(span), Open(span.primary), lane=None)


def ask_to_maintain(span: Span, given: MaintainFor, _now: float) -> SpanStep:
    """The table is maintained for that request, unless it was."""
    done = span.maintained is not None and span.maintained.request == given.request
    return SpanStep(span if done else replace(span, maintain_for=given.request))


def maintain(span: Span, _given: SpanInput, now: float) -> SpanStep:
    """The sink's table is maintained before the next batch. That is done as it is opened, off its lane."""
    return _to(span, TaskPhase.OPENING, now, *_off(span), Open(span.primary), lane=None, is_maintained=True)


def note_copied(span: Span, given: CopiedOn, _now: float) -> SpanStep:
    """The call under way has copied more."""
    return SpanStep(span if span.task.copy is None else replace(span, copying=given.copying))


def drop_copy(span: Span, given: DropCopy, _now: float) -> SpanStep:
    """No more rows are copied for that request; a call that copies some finds out by itself."""
    if span.task.copy is None or span.task.copy.request != given.request:
        return SpanStep(span)
    return SpanStep(replace(span, task=replace(span.task, copy=None), copying=None))


def follow(span: Span, given: Settled, now: float) -> SpanStep:
    """It has; a span that has lost its lane since is opened again."""
    done = replace(span, progress=settled(span.progress, given.positions))
    return reopen(done, given, now) if span.lane is None else _to(done, TaskPhase.CLAIMED, now)


def look(span: Span, given: Looked, _now: float) -> SpanStep:
    """Where the present writer is, if it is still warm, and was not opened since."""
    if span.primary or given.opening != span.progress.opening:
        return SpanStep(span)
    return SpanStep(replace(span, progress=replace(span.progress, positions=given.positions)))


def complete(span: Span, given: Completed, _now: float) -> SpanStep:
    """Evidence of time, if it was not opened since."""
    if given.opening != span.progress.opening:
        return SpanStep(span)
    progress = completed(span.progress, given.ts, span.target_ts)
    return SpanStep(span if progress == span.progress else replace(span, progress=progress))


def slow(span: Span, given: Slowed, _now: float) -> SpanStep:
    """It shares no lane for a while."""
    return SpanStep(replace(span, alone_until=given.until))


def limit(span: Span, given: Limited, _now: float) -> SpanStep:
    """What may be applied of a change log by now, if it was not opened since; a batch under way has its own plan."""
    if given.opening != span.progress.opening or given.limits_at < span.progress.limits_at:
        return SpanStep(span)
    progress = limited(span.progress, given)
    return SpanStep(span if progress == span.progress else replace(span, progress=progress))


# --- off the lane, and failures ---------------------------------------------------------------------------------------


def leave(span: Span, given: SentBack | LaneLost | Failed, _now: float) -> SpanStep:
    """The call under way continues; its answer decides."""
    phase = TaskPhase.OPENING if span.phase is TaskPhase.CLAIMING else span.phase
    losses = span.losses + isinstance(given, LaneLost)
    return SpanStep(replace(span, phase=phase, lane=None, losses=losses), _off(span))


def restart(span: Span, given: SentBack, now: float) -> SpanStep:
    """Off its lane, and open again."""
    return _to(span, TaskPhase.OPENING, now, *_off(span), TellRestart(given.why), Open(span.primary), lane=None)


def lose(span: Span, given: LaneLost, now: float) -> SpanStep:
    """A neighbour may have done it: no failure of its own."""
    lost = replace(span, lane=None, losses=span.losses + 1, error=_error(_of_lane(span, given)))
    return _to(lost, TaskPhase.RETRYING, now, *_off(span), retry_at=now + back_off(lost.losses))


def fail(span: Span, given: CallFailed | Failed | LaneLost, now: float) -> SpanStep:
    """A failure of its own."""
    if isinstance(given, LaneLost):
        return _failed(replace(span, losses=span.losses + 1), _of_lane(span, given), now)
    return _failed(span, given, now)


def _of_lane(span: Span, given: LaneLost) -> Failed:
    """Spark's words name neither the table nor how far it is."""
    plan, at = span.task.plan, sorted(span.positions.items())
    places = [f"partition {partition} from offset {offset} on" for partition, offset in at]
    where = ", ".join(filter(None, (f"{plan.table}: topic {plan.topic}", shown_names(places))))
    return Failed("lane_lost", f"{where}: {given.why}", retryable=True)


def _error(why: CallFailed | Failed) -> tuple[str, str, bool]:
    return why.code, why.text[:ERROR_LENGTH_MAX], why.retryable


def _failed(span: Span, why: CallFailed | Failed, now: float, held: tuple[int, ...] = ()) -> SpanStep:
    """Try again later, or report it. A seal is tried for as long as it may succeed.

    ``held``: the partitions that it holds up; empty if it concerns the whole span.
    """
    is_ending = span.stop is not Stop.NOT
    failures = counted(span.failures, held)
    left = replace(span, failures=failures, error=_error(why), lane=None)
    if why.retryable and (is_ending or worst(failures) <= span.failures_max):
        delay = back_off(worst(failures))
        phase = TaskPhase.RESEALING if is_ending else TaskPhase.RETRYING
        return _to(left, phase, now, *_off(span), TellFailure(why.code, why.text, delay), retry_at=now + delay)
    return _to(left, TaskPhase.FAILED, now, *_off(span), TellFailure(why.code, why.text, None), retry_at=None)


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


def drain(span: Span, given: SpanInput, now: float) -> SpanStep:
    """The batch is waited for."""
    return _to(_wanted(span, given), TaskPhase.DRAINING, now)


def recall(span: Span, given: SpanInput, now: float) -> SpanStep:
    """The answer is waited for, off the lane."""
    return _to(_wanted(span, given), TaskPhase.RECALLED, now, *_off(span), lane=None)


def give_up(span: Span, given: SpanInput, _now: float) -> SpanStep:
    """A seal that was asked for is not tried any more."""
    return SpanStep(_wanted(span, given))


def end(span: Span, given: SpanInput, now: float) -> SpanStep:
    """Neither a batch nor a call has it any more."""
    span, left = _wanted(span, given), _off(span)
    if span.stop is Stop.PLAIN:
        return _to(span, TaskPhase.STOPPED, now, *left, lane=None, error=None, retry_at=None)
    return _to(span, TaskPhase.SEALING, now, *left, Seal(), lane=None, retry_at=None)


def adopt_last(span: Span, given: BatchOver, now: float) -> SpanStep:
    """What its last batch has made visible, whatever error it ends with."""
    return end(_adopted(span, given.result, now), given, now)


def end_opened(span: Span, given: Opened, now: float) -> SpanStep:
    """Opened, and now ended."""
    return end(replace(span, **_seen(span, given)), given, now)


def end_settled(span: Span, given: Settled, now: float) -> SpanStep:
    """Its position has followed, and now it is ended."""
    return end(replace(span, progress=settled(span.progress, given.positions)), given, now)


def end_failed(span: Span, given: CallFailed, now: float) -> SpanStep:
    """The seal is retried, unless it was given up since."""
    return end(span, given, now) if span.stop is Stop.PLAIN else fail(span, given, now)


def close(span: Span, given: Sealed, now: float) -> SpanStep:
    """Sealed."""
    progress = replace(span.progress, positions=given.positions)
    return _to(span, TaskPhase.STOPPED, now, progress=progress, error=None)
