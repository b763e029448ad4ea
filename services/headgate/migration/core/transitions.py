"""All transitions of a migration, in one table.

::

    awaiting_approval ──approve──> queued; cancel ──> cancelled

    queued ──admit──> ready ──start──> running ──completed──> complete
      │ cancel          │ cancel          │ cancel, broke, stale, orphaned
      v                 v                 v
    cancelled        cancelled         ending ──stopped──> failed | cancelled        failed, cancelled ──retry──> queued

A phase is the record's state, with *ending* told apart from running: it is the record ``running`` with an intent. The
rules, and what each keeps out:

- A terminal state is a fact. A running migration becomes failed or cancelled only when a stop has been confirmed: until
  then it is *ending*, and every owner asks for the stop again. If the stop finds that the change is in force already,
  the migration is complete, whatever was intended.
- Only an approval leads from *awaiting_approval* to *queued*. A retry of a migration that was never approved leads back
  there; what was approved once may be retried.
- Queued and ready ones have done nothing at the database, so they are cancelled at once. A migration is recorded as
  running *before* its start is requested, so the next owner always knows what has been started.
- ``refused`` is the answer of a start that has changed nothing, so it is a fact as well.
- ``cleaned_up`` has what is left. A revert that completes leaves nothing of what it reverts: it has taken that over. A
  revert that is ended leaves it one artifact more, if it has started its feed, which continues.
- The cut-over is a stage of its own: it is recorded before it is requested, and its time is known.
- A clean-up that could not be done is requested again; ``throttle_reason`` has the reason.
- A cancelled migration that was running becomes ``cancelled``. In the seed it becomes failed, but a reader of the list
  wants to know that a user requested it (docs/adr/0035).

The table has an entry for every pair; ``-`` marks those that cannot be. Meeting one raises UnknownTransitionError.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.records.migration import Artifact, MigrationRecorded, MigrationState, StageTime
from headgate.records.migration_standing import CUTTING_OVER, READY_TO_CUT_OVER
from headgate.runtime.table import UnknownTransitionError, read_grid

ENDING: Final = "ending"

STAGES_MAX: Final = 32
"""Stages whose times are kept apart. Ours are ten; programs of others name theirs as they like."""

MORE_STAGES: Final = "other stages"


class MigrationPhase(StrEnum):
    """A MigrationState, with the form of running that answers differently told apart."""

    AWAITING_APPROVAL = "awaiting_approval"
    QUEUED = "queued"
    READY = "ready"
    RUNNING = "running"
    ENDING = "ending"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


class MigrationSignal(StrEnum):
    """An event: the scheduler's choice, an operator's request, an answer of the database, silence, a lost owner."""

    APPROVE = "approve"
    ADMIT = "admit"
    START = "start"
    CONCLUDE = "conclude"
    OUTRUN = "outrun"
    PROGRESSED = "progressed"
    COMPLETED = "completed"
    REFUSED = "refused"
    BROKE = "broke"
    NOT_THERE = "not_there"
    CUT_OVER = "cut_over"
    CUTOVER_FAILED = "cutover_failed"
    STOPPED = "stopped"
    STALE = "stale"
    ORPHANED = "orphaned"
    CANCEL = "cancel"
    RETRY = "retry"
    LAUNCH = "launch"
    COMPLETE = "complete"
    THROTTLE = "throttle"
    FORCE_CUTOVER = "force_cutover"
    CLEANED_UP = "cleaned_up"
    CLEAN_UP_FAILED = "clean_up_failed"


class MigrationAction(StrEnum):
    """What the owner makes of a signal; each is one function below."""

    NEVER = "never"
    KEEP = "keep"
    APPROVED = "approved"
    QUEUE = "queue"
    MAKE_READY = "make_ready"
    RUN = "run"
    RUN_ANEW = "run_anew"
    NOTE = "note"
    ENTER_CUTOVER = "enter_cutover"
    COUNT_CUTOVER = "count_cutover"
    FINISH = "finish"
    GIVE_UP = "give_up"
    END_FAILED = "end_failed"
    END_ORPHANED = "end_orphaned"
    END_CANCELLED = "end_cancelled"
    SETTLE = "settle"
    DROP = "drop"
    OPEN_LAUNCH = "open_launch"
    OPEN_COMPLETION = "open_completion"
    SET_THROTTLE = "set_throttle"
    SET_FORCE = "set_force"
    FORGET_ARTIFACTS = "forget_artifacts"
    SAY_WHY = "say_why"


_TABLE: Final = """
signal          awaiting_approval queued           ready            running         ending        complete         failed           cancelled
approve         approved          -                -                -               -             -                -                -
admit           -                 make_ready       -                -               -             -                -                -
start           -                 -                run              -               -             -                -                -
conclude        -                 -                finish           -               -             -                -                -
outrun          -                 -                give_up          -               -             -                -                -
progressed      -                 -                -                note            .             -                -                -
completed       -                 -                -                finish          finish        -                -                -
refused         -                 -                -                give_up         settle        -                -                -
broke           -                 -                -                end_failed      .             -                -                -
not_there       -                 -                -                run_anew        .             -                -                -
cut_over        -                 -                -                enter_cutover   -             -                -                -
cutover_failed  -                 -                -                count_cutover   .             -                -                -
stopped         -                 -                -                -               settle        -                -                -
stale           -                 -                -                end_failed      -             -                -                -
orphaned        -                 -                -                end_orphaned    -             -                -                -
cancel          drop              drop             drop             end_cancelled   end_cancelled .                .                .
retry           .                 .                .                .               .             .                queue            queue
launch          open_launch       open_launch      .                .               .             .                .                .
complete        open_completion   open_completion  open_completion  open_completion .             .                .                .
throttle        set_throttle      set_throttle     set_throttle     set_throttle    .             .                .                .
force_cutover   set_force         set_force        set_force        set_force       .             .                .                .
cleaned_up      -                 forget_artifacts forget_artifacts -               -             forget_artifacts forget_artifacts forget_artifacts
clean_up_failed -                 .                .                -               -             say_why          say_why          say_why
"""  # noqa: E501 - a table
"""The whole machine, ``-`` for never and ``.`` for keep."""


TRANSITIONS: Final = read_grid(
    _TABLE, MigrationPhase, MigrationSignal, MigrationAction, {"-": MigrationAction.NEVER, ".": MigrationAction.KEEP}
)
"""(phase, signal) → action, for every pair."""


class Cause(msgspec.Struct, frozen=True):
    """Why a signal was given, and what its action may need. ``now_ms`` is for people."""

    owner_rev: int
    now_ms: int
    message: str = ""
    stage: str = ""
    rows_copied: int = 0
    table_rows: int = 0
    eta_seconds: int = -1
    stage_percent: int = -1
    is_ready_to_complete: bool = False
    is_live: bool = True
    throttle_ratio: float = 0.0
    throttle_until_ms: int = 0
    cutover_after_ms: int = 0
    throttle_reason: str = ""
    artifacts: tuple[Artifact, ...] = ()
    note: str = ""
    approved_by: str = ""


def first_state(must_be_approved: bool) -> MigrationState:
    """The state in which a migration waits first."""
    return MigrationState.AWAITING_APPROVAL if must_be_approved else MigrationState.QUEUED


def phase(record: MigrationRecorded) -> MigrationPhase:
    """The phase of a record."""
    if record.state is MigrationState.RUNNING and record.ending is not None:
        return MigrationPhase.ENDING
    return MigrationPhase(record.state.value)


def apply(record: MigrationRecorded, signal: MigrationSignal, cause: Cause) -> MigrationRecorded:
    """The record that ``signal`` makes of ``record``, the same object if nothing changes."""
    action = TRANSITIONS[phase(record), signal]
    make = _ACTIONS.get(action)
    if make is None:
        raise UnknownTransitionError(f"signal {signal} in phase {phase(record)} of {record}")
    return make(record, cause)


def _at_stage(record: MigrationRecorded, stage: str, cause: Cause) -> MigrationRecorded:
    """``record`` in ``stage``: if that is another one, the time spent in the one before is added up."""
    if stage == record.stage:
        return record
    stages = _spent(record, cause.now_ms)
    return replace(
        record, stage=stage, stage_ms=cause.now_ms if stage else 0, stage_percent=-1, stages=stages, eta_seconds=-1
    )


def _spent(record: MigrationRecorded, now_ms: int) -> tuple[StageTime, ...]:
    """The times of all stages, the present one included."""
    if not record.stage or not record.stage_ms:
        return record.stages
    times = {each.stage: each.ms for each in record.stages}
    is_known = record.stage in times or len(times) < STAGES_MAX
    name = record.stage if is_known else MORE_STAGES
    times[name] = times.get(name, 0) + max(0, now_ms - record.stage_ms)
    return tuple(StageTime(stage, ms) for stage, ms in times.items())


def _throttled(record: MigrationRecorded, reason: str, cause: Cause) -> MigrationRecorded:
    """``record`` held up for ``reason``, since it was held up first; empty: not held up."""
    throttled_ms = (record.throttled_ms or cause.now_ms) if reason else 0
    return replace(record, throttle_reason=reason, throttled_ms=throttled_ms)


def _keep(record: MigrationRecorded, _cause: Cause) -> MigrationRecorded:
    return record


def _approved(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    return replace(
        record,
        owner_rev=cause.owner_rev,
        state=MigrationState.QUEUED,
        approved_by=cause.approved_by,
        approved_ms=cause.now_ms,
    )


def _queue(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    # Not to the end of the queue: it keeps its place in the order of submission, as in Vitess.
    return replace(
        record,
        owner_rev=cause.owner_rev,
        state=first_state(record.approval_required and not record.approved_by),
        stage="",
        retries=record.retries + 1,
        owner_failed=False,
        is_ready_to_complete=False,
        was_ready=False,
        cutover_attempts=0,
        cutover_forced=False,
        waiting_ms=0,
        cutover_after_ms=0,
        rows_copied=0,
        eta_seconds=-1,
        stages=(),
        throttle_reason="",
        throttled_ms=0,
        note="",
        message=cause.message,
        ready_ms=0,
        started_ms=0,
        live_ms=0,
        ended_ms=0,
    )


def _make_ready(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    return replace(record, owner_rev=cause.owner_rev, state=MigrationState.READY, ready_ms=cause.now_ms)


def _run(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    return replace(
        record,
        owner_rev=cause.owner_rev,
        state=MigrationState.RUNNING,
        stage="starting",
        stage_percent=-1,
        stage_ms=cause.now_ms,
        stages=(),
        attempt=record.attempt + 1,
        started_ms=cause.now_ms,
        live_ms=cause.now_ms,
    )


def _run_anew(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    again = replace(
        record,
        is_ready_to_complete=False,
        was_ready=False,
        waiting_ms=0,
        cutover_after_ms=0,
        rows_copied=0,
        eta_seconds=-1,
        note="",
    )
    return _run(again, cause)


def _note(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    return replace(
        _throttled(_at_stage(record, cause.stage, cause), cause.throttle_reason, cause),
        owner_rev=cause.owner_rev,
        rows_copied=cause.rows_copied,
        table_rows=cause.table_rows,
        eta_seconds=cause.eta_seconds,
        stage_percent=cause.stage_percent,
        is_ready_to_complete=cause.is_ready_to_complete,
        was_ready=record.was_ready or cause.is_ready_to_complete,
        waiting_ms=_waiting_ms(record, cause, is_allowed=not record.completion_postponed),
        artifacts=cause.artifacts,
        note=cause.note,
        live_ms=cause.now_ms if cause.is_live else record.live_ms,
    )


def _waiting_ms(record: MigrationRecorded, cause: Cause, *, is_allowed: bool) -> int:
    """Since when nothing but the cut-over is missing: the time to force it is counted from there."""
    is_ready = record.is_ready_to_complete or cause.is_ready_to_complete
    return record.waiting_ms or (cause.now_ms if is_ready and is_allowed else 0)


def _enter_cutover(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    if record.stage == CUTTING_OVER:
        return record
    return replace(_at_stage(record, CUTTING_OVER, cause), owner_rev=cause.owner_rev)


def _count_cutover(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    return replace(
        _at_stage(record, READY_TO_CUT_OVER, cause),
        owner_rev=cause.owner_rev,
        cutover_attempts=record.cutover_attempts + 1,
        cutover_after_ms=cause.cutover_after_ms,
        message=f"cut-over {record.cutover_attempts + 1}: {cause.message}",
    )


def _close(record: MigrationRecorded, state: MigrationState, cause: Cause) -> MigrationRecorded:
    return replace(
        _at_stage(record, "", cause),
        owner_rev=cause.owner_rev,
        state=state,
        ending=None,
        eta_seconds=-1,
        throttle_reason="",
        throttled_ms=0,
        ended_ms=cause.now_ms,
    )


def _finish(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    closed = _close(record, MigrationState.COMPLETE, cause)
    return replace(
        closed,
        eta_seconds=0,
        is_ready_to_complete=True,
        message=cause.message,
        artifacts=cause.artifacts,
        note=cause.note or record.note,
        owner_failed=False,
    )


def _give_up(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    return replace(_close(record, MigrationState.FAILED, cause), message=cause.message)


def _end_failed(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    return replace(
        _at_stage(record, ENDING, cause),
        owner_rev=cause.owner_rev,
        ending=MigrationState.FAILED,
        message=cause.message,
        artifacts=cause.artifacts or record.artifacts,
        note=cause.note or record.note,
    )


def _end_orphaned(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    return replace(_end_failed(record, cause), owner_failed=True)


def _end_cancelled(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    if record.ending is MigrationState.CANCELLED:
        return record
    return replace(
        _at_stage(record, ENDING, cause),
        owner_rev=cause.owner_rev,
        ending=MigrationState.CANCELLED,
        owner_failed=False,
        message=cause.message,
    )


def _settle(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    if record.ending is None:
        raise UnknownTransitionError(f"a stop was confirmed that no record intends, of {record}")
    closed = _close(record, record.ending, cause)
    return replace(closed, is_ready_to_complete=False, artifacts=cause.artifacts)


def _drop(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    return replace(_close(record, MigrationState.CANCELLED, cause), message=cause.message)


def _open_launch(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    return replace(record, owner_rev=cause.owner_rev, launch_postponed=False) if record.launch_postponed else record


def _open_completion(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    if not record.completion_postponed:
        return record
    waiting_ms = _waiting_ms(record, cause, is_allowed=True)
    return replace(record, owner_rev=cause.owner_rev, completion_postponed=False, waiting_ms=waiting_ms)


def _set_throttle(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    return replace(
        record,
        owner_rev=cause.owner_rev,
        throttle_ratio=cause.throttle_ratio,
        throttle_until_ms=cause.throttle_until_ms,
    )


def _set_force(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    return record if record.cutover_forced else replace(record, owner_rev=cause.owner_rev, cutover_forced=True)


def _forget_artifacts(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    why = record.throttle_reason if phase(record) in (MigrationPhase.QUEUED, MigrationPhase.READY) else ""
    return replace(_throttled(record, why, cause), owner_rev=cause.owner_rev, artifacts=cause.artifacts)


def _say_why(record: MigrationRecorded, cause: Cause) -> MigrationRecorded:
    if record.throttle_reason == cause.throttle_reason:
        return record
    return replace(_throttled(record, cause.throttle_reason, cause), owner_rev=cause.owner_rev)


_ACTIONS: Final[dict[MigrationAction, Callable[[MigrationRecorded, Cause], MigrationRecorded]]] = {
    MigrationAction.KEEP: _keep,
    MigrationAction.APPROVED: _approved,
    MigrationAction.QUEUE: _queue,
    MigrationAction.MAKE_READY: _make_ready,
    MigrationAction.RUN: _run,
    MigrationAction.RUN_ANEW: _run_anew,
    MigrationAction.NOTE: _note,
    MigrationAction.ENTER_CUTOVER: _enter_cutover,
    MigrationAction.COUNT_CUTOVER: _count_cutover,
    MigrationAction.FINISH: _finish,
    MigrationAction.GIVE_UP: _give_up,
    MigrationAction.END_FAILED: _end_failed,
    MigrationAction.END_ORPHANED: _end_orphaned,
    MigrationAction.END_CANCELLED: _end_cancelled,
    MigrationAction.SETTLE: _settle,
    MigrationAction.DROP: _drop,
    MigrationAction.OPEN_LAUNCH: _open_launch,
    MigrationAction.OPEN_COMPLETION: _open_completion,
    MigrationAction.SET_THROTTLE: _set_throttle,
    MigrationAction.SET_FORCE: _set_force,
    MigrationAction.FORGET_ARTIFACTS: _forget_artifacts,
    MigrationAction.SAY_WHY: _say_why,
}
