"""Move: spans leave agents that are stopping, two-phase, as far as others have seats for them."""

from collections.abc import Callable, Iterable, Iterator

from headgate.coordinator.schedulers.seats import Seats
from headgate.records.keys import SpanKey

__all__ = ["leave"]


def leave(
    stopping: Iterable[tuple[str, str]],
    spans_of: Callable[[tuple[str, str]], Iterable[SpanKey]],
    is_movable: Callable[[SpanKey], bool],
    seats: Seats,
) -> Iterator[tuple[SpanKey, tuple[str, str]]]:
    """(span, target) for replicating spans of sessions on their way out, while there are seats.

    With nobody else there the spans stay: a table on an agent that is going is better than a table nowhere.
    """
    for session in stopping:
        for key in spans_of(session):
            target = seats.least(other_than=session)
            if target is None:
                break
            if is_movable(key):
                seats.take(target)
                yield key, target
