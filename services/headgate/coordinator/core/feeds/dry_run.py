"""Acceptance without effects: the outcome of a request for a given state, computed by a process that owns nothing.

The same rules (acceptance.py) judge a draft that is thrown away. What the rules cannot see from a state, the outcome of
requests made in the meantime, can still be another when the feed is really asked for.
"""

from typing import Final

from headgate.coordinator.core.draft import Draft
from headgate.coordinator.core.effects import FeedResolved
from headgate.coordinator.core.feeds import acceptance
from headgate.coordinator.core.state import CoordinatorState
from headgate.coordinator.core.term import TermMemory
from headgate.runtime.machine import Now

NO_REQUEST: Final = ""
"""No request of an operator has this id."""


def would_refuse_name(state: CoordinatorState, feed: str) -> str | None:
    """Why no feed of this name could be created, whatever it means; None if one could."""
    return acceptance.why_name_taken(_draft(state), NO_REQUEST, feed)


def would_refuse_create(state: CoordinatorState, feed: str, result: FeedResolved) -> str | None:
    """Why ``feed`` could not be created as ``result`` means it; None if it could."""
    return acceptance.why_not_created(_draft(state), NO_REQUEST, feed, result)


def would_refuse_update(state: CoordinatorState, feed: str, result: FeedResolved) -> str | None:
    """Why ``feed`` could not become what ``result`` means, once it is paused; None if it could."""
    return acceptance.why_not_changed(_draft(state), feed, result)


def _draft(state: CoordinatorState) -> Draft:
    return Draft(state, TermMemory(state.owner_rev), Now(0.0, 0))
