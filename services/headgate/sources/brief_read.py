"""Reads a few records of many partitions within a time limit. A partition that does not answer in time is skipped."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import Message

from headgate.eventlog.lasting_reader import PartitionError
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.partition_reader import PartitionReader
from headgate.sources.offsets import SourceUnreachableError

POLL_RECORDS_MAX: Final = 500
POLL_SECONDS: Final = 0.2


def read_briefly(
    reader: PartitionReader,
    ends: Mapping[Partition, int],
    seconds_max: float,
    take: Callable[[Partition, Message], None],
    is_told: Callable[[Partition], bool],
) -> frozenset[Partition]:
    """Give ``take`` each record until ``is_told`` holds for every partition, or it is at its end, or cannot be read.

    Return those that could not be read, or not to their end in that time.

    Raises SourceUnreachableError, and what ``take`` does.
    """
    waiting = dict(ends)
    failed: set[Partition] = set()
    deadline = time.monotonic() + seconds_max
    while waiting and time.monotonic() < deadline:
        try:
            messages = reader.poll(POLL_RECORDS_MAX, POLL_SECONDS)
        except PartitionError as error:
            if waiting.pop(error.partition, None) is not None:
                failed.add(error.partition)
            continue
        except LogError as error:
            raise SourceUnreachableError(str(error)) from error
        for message in messages:
            take(Partition(str(message.topic()), int(message.partition() or 0)), message)
        positions = reader.positions()
        waiting = {at: end for at, end in waiting.items() if positions[at] < end and not is_told(at)}
    return frozenset(waiting.keys() | failed)
