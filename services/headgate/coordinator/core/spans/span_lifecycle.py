"""Turns sessions' reports into transitions of spans: signals, and the consequences of each step.

Signals are *level-triggered*: ``review`` reads the span's record, the newest report of its role holders and which of
them are still alive, and applies what follows until nothing does. It can be repeated at any time, so a new owner
reviews every span once its barrier is over and does not need to know what the last one had seen.

The undetermined rule. A live session that has answered, and reports a task that may write (replicating or stopping),
for a span in which the log gives it no role, or under another epoch, is *undetermined*: no other session is made
primary of that span until it has stopped, failed, or died. The sink would fence it anyway; the rule avoids the fight.
The state also ends when the session is assigned the span again, under a new epoch. A session that may write another
span with a partition of this one (its table was divided differently since) is an *outsider*: the same applies.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.replication import TRANSITIONS, Cause, SpanAction, SpanPhase, SpanSignal, apply, phase
from headgate.coordinator.core.signals import (
    RetryPace,
    cause,
    cause_of,
    is_of_the_sink,
    is_refused,
    pace_of,
    session_of,
    signals,
)
from headgate.coordinator.core.span_predicates import is_open
from headgate.coordinator.core.spans import abandoning, waiting
from headgate.coordinator.core.term import SessionId
from headgate.records.control import (
    FeedRecorded,
    FeedState,
    ReplicationState,
    SpanDispatched,
    TaskState,
    WantedState,
)
from headgate.records.keys import SpanKey
from headgate.records.spans import paused_table, table_of

PREPARE_SECONDS_MAX: Final = 60.0
"""Opening a source and warming up takes seconds; a target that needs a minute would not serve the table well."""

RETRY_SECONDS_MIN: Final = 1.0
"""First back-off: a sink that restarts is back within seconds."""

RETRY_SECONDS_MAX: Final = 60.0
"""Longest back-off: after a repair a table waits at most a minute."""

SLOW_RETRY_SECONDS: Final = 60.0
"""Pace for a table that the sink refuses. A rotated password, a fail-over or a newly granted right is noticed within
a minute, and a table that stays refused costs its sink one session a minute."""

MOVE_REST_SECONDS: Final = 5.0
"""Pause before a scheduler moves a span again whose move failed: the reason (a lost agent, a sink that does not answer)
is rarely over at once."""

TRIES_IN_FAILED_MAX: Final = 5
"""Failures in a row up to which a table is retried even though its feed has failed: half a minute, in which a
neighbour's passing trouble is over. A table that was given up has had more."""

REVIEWS_PER_DECISION_MAX: Final = 2_000
"""Spans reviewed in one decision: a tenth of a second, and a transaction below TURN_FACTS_MAX (runtime/term.py)."""

REVIEW_STEPS_MAX: Final = 8
"""No history needs more steps in one review (the longest: secondary lost, primary lost); more means a cycle: a bug."""


def writers(draft: CoordinatorDraft, key: SpanKey) -> list[SessionId]:
    """The undetermined sessions of the span, sorted; see the module's docstring."""
    words = draft.state.tasks.get(key)
    feed = draft.feed(key.feed)
    if not words or feed is None:
        return []
    record = draft.span(key)
    held = [] if record is None else [role for role in (record.primary, record.secondary) if role is not None]
    return sorted(
        session
        for session, word in words.items()
        if word.state in waiting.MAY_WRITE
        and word.feed_id == feed.feed_id
        and draft.is_live(session)
        and draft.is_answered(session)
        and not any((role.agent, role.session) == session and role.epoch == word.epoch for role in held)
        and not waiting.is_passed_over(draft, key, session, word.epoch)
    )


def outsiders(draft: CoordinatorDraft, key: SpanKey) -> list[SessionId]:
    """Undetermined sessions of other spans that share a partition with this one, sorted. Until they stop, it waits."""
    return sorted({session for other in draft.state.index.overlapping(key) for session in writers(draft, other)})


def review(draft: CoordinatorDraft, key: SpanKey) -> None:
    """Apply what the role holders' newest reports and losses mean, until nothing more follows."""
    waiting.forgive(draft, key, draft.state.tasks.get(key, {}))
    for _ in range(REVIEW_STEPS_MAX):
        record = draft.span(key)
        if record is None or record.primary is None:
            waiting.await_stops(draft, key, writers(draft, key))
        if record is None:
            return
        for signal, word in signals(draft, key, record):
            if _action(draft, key, record, signal) is not SpanAction.WAIT:
                has_failed = word is not None and word.state is TaskState.FAILED
                pace = pace_of(word) if word is not None and has_failed else RetryPace.BACK_OFF
                act(draft, key, record, signal, cause_of(draft, record, signal, word), pace=pace)
                break
        else:
            return
    raise RuntimeError(f"the review of {key.text()} does not end: {draft.span(key)}")


