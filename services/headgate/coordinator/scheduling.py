"""One round of scheduling: first what must be closed, then what wants an agent, then what should be elsewhere.

A round looks only at the spans that need something (index.py) and stops when no agent has a seat left, so its cost is
that of the work it does. What a bound leaves undone is done by the round after: every change ends in one.
"""

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Final

from headgate.coordinator import spans
from headgate.coordinator.draft import Draft
from headgate.coordinator.schedulers import basic, move
from headgate.coordinator.schedulers.seats import Seat, Seats
from headgate.records.keys import SpanKey

__all__ = ["run_round", "seats_of"]

CLOSES_PER_ROUND_MAX: Final = 2_000
"""Spans closed in one decision; the transaction of a turn stays below the client's queue bound (eventlog/term.py)."""


def run_round(draft: Draft) -> None:
    """Give work, as far as the barrier is open and there is any."""
    index, term = draft.state.index, draft.term
    if not term.is_open:
        return
    if index.closing:
        _close(draft)
    changed = (key for name in sorted(draft.spans_touched) for key in sorted(draft.spans_touched[name]))
    touched = [key for key in changed if draft.takes_agent(key)]
    if touched or index.needy or term.retry_due or index.stopping:
        seats = seats_of(draft)
        _place(draft, touched, seats)
        _leave(draft, seats)


def seats_of(draft: Draft) -> Seats:
    """The free seats of every session that may be given roles."""
    agents = draft.state.agents
    return Seats(
        [
            Seat(session, draft.role_count(session), draft.starting_count(session), agents[session].capacity_spans)
            for session in draft.state.index.live.in_order()
            if draft.is_target(session)
        ]
    )


def _close(draft: Draft) -> None:
    index = draft.state.index
    for key in list(islice(index.closing.in_order(), CLOSES_PER_ROUND_MAX)):
        if not draft.is_wanted(key):
            spans.close(draft, key)
    if len(index.closing) > CLOSES_PER_ROUND_MAX:
        draft.set_timer("schedule", "", 0.0)


def _place(draft: Draft, touched: list[SpanKey], seats: Seats) -> None:
    placements = basic.place(_needy(draft, touched), seats, lambda key: spans.writers(draft, key))
    for key, target in list(placements):
        spans.add(draft, key, target)


def _needy(draft: Draft, touched: list[SpanKey]) -> Iterator[SpanKey]:
    """Spans that want an agent, in order: those of the index, those of this decision, those whose back-off is over."""
    previous = None
    due = draft.term.retry_due
    fresh = [key for key in touched if not (record := draft.span(key)) or not record.failures]
    for key in heapq.merge(draft.state.index.needy.in_order(), fresh, due.in_order()):
        if key != previous and draft.takes_agent(key):
            previous = key
            yield key


def _leave(draft: Draft, seats: Seats) -> None:
    index = draft.state.index
    moves = move.leave(
        (session for session in index.stopping.in_order() if draft.is_live(session)),
        lambda session: index.roles[session].in_order() if session in index.roles else (),
        lambda key: spans.is_movable(draft.span(key)) and draft.is_wanted(key),
        seats,
    )
    for key, target in list(moves):
        record = draft.span(key)
        if record is not None and record.primary is not None and record.primary.session != target[1]:
            spans.begin_move(draft, key, target, None)
