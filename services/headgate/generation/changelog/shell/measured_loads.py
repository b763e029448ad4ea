"""The load of a change log's streams as the log itself shows it, for writers that do not report theirs."""

import time
from typing import Final

from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.leaders import offsets_of
from headgate.eventlog.log import Partition
from headgate.eventlog.partition_reader import PartitionReader
from headgate.generation.changelog.core.planning import MeasuredLoad
from headgate.generation.core.ranges import LogMap, LogStream
from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.tokens import token_of_key

__all__ = ["measured_loads"]

SAMPLE_MESSAGES: Final = 2_000
"""A stream's last messages, whose keys stand for its load."""

SAMPLE_SECONDS_MAX: Final = 2.0
"""For the sample of one stream: it is an estimate."""


def measured_loads(
    connection: KafkaConnection, topic: str, known: LogMap, seconds: float
) -> dict[StreamId, MeasuredLoad]:
    """Each stream's load: how far its partition's end moves in so many seconds, and which keys its last changes had.

    Raises LogError.
    """
    before = _ends(connection, topic, known)
    time.sleep(seconds)
    after = _ends(connection, topic, known)
    loads = {}
    for stream in known.streams:
        moved = after[stream.partition] - before[stream.partition]
        sample = _sample(connection, topic, stream, after[stream.partition]) if moved else ()
        loads[stream.id] = MeasuredLoad(moved / seconds, seconds, sample)
    return loads


def _ends(connection: KafkaConnection, topic: str, known: LogMap) -> dict[int, int]:
    places = [Partition(topic, stream.partition) for stream in known.streams]
    ends = offsets_of(connection, places, OffsetSpec.latest(), "measuring load")
    return {at.number: offset for at, offset in ends.items()}


def _sample(connection: KafkaConnection, topic: str, stream: LogStream, end: int) -> tuple[tuple[int, float], ...]:
    at, counted = Partition(topic, stream.partition), dict[int, float]()
    first = max(stream.start_offset, end - SAMPLE_MESSAGES)
    deadline = time.monotonic() + SAMPLE_SECONDS_MAX
    with PartitionReader(connection, {at: first}, client_id="headgate-sample") as reader:
        while reader.positions()[at] < end and (left := deadline - time.monotonic()) > 0:
            for message in reader.poll(SAMPLE_MESSAGES, left):
                if message.key() is not None:
                    token = token_of_key(message.key())
                    counted[token] = counted.get(token, 0.0) + 1.0
    return tuple(sorted(counted.items()))