def review_soon(draft: CoordinatorDraft, keys: Iterable[SpanKey]) -> None:
    """Review many spans, one piece now and one in each turn after that.

    Between two pieces others' events are decided as before, and a new owner starts again with all: a review is based
    on the log, and finds the same at any time.
    """
    draft.term.unreviewed.extend(keys)
    review_piece(draft, "")


def review_piece(draft: CoordinatorDraft, _subject: object) -> None:
    """Review the next piece."""
    unreviewed = draft.term.unreviewed
    for _ in range(min(len(unreviewed), REVIEWS_PER_DECISION_MAX)):
        key = unreviewed.popleft()
        review(draft, key)
        record = draft.span(key)
        if record is not None:
            rearm(draft, key, record)
    if unreviewed and not draft.has_timer("review", ""):
        draft.set_timer("review", "", 0.0)


def add(draft: CoordinatorDraft, key: SpanKey, target: SessionId) -> None:
    """Assign a span that no agent has to ``target``: to run it, or to close it where it is orphaned."""
    record, feed = draft.span(key), draft.feed(key.feed)
    copy = draft.term.copies.get((key.feed, table_of(key.span)))
    if record is None:
        if feed is None:
            raise RuntimeError(f"{key.text()} was to be dispatched, but its feed is not there")
        record = SpanDispatched(
            feed_id=feed.feed_id,
            incarnation=feed.incarnation,
            owner_rev=draft.term.owner_rev,
            state=ReplicationState.ABSENT,
            primary=None,
            secondary=None,
            sealed=False,
            moving_request=None,
            failures=0,
            last_error=None,
            revision=feed.revision,
            copy=copy,
        )
    elif record.state is ReplicationState.ABSENT and feed is not None:
        # An orphan is closed in the form in which it ran; one that starts again starts with the feed as it is now.
        record = replace(record, incarnation=feed.incarnation, revision=feed.revision, copy=copy)
    act(draft, key, record, SpanSignal.ADD, cause(draft, target=target))


def begin_move(draft: CoordinatorDraft, key: SpanKey, target: SessionId, request: str | None) -> None:
    """Let ``target`` prepare a replicating span."""
    record = _known(draft, key)
    act(draft, key, record, SpanSignal.MOVE, cause(draft, target=target, request=request))


def close(draft: CoordinatorDraft, key: SpanKey) -> None:
    """Have the span sealed, by the agent that has it or the next one."""
    feed = draft.feed(key.feed)
    is_paused = feed is not None and feed.wanted is WantedState.RUNNING and paused_table(feed, key.span) is not None
    what = "table is being paused" if is_paused else "feed is being stopped or removed"
    act(draft, key, _known(draft, key), SpanSignal.CLOSE, cause(draft, reason=f"the {what}"))


def forget_failures(draft: CoordinatorDraft, key: SpanKey) -> None:
    """A sealed span is no longer wanted: its failures count neither for its feed nor when it is wanted again.

    A span that is sealed on request has none left (seal_closed). This one was sealed by an agent that stopped by
    itself, before it was requested.
    """
    record = draft.span(key)
    if record is None or not record.failures or is_open(record):
        return
    draft.put_span(key, apply(record, SpanSignal.CLOSE, cause(draft), SpanAction.RESET).record)
    draft.term.retry_due.discard(key)
    draft.cancel_timer("retry", key)


def note_progress(draft: CoordinatorDraft, key: SpanKey, session: SessionId) -> None:
    """Rows written under the current role end a row of failures."""
    record = draft.span(key)
    if record is None or not record.failures or record.primary is None:
        return
    role = record.primary
    progress = draft.state.progress.get(key, {}).get(session)
    if progress is None or session != (role.agent, role.session) or progress.epoch != role.epoch or not progress.rows:
        return
    act(draft, key, record, SpanSignal.PRIMARY_PROGRESSED, cause(draft))
    draft.cancel_timer("stuck", key.feed)  # one made progress: its neighbours get their time again (feed_lifecycle.py)


def note_recovered(draft: CoordinatorDraft, feed: FeedRecorded, name: str, unapplied: Mapping[str, int]) -> None:
    """Reset the failures of spans that replicate without an error and are not among those without progress.

    There may be nothing left to apply that would end their row of failures.
    """
    if not draft.failing_count(name):
        return
    for plan in feed.spans:
        key = SpanKey(name, plan.span)
        record = draft.span(key)
        word = draft.state.word_of_primary(key, record)
        if record is None or word is None or not record.failures or plan.span in unapplied:
            continue
        if record.state is ReplicationState.REPLICATING and word.error_code is None:
            act(draft, key, record, SpanSignal.PRIMARY_PROGRESSED, cause(draft))


