"""Answers to operators, and what their requests change in a feed's record. Used by all modules that answer."""

from itertools import filterfalse
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.records.control import FeedRecorded, FeedState, OutcomeStatus, WantedState
from headgate.records.keys import FeedKey
from headgate.records.levels import level_of
from headgate.records.name_lists import shown_names
from headgate.records.refusals import NOT_FOUND, coded, is_warning

FINISHED_ADVICE: Final = (
    "it can go back and come up to it again (`headgate feed resume --from`, once it is finished), or be removed; "
    "to go beyond, make another feed"
)
"""What can be done with a feed that has reached its target."""


def refuse(draft: CoordinatorDraft, request: str, reason: str) -> None:
    """Refuse a request: nothing was changed, and why. A request that was accepted earlier can still be refused."""
    draft.settle(request, OutcomeStatus.REFUSED, reason)


def supersede(draft: CoordinatorDraft, feed: FeedRecorded, request: str) -> None:
    """Settle the request that is under way as superseded by another one."""
    outcome = None if feed.request is None else draft.outcome(feed.request)
    if outcome is not None and outcome.status is OutcomeStatus.ACCEPTED:
        draft.settle(feed.request, OutcomeStatus.FAILED, f"superseded by request {request}")


def change_wish(
    draft: CoordinatorDraft, name: str, feed: FeedRecorded, wanted: WantedState, request: str | None
) -> None:
    """Record the desired state of the feed, and review its spans next. ``request`` is None if no operator asked."""
    changed = replace(
        feed,
        owner_rev=draft.term.owner_rev,
        wanted=wanted,
        # A stopped feed that is resumed runs from here on; settle_feed determines how well.
        state=FeedState.NORMAL if wanted is WantedState.RUNNING else feed.state,
        notices=tuple(filterfalse(is_warning, feed.notices)) if wanted is WantedState.RUNNING else feed.notices,
        request=request,
        changed_ms=draft.now.wall_ms,
    )
    draft.put(FeedKey(name), changed)
    draft.feeds_touched.add(name)
    # The spans concerned are in the index once this is evolved; the next round, at once, takes them from there.
    draft.set_timer("schedule", "", 0.0)


def waits_for_upgrade(draft: CoordinatorDraft, record: msgspec.Struct) -> str | None:
    """Why this cannot be recorded yet: not every live process could read it (docs/adr/0008). None if it can."""
    state, needed = draft.state, level_of(record)
    if needed <= state.level:
        return None
    older = [agent for (agent, _), said in sorted(state.agents.items()) if said.schema_version < needed]
    who = f"agents {shown_names(older)}" if older else "a coordinator, or for a few seconds"
    return f"this waits for the upgrade of {who}: the log is written at schema level {state.level}, it needs {needed}"


def no_such_feed(draft: CoordinatorDraft, name: str) -> str:
    """The reason, with the names of the existing feeds."""
    known = shown_names(sorted(draft.state.feeds)) or "none"
    return coded(NOT_FOUND, f"feed {name!r} does not exist; existing feeds: {known}")


def no_such_table(feed: FeedRecorded, name: str, table: str | None) -> str:
    """The reason, with the names of the feed's tables."""
    known = shown_names(sorted({plan.table for plan in feed.spans})) or "none"
    return coded(NOT_FOUND, f"feed {name!r} has no table {table!r}; its tables: {known}")


def no_such_agent(draft: CoordinatorDraft, agent: str | None) -> str:
    """The reason, with the names of the live agents."""
    live = {session[0] for session in draft.state.index.live.in_order() if draft.is_live(session)}
    known = shown_names(sorted(live)) or "none"
    return coded(NOT_FOUND, f"agent {agent!r} is not alive; live agents: {known}")
