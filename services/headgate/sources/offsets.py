"""The first and last offsets of source topics, offsets of a time, and whether unread records still exist.

An offset that retention has deleted is a hard error and never a skip: the changes between it and what is left are
gone, and the table would be wrong from then on without anybody noticing.

A time is found by the records' own times (the producer's, or the broker's: ``message.timestamp.type``). A change is
appended after its commit, by clocks that may differ, so the search goes back by a margin: a few changes are applied
again, none is left out.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headgate.config.times import show_ts
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.connection import KafkaConnection, code_of
from headgate.eventlog.leaders import ask_offsets
from headgate.eventlog.log import LogError
from headgate.records.control import Positions
from headgate.records.name_lists import number_of
from headgate.records.ts import physical_ms, ts_of_ms

REQUEST_SECONDS_MAX: Final = 10.0
"""A broker that takes longer to report where a topic ends cannot be read from either."""


RECORD_TIME_MARGIN_MS: Final = 60_000
"""How much the clocks of source, producer and broker may differ, for a time to be found in the log. Machines that keep
time differ by milliseconds; a minute of changes is applied again in no time."""


class SourceError(Exception):
    """Base: ``code`` is stable and documented, ``retryable`` tells apart errors for which trying again can help."""

    code = "source"
    retryable = False


class SourceUnreachableError(SourceError):
    """The source's broker does not answer."""

    code = "source_unreachable"
    retryable = True


class TopicMissingError(SourceError):
    """A topic the feed reads, or a partition of it, does not exist."""

    code = "source_topic_missing"
    retryable = True


class OffsetExpiredError(SourceError):
    """Changes that were not applied yet have been deleted from the source topic."""

    code = "source_offset_expired"


class StartPartitionsError(SourceError):
    """Offsets to start at that are not of the topic's partitions."""

    code = "source_start_partitions"


class StartInFutureError(SourceError):
    """A time to start at that has not come yet."""

    code = "source_start_in_future"


def start_offsets(
    connection: KafkaConnection, topics: Mapping[str, int], start: Literal["earliest", "latest"]
) -> dict[str, Positions]:
    """Topic → {partition: first offset to apply}, now. ``topics`` is topic → number of partitions."""
    return _listed(connection, topics, OffsetSpec.earliest() if start == "earliest" else OffsetSpec.latest())


def offsets_at(connection: KafkaConnection, topics: Mapping[str, int], ts: int) -> dict[str, Positions]:
    """Topic → {partition: first offset to apply}, so that no change after ``ts`` is left out. ``topics`` as above.

    Raises OffsetExpiredError where retention may have deleted such changes, StartInFutureError, SourceUnreachableError.
    """
    if physical_ms(ts) > wall_ms() + RECORD_TIME_MARGIN_MS:
        raise StartInFutureError(f"{show_ts(ts)} is in the future. To start with new changes, use latest")
    wanted_ms = physical_ms(ts) - RECORD_TIME_MARGIN_MS
    first = _asked(connection, topics, OffsetSpec.earliest())
    end = _asked(connection, topics, OffsetSpec.latest())
    oldest = _asked(connection, topics, OffsetSpec.for_timestamp(0))
    found = _asked(connection, topics, OffsetSpec.for_timestamp(wanted_ms))
    offsets: dict[str, Positions] = {topic: {} for topic in sorted(topics)}
    for at, answer in sorted(found.items(), key=lambda item: (item[0].topic, item[0].partition)):
        if first[at].offset > 0:
            _check_reaches(at, first[at].offset, oldest[at], wanted_ms, ts)
        offsets[at.topic][at.partition] = answer.offset if answer.offset >= 0 else end[at].offset
    return offsets


def given_offsets(
    connection: KafkaConnection, topics: Mapping[str, int], given: Mapping[str, Positions]
) -> dict[str, Positions]:
    """Topic → {partition: first offset to apply}, as a feed names them. ``topics`` as above.

    The caller compares the topics' ids first (sources/topic_ids.py).

    Raises StartPartitionsError where others than the topic's partitions are named, OffsetExpiredError for offsets that
    cannot be read (any more), SourceUnreachableError.
    """
    for topic, count in sorted(topics.items()):
        if len(given[topic]) != count:
            raise StartPartitionsError(
                f"source.start_offsets names {number_of(len(given[topic]), 'partition')} of topic {topic}, which has "
                f"{count}. Give an offset for each"
            )
        check_retention(connection, topic, given[topic])
    return {topic: dict(sorted(given[topic].items())) for topic in sorted(topics)}


