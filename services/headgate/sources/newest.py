"""The newest records of topics, for what has to know what a topic carries before anything is read for good.

Only the last records of each partition are read, and for a few seconds at most: what has not come by then is not known,
and says nothing in either direction.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Final, TypeVar

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.leaders import ask_offsets
from headgate.eventlog.log import LogError
from headgate.sources.offsets import SourceUnreachableError

__all__ = ["look_at_newest"]

LOOK_SECONDS_MAX: Final = 5.0
"""For all topics together."""

LOOK_BACK_RECORDS: Final = 10
"""The last of a partition may be a tombstone, a marker or a message; hardly ever ten in a row."""

T = TypeVar("T")

Look = Callable[[str, bytes | None, bytes | None], T | None]
"""(topic, key, value) → what the record tells; None if more of the topic's records are needed."""


def look_at_newest(connection: KafkaConnection, topics: Mapping[str, int], look: Look[T]) -> dict[str, T]:
    """Topic → what ``look`` tells of one of its newest records. ``topics``: topic → number of partitions.

    A topic's reading ends with the records that came together with that one; the last of them that tells something
    counts. Raises SourceUnreachableError, and what ``look`` does.
    """
    latest = {TopicPartition(t, p): OffsetSpec.latest() for t, count in sorted(topics.items()) for p in range(count)}
    try:
        ends = ask_offsets(connection, latest, "looking for the last records")
        begins = ask_offsets(connection, dict.fromkeys(latest, OffsetSpec.earliest()), "looking for the last records")
    except LogError as error:
        raise SourceUnreachableError(str(error)) from error
    places = [
        TopicPartition(at.topic, at.partition, max(begins[at].offset, ends[at].offset - LOOK_BACK_RECORDS))
        for at in latest
        if ends[at].offset > begins[at].offset
    ]
    return _read(connection, places, look) if places else {}


def _read(connection: KafkaConnection, places: list[TopicPartition], look: Look[T]) -> dict[str, T]:
    found: dict[str, T] = {}
    waiting = {(place.topic, place.partition) for place in places}
    consumer = connection.client(
        Consumer, group_id="headgate-look", enable_auto_commit=False, enable_partition_eof=True
    )
    with closing(consumer):
        consumer.assign(places)
        deadline = time.monotonic() + LOOK_SECONDS_MAX
        while waiting and time.monotonic() < deadline:
            for message in consumer.consume(num_messages=500, timeout=0.2):
                topic = str(message.topic())
                if message.error() is not None:  # the end of a partition, or a partition that cannot be read
                    waiting.discard((topic, message.partition()))
                elif (told := look(topic, message.key(), message.value())) is not None:
                    found[topic] = told
                    waiting = {place for place in waiting if place[0] != topic}
    return found
