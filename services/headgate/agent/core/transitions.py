"""What an agent does about a span: one table of (what its task is, what the owner asks) → what to ask of the executor.

The owner's newest record of a span asks a **directive** of a session (machine.py reads it off the record); the task's
state and the directive give the **action**. Every pair that can occur has a line; any other is a contradiction on the
log, which ends the session.
"""

from enum import StrEnum
from typing import Final

from headgate.records.control import TaskState

__all__ = ["TRANSITIONS", "Action", "Directive", "UnknownTransitionError"]


class UnknownTransitionError(Exception):
    """A pair of task state and directive that no history can lead to: the session ends rather than guess."""


class Directive(StrEnum):
    """What the newest dispatch record of a span asks of this session.

    The plain ones continue the epoch the task already has; ``…_anew`` and ``close`` come with an epoch this session
    has never run. ``abandon`` is to stop without the sink, which an operator has given up.
    """

    NONE = "none"
    PREPARE = "prepare"
    PREPARE_ANEW = "prepare_anew"
    REPLICATE = "replicate"
    REPLICATE_ANEW = "replicate_anew"
    DRAIN = "drain"
    CLOSE = "close"
    ABANDON = "abandon"
    ABANDON_ANEW = "abandon_anew"


class Action(StrEnum):
    """What to ask of the executor; ``keep`` and ``wait`` ask nothing, ``wait`` because a stop is still under way."""

    KEEP = "keep"
    WAIT = "wait"
    PREPARE = "prepare"
    REPLICATE = "replicate"
    SEAL = "seal"
    STOP = "stop"
    CLOSE = "close"
    FORGET = "forget"
    SAY_STOPPED = "say_stopped"


_T = TaskState
_D = Directive
_A = Action

_RUNNING: Final = (_T.PREPARING, _T.PREPARED, _T.REPLICATING, _T.STOPPING)

TRANSITIONS: Final[dict[tuple[TaskState | None, Directive], Action]] = {
    # Nothing is run here (None): only an epoch never run can name this session.
    (None, _D.NONE): _A.KEEP,
    (None, _D.PREPARE_ANEW): _A.PREPARE,
    (None, _D.REPLICATE_ANEW): _A.REPLICATE,
    (None, _D.CLOSE): _A.CLOSE,
    # Opening. A drain reaches it as primary: its claim may be under way, so it is sealed, not just dropped.
    (_T.PREPARING, _D.NONE): _A.STOP,
    (_T.PREPARING, _D.PREPARE): _A.KEEP,
    (_T.PREPARING, _D.PREPARE_ANEW): _A.PREPARE,
    (_T.PREPARING, _D.REPLICATE): _A.REPLICATE,
    (_T.PREPARING, _D.REPLICATE_ANEW): _A.REPLICATE,
    (_T.PREPARING, _D.DRAIN): _A.SEAL,
    (_T.PREPARING, _D.CLOSE): _A.CLOSE,
    # Warm, writing nothing.
    (_T.PREPARED, _D.NONE): _A.STOP,
    (_T.PREPARED, _D.PREPARE): _A.KEEP,
    (_T.PREPARED, _D.PREPARE_ANEW): _A.PREPARE,
    (_T.PREPARED, _D.REPLICATE): _A.REPLICATE,
    (_T.PREPARED, _D.REPLICATE_ANEW): _A.REPLICATE,
    (_T.PREPARED, _D.DRAIN): _A.SEAL,
    (_T.PREPARED, _D.CLOSE): _A.CLOSE,
    # Writing. Not named any more: somebody else claims, the sink fences, so it stops without a seal.
    (_T.REPLICATING, _D.NONE): _A.STOP,
    (_T.REPLICATING, _D.PREPARE_ANEW): _A.PREPARE,
    (_T.REPLICATING, _D.REPLICATE): _A.KEEP,
    (_T.REPLICATING, _D.REPLICATE_ANEW): _A.REPLICATE,
    (_T.REPLICATING, _D.DRAIN): _A.SEAL,
    (_T.REPLICATING, _D.CLOSE): _A.CLOSE,
    # A stop cannot be taken back; what comes under a new epoch starts when it is over.
    (_T.STOPPING, _D.NONE): _A.KEEP,
    (_T.STOPPING, _D.PREPARE): _A.KEEP,
    (_T.STOPPING, _D.PREPARE_ANEW): _A.WAIT,
    (_T.STOPPING, _D.REPLICATE): _A.KEEP,
    (_T.STOPPING, _D.REPLICATE_ANEW): _A.WAIT,
    (_T.STOPPING, _D.DRAIN): _A.KEEP,
    (_T.STOPPING, _D.CLOSE): _A.WAIT,
    # Over under this epoch: the report stands until the owner answers with a new epoch or without this session.
    (_T.STOPPED, _D.NONE): _A.FORGET,
    (_T.STOPPED, _D.PREPARE): _A.KEEP,
    (_T.STOPPED, _D.PREPARE_ANEW): _A.PREPARE,
    (_T.STOPPED, _D.REPLICATE): _A.KEEP,
    (_T.STOPPED, _D.REPLICATE_ANEW): _A.REPLICATE,
    (_T.STOPPED, _D.DRAIN): _A.KEEP,
    (_T.STOPPED, _D.CLOSE): _A.CLOSE,
    # Failed under this epoch: only an epoch of its own tries again. To end it means to seal it all the same.
    (_T.FAILED, _D.NONE): _A.FORGET,
    (_T.FAILED, _D.PREPARE): _A.KEEP,
    (_T.FAILED, _D.PREPARE_ANEW): _A.PREPARE,
    (_T.FAILED, _D.REPLICATE): _A.KEEP,
    (_T.FAILED, _D.REPLICATE_ANEW): _A.REPLICATE,
    (_T.FAILED, _D.DRAIN): _A.CLOSE,
    (_T.FAILED, _D.CLOSE): _A.CLOSE,
    # Without the sink: whatever is under way is stopped, be it a seal that is tried again and again. Who has a role of
    # which nothing was observed says that it never will be, once the executor has confirmed it.
    **{(state, directive): _A.STOP for state in _RUNNING for directive in (_D.ABANDON, _D.ABANDON_ANEW)},
    **{(state, _D.ABANDON): _A.KEEP for state in (_T.STOPPED, _T.FAILED)},
    **{(state, _D.ABANDON_ANEW): _A.SAY_STOPPED for state in (None, _T.STOPPED, _T.FAILED)},
}
"""(task state, directive) → action. Missing, because impossible: a plain directive without a task (it continues an
epoch the session has run), and a primary made secondary under the same epoch."""
