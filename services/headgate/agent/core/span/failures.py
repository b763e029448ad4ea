"""Consecutive failures per source partition, because progress of one partition does not help another.

A span's partitions may be in different tasks of a batch, and each has its own order of changes. So each counts for
itself how often it was stopped without having moved; the span's number is that of the worst.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

Failures: TypeAlias = Mapping[int, int]
"""Partition → failures in a row. Never changed."""

FAILURES_MAX: Final = 8
"""A span that cannot be opened so often in a row (about 20 s) is the owner's affair: it is reported failed."""

RETRY_SECONDS_MIN: Final = 0.25
RETRY_SECONDS_MAX: Final = 5.0
DOUBLINGS_MAX: Final = 10
"""More than it takes to come to the longest delay, and few enough for a number of any failures to be counted with."""

_WHOLE: Final = -1
"""Stands for failures of the span itself: it could not be opened, or its lane was lost. No partition is called so."""


def worst(failures: Failures) -> int:
    """Failures in a row of the partition that has most."""
    return max(failures.values(), default=0)


def counted(failures: Failures, partitions: Iterable[int] = ()) -> Failures:
    """One more in front of each of ``partitions``; without any, of the span as a whole."""
    more = {partition: failures.get(partition, 0) + 1 for partition in tuple(partitions) or (_WHOLE,)}
    return {**failures, **more}


def went_on(failures: Failures, partitions: Iterable[int]) -> Failures:
    """``partitions`` have moved at the sink, so the span can be opened and written."""
    moved = {*partitions}
    gone = {*moved, _WHOLE} if moved else moved
    return {partition: count for partition, count in failures.items() if partition not in gone}


def back_off(failures: int) -> float:
    """Seconds before the next attempt, after so many failures in a row."""
    return float(min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2 ** min(failures - 1, DOUBLINGS_MAX)))
