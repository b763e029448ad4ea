"""What spans do between two batches of their lane: have the sink's table maintained, copy rows, move their positions.

One rule chooses, for a lane that begins a batch and for one that has none. A busy lane has hardly a moment between two
batches, so what is due must not depend on it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.inputs import CopyDue, MaintainDue, SettleDue
from headgate.agent.core.span.states import Span, TaskPhase

__all__ = ["SETTLED_MAX", "Errand", "errands"]

SETTLED_MAX: Final = 8
"""Tables without rows whose positions move in one batch: each costs a transaction, a millisecond or two, and those that
have rows wait for it."""

Errand: TypeAlias = MaintainDue | SettleDue | CopyDue


def errands(
    members: Sequence[Span],
    everyone: Callable[[], Sequence[Span]],
    now: float,
    *,
    caught_up: Callable[[str], bool | None],
    copies_max: int,
) -> dict[SpanId, Errand]:
    """The errands of a lane's members that are due; at most one for each.

    ``everyone``: all spans of the agent. ``caught_up``: whether the lane of that name has caught up; None if it is in a
    batch of its own. ``copies_max``: tables that copy rows at a time.
    """
    found: dict[SpanId, Errand] = {}
    for span in _maintained(members, everyone, now):
        found[span.id] = MaintainDue()
    for span in _settled(members, now):
        found.setdefault(span.id, SettleDue())
    free = [span for span in members if span.id not in found]
    for span in _copied(free, everyone, now, caught_up, copies_max):
        found[span.id] = CopyDue()
    return found


def _maintained(members: Sequence[Span], everyone: Callable[[], Sequence[Span]], now: float) -> Iterator[Span]:
    """One, unless a table of this agent is being maintained: each takes a core, and memory for the rows of a file.

    A requested one goes first, and then the one that has been due for longest.
    """
    owing = [span for span in members if span.owes_maintenance(now)]
    if owing and not any(span.is_maintained and span.phase is TaskPhase.OPENING for span in everyone()):
        yield min(owing, key=lambda span: (span.maintain_for is None, span.maintain_at or 0.0, span.id))


def _settled(members: Sequence[Span], now: float) -> list[Span]:
    """Those that have waited longest."""
    owing = [span for span in members if span.owes(now)]
    return sorted(owing, key=lambda span: (span.progress.rests_since or now, span.id))[:SETTLED_MAX]


def _copied(
    members: Sequence[Span],
    everyone: Callable[[], Sequence[Span]],
    now: float,
    caught_up: Callable[[str], bool | None],
    copies_max: int,
) -> Iterator[Span]:
    """Those that have waited longest of all lanes, as many as copy at a time: others would wait off a lane."""

    def owes(span: Span) -> bool:
        if span.copying is None or span.lane is None:
            return False
        has_caught_up = caught_up(span.lane)
        return has_caught_up is not None and span.owes_rows(now, has_caught_up=has_caught_up)

    mine = {span.id for span in members if owes(span)}
    if not mine:
        return
    copying = sum(span.task.copy is not None and span.phase is TaskPhase.OPENING for span in everyone())
    waiting = sorted(filter(owes, everyone()), key=lambda span: (span.copied_at, span.id))
    yield from (span for span in waiting[: max(copies_max - copying, 0)] if span.id in mine)
