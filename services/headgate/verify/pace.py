"""A limit on how many rows are compared per second."""

import time
from collections.abc import Callable

__all__ = ["RowLimit"]


class RowLimit:
    """Pauses whenever more rows were compared than ``per_second`` allows since the first. None: without limit."""

    def __init__(
        self,
        per_second: float | None,
        *,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second = per_second
        self._now, self._pause = now, pause
        self._due = now()

    def compared(self, rows: int) -> None:
        """So many rows more. Time that passed without any is not made up for."""
        if self._per_second is None:
            return
        now = self._now()
        self._due = max(self._due + rows / self._per_second, now)
        if self._due > now:
            self._pause(self._due - now)
