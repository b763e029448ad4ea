"""Holds a lane's next batch back until its sink may be committed to again (docs/adr/0124).

A lake gets files with every commit, so its sink has an interval. A batch that has not started holds nothing: its rows
are in the topic, and its tables may move, pause and end as between any two batches.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

__all__ = ["BYTES_MAX", "LOOK_SECONDS", "CommitInterval"]

LOOK_SECONDS: Final = 1.0
"""How often a lane that waits looks for rows, and for a reason not to wait. It is one request to the broker."""

BYTES_MAX: Final = 64 << 20
"""So many bytes of events are a batch, however few rows they are: all of it is in the driver's memory at once, in
another form, and Spark refuses results of more than a gigabyte."""


class CommitInterval:
    """Of one lane. ``wait`` is called on the lane's thread; ``rows_waiting`` is read by others."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """0: the sink is committed to at once."""
        self.rows_waiting = 0
        """Offsets behind the last batch, while the next one is held back."""
        self._committed_at = float("-inf")
        self._row_bytes = 0.0

    def committed(self, began: float, rows: int, size: int) -> None:
        """A batch that began then (monotonic seconds) wrote ``rows`` of ``size`` bytes together, or tried to."""
        self._committed_at = began
        if rows:
            self._row_bytes = size / rows

    def rows_enough(self, rows_max: int) -> int:
        """How many rows are a full batch: as many as one may have, or as memory allows if they are like the last."""
        return rows_max if not self._row_bytes else max(1, min(rows_max, int(BYTES_MAX / self._row_bytes)))

    def wait(
        self,
        stopping: threading.Event,
        *,
        rows_max: int,
        waiting: Callable[[], int],
        is_awaited: Callable[[], bool],
    ) -> bool:
        """Return once the next batch may begin: whether that took time.

        That is after the interval, once a full batch is there, or at once if the lane is to end or ``is_awaited``.
        ``waiting``: how many rows are there; if it raises, so does this.
        """
        has_waited = False
        try:
            while (left := self._committed_at + self.seconds - time.monotonic()) > 0:
                self.rows_waiting = waiting()
                if is_awaited() or self.rows_waiting >= self.rows_enough(rows_max):
                    break
                has_waited = True
                if stopping.wait(min(left, LOOK_SECONDS)):
                    break
        finally:
            self.rows_waiting = 0
        return has_waited
