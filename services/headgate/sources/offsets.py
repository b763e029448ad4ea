"""Where a source topic begins and ends, and whether what is still to be read is still there.

An offset that retention has deleted is a hard error and never a skip: the changes between it and what is left are
gone, and the table would be wrong from then on without anybody noticing.
"""

from collections.abc import Mapping
from typing import Final, Literal

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headgate.records.control import Positions

__all__ = [
    "REQUEST_SECONDS_MAX",
    "OffsetExpiredError",
    "SourceError",
    "SourceUnreachableError",
    "check_retention",
    "end_offsets",
    "start_offsets",
]

REQUEST_SECONDS_MAX: Final = 10.0
"""A broker that takes longer to say where a topic ends cannot be read from either."""


class SourceError(Exception):
    """Base: ``code`` is stable and documented, ``retryable`` says whether trying again can help."""

    code = "source"
    retryable = False


class SourceUnreachableError(SourceError):
    """The source's broker does not answer."""

    code = "source_unreachable"
    retryable = True


class OffsetExpiredError(SourceError):
    """Changes that were not applied yet have been deleted from the source topic."""

    code = "source_offset_expired"


def start_offsets(
    admin: AdminClient, topics: Mapping[str, int], start: Literal["earliest", "latest"]
) -> dict[str, Positions]:
    """Topic → {partition: first offset to apply}, now. ``topics`` is topic → number of partitions."""
    return _listed(admin, topics, OffsetSpec.earliest() if start == "earliest" else OffsetSpec.latest())


def end_offsets(admin: AdminClient, topics: Mapping[str, int]) -> dict[str, Positions]:
    """Topic → {partition: end}, read_uncommitted: behind every record written before this call."""
    return _listed(admin, topics, OffsetSpec.latest())


def check_retention(admin: AdminClient, topic: str, positions: Positions) -> None:
    """Raise OffsetExpiredError unless every one of ``positions`` (next offsets) can still be read from ``topic``.

    A position beyond the end is an error too: the topic has been deleted and made again.
    """
    partitions = {topic: max(positions) + 1} if positions else {}
    first = _listed(admin, partitions, OffsetSpec.earliest())
    end = _listed(admin, partitions, OffsetSpec.latest())
    for partition, position in sorted(positions.items()):
        oldest, newest = first[topic][partition], end[topic][partition]
        if position < oldest:
            raise OffsetExpiredError(
                f"{topic}[{partition}]: offset {position} is next to apply, but retention has deleted everything below "
                f"{oldest}; {oldest - position} offsets are lost: make the feed again from a fresh copy of the table, "
                "and give the topic a longer retention"
            )
        if position > newest:
            raise OffsetExpiredError(
                f"{topic}[{partition}]: offset {position} is next to apply, but the topic ends at {newest}: it has "
                "been deleted and made again; make the feed again from a fresh copy of the table"
            )


def _listed(admin: AdminClient, topics: Mapping[str, int], which: OffsetSpec) -> dict[str, Positions]:
    asked = {
        TopicPartition(topic, partition): which
        for topic, partitions in sorted(topics.items())
        for partition in range(partitions)
    }
    offsets: dict[str, Positions] = {topic: {} for topic in sorted(topics)}
    if not asked:
        return offsets
    answers = admin.list_offsets(asked, request_timeout=REQUEST_SECONDS_MAX)
    for at, answer in answers.items():
        try:
            offsets[at.topic][at.partition] = answer.result().offset
        except KafkaException as error:
            raise SourceUnreachableError(
                f"{at.topic}[{at.partition}]: the broker does not say where it begins and ends: {error.args[0].str()}"
            ) from error
    return offsets
