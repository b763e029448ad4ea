"""Balance: spans leave an agent that has long been much busier than the others, as few as help.

By load, not by number: a hundred idle tables weigh nothing. It must not flap, so there is a band within which nothing
is done, the same agent has to be above it for several rounds in a row, and a move is made only if it leaves the two
agents closer together than before (after TiCDC's balance by traffic).
"""

from collections.abc import Mapping
from typing import Final

from headgate.coordinator.schedulers.contract import Asked, Move, Scheduler, View
from headgate.records.keys import SpanKey

BALANCE_SECONDS: Final = 15.0
"""Length of a round: longer than a batch that catches up, shorter than people wait."""

STREAK_MIN: Final = 4
"""Rounds in a row before anything is done: a minute, in which a burst is over and a move's own effect has shown."""

BAND: Final = 1.25
"""Up to this many times the mean an agent is as busy as the others (TiCDC: 0.8/1.25)."""

BYTES_PER_S_MIN: Final = 1_000_000.0
"""An agent below this load is never relieved: a move costs more than it could gain."""

MOVES_PER_ROUND_MAX: Final = 4
"""Most moves of a round; their effect is measured before there are others (TiCDC: 4 spans a move)."""

GAIN_MIN: Final = 0.1
"""Least share of the gap between two agents that a move has to close: less is within what loads differ by chance."""


def hottest(loads: Mapping[tuple[str, str], float]) -> tuple[str, str] | None:
    """The busiest session if it is above the band, else None. ``loads``: bytes per second of every target."""
    if len(loads) < 2:
        return None
    busiest = max(sorted(loads), key=lambda session: loads[session])
    mean = sum(loads.values()) / len(loads)
    return busiest if loads[busiest] > max(BAND * mean, BYTES_PER_S_MIN) else None


def relieve(
    busiest: tuple[str, str], loads: Mapping[tuple[str, str], float], rates: Mapping[SpanKey, float]
) -> list[tuple[SpanKey, tuple[str, str]]]:
    """(span, target) for some of the busiest session's spans. ``rates``: bytes per second of those that can move."""
    left, free = dict(loads), dict(rates)
    moves: list[tuple[SpanKey, tuple[str, str]]] = []
    while len(moves) < MOVES_PER_ROUND_MAX and hottest(left) == busiest and free:
        idlest = min(sorted(left), key=lambda session: left[session])
        gap = left[busiest] - left[idlest]
        best = min(sorted(free), key=lambda key: abs(gap - 2 * free[key]))
        if abs(gap - 2 * free[best]) > (1 - GAIN_MIN) * gap:
            break
        rate = free.pop(best)
        left[busiest] -= rate
        left[idlest] += rate
        moves.append((best, idlest))
    return moves


def _propose(view: View) -> tuple[Move, ...]:
    measured = view.measured
    busiest = None if measured is None else hottest(measured.loads)
    if measured is None or busiest is None or measured.streak_with(busiest) < STREAK_MIN:
        return ()
    moves: list[Move] = []
    for key, target in relieve(busiest, measured.loads, measured.movable[busiest]):
        if view.capacity.has(target) and view.quota.has(key.feed):
            view.capacity.take(target)
            view.quota.take(key.feed)
            moves.append(Move(key, target))
    return tuple(moves)


BALANCE: Final = Scheduler(
    name="balance",
    summary="tables leave an agent that has long been much busier than the others",
    asked=Asked.MEASURED,
    propose=_propose,
)
