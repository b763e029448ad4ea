"""How far the topics can be read: where a rebuild is complete, and whether Faust's client has stopped reading.

A partition's end is no such place: behind the last record there may be the marks of transactions, and records of
aborted ones, which nobody is ever given. So the last records themselves are looked for, from the end backwards.
"""

from collections.abc import Callable, Mapping
from typing import Final

from headgate.eventlog.lasting_reader import LOOK_SECONDS, STALL_SECONDS
from headgate.eventlog.log import Log, LogError, Partition
from headgate.eventlog.replay import read_to_end

__all__ = ["ReadingWatch", "last_offsets"]

LOOK_BACK_FIRST: Final = 100
"""Offsets looked at first; ten times as many each time that none of them was visible."""


def last_offsets(log: Log, partitions: list[Partition]) -> dict[Partition, int]:
    """The last visible offset of each partition that has one. Raises LogError, NewerSchemaError."""
    found: dict[Partition, int] = {}
    ends = {partition: end for partition, end in log.end_offsets(partitions).items() if end > 0}
    look_back = LOOK_BACK_FIRST
    while ends:
        start = {partition: max(0, end - look_back) for partition, end in ends.items()}
        for read in read_to_end(log, sorted(ends), start):
            found[read.partition] = max(read.offset, found.get(read.partition, 0))
        ends = {partition: end for partition, end in ends.items() if partition not in found and start[partition] > 0}
        look_back *= 10
    return found


class ReadingWatch:
    """Notices that a partition is no longer read, by the rule of eventlog/lasting_reader.py.

    Faust's client cannot be replaced in its process, so the process ends and its platform starts another one.
    """

    def __init__(self, log: Log, partitions: list[Partition], monotonic: Callable[[], float]) -> None:
        self._log = log
        self._partitions = partitions
        self._monotonic = monotonic
        self._looked_at = monotonic()
        self._short: dict[Partition, tuple[int, float]] = {}
        """Partition below its end → last offset read, since when."""
        self._hidden: dict[Partition, int] = {}
        """Ends behind which there is nothing but marks of transactions."""

    def stopped(self, at: Mapping[Partition, int]) -> str | None:
        """Why records are missing, None if none are. ``at``: the last offset read of each partition.

        Ask every LOOK_SECONDS. Brokers that do not answer prove nothing.
        """
        try:
            return self._look(at)
        except LogError:
            self._short.clear()
            return None

    def _look(self, at: Mapping[Partition, int]) -> str | None:
        ends = self._log.stable_offsets(self._partitions)
        now = self._monotonic()
        if now - self._looked_at > 2 * LOOK_SECONDS:
            self._short.clear()  # this process stood still, not the client
        self._looked_at = now
        short = {p: at.get(p, -1) for p, end in ends.items() if at.get(p, -1) + 1 < end != self._hidden.get(p)}
        self._short = {p: (last, self._since(p, last, now)) for p, last in short.items()}
        stalled = [p for p, (_, since) in self._short.items() if now - since >= STALL_SECONDS]
        visible = last_offsets(self._log, stalled)
        for partition in stalled:
            last = short[partition]
            if visible.get(partition, -1) > last:
                return (
                    f"{partition.topic}/{partition.number} has stayed at offset {last} for {STALL_SECONDS:g} s, and "
                    f"has records up to {visible[partition]}"
                )
            self._hidden[partition] = ends[partition]
        return None

    def _since(self, partition: Partition, last: int, now: float) -> float:
        before = self._short.get(partition)
        return before[1] if before is not None and before[0] == last else now
