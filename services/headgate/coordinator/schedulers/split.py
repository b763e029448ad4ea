"""Split: a table that is too busy for one agent is split, and merged again when it has long been quiet.

Moving cannot help where one table alone is more than an agent's share. It must not flap: a table has to be *hot* for a
minute before it is divided and *cold* for five before it is made whole, between the two is a wide band in which nothing
is done, and an operator's division is left alone (FeedRecorded.pinned). A division pauses its partitions while the old
writer drains and the new ones claim, so there are few at a time.
"""

import math
from collections.abc import Mapping
from typing import Final

from headgate.coordinator.schedulers.balance import BYTES_PER_S_MIN
from headgate.coordinator.schedulers.contract import Asked, Division, Heat, Scheduler, TableLoad, View

DIVISIONS_PER_FEED_MAX: Final = 4
"""Tables of one feed that are divided differently at the same time: each pauses for about a second, and holds the
feed's checkpoint in the meantime."""

HOT_SHARE: Final = 1.5
"""Times an agent's even share of all load from which a table is hot: below, moving its neighbours away is enough
(balance.BAND is 1.25)."""

COLD_SHARE: Final = 0.5
"""Times an agent's share below which a divided table is cold: whole again, it is at a third of what would divide it."""

HOT_ROUNDS_MIN: Final = 4
"""Rounds of measuring in a row before a table is divided: a minute, in which a burst is over."""

COLD_ROUNDS_MIN: Final = 20
"""Rounds in a row before a table is made whole: five minutes; being divided costs little, dividing costs a pause."""


def heat(load: TableLoad, share: float) -> Heat:
    """Whether the table should be divided (hot) or made whole (cold); ``share``: an agent's even part of all load."""
    if load.parts > 1:
        return Heat.COLD if load.bytes_per_s < max(COLD_SHARE * share, COLD_SHARE * BYTES_PER_S_MIN) else Heat.EVEN
    is_hot = load.partitions > 1 and load.bytes_per_s > max(HOT_SHARE * share, BYTES_PER_S_MIN)
    return Heat.HOT if is_hot else Heat.EVEN


def choose(
    loads: Mapping[tuple[str, str], TableLoad], rounds: Mapping[tuple[str, str], tuple[Heat, int]], *, agents: int
) -> list[tuple[TableLoad, int]]:
    """(table, into how many parts) for those that have been hot or cold long enough; the busiest hot one comes first.

    ``rounds``: each table's heat, and for how many rounds in a row. As many parts as bring each near an agent's share.
    """
    share = sum(load.bytes_per_s for load in loads.values()) / max(agents, 1)
    due: list[tuple[TableLoad, int]] = []
    for place, load in sorted(loads.items(), key=lambda item: (-item[1].bytes_per_s, item[0])):
        what, count = rounds.get(place, (Heat.EVEN, 0))
        if what is Heat.HOT and count >= HOT_ROUNDS_MIN:
            parts = min(load.partitions, agents, math.ceil(load.bytes_per_s / share))
            due += [(load, parts)] if parts > 1 else []
        elif what is Heat.COLD and count >= COLD_ROUNDS_MIN:
            due.append((load, 1))
    return due


def _propose(view: View) -> tuple[Division, ...]:
    measured = view.measured
    if measured is None:
        return ()
    chosen = choose(measured.tables, measured.heats, agents=len(measured.loads))
    return tuple(Division(load.feed, load.table, parts) for load, parts in chosen)


SPLIT: Final = Scheduler(
    name="split",
    summary="a table that is too busy for one agent is divided, and made whole when it has long been quiet",
    asked=Asked.MEASURED,
    propose=_propose,
)
