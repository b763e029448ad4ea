"""The newest records of topics, for checks of what a topic carries before a feed reads it.

Only the last records of each partition are read, and for a few seconds at most: what has not arrived by then is
unknown, and proves nothing in either direction.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from confluent_kafka import IsolationLevel, Message
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.leaders import offsets_of
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.partition_reader import PartitionReader
from headgate.sources.brief_read import read_briefly
from headgate.sources.offsets import SourceUnreachableError

__all__ = ["look_at_newest", "read_newest"]

LOOK_SECONDS_MAX: Final = 5.0
"""For all topics together."""

LOOK_BACK_RECORDS: Final = 10
"""The last of a partition may be a tombstone, a marker or a message; hardly ever ten in a row."""

T = TypeVar("T")

Look = Callable[[str, bytes | None, bytes | None], T | None]
"""(topic, key, value) → what the record shows; None if more of the topic's records are needed."""


def look_at_newest(connection: KafkaConnection, topics: Mapping[str, int], look: Look[T]) -> dict[str, T]:
    """Topic → what ``look`` finds in one of its newest records. ``topics``: topic → number of partitions.

    A topic's reading ends with the records that arrived together with that one; the last of them in which ``look``
    finds something counts. Raises SourceUnreachableError, and what ``look`` does.
    """
    found: dict[str, T] = {}

    def take(at: Partition, message: Message) -> None:
        if (told := look(at.topic, message.key(), message.value())) is not None:
            found[at.topic] = told

    read_newest(connection, topics, take, lambda at: at.topic in found)
    return found


def read_newest(
    connection: KafkaConnection,
    topics: Mapping[str, int],
    take: Callable[[Partition, Message], None],
    is_told: Callable[[Partition], bool] = lambda _at: False,
) -> frozenset[Partition]:
    """Give ``take`` the newest records of each partition, until ``is_told``. ``topics``: as above.

    Return the partitions that have records which were not read in time: of these nothing is known.

    Raises SourceUnreachableError, and what ``take`` does.
    """
    places = [Partition(topic, number) for topic, count in sorted(topics.items()) for number in range(count)]
    try:
        what = "looking for the last records"
        ends = offsets_of(connection, places, OffsetSpec.latest(), what, IsolationLevel.READ_COMMITTED)
        begins = offsets_of(connection, places, OffsetSpec.earliest(), what)
    except LogError as error:
        raise SourceUnreachableError(str(error)) from error
    waiting = {at: ends[at] for at in places if ends[at] > begins[at]}
    if not waiting:
        return frozenset()
    start = {at: max(begins[at], end - LOOK_BACK_RECORDS) for at, end in waiting.items()}
    with PartitionReader(connection, start, client_id="headgate-newest") as reader:
        return read_briefly(reader, waiting, LOOK_SECONDS_MAX, take, is_told)
