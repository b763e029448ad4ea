"""One run of one side: how long, how much processor time, how much memory at most."""

import threading
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import psutil

from headgate_lab.benchmarks.cpu import CpuClock

MEMORY_SECONDS: Final = 0.2
"""How often memory is looked at: a look at a dozen processes costs a millisecond."""

LOOK_SECONDS_MAX: Final = 60.0
"""For the last look. What has not come by then is not counted."""

Members = Callable[[], Sequence[psutil.Process]]


class MeasuredRun(msgspec.Struct):
    """One side, one run; ``spark_input_rows`` is of Headgate's alone."""

    seconds: float
    cpu_seconds: float
    peak_mib: float
    spark_input_rows: int | None = None


class _Memory(threading.Thread):
    """Watches how large a group of processes becomes."""

    def __init__(self, members: Members) -> None:
        super().__init__(daemon=True)
        self._members = members
        self._over = threading.Event()
        self.peak_bytes = 0

    def run(self) -> None:
        while not self._over.wait(MEMORY_SECONDS):
            total = 0
            for process in self._members():
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.peak_bytes = max(self.peak_bytes, total)

    def stop(self) -> float:
        """The most so far, in MiB."""
        self._over.set()
        self.join(LOOK_SECONDS_MAX)
        return self.peak_bytes / (1 << 20)


def measured(work: Callable[[], float], members: Members) -> MeasuredRun:
    """Do ``work``, which returns how many seconds count, and measure ``members`` in the meantime."""
    clock = CpuClock({"side": members})
    before = clock.stock()
    memory = _Memory(members)
    memory.start()
    try:
        seconds = work()
    finally:
        peak = memory.stop()
    return MeasuredRun(seconds, clock.seconds_since(before)["side"], peak)
