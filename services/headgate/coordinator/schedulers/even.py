"""Even: an agent that joins or returns gets spans from agents that have more, a few at a time.

By number, because its future load is unknown; an agent that turns out too busy is relieved by load (balance.py), which
pauses while spans are on their way to a joiner. Moves cannot go back and forth: spans go to a joiner only, never beyond
the even share, and only from sessions that hold two more than it does, so that every move brings the numbers closer
together. A span is offered to a joiner once. A session that has had its share never becomes a joiner again.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from headgate.coordinator.schedulers.contract import Asked, Move, Scheduler, View
from headgate.records.keys import SpanKey

JOINED_SECONDS: Final = 10.0
"""From an agent's joining to its first table from others: several that start together have joined by then, and one that
ends again at once causes no moves."""

EVEN_SECONDS: Final = 2.0
"""Between two checks: a move takes about a second."""

MOVING_PER_JOINER_MAX: Final = 4
"""Spans on their way to one joiner at a time: each pauses for a moment while it is handed over. So a hundred are moved
in about a minute, and no feed pauses as a whole."""

FAILURES_MAX: Final = 3
"""Failed moves to a joiner after which it is left alone: the cause (no way to the source, no rights at the sink) would
fail the next ones, too, each of which costs a minute."""

JOIN_SECONDS_MAX: Final = 300.0
"""How long a joiner is kept while nothing can be moved to it (its feeds start, fail, are moved for other reasons)."""


def has_share(session: tuple[str, str], counts: Mapping[tuple[str, str], int]) -> bool:
    """Whether the session holds the even share. ``counts``: spans of every session that may be assigned roles."""
    return counts[session] >= sum(counts.values()) // len(counts)


def fill(
    joiners: Mapping[tuple[str, str], int],
    counts: Mapping[tuple[str, str], int],
    spans_of: Callable[[tuple[str, str]], Iterable[SpanKey]],
    may_go: Callable[[SpanKey, tuple[str, str]], bool],
) -> list[tuple[SpanKey, tuple[str, str]]]:
    """(span, joiner) for each span to move now. ``joiners``: how many spans each can take now.

    The fullest sessions give first, in the order of their spans; of equals the first by name.
    """
    left, moves = dict(counts), list[tuple[SpanKey, tuple[str, str]]]()
    for joiner, room in sorted(joiners.items()):
        for _ in range(room):
            found = None if has_share(joiner, left) else _next(joiner, left, spans_of, may_go, dict(moves))
            if found is None:
                break
            key, giver = found
            moves.append((key, joiner))
            left[giver] -= 1
            left[joiner] += 1
    return moves


def _next(
    joiner: tuple[str, str],
    left: Mapping[tuple[str, str], int],
    spans_of: Callable[[tuple[str, str]], Iterable[SpanKey]],
    may_go: Callable[[SpanKey, tuple[str, str]], bool],
    taken: Mapping[SpanKey, tuple[str, str]],
) -> tuple[SpanKey, tuple[str, str]] | None:
    """The next span and the session that gives it; None if there is none."""
    for giver in sorted(left, key=lambda session: (-left[session], session)):
        if left[giver] - left[joiner] < 2:
            return None
        for key in spans_of(giver):
            if key not in taken and may_go(key, joiner):
                return key, giver
    return None


def _propose(view: View) -> tuple[Move, ...]:
    def may_go(key: SpanKey, joiner: tuple[str, str]) -> bool:
        return view.may_join(key, joiner) and view.quota.has(key.feed) and joiner not in view.avoided_of(key)

    moves: list[Move] = []
    for key, joiner in fill(view.joiners(), view.counts(), view.spans_of, may_go):
        if view.capacity.has(joiner) and view.quota.has(key.feed):
            view.capacity.take(joiner)
            view.quota.take(key.feed)
            moves.append(Move(key, joiner))
    return tuple(moves)


EVEN: Final = Scheduler(
    name="even",
    summary="an agent that joins gets its share of the tables",
    asked=Asked.JOINING,
    propose=_propose,
)