def _check_reaches(at: TopicPartition, first: int, oldest: Any, wanted_ms: int, ts: int) -> None:
    """Records have been deleted from the partition: is one left that is older than what is wanted?"""
    if oldest.offset >= 0 and oldest.timestamp <= wanted_ms:
        return
    left = "it is empty" if oldest.offset < 0 else f"the earliest left is of {show_ts(ts_of_ms(oldest.timestamp))}"
    raise OffsetExpiredError(
        f"{at.topic}[{at.partition}]: retention has deleted everything below offset {first}, and {left}; a start at "
        f"{show_ts(ts)} needs all changes from {show_ts(ts_of_ms(wanted_ms))} on ({RECORD_TIME_MARGIN_MS // 1000} s "
        "earlier, because clocks differ). Use a later time, or copy the table again and use earliest"
    )


def end_offsets(connection: KafkaConnection, topics: Mapping[str, int]) -> dict[str, Positions]:
    """Topic → {partition: end}, read_uncommitted: behind every record written before this call."""
    return _listed(connection, topics, OffsetSpec.latest())


def offsets_since(connection: KafkaConnection, topics: Mapping[str, int], wanted_ms: int) -> dict[str, Positions]:
    """Topic → {partition: first offset of a record of that time or later; its end if there is none}.

    ``topics`` as above. Raises SourceError.
    """
    found = _asked(connection, topics, OffsetSpec.for_timestamp(wanted_ms))
    ends = end_offsets(connection, topics)
    offsets: dict[str, Positions] = {topic: {} for topic in sorted(topics)}
    for at, answer in found.items():
        offsets[at.topic][at.partition] = answer.offset if answer.offset >= 0 else ends[at.topic][at.partition]
    return offsets


def offsets_until(connection: KafkaConnection, topics: Mapping[str, int], ts: int) -> dict[str, Positions]:
    """The same for what was written before ``ts``. Raises OffsetExpiredError where that cannot be known any more."""
    found = offsets_since(connection, topics, physical_ms(ts))
    firsts = _listed(connection, topics, OffsetSpec.earliest())
    for topic, positions in found.items():
        for partition, offset in positions.items():
            first = firsts[topic][partition]
            if 0 < first == offset:
                raise OffsetExpiredError(
                    f"{topic}[{partition}]: retention has deleted everything below offset {first}, and with it what "
                    f"was written around {show_ts(ts)}. Use a later time"
                )
    return found


def check_retention(connection: KafkaConnection, topic: str, positions: Positions) -> Positions:
    """Where the partitions of ``positions`` (next offsets) end now. OffsetExpiredError unless all can be read.

    A position beyond the end is an error too: the topic has been deleted and made again.
    """
    partitions = {topic: max(positions) + 1} if positions else {}
    first = _listed(connection, partitions, OffsetSpec.earliest())
    end = _listed(connection, partitions, OffsetSpec.latest())
    for partition, position in sorted(positions.items()):
        oldest, newest = first[topic][partition], end[topic][partition]
        if position < oldest:
            raise OffsetExpiredError(
                f"{topic}[{partition}]: offset {position} is the next to apply, but retention has deleted "
                f"everything below {oldest}, so {oldest - position} offsets are lost. Give the topic a longer "
                "retention, delete the feed, copy the table again, and create the feed"
            )
        if position > newest:
            raise OffsetExpiredError(
                f"{topic}[{partition}]: offset {position} is the next to apply, but the topic ends at {newest}, so "
                "it was deleted and re-created. Delete the feed, copy the table again, and create the feed"
            )
    return {partition: end[topic][partition] for partition in sorted(positions)}


def _listed(connection: KafkaConnection, topics: Mapping[str, int], which: OffsetSpec) -> dict[str, Positions]:
    offsets: dict[str, Positions] = {topic: {} for topic in sorted(topics)}
    for at, answer in _asked(connection, topics, which).items():
        offsets[at.topic][at.partition] = answer.offset
    return offsets


def _asked(connection: KafkaConnection, topics: Mapping[str, int], which: OffsetSpec) -> dict[TopicPartition, Any]:
    asked = {
        TopicPartition(topic, partition): which
        for topic, partitions in sorted(topics.items())
        for partition in range(partitions)
    }
    try:
        return ask_offsets(connection, asked, "asking where a source topic begins and ends")
    except LogError as error:
        if code_of(error) in _GONE:
            raise TopicMissingError(
                f"{error}: has the topic been deleted, or re-created with fewer partitions?"
            ) from error
        raise SourceUnreachableError(str(error)) from error


_GONE: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._NOENT,  # the client's error when nothing of all that was asked for has a leader
    }
)
