"""The transitions of a span in an agent: one table of (phase, signal) → action.

::

    OPENING ──> WAITING ──> READING ──> CLAIMING ──┐          warm, until it is promoted
       ^           │                               v
       │           └─────────────────────────> CLAIMED <──> WRITING, SETTLING
       └── RETRYING <── whatever fails ────────────┘
    to end it:  WRITING ──> DRAINING ──┐
                a call  ──> RECALLED ──┴──> SEALING (<──> RESEALING) ──> STOPPED

An input (inputs.py) is a *signal* by what it means for the span it meets: a task of a higher epoch differs from
the same one again. Rules, and what each one keeps out:

- One call to source or sink at a time, and none while a batch may be writing: who wants the span until then waits for
  the answer (CLAIMING, SETTLING, RECALLED) or for the border (DRAINING).
- It is planned into a batch in CLAIMED only, and CLAIMED is entered by a claim's answer, or when nothing is under way.
- An answer that was asked for under another epoch or role is not adopted: it is asked again (OUTDATED).
- What fails leaves its lane, and comes back through OPENING: the sink defines where it resumes.
- A stop cannot be taken back; a seal can be given up for a plain stop, a plain stop cannot become a seal.

A pair without a line cannot be: UnknownTransitionError, a bug, never to be ignored.
"""

from enum import StrEnum
from typing import Final

from headgate.agent.core.span.inputs import (
    Add,
    BatchOver,
    CallFailed,
    Close,
    Completed,
    CopiedOn,
    CopyDue,
    DropCopy,
    Failed,
    Forget,
    LaneLost,
    Limited,
    Looked,
    MaintainDue,
    MaintainFor,
    Opened,
    Passed,
    Placed,
    Planned,
    Remove,
    RetryDue,
    Sealed,
    SentBack,
    Served,
    Settled,
    SettleDue,
    Slowed,
    SpanInput,
)
from headgate.agent.core.span.states import OVER, Span, Stop, TaskPhase
from headgate.runtime.table import read_rows


class LowerEpochError(ValueError):
    """A task under a lower epoch than the span already had here: the log contradicts itself."""


class TaskSignal(StrEnum):
    """An input, by what it means for the span."""

    ADD = "add"
    """A task under an epoch that has never run here, and nothing warm to continue with."""
    RENEW = "renew"
    """The same, for a warm span."""
    PROMOTE = "promote"
    """It must be written, under the epoch it has."""
    AGAIN = "again"
    """What was asked for already."""
    CLOSE = "close"
    SEAL = "seal"
    STOP = "stop"
    FORGET = "forget"
    OPENED = "opened"
    OUTDATED = "outdated"
    """Opened under another epoch or role than the one wanted by now."""
    SETTLED = "settled"
    SEALED = "sealed"
    CALL_FAILED = "call_failed"
    LOOKED = "looked"
    PLACED = "placed"
    SERVED = "served"
    PLANNED = "planned"
    WRITTEN = "written"
    REFUSED = "refused"
    """Its batch is over, and has an error of it."""
    PASSED = "passed"
    SENT_BACK = "sent_back"
    LANE_LOST = "lane_lost"
    """Its lane is over, and it was not the only one on it."""
    FAILED = "failed"
    SLOWED = "slowed"
    LIMITED = "limited"
    RETRY_DUE = "retry_due"
    SETTLE_DUE = "settle_due"
    COPY_DUE = "copy_due"
    COPIED_ON = "copied_on"
    DROP_COPY = "drop_copy"
    MAINTAIN_FOR = "maintain_for"
    MAINTAIN_DUE = "maintain_due"
    COMPLETED = "completed"


class TaskAction(StrEnum):
    """What is made of a signal; each is the function of steps.py of its name."""

    KEEP = "keep"
    BEGIN = "begin"
    RENEW = "renew"
    REOPEN = "reopen"
    PROMISE = "promise"
    CLAIM = "claim"
    ENTER = "enter"
    GO_ON = "go_on"
    PLACE = "place"
    TAKE_OVER = "take_over"
    SHOW = "show"
    PLAN = "plan"
    ADOPT = "adopt"
    ADOPT_FAILED = "adopt_failed"
    ADOPT_LAST = "adopt_last"
    NOTE_READ = "note_read"
    SETTLE = "settle"
    FOLLOW = "follow"
    LEAVE = "leave"
    RESTART = "restart"
    LOSE = "lose"
    FAIL = "fail"
    DRAIN = "drain"
    RECALL = "recall"
    END = "end"
    END_OPENED = "end_opened"
    END_SETTLED = "end_settled"
    END_FAILED = "end_failed"
    GIVE_UP = "give_up"
    BEGIN_CLOSING = "begin_closing"
    CLOSE = "close"
    FORGET = "forget"
    LOOK = "look"
    COMPLETE = "complete"
    SLOW = "slow"
    LIMIT = "limit"
    COPY_ON = "copy_on"
    NOTE_COPIED = "note_copied"
    DROP_COPY = "drop_copy"
    ASK_TO_MAINTAIN = "ask_to_maintain"
    MAINTAIN = "maintain"


