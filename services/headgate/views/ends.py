"""Where a rebuild is complete: the last record of each partition that a reader can see.

A partition's end is no such place: behind the last record there may be the marks of transactions, and records of
aborted ones, which nobody is ever given. So the last records themselves are looked for, from the end backwards.
"""

from typing import Final

from headgate.eventlog.log import Log, Partition
from headgate.eventlog.replay import read_to_end

__all__ = ["last_offsets"]

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
