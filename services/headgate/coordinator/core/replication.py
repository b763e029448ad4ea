"""ReplicationSet: what can happen to one span, and how the owner responds. Every transition is in this file.

Theory of operation
===================
The record ``SpanDispatched`` is the whole state of a set. Its *phase* is its state, with the two forms of commit and
of removing told apart, because they respond differently::

    ABSENT ──ADD──> COMMIT ──primary replicating──> REPLICATING ──MOVE──> PREPARE ──prepared──> HANDOVER ─┐
       ^              ^                                                                                   │
       │              └──────────── primary stopped (sealed): the secondary is promoted ──────────────────┘
       └──primary stopped (sealed)── REMOVING <──CLOSE── any           ORPHANED = REMOVING without a primary

Rules, and which defect of TiCDC's scheduler v3 each one prevents:

- An agent claims only under a record in which it is *primary*, and every role is assigned under a new epoch. A status
  counts only if session and epoch are those of the role: a late report of an earlier assignment is ignored.
- Adding needs no prepare, because it does not interrupt a writer. Moving does.
- HANDOVER (commit with a secondary) asks the primary to drain, seal and report ``stopped``. Only then is the
  secondary *promoted*: it becomes primary, under a new epoch.
- A secondary lost in HANDOVER gives the primary a new epoch, because under the old one it may have sealed already.
  What it reported under the old one no longer counts (defect b).
- A lost primary is followed by the secondary, if there is one; else the span is ABSENT and *not sealed*: the next
  agent that gets it claims, which fences the lost one at the sink.
- ABSENT and sealed is the only state in which no agent can write. A feed is stopped or removed only when all its spans
  are in it. A span that must be closed but has no primary is ORPHANED: any agent claims it, seals it, reports.
- Everything that a session must do has a deadline (waiting.py). A primary that does not start to write has failed
  (``start_timeout``), even if it reports nothing. So has one that was asked to drain and does not seal
  (``drain_timeout``): it is skipped, the secondary, or the agent that closes the span, claims under a higher epoch, and
  the sink fences it. The target of a move has a deadline too, which only ends the move.
- ``failed`` ends a role like a loss, counts, and waits for a back-off. A span that could not be closed is ORPHANED,
  whatever the reason: it is called sealed only when an agent reports that the sink has closed it.
- A secondary that reports ``replicating`` has claimed without a right to: both roles are withdrawn, and the
  undetermined rule (span_lifecycle.py) keeps the span from every agent until those that may write have stopped.

The table has an entry for every pair. ``NEVER`` marks impossible pairs: the role that the signal is about does not
exist in that phase, or the command does not apply to it. Such a pair raises UnknownTransitionError: a bug, never
ignored.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.records.control import Assignment, Epoch, OutcomeStatus, ReplicationState, SpanDispatched
from headgate.runtime.table import UnknownTransitionError, read_grid


class SpanPhase(StrEnum):
    """A ReplicationState, with the forms that respond differently told apart."""

    ABSENT = "absent"
    PREPARE = "prepare"
    HANDOVER = "handover"
    COMMIT = "commit"
    REPLICATING = "replicating"
    REMOVING = "removing"
    ORPHANED = "orphaned"


class SpanSignal(StrEnum):
    """What can happen to a set: commands, valid reports of the role holders, losses, a deadline."""

    ADD = "add"
    MOVE = "move"
    CLOSE = "close"
    DEADLINE = "deadline"
    PRIMARY_STARTING = "primary_starting"
    PRIMARY_REPLICATING = "primary_replicating"
    PRIMARY_PROGRESSED = "primary_progressed"
    PRIMARY_STOPPING = "primary_stopping"
    PRIMARY_STOPPED = "primary_stopped"
    PRIMARY_FAILED = "primary_failed"
    PRIMARY_LOST = "primary_lost"
    SECONDARY_STARTING = "secondary_starting"
    SECONDARY_PREPARED = "secondary_prepared"
    SECONDARY_REPLICATING = "secondary_replicating"
    SECONDARY_STOPPED = "secondary_stopped"
    SECONDARY_FAILED = "secondary_failed"
    SECONDARY_LOST = "secondary_lost"


class SpanAction(StrEnum):
    """How the owner responds to a signal; each is one function below."""

    NEVER = "never"
    WAIT = "wait"
    APPOINT = "appoint"
    APPOINT_CLOSER = "appoint_closer"
    BEGIN_MOVE = "begin_move"
    HAND_OVER = "hand_over"
    PROMOTE = "promote"
    PROMOTE_FAILED = "promote_failed"
    SETTLE = "settle"
    ABANDON_MOVE = "abandon_move"
    REAPPOINT = "reappoint"
    WITHDRAW = "withdraw"
    RELEASE = "release"
    SEAL_CLOSED = "seal_closed"
    LOSE = "lose"
    FAIL = "fail"
    RESET = "reset"
    CLOSE = "close"
    CLOSE_ABSENT = "close_absent"
    ORPHAN = "orphan"
    FAIL_CLOSING = "fail_closing"


_TABLE: Final = """
signal                 absent       prepare        handover       commit   replicating removing     orphaned
add                    appoint      -              -              -        -           -            appoint_closer
move                   -            -              -              -        begin_move  -            -
close                  close_absent close          close          close    close       .            .
deadline               .            abandon_move   promote_failed fail     .           fail_closing .
primary_starting       -            .              .              .        .           .            -
primary_replicating    -            .              .              settle   .           .            -
primary_progressed     -            reset          reset          .        reset       .            -
primary_stopping       -            .              .              .        .           .            -
primary_stopped        -            promote        promote        release  release     seal_closed  -
primary_failed         -            promote_failed promote_failed fail     fail        fail_closing -
primary_lost           -            promote        promote        lose     lose        orphan       -
secondary_starting     -            .              .              -        -           -            -
secondary_prepared     -            hand_over      .              -        -           -            -
secondary_replicating  -            withdraw       withdraw       -        -           -            -
secondary_stopped      -            abandon_move   reappoint      -        -           -            -
secondary_failed       -            abandon_move   reappoint      -        -           -            -
secondary_lost         -            abandon_move   reappoint      -        -           -            -
"""
"""The whole machine, ``-`` for never and ``.`` for wait."""


TRANSITIONS: Final = read_grid(_TABLE, SpanPhase, SpanSignal, SpanAction, {"-": SpanAction.NEVER, ".": SpanAction.WAIT})
"""(phase, signal) → action, for every pair."""


class Cause(msgspec.Struct, frozen=True):
    """Why a signal was given, and what its action may need.

    ``issue`` gives the next epoch of the term; ``target`` gets a role (agent, session); ``reason`` goes into the
    outcome of a move that does not succeed; ``error_code`` and ``error`` are those of a failed status.
    """

    issue: Callable[[], Epoch]
    owner_rev: int
    reason: str = ""
    target: tuple[str, str] | None = None
    request: str | None = None
    error_code: str | None = None
    error: str | None = None


class ActionResult(msgspec.Struct, frozen=True):
    """The result of an action: the new record, and the outcome of the operator's move under way, if it ended."""

    record: SpanDispatched
    request: str | None = None
    status: OutcomeStatus | None = None
    reason: str = ""


