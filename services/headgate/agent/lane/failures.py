"""Failures in a row, per source partition: one that goes on says nothing of another that is stuck.

A span's partitions may be in different tasks of a batch, and each has its own order of changes. So each counts for
itself how often it was stopped without having moved; the span's number is that of the worst.
"""

from collections.abc import Iterable

__all__ = ["Failures"]

_WHOLE = -1
"""Stands for failures of the span itself: it could not be opened, or its lane was lost. No partition is called so."""


class Failures:
    """Of one run of a span."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    @property
    def worst(self) -> int:
        """Failures in a row of the partition that has most."""
        return max(self._counts.values(), default=0)

    def count(self, partitions: Iterable[int] = ()) -> None:
        """One more in front of each of ``partitions``; without any, of the span as a whole."""
        for partition in tuple(partitions) or (_WHOLE,):
            self._counts[partition] = self._counts.get(partition, 0) + 1

    def went_on(self, partitions: Iterable[int]) -> None:
        """``partitions`` have moved at the sink, so the span can be opened and written."""
        for partition in partitions:
            self._counts.pop(partition, None)
            self._counts.pop(_WHOLE, None)