def rearm(draft: CoordinatorDraft, key: SpanKey, record: SpanDispatched) -> None:
    """Set the timers that the record implies: a new owner has none."""
    if record.state is ReplicationState.PREPARE and not draft.has_timer("prepare", key):
        draft.set_timer("prepare", key, PREPARE_SECONDS_MAX)
    waiting.watch(draft, key, record)
    is_waiting = record.primary is None and record.failures > 0 and not draft.is_abandoned(key.feed)
    if is_waiting and not is_given_up(draft, key, record) and not draft.has_timer("retry", key):
        draft.set_timer("retry", key, _retry_seconds(record))


def is_given_up(draft: CoordinatorDraft, key: SpanKey, record: SpanDispatched) -> bool:
    """Whether the span is no longer retried: its feed has failed, also because of it.

    Not if it must be closed, and not if only the sink's state keeps it from being written: that ends without a report
    to Headgate, and the table then continues by itself.
    """
    feed = draft.feed(key.feed)
    has_failed = feed is not None and feed.state is FeedState.FAILED
    is_over = has_failed and record.state is ReplicationState.ABSENT and record.failures > TRIES_IN_FAILED_MAX
    return is_over and not is_of_the_sink(record.last_error)


def _known(draft: CoordinatorDraft, key: SpanKey) -> SpanDispatched:
    record = draft.span(key)
    if record is None:
        raise RuntimeError(f"{key.text()} has never been dispatched")
    return record


def act(
    draft: CoordinatorDraft,
    key: SpanKey,
    record: SpanDispatched,
    signal: SpanSignal,
    why: Cause,
    *,
    pace: RetryPace = RetryPace.BACK_OFF,
) -> None:
    """Take the step that a signal leads to, with its consequences; ``pace``: when a failure is retried."""
    action = _action(draft, key, record, signal)
    step = apply(record, signal, why, action)
    changed = step.record
    if changed is record:
        return
    draft.put_span(key, changed)
    if step.request is not None and step.status is not None:
        draft.settle(step.request, step.status, step.reason)
    if action in (SpanAction.ABANDON_MOVE, SpanAction.REAPPOINT) and record.moving_request is None:
        draft.term.resting.add(key)
        draft.set_timer("rest", key, MOVE_REST_SECONDS)
    if record.state is ReplicationState.PREPARE and changed.state is not ReplicationState.PREPARE:
        draft.cancel_timer("prepare", key)
    draft.term.retry_due.discard(key)
    draft.cancel_timer("retry", key)
    if action is SpanAction.FAIL and record.primary is not None and is_of_the_sink(changed.last_error):
        # It may be this agent's address, secrets or network that the sink does not take.
        draft.term.avoided[key] = session_of(record.primary)
    if action is SpanAction.FAIL and pace is RetryPace.NEVER:
        waiting.watch(draft, key, changed)
        return
    rearm(draft, key, changed)


def _action(draft: CoordinatorDraft, key: SpanKey, record: SpanDispatched, signal: SpanSignal) -> SpanAction:
    action = _allowed(draft, key, record, TRANSITIONS[phase(record), signal])
    return abandoning.action_of(draft, record, action) if draft.is_abandoned(key.feed) else action


def _allowed(draft: CoordinatorDraft, key: SpanKey, record: SpanDispatched, action: SpanAction) -> SpanAction:
    """The undetermined rule: with a third session that may still write, the secondary is not promoted."""
    if action not in (SpanAction.PROMOTE, SpanAction.PROMOTE_FAILED) or record.secondary is None:
        return action
    others = [*writers(draft, key), *outsiders(draft, key)]
    if all(session in (session_of(record.secondary),) for session in others):
        return action
    return SpanAction.LOSE if action is SpanAction.PROMOTE else SpanAction.FAIL


def _retry_seconds(record: SpanDispatched) -> float:
    """Exponential and deterministic: 1, 2, 4 … 60 s; the one slow pace for what the sink refuses."""
    if is_refused(record.last_error):
        return SLOW_RETRY_SECONDS
    return float(min(RETRY_SECONDS_MIN * 2 ** min(record.failures - 1, 10), RETRY_SECONDS_MAX))


def why_not_movable(name: str, record: SpanDispatched | None) -> str | None:
    """Why the span, or table, of that name cannot be moved or divided now; None if it can."""
    if is_movable(record):
        return None
    if record is not None and record.copy is not None and phase(record) is SpanPhase.REPLICATING:
        return f"{name!r} is being copied from the source: try again when that is done"
    where = "waiting for an agent" if record is None or record.primary is None else f"in {record.state}"
    return f"{name!r} is {where}: try again when it is replicating"


def is_movable(record: SpanDispatched | None) -> bool:
    """Whether the span can be moved, or its table divided, now: not while its rows are copied (copying.py)."""
    return record is not None and phase(record) is SpanPhase.REPLICATING and record.copy is None
