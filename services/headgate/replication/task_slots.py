"""The number of concurrent Spark tasks per sink, so that a silent one never occupies all of them.

A task that waits for a silent sink holds its slot, and uses no processor. So Spark on this machine gets a few slots
more than there are cores: a sink's batches take as many slots as there are cores, and the extra ones let every other
sink continue with one task each. On a cluster, whose slots are its own, one is left free while others have work.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from headgate.runtime.shares import Shares

SPARE_SLOTS: Final = 5
"""Slots beyond the cores. Four sinks may stop answering at the same moment, and a fifth continues. Each slot that is
used costs the memory of a worker, as much as a batch needs."""

OTHERS_SECONDS: Final = 10.0
"""A sink counts as having work for so long after its latest batch began."""

POLL_SECONDS: Final = 0.1
"""How often a batch that waits for a place checks whether its lane is to end."""


class TaskSlots:
    """The places of one Spark. Thread-safe."""

    def __init__(self, cores: int, spare: int, tasks: int | None = None) -> None:
        """``tasks`` is how many a batch has, as many as ``cores`` if left out, and never more.

        ``spare`` is 0 on a cluster, which has no places beyond its cores.
        """
        self._cores = cores
        self._tasks = min(cores if tasks is None else tasks, cores)
        self._has_spare = spare > 0
        self._changed = threading.Condition()
        self._shares = Shares(cores + spare, cores, cores)
        self._began_at: dict[str, float] = {}
        """When each sink's latest batch began (monotonic seconds)."""

    @contextmanager
    def taken(self, sink: str, *, is_light: bool, given_up: Callable[[], bool]) -> Iterator[int]:
        """Wait for slots for a batch into ``sink``; how many tasks it may have. 0 if ``given_up`` is true first.

        ``is_light``: it has a few rows, and is one task.
        """
        tasks = 0
        with self._changed:
            while not (tasks := self._take(sink, is_light=is_light)) and not given_up():
                self._changed.wait(POLL_SECONDS)
        try:
            yield tasks
        finally:
            with self._changed:
                if tasks and is_light:
                    self._shares.give_back_light(sink)
                elif tasks:
                    self._shares.give_back(sink, tasks)
                self._changed.notify_all()

    def _take(self, sink: str, *, is_light: bool) -> int:
        now = time.monotonic()
        self._began_at = {each: at for each, at in self._began_at.items() if now - at < OTHERS_SECONDS}
        self._began_at[sink] = now
        if is_light:
            return int(self._shares.take_light(sink))
        most = self._cores if self._has_spare or len(self._began_at) == 1 else max(self._cores - 1, 1)
        return self._shares.take(sink, self._tasks, most=most)
