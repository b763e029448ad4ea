"""Basic: every span that wants an agent gets the least loaded one (TiCDC's scheduler_basic)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from headgate.coordinator.schedulers.seats import Seats
from headgate.records.keys import SpanKey

__all__ = ["place"]


def place(
    needy: Iterable[SpanKey],
    seats: Seats,
    writers_of: Callable[[SpanKey], Sequence[tuple[str, str]]],
    avoided: Mapping[SpanKey, tuple[str, str]],
) -> Iterator[tuple[SpanKey, tuple[str, str]]]:
    """(span, session) for as many of ``needy`` as there are seats, in their order.

    ``writers_of`` names the undetermined sessions of a span (spans.py): with none, anybody may have it; a single one
    may have it back; else it is passed over until they have stopped. ``avoided`` names sessions that should have a span
    only if nobody else can take it: they have had it and never begun.
    """
    for key in needy:
        if not seats:
            return
        writers = writers_of(key)
        if not writers:
            target = seats.least(other_than=avoided.get(key)) or seats.least()
        elif len(writers) == 1 and seats.has(writers[0]):
            target = writers[0]
        else:
            continue
        if target is None:
            return
        seats.take(target)
        yield key, target
