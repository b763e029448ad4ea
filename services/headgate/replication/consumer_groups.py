"""Names of consumer groups, which decide what Spark's JVM may reuse from one query for the next one.

Spark keeps consumers, and records they have polled, for five minutes by (group, topic, partition), and hands them to
the next query that asks for the same offset. A topic that is deleted and re-created has the same offsets with other
records. So two lanes may share a group only while every topic that both of them read is the same topic in the same
incarnation of the same feed. Within that, sharing is wanted: a joined lane takes over the consumers of the lanes
before it, instead of opening a connection for each partition.
"""

import itertools
import zlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from headgate.replication.feed_parts import FEEDS_MAX, FeedIncarnation

GROUP: Final = "headgate-lane"
"""What every name begins with, for the broker's metrics and access lists. Nothing is joined or committed."""


class ConsumerGroups:
    """Gives each set of lanes that may share consumers a tag of its own. For one thread at a time."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._known: dict[FeedIncarnation, tuple[int, dict[str, str | None]]] = {}
        """The number in use, and the ids of the topics that were read under it. The oldest entry is dropped first,
        which costs shared consumers and nothing else: a number is never used twice."""

    def tag(self, feed: FeedIncarnation, topics: Iterable[tuple[str, str | None]]) -> str:
        """The tag for a lane that reads ``topics``, given as (name, Kafka's id or None if the broker has no ids)."""
        read = list(topics)
        number, ids = self._known.pop(feed, (0, {}))
        if not number or any(ids.get(topic, seen) != seen for topic, seen in read):
            number, ids = next(self._numbers), {}
        if len(self._known) >= FEEDS_MAX:
            del self._known[next(iter(self._known))]
        self._known[feed] = number, ids | dict(read)
        return f"{feed.feed_id}-{feed.incarnation}-{number}"


def group_name(tag: str, client: Mapping[str, str]) -> str:
    """The consumer group of queries with that ``tag`` and these client properties, by which consumers differ too."""
    return f"{GROUP}-{tag}-{zlib.crc32(msgspec.json.encode(client, order='sorted')):08x}"
