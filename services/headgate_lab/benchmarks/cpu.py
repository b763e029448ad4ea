"""Where the CPU time of a run went: user and system seconds of groups of processes, by difference.

A process that was born and died between two looks is missed, so looks are taken while the processes still live.
"""

from collections.abc import Callable, Mapping, Sequence

import psutil

Stock = dict[str, dict[tuple[int, float], float]]
"""Group → (pid, birth) → CPU seconds so far."""


def tree(pid: int) -> list[psutil.Process]:
    """A process and its descendants, those that still live."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


class CpuClock:
    """Takes stock of named groups of processes."""

    def __init__(self, groups: Mapping[str, Callable[[], Sequence[psutil.Process]]]) -> None:
        self._groups = dict(groups)

    def stock(self) -> Stock:
        """CPU seconds so far of every process of every group."""
        return {name: _seconds(members()) for name, members in self._groups.items()}

    def seconds_since(self, earlier: Stock) -> dict[str, float]:
        """CPU seconds of each group since ``earlier``; processes born since count from zero."""
        return {
            name: sum(seconds - earlier[name].get(process, 0.0) for process, seconds in processes.items())
            for name, processes in self.stock().items()
        }


def _seconds(members: Sequence[psutil.Process]) -> dict[tuple[int, float], float]:
    seconds = {}
    for process in members:
        try:
            with process.oneshot():
                times = process.cpu_times()
                seconds[process.pid, process.create_time()] = times.user + times.system
        except psutil.NoSuchProcess:  # it ended between the listing and the look
            continue
    return seconds