_TABLE: Final = """
absent     add:begin close:begin_closing seal:keep stop:keep forget:keep drop_copy:keep maintain_for:keep

*          add:begin close:begin_closing again:keep looked:keep completed:keep slowed:slow limited:keep
           drop_copy:drop_copy maintain_for:ask_to_maintain

opening    renew:renew promote:promise seal:recall stop:recall forget:keep
           opened:enter outdated:reopen call_failed:fail copied_on:note_copied
waiting    renew:reopen promote:reopen seal:end stop:end forget:keep
           placed:place limited:limit sent_back:restart failed:fail
reading    renew:claim promote:promise seal:end stop:end forget:keep looked:look
           served:show limited:limit sent_back:restart lane_lost:lose failed:fail
claiming   add:- renew:renew promote:promise seal:recall stop:recall forget:keep
           opened:go_on outdated:reopen call_failed:fail copied_on:note_copied
           served:keep sent_back:leave lane_lost:leave failed:leave
claimed    seal:end stop:end forget:keep completed:complete
           placed:take_over served:show planned:plan passed:note_read settle_due:settle limited:limit
           copy_due:copy_on maintain_due:maintain
           sent_back:restart lane_lost:lose failed:fail
writing    seal:drain stop:drain forget:keep completed:complete
           served:show written:adopt refused:adopt_failed limited:limit
           sent_back:restart lane_lost:lose failed:fail
settling   seal:recall stop:recall forget:keep completed:complete
           settled:follow call_failed:fail limited:limit
           served:show sent_back:leave lane_lost:leave failed:leave
retrying   renew:reopen promote:reopen seal:end stop:end forget:keep retry_due:reopen

draining   seal:keep stop:give_up forget:keep
           served:keep written:adopt_last refused:adopt_last sent_back:end lane_lost:end failed:end
recalled   promote:keep seal:keep stop:give_up forget:keep
           opened:end_opened outdated:end settled:end_settled call_failed:end copied_on:keep
sealing    promote:keep seal:keep stop:give_up forget:keep sealed:close call_failed:end_failed
resealing  promote:keep seal:keep stop:end forget:keep retry_due:end

stopped    promote:keep seal:keep stop:keep forget:forget
failed     promote:keep seal:keep stop:keep forget:forget
"""
"""Phase, and what each signal makes of it. ``*`` is what holds in every phase below unless it is overridden, and ``-``
marks a pair that cannot be."""

TRANSITIONS: Final = read_rows(_TABLE, TaskPhase, TaskSignal, TaskAction)
"""(phase, signal) → action, for every pair that can be."""

_SIGNALS: Final[dict[type[SpanInput], TaskSignal]] = {
    Forget: TaskSignal.FORGET,
    Settled: TaskSignal.SETTLED,
    Sealed: TaskSignal.SEALED,
    CallFailed: TaskSignal.CALL_FAILED,
    Looked: TaskSignal.LOOKED,
    Placed: TaskSignal.PLACED,
    Served: TaskSignal.SERVED,
    Planned: TaskSignal.PLANNED,
    Passed: TaskSignal.PASSED,
    SentBack: TaskSignal.SENT_BACK,
    Failed: TaskSignal.FAILED,
    Slowed: TaskSignal.SLOWED,
    Limited: TaskSignal.LIMITED,
    RetryDue: TaskSignal.RETRY_DUE,
    SettleDue: TaskSignal.SETTLE_DUE,
    CopyDue: TaskSignal.COPY_DUE,
    CopiedOn: TaskSignal.COPIED_ON,
    DropCopy: TaskSignal.DROP_COPY,
    MaintainFor: TaskSignal.MAINTAIN_FOR,
    MaintainDue: TaskSignal.MAINTAIN_DUE,
    Completed: TaskSignal.COMPLETED,
}
"""Inputs that mean the same for every span."""


def signal_of(span: Span | None, given: SpanInput) -> TaskSignal:
    """The signal that ``given`` is for the span. Raises LowerEpochError."""
    match given:
        case Add():
            signal = _of_add(span, given)
        case Close():
            signal = _of_close(span, given)
        case Remove(seal=seal):
            signal = TaskSignal.SEAL if seal else TaskSignal.STOP
        case Opened(epoch=epoch, primary=primary):
            is_wanted = span is not None and (epoch, primary) == (span.task.epoch, span.primary)
            signal = TaskSignal.OPENED if is_wanted else TaskSignal.OUTDATED
        case BatchOver(result=result):
            has_error = result is not None and result.error_code is not None
            signal = TaskSignal.REFUSED if has_error else TaskSignal.WRITTEN
        case LaneLost(alone=alone):
            signal = TaskSignal.FAILED if alone else TaskSignal.LANE_LOST
        case _:
            signal = _SIGNALS[type(given)]
    return signal


def _of_add(span: Span | None, given: Add) -> TaskSignal:
    if span is None:
        return TaskSignal.ADD
    _check_epoch(span, given)
    if given.task.epoch > span.task.epoch:
        return TaskSignal.RENEW if span.is_warm else TaskSignal.ADD
    return TaskSignal.PROMOTE if given.primary and not span.primary else TaskSignal.AGAIN


def _of_close(span: Span | None, given: Close) -> TaskSignal:
    if span is None:
        return TaskSignal.CLOSE
    _check_epoch(span, given)
    is_over = span.phase in OVER and (span.phase is TaskPhase.STOPPED or span.stop is not Stop.NOT)
    if given.task.epoch > span.task.epoch or (span.phase is TaskPhase.FAILED and not is_over):
        return TaskSignal.CLOSE
    return TaskSignal.AGAIN if is_over else TaskSignal.SEAL


def _check_epoch(span: Span, given: Add | Close) -> None:
    if given.task.epoch < span.task.epoch:
        raise LowerEpochError(f"{span.id}: epoch {given.task.epoch} is below {span.task.epoch}, which has run here")