def phase(record: SpanDispatched) -> SpanPhase:
    """The phase of a record."""
    if record.state is ReplicationState.COMMIT and record.secondary is not None:
        return SpanPhase.HANDOVER
    if record.state is ReplicationState.REMOVING and record.primary is None:
        return SpanPhase.ORPHANED
    return SpanPhase(record.state.value)


def apply(record: SpanDispatched, signal: SpanSignal, cause: Cause, action: SpanAction | None = None) -> ActionResult:
    """The step to which ``signal`` leads from ``record``; ``action`` overrides the table's (undetermined rule)."""
    chosen = action or TRANSITIONS[phase(record), signal]
    make = ACTIONS.get(chosen)
    if make is None:
        raise UnknownTransitionError(f"signal {signal} in phase {phase(record)} of {record}")
    return make(record, cause)


def _give(cause: Cause, to: tuple[str, str] | None) -> Assignment:
    if to is None:
        raise UnknownTransitionError("a role was to be assigned without a target: the scheduler must name a target")
    return Assignment(agent=to[0], session=to[1], epoch=cause.issue())


def _holder(role: Assignment | None) -> tuple[str, str] | None:
    return None if role is None else (role.agent, role.session)


def _ended_move(record: SpanDispatched, changed: SpanDispatched, status: OutcomeStatus, reason: str) -> ActionResult:
    if record.moving_request is None:
        return ActionResult(changed)
    return ActionResult(replace(changed, moving_request=None), record.moving_request, status, reason)


def _wait(record: SpanDispatched, _cause: Cause) -> ActionResult:
    return ActionResult(record)


def _appoint(record: SpanDispatched, cause: Cause) -> ActionResult:
    role = _give(cause, cause.target)
    changed = replace(record, owner_rev=cause.owner_rev, state=ReplicationState.COMMIT, primary=role, sealed=False)
    return ActionResult(changed)


def _appoint_closer(record: SpanDispatched, cause: Cause) -> ActionResult:
    return ActionResult(replace(record, owner_rev=cause.owner_rev, primary=_give(cause, cause.target)))


def _begin_move(record: SpanDispatched, cause: Cause) -> ActionResult:
    role = _give(cause, cause.target)
    changed = replace(
        record, owner_rev=cause.owner_rev, state=ReplicationState.PREPARE, secondary=role, moving_request=cause.request
    )
    return ActionResult(changed)


def _hand_over(record: SpanDispatched, cause: Cause) -> ActionResult:
    return ActionResult(replace(record, owner_rev=cause.owner_rev, state=ReplicationState.COMMIT))


