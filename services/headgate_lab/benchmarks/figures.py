"""The one shape every bench prints: ``{"bench": name, "figures": {figure: {value, unit, goal, n, spread}}}``.

``value`` is the median of ``n`` measurements, ``spread`` the distance between the least and the greatest of them.
"""

import statistics
from collections.abc import Sequence

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One measured quantity. ``goal`` is the design's aim in the same unit, None where it names none."""

    value: float
    unit: str
    goal: float | None
    n: int
    spread: float


class BenchReport(msgspec.Struct, frozen=True):
    """What one bench measured, by figure name."""

    bench: str
    figures: dict[str, Figure]

    def to_json(self) -> str:
        """The object as printed by ``-o json``."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()


def median_of(values: Sequence[float], unit: str, goal: float | None = None, digits: int = 1) -> Figure:
    """The median of at least one measurement as a figure. Raises ValueError without any."""
    if not values:
        raise ValueError("a figure needs at least one measurement")
    spread = max(values) - min(values)
    return Figure(round(statistics.median(values), digits), unit, goal, len(values), round(spread, digits))
