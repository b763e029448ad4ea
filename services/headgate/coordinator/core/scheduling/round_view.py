"""What schedulers see in one round of scheduling: the state and the decision so far, as a schedulers/contract.py View.

A view lasts for one round. What is expensive to know (free capacities, spans that need an agent, loads) is computed on
first use, because most rounds have nothing to do.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.scheduling import measuring
from headgate.coordinator.core.sessions import joining
from headgate.coordinator.core.spans import dividing, span_lifecycle, waiting
from headgate.coordinator.core.term import SessionId
from headgate.coordinator.schedulers.capacity import STARTING_PER_AGENT_MAX, Capacity, FeedQuota, SessionCapacity
from headgate.coordinator.schedulers.contract import Asked, Measured
from headgate.records.keys import SpanKey


class RoundView:
    """The ``View`` of one round; see the module's docstring."""

    def __init__(self, draft: CoordinatorDraft) -> None:
        """A view of what has been decided so far."""
        self._draft = draft
        changed = (key for name in sorted(draft.spans_touched) for key in sorted(draft.spans_touched[name]))
        self._touched = [key for key in changed if draft.takes_agent(key)]
        self._leaving = _leaving(draft)
        self._joiners: tuple[dict[SessionId, int], dict[SessionId, int]] | None = None
        self._automatic: dict[str, bool] = {}
        self.quota = FeedQuota(draft.moving_count)
        self.measured: Measured | None = None

    @cached_property
    def capacity(self) -> Capacity:
        """See View."""
        return capacity_of(self._draft)

    def due(self) -> set[Asked]:
        """The conditions that hold in this round."""
        term, due = self._draft.term, {Asked.ALWAYS}
        if self._touched or self._draft.state.index.needy or term.retry_due:
            due.add(Asked.NEEDED)
        if self._leaving:
            due.add(Asked.LEAVING)
        elif term.rebalances:
            due.add(Asked.SPREADING)
        elif term.is_even_due:
            due.add(Asked.JOINING)
        if term.loads.is_due:
            due.add(Asked.MEASURED)
        return due

    def measure(self) -> None:
        """If a round of measuring is over, take its result, provided that it can be acted on."""
        if self._draft.term.loads.is_due:
            self.measured = measuring.take(self._draft, self.may_move, is_settled=not self._leaving)

    def look_at_joiners(self) -> None:
        """Compute how many spans each joiner can be sent now."""
        self._joiners = joining.look(self._draft)

    def needy(self) -> Iterator[SpanKey]:
        """See View: spans of the index, those of this decision, those whose back-off is over."""
        draft, previous = self._draft, None
        due = draft.term.retry_due
        fresh = [key for key in self._touched if not (record := draft.span(key)) or not record.failures]
        known = draft.state.index.needy.in_order()
        # While many spans wait for dispatch only the index has any; merging one would cost as much as placing from it.
        for key in heapq.merge(known, fresh, due.in_order()) if fresh or due else known:
            if key != previous and draft.takes_agent(key) and not span_lifecycle.outsiders(draft, key):
                previous = key
                yield key

    def writers_of(self, key: SpanKey) -> Sequence[SessionId]:
        """See View."""
        return span_lifecycle.writers(self._draft, key)

    def avoided_of(self, key: SpanKey) -> Collection[SessionId]:
        """See View."""
        draft, last = self._draft, self._draft.term.avoided.get(key)
        return dividing.holders(draft, key) | waiting.passed_over(draft, key) | ({last} if last is not None else set())

    def targets(self) -> Sequence[SessionId]:
        """See View."""
        return self._draft.targets()

    def is_target(self, session: SessionId) -> bool:
        """See View."""
        return self._draft.is_target(session)

    def leaving(self) -> Sequence[SessionId]:
        """See View."""
        return self._leaving

    def counts(self) -> Mapping[SessionId, int]:
        """See View."""
        if self._joiners is not None:
            return self._joiners[1]
        return {session: self._draft.role_count(session) for session in self.targets()}

    def spans_of(self, session: SessionId) -> Iterable[SpanKey]:
        """See View."""
        roles = self._draft.state.index.roles
        return roles[session].in_order() if session in roles else ()

    def may_move(self, key: SpanKey) -> bool:
        """See View."""
        draft = self._draft
        return span_lifecycle.is_movable(draft.span(key)) and draft.is_wanted(key) and key not in draft.term.resting

    def plans(self) -> Iterator[tuple[str, Sequence[tuple[SpanKey, SessionId]]]]:
        """See View."""
        for name, task in sorted(self._draft.term.rebalances.items()):
            yield name, task.plan or ()

    def joiners(self) -> Mapping[SessionId, int]:
        """See View."""
        return {} if self._joiners is None else self._joiners[0]

    def may_join(self, key: SpanKey, joiner: SessionId) -> bool:
        """See View."""
        return joining.may_join(self._draft, key, joiner, self._automatic) and self.may_move(key)


def capacity_of(draft: CoordinatorDraft) -> Capacity:
    """The free capacity of every session that may be assigned roles."""
    return Capacity(
        [
            _capacity(draft, session)
            for session in draft.state.index.live.in_order()
            # Checked first because it is cheap: while many spans wait for dispatch, nearly all agents are busy.
            if draft.starting_count(session) < STARTING_PER_AGENT_MAX and draft.is_target(session)
        ]
    )


def free_of(draft: CoordinatorDraft, session: SessionId) -> int:
    """Roles the session can be assigned now, including those that this decision has assigned."""
    return _capacity(draft, session).free if draft.is_target(session) else 0


def _capacity(draft: CoordinatorDraft, session: SessionId) -> SessionCapacity:
    capacity_spans = draft.state.agents[session].capacity_spans
    return SessionCapacity(session, draft.role_count(session), draft.starting_count(session), capacity_spans)


def is_anyone_leaving(draft: CoordinatorDraft) -> bool:
    """Whether an agent is stopping or being emptied: nothing is evened out until then, because it would not last."""
    return bool(_leaving(draft))


def _leaving(draft: CoordinatorDraft) -> list[SessionId]:
    asked = [session for session, task in draft.term.drains.items() if not task.is_done]
    return sorted(filter(draft.is_live, {*draft.state.index.stopping.in_order(), *asked}))
