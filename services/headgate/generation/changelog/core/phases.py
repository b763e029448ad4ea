"""A generation's phases, and every transition between them. The rules of a switch in one place.

Theory of operation
===================
A switch replaces some streams of a change log by others. Clocks decide nothing, only what is on the log does::

    NONE ──prepared──> PREPARED ──acknowledged──> COMMITTED ──followed──> CLOSING ──ended, measured──> SUPERSEDED
                          │                                                                               │ read
                          └──abandoned──> ABORTED ──expired──> (retired) <──expired── DRAINED <───────────┘

- PREPARED: the new map is on the log. Each writer that was admitted when it was written holds back the changes of the
  streams to be closed, and **promises** the highest position of its source that it has written to them. Changes of
  other streams are written on.
- A writer that does not promise in time is **fenced** through its transactional.id: it can write no more, so what it
  has written is its promise. If even that fails, the switch is ABORTED: the old generation was in force all the time.
- All have promised: COMMITTED, with each writer's promise as its **cut**. The generation before it is CLOSING. Each
  writer continues with the new map as soon as it reads it; the owner writes an END marker for each of them to every
  stream that is closed. So on every closed stream all of a writer's changes precede its END, and its later ones are
  elsewhere.
- The markers are written: the closed streams have their last record, so their ends are measured, once: SUPERSEDED.
- Every reader has read them: DRAINED; their partitions may be used again. RETIRED generations are deleted.

There is at most one PREPARED and one CLOSING generation in a set, and never both: switches come one after the other.
The table has an entry for every pair; ``-`` marks impossible pairs, which raise UnknownTransitionError.
"""

from enum import StrEnum
from typing import Final

from headgate.records.generation import GenerationPhase
from headgate.runtime.table import UnknownTransitionError, read_grid


class SwitchPhase(StrEnum):
    """The phase of a generation; ``none`` before its first record."""

    NONE = "none"
    PREPARED = "prepared"
    COMMITTED = "committed"
    CLOSING = "closing"
    SUPERSEDED = "superseded"
    DRAINED = "drained"
    ABORTED = "aborted"


class SwitchSignal(StrEnum):
    """What can happen to a generation."""

    CHOSEN = "chosen"
    """Its map is made."""
    ACKNOWLEDGED = "acknowledged"
    """Every writer has promised, or is fenced."""
    OVERDUE = "overdue"
    """Some have not promised in time."""
    ABANDONED = "abandoned"
    """Fencing failed too, or an operator takes the switch back."""
    FOLLOWED = "followed"
    """Its successor is committed."""
    ENDED = "ended"
    """END markers of every writer are on the streams that its successor closes."""
    MEASURED = "measured"
    """The ends of the closed streams are known."""
    READ = "read"
    """Every reader has read the closed streams."""
    EXPIRED = "expired"
    """It is not needed any more."""


class SwitchAction(StrEnum):
    """What the owner makes of a signal; each is one function in switching.py."""

    NEVER = "never"
    WAIT = "wait"
    PREPARE = "prepare"
    COMMIT = "commit"
    FENCE = "fence"
    ABORT = "abort"
    CLOSE = "close"
    MEASURE = "measure"
    SUPERSEDE = "supersede"
    DRAIN = "drain"
    RETIRE = "retire"


_TABLE: Final = """
signal       none    prepared committed closing   superseded drained aborted
chosen       prepare -        -         -         -          -       -
acknowledged -       commit   -         -         -          -       -
overdue      -       fence    .         .         .          .       .
abandoned    -       abort    .         .         .          .       .
followed     -       -        close     -         -          -       -
ended        -       -        -         measure   -          -       -
measured     -       -        -         supersede .          .       -
read         -       -        -         -         drain      -       -
expired      -       -        -         -         -          retire  retire
"""
"""The whole machine, ``-`` for never and ``.`` for wait."""

PHASE_AFTER: Final = {
    SwitchAction.PREPARE: GenerationPhase.PREPARED,
    SwitchAction.COMMIT: GenerationPhase.COMMITTED,
    SwitchAction.ABORT: GenerationPhase.ABORTED,
    SwitchAction.CLOSE: GenerationPhase.CLOSING,
    SwitchAction.SUPERSEDE: GenerationPhase.SUPERSEDED,
    SwitchAction.DRAIN: GenerationPhase.DRAINED,
}
"""The phase that each action leads to. The others change none, or delete the generation (RETIRE)."""

TRANSITIONS: Final = read_grid(
    _TABLE, SwitchPhase, SwitchSignal, SwitchAction, {"-": SwitchAction.NEVER, ".": SwitchAction.WAIT}
)


def action_for(phase: GenerationPhase | None, signal: SwitchSignal) -> SwitchAction:
    """The action. Raises UnknownTransitionError."""
    where = SwitchPhase.NONE if phase is None else SwitchPhase(phase.value)
    action = TRANSITIONS[where, signal]
    if action is SwitchAction.NEVER:
        raise UnknownTransitionError(f"{signal.value} cannot happen to a generation that is {where.value}")
    return action
