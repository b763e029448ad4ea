"""Where the CPU time of a run went: user and system seconds of groups of processes, by difference.

Groups are given as root pids; a group is the root with all its descendants. A process that was born and died between
two looks is missed, so looks are taken while the processes still live.
"""

from collections.abc import Mapping

import psutil

__all__ = ["CpuClock", "tree"]


def tree(pid: int) -> list[psutil.Process]:
    """A process and its descendants, those that still live."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


class CpuClock:
    """Takes stock of named groups; ``seconds_since`` gives each group's CPU seconds since an earlier stock."""

    def __init__(self, groups: Mapping[str, int]) -> None:
        self._groups = dict(groups)

    def stock(self) -> dict[str, dict[tuple[int, float], float]]:
        """Per group, CPU seconds so far of every process (by pid and birth)."""
        return {name: self._group(pid) for name, pid in self._groups.items()}

    def seconds_since(self, earlier: Mapping[str, Mapping[tuple[int, float], float]]) -> dict[str, float]:
        """CPU seconds of each group since ``earlier``; processes born since count from zero."""
        now = self.stock()
        return {
            name: sum(seconds - earlier[name].get(process, 0.0) for process, seconds in processes.items())
            for name, processes in now.items()
        }

    @staticmethod
    def _group(pid: int) -> dict[tuple[int, float], float]:
        seconds = {}
        for process in tree(pid):
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    seconds[process.pid, process.create_time()] = times.user + times.system
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
        return seconds
