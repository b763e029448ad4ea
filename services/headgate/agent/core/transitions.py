"""An agent's actions on a span: one table of (state of its task, directive of the owner) → action of the executor.

The owner's newest record of a span asks a **directive** of a session (machine.py reads it off the record); the task's
state and the directive give the **action**. Every pair that can occur has a line; any other is a contradiction on the
log, which ends the session.
"""

from enum import StrEnum
from typing import Final

from headgate.records.control import TaskState
from headgate.runtime.table import read_rows


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


class SessionAction(StrEnum):
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


_TABLE: Final = """
# Nothing is run here: only an epoch that never ran can name this session.
absent      none:keep prepare_anew:prepare replicate_anew:replicate close:close abandon_anew:say_stopped

# Opening, or warm and writing nothing. A drain reaches it as primary: its claim may be under way, so it is sealed.
preparing   none:stop prepare:keep prepare_anew:prepare replicate:replicate replicate_anew:replicate drain:seal
            close:close abandon:stop abandon_anew:stop
prepared    none:stop prepare:keep prepare_anew:prepare replicate:replicate replicate_anew:replicate drain:seal
            close:close abandon:stop abandon_anew:stop

# Writing. If it is not named any more, another session claims and the sink fences, so it stops without a seal.
replicating none:stop prepare_anew:prepare replicate:keep replicate_anew:replicate drain:seal
            close:close abandon:stop abandon_anew:stop

# A stop cannot be taken back; what comes under a new epoch starts when it is over.
stopping    none:keep prepare:keep prepare_anew:wait replicate:keep replicate_anew:wait drain:keep
            close:wait abandon:stop abandon_anew:stop

# Over under this epoch: the report stays until the owner answers with a new epoch or without this session.
stopped     none:forget prepare:keep prepare_anew:prepare replicate:keep replicate_anew:replicate drain:keep
            close:close abandon:keep abandon_anew:say_stopped

# Failed under this epoch: only an epoch of its own tries again. Ending it means to seal it all the same.
failed      none:forget prepare:keep prepare_anew:prepare replicate:keep replicate_anew:replicate drain:close
            close:close abandon:keep abandon_anew:say_stopped
"""
"""Task state, and the action for each directive. Without the sink (``abandon``) whatever is under way is stopped, even
a seal that is retried; a session whose role never showed anything reports that once the executor has
confirmed it. Two pairs are missing because they cannot be: a plain directive without a task, which continues an epoch
that the session has run, and a primary made secondary under the same epoch."""


def _task_state(word: str) -> TaskState | None:
    return None if word == "absent" else TaskState(word)


TRANSITIONS: Final = read_rows(_TABLE, _task_state, Directive, SessionAction)
"""(task state, directive) → action, for every pair that can be."""
