"""Drain: spans leave agents that are stopping or being drained, in two phases, while others have capacity."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from headgate.coordinator.schedulers.capacity import Capacity, FeedQuota
from headgate.coordinator.schedulers.contract import Asked, Move, Scheduler, View
from headgate.records.keys import SpanKey


def leave(
    leaving: Iterable[tuple[str, str]],
    spans_of: Callable[[tuple[str, str]], Iterable[SpanKey]],
    is_movable: Callable[[SpanKey], bool],
    capacity: Capacity,
    quota: FeedQuota,
) -> Iterator[tuple[SpanKey, tuple[str, str]]]:
    """(span, target) for replicating spans of sessions on their way out, while there is capacity.

    If no other session is there the spans stay: a table on an agent that is leaving is better than a table on none. A
    feed that has reached its limit of moves ends the walk, so that its cost is that of the moves under way, not of all
    spans.
    """
    for session in leaving:
        for key in spans_of(session):
            target = capacity.least(other_than=(session,))
            if target is None or not quota.has(key.feed):
                break
            if is_movable(key):
                capacity.take(target)
                quota.take(key.feed)
                yield key, target


def _propose(view: View) -> tuple[Move, ...]:
    moves = leave(view.leaving(), view.spans_of, view.may_move, view.capacity, view.quota)
    return tuple(Move(key, target) for key, target in moves)


DRAIN: Final = Scheduler(
    name="drain",
    summary="tables leave agents that are stopping or being drained",
    asked=Asked.LEAVING,
    propose=_propose,
)
