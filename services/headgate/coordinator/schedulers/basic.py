"""Basic: every span that wants an agent gets the least loaded one (TiCDC's scheduler_basic)."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from headgate.coordinator.schedulers.capacity import Capacity
from headgate.coordinator.schedulers.contract import Asked, Move, Scheduler, View
from headgate.records.keys import SpanKey
from headgate.records.spans import table_of


def place(
    needy: Iterable[SpanKey],
    capacity: Capacity,
    writers_of: Callable[[SpanKey], Sequence[tuple[str, str]]],
    avoided_of: Callable[[SpanKey], Collection[tuple[str, str]]],
) -> Iterator[tuple[SpanKey, tuple[str, str]]]:
    """(span, session) for as many of ``needy`` as there is capacity for, in their order.

    ``writers_of`` names the undetermined sessions of a span (span_lifecycle.py). Without any, every agent may get it.
    A single one may get it back. With more, the span is skipped until they have stopped. ``avoided_of`` names sessions
    that get a span only if no other can take it: they had it and never started, or they run another part of its
    table, which was divided to be spread.
    """
    placed: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for key in needy:
        if not capacity:
            return
        writers = writers_of(key)
        table = (key.feed, table_of(key.span))
        if not writers:
            others = {*avoided_of(key), *placed.get(table, ())}
            target = capacity.least(other_than=others) or capacity.least()
        elif len(writers) == 1 and capacity.has(writers[0]):
            target = writers[0]
        else:
            continue
        if target is None:
            return
        capacity.take(target)
        if table[1] != key.span:
            placed.setdefault(table, set()).add(target)
        yield key, target


def _propose(view: View) -> tuple[Move, ...]:
    return tuple(
        Move(key, target) for key, target in place(view.needy(), view.capacity, view.writers_of, view.avoided_of)
    )


BASIC: Final = Scheduler(
    name="basic",
    summary="a table without an agent goes to the agent that has fewest",
    asked=Asked.NEEDED,
    propose=_propose,
)
