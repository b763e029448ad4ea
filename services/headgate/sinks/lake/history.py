"""Versions of a lake table by the positions of their changes: which one has the source's rows as of a time."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headgate.records.control import Positions
from headgate.sinks.lake.tables import POSITIONS, Version

__all__ = ["COPY", "COPY_CONTINUES", "COPY_ENDED", "OWN_ENTRIES", "At", "Reached", "at_positions", "reached"]

OWN_ENTRIES: Final = "headgate."
"""How the names of Headgate's own entries of a commit begin."""

COPY: Final = f"{OWN_ENTRIES}copy"
"""The entry of a commit of copied rows: whether others of the same copy follow."""

COPY_CONTINUES: Final = "continues"
COPY_ENDED: Final = "ended"


class Reached(msgspec.Struct, frozen=True):
    """A version, the next offsets of one topic that it is at, and whether its rows were just being copied."""

    version: Version
    positions: Positions
    is_copying: bool


class At(msgspec.Struct, frozen=True):
    """The newest version without a change at or behind some offsets, and the version after it, if there is one."""

    found: Reached
    later: Reached | None


def reached(versions: Iterable[Version], topic: str) -> list[Reached]:
    """Where each version is, oldest first. A commit has the positions of its own partitions only.

    Versions before the first commit of Headgate are left out.
    """
    found: list[Reached] = []
    positions: dict[int, int] = {}
    is_copying = False
    for version in versions:
        text = version.entries.get(POSITIONS)
        given = {} if text is None else msgspec.json.decode(text, type=dict[str, dict[int, int]], strict=False)
        positions = positions | given.get(topic, {})
        if COPY in version.entries:
            is_copying = version.entries[COPY] == COPY_CONTINUES
        if positions:
            found.append(Reached(version, positions, is_copying))
    return found


def at_positions(versions: Sequence[Reached], ends: Positions) -> At | None:
    """The newest version that has no change at or behind ``ends``; None if each has one."""
    there = [
        number
        for number, each in enumerate(versions)
        if all(at <= ends.get(partition, at) for partition, at in each.positions.items())
    ]
    if not there:
        return None
    newest = there[-1]
    return At(versions[newest], versions[newest + 1] if newest + 1 < len(versions) else None)
