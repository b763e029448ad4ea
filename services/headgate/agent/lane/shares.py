"""How a batch's readings are divided among its tasks: evenly enough, and as they were divided in the batch before.

A worker's reader has fetched ahead of the partitions it read last. Divided anew by their loads, which differ a little
in every batch, half of what was fetched would be thrown away; so a reading stays where it was, and all are dealt out
again only when that makes the largest share, which a batch ends with, clearly smaller.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from headgate.sources.reader import Reading

__all__ = ["Portion", "Shares"]

UNEVEN_ROWS: Final = 100
"""What shares may differ by: so many rows cost a few milliseconds, partitions that change workers a fetch or two."""

GAIN: Final = 0.8
"""All are dealt out again if the largest share gets smaller than that part of what it is."""


class Portion(msgspec.Struct, frozen=True):
    """Readings that stay together, and how many rows they are thought to have."""

    readings: tuple[Reading, ...]
    rows: int

    @property
    def key(self) -> tuple[str, int]:
        """What it is recognised by."""
        return (self.readings[0].topic, self.readings[0].partition)


class Shares:
    """The memory of one lane."""

    def __init__(self) -> None:
        self._homes: dict[tuple[str, int], int] = {}
        self._count = 0

    def divide(self, portions: Sequence[Portion], tasks_max: int) -> list[list[Reading]]:
        """At least one reading each for at most ``tasks_max`` tasks. ``portions`` are not empty."""
        count = min(tasks_max, len(portions))
        if count != self._count:
            self._homes, self._count = {}, count
        present = {portion.key for portion in portions}
        self._homes = {key: home for key, home in self._homes.items() if key in present}
        weights, numbers = self._deal(portions, self._homes)
        largest = max(weights)
        if largest > sum(weights) / count + UNEVEN_ROWS or 0 in numbers:
            again: dict[tuple[str, int], int] = {}
            dealt, _ = self._deal(portions, again)
            if max(dealt) < GAIN * largest or 0 in numbers:
                self._homes = again
        shares: list[list[Reading]] = [[] for _ in range(count)]
        for portion in portions:
            shares[self._homes[portion.key]] += portion.readings
        return shares

    def _deal(self, portions: Sequence[Portion], homes: dict[tuple[str, int], int]) -> tuple[list[int], list[int]]:
        """Give homes to those without, the heaviest first, each where least is; what there is of rows, and portions."""
        weights, numbers = [0] * self._count, [0] * self._count
        for portion in portions:
            home = homes.get(portion.key)
            if home is not None:
                weights[home] += portion.rows
                numbers[home] += 1
        for portion in sorted(portions, key=lambda portion: (-portion.rows, portion.key)):
            if portion.key not in homes:
                least = min(range(self._count), key=lambda n: (weights[n], numbers[n], n))
                homes[portion.key] = least
                weights[least] += portion.rows
                numbers[least] += 1
        return weights, numbers
