"""Rebalance: on request, one feed's spans are spread over the agents so that their numbers differ by one at most."""

from collections.abc import Iterable, Sequence
from typing import Final

from headgate.coordinator.schedulers.contract import Asked, Move, Scheduler, View
from headgate.records.keys import SpanKey


def spread(
    held: Iterable[tuple[SpanKey, tuple[str, str]]], targets: Sequence[tuple[str, str]]
) -> list[tuple[SpanKey, tuple[str, str]]]:
    """(span, target): the fewest moves that make the numbers even, in the spans' order.

    ``held``: which session has which span now; spans of a session that is not a target are placed by other schedulers.
    Sessions that hold most may keep the one more that a division leaves over, so that nothing is moved for it.
    """
    spans_of: dict[tuple[str, str], list[SpanKey]] = {session: [] for session in sorted(targets)}
    for key, session in sorted(held):
        if session in spans_of:
            spans_of[session].append(key)
    if not spans_of:
        return []
    share, extra = divmod(sum(map(len, spans_of.values())), len(spans_of))
    fullest = sorted(spans_of, key=lambda session: (-len(spans_of[session]), session))
    shares = {session: share + (number < extra) for number, session in enumerate(fullest)}
    surplus = sorted(key for session, keys in spans_of.items() for key in keys[shares[session] :])
    places = [session for session, keys in spans_of.items() for _ in range(shares[session] - len(keys))]
    return list(zip(surplus, places, strict=True))


def _propose(view: View) -> tuple[Move, ...]:
    """The next moves of each feed's plan, in order: skip what cannot move now, wait for a target that is full."""
    moves: list[Move] = []
    for feed, plan in view.plans():
        for key, target in plan:
            if not view.quota.has(feed):
                break
            if not view.may_move(key) or not view.is_target(target):
                continue
            if not view.capacity.has(target):
                break
            view.capacity.take(target)
            view.quota.take(feed)
            moves.append(Move(key, target))
    return tuple(moves)


REBALANCE: Final = Scheduler(
    name="rebalance",
    summary="on request, a feed's tables are spread evenly over the agents",
    asked=Asked.SPREADING,
    propose=_propose,
)
