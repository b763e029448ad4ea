"""What role holders' words and losses mean for a span: signals, and the causes of the steps they lead to.

All is read off the span's record, the newest word of each role holder, and who is still there; nothing is remembered,
so a new owner finds the same signals as the one before.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from headgate.coordinator.core.draft import Draft
from headgate.coordinator.core.replication import Cause, Signal
from headgate.coordinator.core.term import SessionId
from headgate.records.control import Assignment, ReplicationState, SpanDispatched, TaskReported, TaskState
from headgate.records.keys import SpanKey

__all__ = ["CONFLICT_CODE", "cause", "cause_of", "is_retryable", "session_of", "signals"]

CONFLICT_CODE: Final = "sink_conflict"
"""Code of SinkConflictError (sinks/contract.py): another writer holds the row."""

_FENCED_CODE: Final = "sink_fenced"
"""Code of SinkFencedError (sinks/contract.py)."""

_NOT_RETRIED: Final = "not tried again by itself: remove the cause, then headgate feed resume"

_PRIMARY_SAYS: Final = {
    TaskState.PREPARING: Signal.PRIMARY_STARTING,
    TaskState.PREPARED: Signal.PRIMARY_STARTING,
    TaskState.REPLICATING: Signal.PRIMARY_REPLICATING,
    TaskState.STOPPING: Signal.PRIMARY_STOPPING,
    TaskState.STOPPED: Signal.PRIMARY_STOPPED,
    TaskState.FAILED: Signal.PRIMARY_FAILED,
}
_SECONDARY_SAYS: Final = {
    TaskState.PREPARING: Signal.SECONDARY_STARTING,
    TaskState.PREPARED: Signal.SECONDARY_PREPARED,
    TaskState.REPLICATING: Signal.SECONDARY_REPLICATING,
    TaskState.STOPPING: Signal.SECONDARY_STARTING,
    TaskState.STOPPED: Signal.SECONDARY_STOPPED,
    TaskState.FAILED: Signal.SECONDARY_FAILED,
}


def signals(draft: Draft, key: SpanKey, record: SpanDispatched) -> Iterator[tuple[Signal, TaskReported | None]]:
    """What is the case, most urgent first."""
    words = draft.state.tasks.get(key, {})
    primary, secondary = record.primary, record.secondary
    if secondary is not None and draft.is_lost(session_of(secondary)):
        yield Signal.SECONDARY_LOST, None
    if primary is not None:
        word = _word(words, record, primary)
        # A word that ends the role outranks the loss of who spoke it: sealed is sealed.
        if word is not None and word.state is TaskState.STOPPED:
            yield Signal.PRIMARY_STOPPED, word
        elif draft.is_lost(session_of(primary)):
            yield Signal.PRIMARY_LOST, None
        elif word is not None:
            yield _PRIMARY_SAYS[word.state], word
    if secondary is not None:
        word = _word(words, record, secondary)
        if word is not None:
            yield _SECONDARY_SAYS[word.state], word


def session_of(role: Assignment) -> SessionId:
    """Who holds the role."""
    return role.agent, role.session


def _word(words: dict[SessionId, TaskReported], record: SpanDispatched, role: Assignment) -> TaskReported | None:
    word = words.get(session_of(role))
    if word is None or word.epoch != role.epoch or word.feed_id != record.feed_id:
        return None
    return word


def cause(draft: Draft, *, reason: str = "", target: SessionId | None = None, request: str | None = None) -> Cause:
    """Why something is done, by this owner."""
    return Cause(issue=draft.term.issue, owner_rev=draft.term.owner_rev, reason=reason, target=target, request=request)


def cause_of(draft: Draft, record: SpanDispatched, signal: Signal, word: TaskReported | None) -> Cause:
    """Why a step is taken on ``signal``, in words for people; of a failure also its code."""
    secondary = record.secondary.agent if record.secondary else "the target"
    primary = record.primary.agent if record.primary else "the writer"
    reasons = {
        Signal.SECONDARY_LOST: f"{secondary} was lost on the way; the table stays where it is",
        Signal.SECONDARY_STOPPED: f"{secondary} stopped on the way; the table stays where it is",
        Signal.SECONDARY_REPLICATING: f"{secondary} wrote before its turn; both agents are being stopped",
        Signal.PRIMARY_LOST: f"{primary} was lost on the way; the table goes to whoever is free",
        Signal.PRIMARY_STOPPED: f"{primary} stopped; the table goes to whoever is free",
    }
    reason = reasons.get(signal, "")
    if word is not None and word.state is TaskState.FAILED:
        who = secondary if signal is Signal.SECONDARY_FAILED else primary
        reason = f"{who} failed: {word.error_code or 'unknown'}: {word.error or 'no detail'}"
        is_retried = record.state is ReplicationState.REMOVING or is_retryable(word)
        error = word.error if is_retried else f"{word.error} ({_NOT_RETRIED})"
        return replace(cause(draft, reason=reason), error_code=word.error_code, error=error)
    return cause(draft, reason=reason)


def is_retryable(word: TaskReported) -> bool:
    """Whether a failed role is worth another. What is not is tried once by each new owner, or on resume."""
    if word.error_code == _FENCED_CODE:
        # Fenced although the log says primary: the sink knows an epoch of ours that came to nothing; a higher one wins.
        return True
    return word.retryable and word.error_code != CONFLICT_CODE
