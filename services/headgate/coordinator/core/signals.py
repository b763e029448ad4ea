"""The meaning of role holders' reports and losses for a span: signals, and the causes of the steps.

Signals are derived from the span's record, the newest report of each role holder, and the live sessions; nothing is
remembered, so a new owner finds the same signals as the one before.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final

from msgspec.structs import replace

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.replication import Cause, SpanSignal
from headgate.coordinator.core.term import SessionId
from headgate.records.control import Assignment, ReplicationState, SpanDispatched, TaskReported, TaskState
from headgate.records.error_codes import COPY_FAILED
from headgate.records.keys import SpanKey

CONFLICT_CODE: Final = "sink_conflict"
"""Code of SinkConflictError (sinks/contract.py): another writer holds the row."""

_FENCED_CODE: Final = "sink_fenced"
"""Code of SinkFencedError (sinks/contract.py)."""

_REFUSED_CODE: Final = "sink_refused"
"""Code of SinkRefusedError (sinks/contract.py): a table, a right or a setting at the sink is not as it must be."""

_OF_THE_SINK: Final = (_REFUSED_CODE, "sink_unavailable")
"""Errors about the sink's state, not about any change: they pass, or a person corrects them at the database."""

NOT_RETRIED: Final = "not retried by itself: remove the cause, then headgate feed resume"
"""In the error of a table that waits for an operator (spans/span_lifecycle.py)."""

_RETRIED_SLOWLY: Final = "retried once a minute, by another agent first"


class RetryPace(Enum):
    """When a failed span is retried."""

    BACK_OFF = "back off"
    """Soon, then after ever longer pauses."""
    SLOWLY = "slowly"
    """Once a minute: it needs a person, or a state of the sink that passes."""
    NEVER = "never"
    """Only by a new owner, or on resume."""


_PRIMARY_SAYS: Final = {
    TaskState.PREPARING: SpanSignal.PRIMARY_STARTING,
    TaskState.PREPARED: SpanSignal.PRIMARY_STARTING,
    TaskState.REPLICATING: SpanSignal.PRIMARY_REPLICATING,
    TaskState.STOPPING: SpanSignal.PRIMARY_STOPPING,
    TaskState.STOPPED: SpanSignal.PRIMARY_STOPPED,
    TaskState.FAILED: SpanSignal.PRIMARY_FAILED,
}
_SECONDARY_SAYS: Final = {
    TaskState.PREPARING: SpanSignal.SECONDARY_STARTING,
    TaskState.PREPARED: SpanSignal.SECONDARY_PREPARED,
    TaskState.REPLICATING: SpanSignal.SECONDARY_REPLICATING,
    TaskState.STOPPING: SpanSignal.SECONDARY_STARTING,
    TaskState.STOPPED: SpanSignal.SECONDARY_STOPPED,
    TaskState.FAILED: SpanSignal.SECONDARY_FAILED,
}


def signals(
    draft: CoordinatorDraft, key: SpanKey, record: SpanDispatched
) -> Iterator[tuple[SpanSignal, TaskReported | None]]:
    """The signals that apply, most urgent first."""
    words = draft.state.tasks.get(key, {})
    primary, secondary = record.primary, record.secondary
    if secondary is not None and draft.is_lost(session_of(secondary)):
        yield SpanSignal.SECONDARY_LOST, None
    if primary is not None:
        word = _word(words, record, primary)
        # A report that ends the role outranks the loss of its sender: sealed is sealed.
        if word is not None and word.state is TaskState.STOPPED:
            yield SpanSignal.PRIMARY_STOPPED, word
        elif draft.is_lost(session_of(primary)):
            yield SpanSignal.PRIMARY_LOST, None
        elif word is not None:
            yield _PRIMARY_SAYS[word.state], word
    if secondary is not None:
        word = _word(words, record, secondary)
        if word is not None:
            yield _SECONDARY_SAYS[word.state], word


def session_of(role: Assignment) -> SessionId:
    """The session that holds the role."""
    return role.agent, role.session


def _word(words: dict[SessionId, TaskReported], record: SpanDispatched, role: Assignment) -> TaskReported | None:
    word = words.get(session_of(role))
    if word is None or word.epoch != role.epoch or word.feed_id != record.feed_id:
        return None
    return word


def cause(
    draft: CoordinatorDraft, *, reason: str = "", target: SessionId | None = None, request: str | None = None
) -> Cause:
    """Why something is done, by this owner."""
    return Cause(issue=draft.term.issue, owner_rev=draft.term.owner_rev, reason=reason, target=target, request=request)


def cause_of(draft: CoordinatorDraft, record: SpanDispatched, signal: SpanSignal, word: TaskReported | None) -> Cause:
    """Why a step is taken on ``signal``, in words for people; for a failure also its code."""
    secondary = record.secondary.agent if record.secondary else "the target"
    primary = record.primary.agent if record.primary else "the writer"
    reasons = {
        SpanSignal.SECONDARY_LOST: f"{secondary} was lost on the way; the table stays where it is",
        SpanSignal.SECONDARY_STOPPED: f"{secondary} stopped on the way; the table stays where it is",
        SpanSignal.SECONDARY_REPLICATING: f"{secondary} wrote before its turn; both agents are being stopped",
        SpanSignal.PRIMARY_LOST: f"{primary} was lost on the way; the table goes to any free agent",
        SpanSignal.PRIMARY_STOPPED: f"{primary} stopped; the table goes to any free agent",
    }
    reason = reasons.get(signal, "")
    if word is not None and word.state is TaskState.FAILED:
        who = secondary if signal is SpanSignal.SECONDARY_FAILED else primary
        reason = f"{who} failed: {word.error_code or 'unknown'}: {word.error or 'no detail'}"
        pace = RetryPace.BACK_OFF if record.state is ReplicationState.REMOVING else pace_of(word)
        hint = {
            RetryPace.BACK_OFF: "",
            RetryPace.SLOWLY: f" ({_RETRIED_SLOWLY})",
            RetryPace.NEVER: f" ({NOT_RETRIED})",
        }[pace]
        return replace(cause(draft, reason=reason), error_code=word.error_code, error=f"{word.error}{hint}")
    return cause(draft, reason=reason)


def pace_of(word: TaskReported) -> RetryPace:
    """When the span whose role has failed is retried."""
    if word.error_code == _FENCED_CODE:
        # Fenced although the log names it primary: the sink knows an epoch of a failed assignment; a higher one wins.
        return RetryPace.BACK_OFF
    if word.error_code == _REFUSED_CODE:
        return RetryPace.SLOWLY
    if word.error_code == COPY_FAILED:
        return RetryPace.BACK_OFF  # without the copy (copying.py)
    return RetryPace.BACK_OFF if word.retryable and word.error_code != CONFLICT_CODE else RetryPace.NEVER


def is_of_the_sink(error: str | None) -> bool:
    """Whether a span's error is about the state of the sink: it may end at any time, without a report to Headgate."""
    return error is not None and error.partition(":")[0] in _OF_THE_SINK


def is_refused(error: str | None) -> bool:
    """Whether the sink has refused the table."""
    return error is not None and error.partition(":")[0] == _REFUSED_CODE
