"""Acceptance without effects: the outcome of a request for a given state, computed by a process that owns nothing.

The same rules (acceptance.py) judge a draft that is thrown away. The real outcome can still differ, because of requests
made in the meantime, which the rules cannot see in a state.
"""

from typing import Final

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.effects import FeedResolved
from headgate.coordinator.core.feeds import acceptance
from headgate.coordinator.core.state import CoordinatorState
from headgate.coordinator.core.term import TermMemory
from headgate.runtime.machine import Now

NO_REQUEST: Final = ""
"""No request of an operator has this id."""


def would_refuse_name(state: CoordinatorState, feed: str) -> str | None:
    """Why no feed of this name could be created, whatever its spec; None if one could."""
    return acceptance.why_name_taken(_draft(state), NO_REQUEST, feed)


def would_refuse_create(state: CoordinatorState, feed: str, result: FeedResolved) -> str | None:
    """Why ``feed`` could not be created as ``result``; None if it could."""
    return acceptance.why_not_created(_draft(state), NO_REQUEST, feed, result)


def would_refuse_update(state: CoordinatorState, feed: str, result: FeedResolved) -> str | None:
    """Why ``feed`` could not be updated to ``result``, once it is paused; None if it could."""
    return acceptance.why_not_changed(_draft(state), feed, result)


def _draft(state: CoordinatorState) -> CoordinatorDraft:
    return CoordinatorDraft(state, TermMemory(state.owner_rev), Now(0.0, 0))