def _promote(record: SpanDispatched, cause: Cause) -> ActionResult:
    role = _give(cause, _holder(record.secondary))
    changed = replace(record, owner_rev=cause.owner_rev, state=ReplicationState.COMMIT, primary=role, secondary=None)
    return ActionResult(changed)


def _failed(record: SpanDispatched, cause: Cause) -> SpanDispatched:
    return replace(
        record,
        failures=record.failures + 1,
        last_error=f"{cause.error_code or 'unknown'}: {cause.error or 'no detail'}",
    )


def _promote_failed(record: SpanDispatched, cause: Cause) -> ActionResult:
    return _promote(_failed(record, cause), cause)


def _settle(record: SpanDispatched, cause: Cause) -> ActionResult:
    changed = replace(record, owner_rev=cause.owner_rev, state=ReplicationState.REPLICATING)
    where = record.primary.agent if record.primary else "nobody"
    before = f"; on the way: {record.last_error}" if record.failures else ""
    return _ended_move(record, changed, OutcomeStatus.DONE, f"replicating on {where}{before}")


def _abandon_move(record: SpanDispatched, cause: Cause) -> ActionResult:
    changed = replace(record, owner_rev=cause.owner_rev, state=ReplicationState.REPLICATING, secondary=None)
    return _ended_move(record, changed, OutcomeStatus.FAILED, cause.reason)


def _reappoint(record: SpanDispatched, cause: Cause) -> ActionResult:
    role = _give(cause, _holder(record.primary))
    changed = replace(record, owner_rev=cause.owner_rev, primary=role, secondary=None)
    return _ended_move(record, changed, OutcomeStatus.FAILED, cause.reason)


def _vacate(record: SpanDispatched, cause: Cause, *, sealed: bool) -> ActionResult:
    changed = replace(
        record, owner_rev=cause.owner_rev, state=ReplicationState.ABSENT, primary=None, secondary=None, sealed=sealed
    )
    return _ended_move(record, changed, OutcomeStatus.FAILED, cause.reason)


def _lose(record: SpanDispatched, cause: Cause) -> ActionResult:
    return _vacate(record, cause, sealed=False)


def _release(record: SpanDispatched, cause: Cause) -> ActionResult:
    return _vacate(record, cause, sealed=True)


def _seal_closed(record: SpanDispatched, cause: Cause) -> ActionResult:
    # The requested state has been reached, so a later resume starts with a clean slate.
    return _vacate(replace(record, failures=0, last_error=None), cause, sealed=True)


def _fail(record: SpanDispatched, cause: Cause) -> ActionResult:
    return _vacate(_failed(record, cause), cause, sealed=False)


def _reset(record: SpanDispatched, cause: Cause) -> ActionResult:
    if not record.failures:
        return ActionResult(record)
    return ActionResult(replace(record, owner_rev=cause.owner_rev, failures=0, last_error=None))


def _close(record: SpanDispatched, cause: Cause) -> ActionResult:
    changed = replace(record, owner_rev=cause.owner_rev, state=ReplicationState.REMOVING, secondary=None)
    return _ended_move(record, changed, OutcomeStatus.FAILED, cause.reason)


def _close_absent(record: SpanDispatched, cause: Cause) -> ActionResult:
    if record.sealed:
        return ActionResult(record)
    return ActionResult(replace(record, owner_rev=cause.owner_rev, state=ReplicationState.REMOVING, failures=0))


def _orphan(record: SpanDispatched, cause: Cause) -> ActionResult:
    return ActionResult(replace(record, owner_rev=cause.owner_rev, primary=None))


def _fail_closing(record: SpanDispatched, cause: Cause) -> ActionResult:
    return _orphan(_failed(record, cause), cause)


ACTIONS: Final[dict[SpanAction, Callable[[SpanDispatched, Cause], ActionResult]]] = {
    SpanAction.WAIT: _wait,
    SpanAction.APPOINT: _appoint,
    SpanAction.APPOINT_CLOSER: _appoint_closer,
    SpanAction.BEGIN_MOVE: _begin_move,
    SpanAction.HAND_OVER: _hand_over,
    SpanAction.PROMOTE: _promote,
    SpanAction.PROMOTE_FAILED: _promote_failed,
    SpanAction.SETTLE: _settle,
    SpanAction.ABANDON_MOVE: _abandon_move,
    SpanAction.REAPPOINT: _reappoint,
    SpanAction.WITHDRAW: _lose,
    SpanAction.RELEASE: _release,
    SpanAction.SEAL_CLOSED: _seal_closed,
    SpanAction.LOSE: _lose,
    SpanAction.FAIL: _fail,
    SpanAction.RESET: _reset,
    SpanAction.CLOSE: _close,
    SpanAction.CLOSE_ABSENT: _close_absent,
    SpanAction.ORPHAN: _orphan,
    SpanAction.FAIL_CLOSING: _fail_closing,
}
