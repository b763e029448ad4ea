"""The usual searches: what is searched whole, and how far the rest."""

from typing import Final

import msgspec

from headgate_lab.simulation.exhaustive.bounds import SearchBounds


class Scope(msgspec.Struct, frozen=True):
    """Bounds of a search and where it stops: at a depth, or after the level that reaches ``states_max``."""

    bounds: SearchBounds
    depth: int | None = None
    states_max: int | None = None


QUICK: Final = (
    Scope(SearchBounds(faults=1)),
    Scope(SearchBounds(commands=("move",), faults=0)),
    Scope(SearchBounds(commands=("pause", "resume"), faults=0)),
    Scope(SearchBounds(commands=("pause_table", "resume_table"), faults=0)),
    Scope(SearchBounds(commands=("resync_table",), faults=0)),
    Scope(SearchBounds(commands=("move", "remove"), faults=0)),
    Scope(SearchBounds(events=2, faults=0, housekeeping=True)),
    Scope(SearchBounds(events=2, faults=1, housekeeping=True), depth=12),
    Scope(SearchBounds(commands=("move",), faults=1), depth=18),
    Scope(SearchBounds(commands=("pause", "resume"), faults=1), depth=15),
    Scope(SearchBounds(commands=("pause_table", "resume_table"), faults=1), depth=12),
    Scope(SearchBounds(commands=("resync_table",), faults=1), depth=12),
    Scope(SearchBounds(commands=("move",), faults=2), depth=11),
    Scope(SearchBounds(spans=2, faults=1), depth=13),
    Scope(SearchBounds(commands=("split",), faults=0, partitions=2)),
    Scope(SearchBounds(commands=("split",), faults=1, partitions=2), depth=12),
)
"""For ``make test``: seconds each."""

DEEP: Final = (
    Scope(SearchBounds(faults=2)),
    Scope(SearchBounds(commands=("move",), faults=1)),
    Scope(SearchBounds(commands=("pause", "resume"), faults=1)),
    Scope(SearchBounds(commands=("pause_table", "resume_table"), faults=1)),
    Scope(SearchBounds(commands=("remove",), faults=1)),
    Scope(SearchBounds(events=2, faults=2, housekeeping=True), depth=18),
    Scope(SearchBounds(commands=("move",), faults=2), depth=18),
    Scope(SearchBounds(spans=2, commands=("move",), faults=1), depth=18),
    Scope(SearchBounds(commands=("split", "merge"), faults=0, partitions=2)),
    Scope(SearchBounds(commands=("split", "pause"), faults=0, partitions=2), depth=45),
    Scope(SearchBounds(commands=("split",), faults=1, partitions=2), depth=22),
)
"""For ``make sim-long``: minutes each."""
