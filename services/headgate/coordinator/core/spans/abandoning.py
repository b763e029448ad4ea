"""Removing a feed whose sink no longer exists: it ends without a seal, once no agent can write any more.

Only a seal makes it certain that a frozen process which wakes up years later writes nothing. Without the sink there is
none. What is left is to stop every agent that can be reached, and to leave the rest to the operator (docs/adr/0024):
every session that the log knows to have run a table of the feed reports that it has stopped, or is over. No session is
skipped here, however long it takes: one that hangs may still write, and the operator must end it. No agent is asked to
close anything either.

The spans' records have the same form as elsewhere: removing with a primary that must stop, or without one. None of them
is ever marked as sealed.
"""

from typing import Final

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.replication import SpanAction
from headgate.records.control import FeedRecorded, SpanDispatched, TaskState
from headgate.records.keys import SpanKey
from headgate.records.name_lists import shown_names

LOOK_SECONDS: Final = 5.0
"""Between two checks whether all sessions have stopped: one that lost its role reports it without a record change."""

_OVER: Final = (TaskState.STOPPED, TaskState.FAILED)


def action_of(draft: CoordinatorDraft, record: SpanDispatched, action: SpanAction) -> SpanAction:
    """The action for a span of an abandoned feed where another would be sealed, or assigned to an agent to close it."""
    primary = record.primary
    if action is SpanAction.SEAL_CLOSED:
        return SpanAction.ORPHAN
    if action is SpanAction.ORPHAN and primary is not None and draft.is_live((primary.agent, primary.session)):
        return SpanAction.WAIT  # it has not answered this owner, but it is there
    return action


def is_over(draft: CoordinatorDraft, name: str, feed: FeedRecorded) -> bool:
    """Whether every session that the log knows to have run a table of the feed has stopped, or is over."""
    for key in known_spans(draft, name, feed):
        record = draft.span(key)
        if record is not None and (record.primary is not None or record.secondary is not None):
            return False
        words = draft.state.tasks.get(key, {})
        if any(
            word.feed_id == feed.feed_id and word.state not in _OVER and draft.is_live(session)
            for session, word in words.items()
        ):
            return False
    return True


def outcome_of(draft: CoordinatorDraft, name: str, feed: FeedRecorded) -> str:
    """The text of the outcome: what was not done, what remains, which sessions have not reported that they stopped."""
    silent = sorted(
        {
            f"{agent}/{session}"
            for key in known_spans(draft, name, feed)
            for (agent, session), word in draft.state.tasks.get(key, {}).items()
            if word.feed_id == feed.feed_id and word.state not in _OVER
        }
    )
    ended = (
        f"these sessions ended without a word: {shown_names(silent)}"
        if silent
        else "every session has reported that it stopped"
    )
    return (
        f"removed without its sink, where nothing was sealed: {ended}. You have answered for it that none of their "
        f"processes writes there any more. If the sink comes back, its rows of feed_id {feed.feed_id} in "
        "headgate.progress keep its tables from other feeds until you delete them"
    )


def known_spans(draft: CoordinatorDraft, name: str, feed: FeedRecorded) -> list[SpanKey]:
    """Every span of the feed that may have a record or a report."""
    planned = [SpanKey(name, plan.span) for plan in feed.spans]
    return sorted({*planned, *(other for key in planned for other in draft.state.index.overlapping(key))})
