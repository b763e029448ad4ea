"""Whether the connectors of some topics are running, by the heartbeats that Debezium writes beside its changes.

With ``heartbeat.interval.ms``, which ``headgate feed init`` sets, a connector writes a record to the topic
``__debezium-heartbeat.<topic.prefix>`` so often, also while its tables are quiet. A connector that is stopped, or stuck
in its database's log, writes none.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from statistics import median
from typing import Final

import msgspec
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.log import Partition
from headgate.sources.newest import read_newest
from headgate.sources.offsets import end_offsets, start_offsets
from headgate.sources.topics import present_topics

__all__ = ["Heartbeats", "Pulse", "read_heartbeats"]

PREFIX: Final = "__debezium-heartbeat."
"""``topic.heartbeat.prefix``, unless a connector sets another one; then nothing is known."""

SILENT_INTERVALS: Final = 3
"""One heartbeat may be late, when a connector is busy; not three in a row."""

SILENT_SECONDS_MIN: Final = 60
"""A connector that is moved to another worker of Kafka Connect is silent for some ten seconds, and clocks differ."""


class Heartbeats(msgspec.Struct, frozen=True):
    """Those of one connector. ``every_ms``: between the last ones, None of fewer than two.

    ``last_ms``: when the last one was written, since 1970, None if the topic has none any more.
    """

    topic: str
    last_ms: int | None
    every_ms: int | None

    def why_silent(self, now_ms: int) -> str:
        """What shows that a connector has not sent those that it should have sent; empty if nothing does."""
        if self.last_ms is None:
            return f"its heartbeats on topic {self.topic} are so long ago that the topic has none any more"
        if self.every_ms is None:
            return ""
        silent_ms = now_ms - self.last_ms
        if silent_ms <= max(SILENT_INTERVALS * self.every_ms, SILENT_SECONDS_MIN * 1000):
            return ""
        return (
            f"its last heartbeat on topic {self.topic} was written {silent_ms / 1000:.0f} s ago, and one came every "
            f"{self.every_ms / 1000:g} s"
        )


def read_heartbeats(connection: KafkaConnection, topics: Iterable[str]) -> tuple[Heartbeats, ...]:
    """Of the connectors that write to ``topics``, as far as they have heartbeats. Raises SourceUnreachableError."""
    beside = _beside(present_topics(connection), topics)
    times: dict[str, list[int]] = {topic: [] for topic in beside}

    def take(at: Partition, message: Message) -> None:
        kind, ms = message.timestamp()
        if kind != TIMESTAMP_NOT_AVAILABLE:
            times[at.topic].append(ms)

    read_newest(connection, beside, take)
    unread = {topic: partitions for topic, partitions in beside.items() if not times[topic]}
    return tuple(_heartbeats(topic, sorted(found)) for topic, found in times.items() if found) + tuple(
        Heartbeats(topic, None, None) for topic in _expired(connection, unread)
    )


def _expired(connection: KafkaConnection, topics: Mapping[str, int]) -> list[str]:
    """Those that had records, and have none any more. What was not read for another reason is not known."""
    if not topics:
        return []
    begins, ends = start_offsets(connection, topics, "earliest"), end_offsets(connection, topics)
    return [topic for topic in topics if begins[topic] == ends[topic] and any(ends[topic].values())]


def _heartbeats(topic: str, times: list[int]) -> Heartbeats:
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return Heartbeats(topic, times[-1], round(median(gaps)) if gaps else None)


def _beside(present: Mapping[str, int], topics: Iterable[str]) -> dict[str, int]:
    """Heartbeat topic → partitions. Of two prefixes that a topic has, the longer one is its connector's."""
    beating = {topic.removeprefix(PREFIX): topic for topic in present if topic.startswith(PREFIX)}
    found: set[str] = set()
    for topic in topics:
        prefix = topic
        while prefix not in beating and prefix:
            prefix = prefix.rpartition(".")[0]
        if prefix:
            found.add(beating[prefix])
    return {topic: present[topic] for topic in sorted(found)}


class Pulse:
    """Counts the heartbeats of the connectors that write to ``topics``. Reading begins when it is asked."""

    def __init__(self, connection: KafkaConnection, topics: Iterable[str]) -> None:
        self._connection = connection
        self._names = tuple(topics)
        self._known: tuple[Heartbeats, ...] | None = None

    def beats(self, within_seconds: float) -> tuple[int, ...]:
        """How many each connector has sent, of those that send one within that time. Raises SourceError."""
        if self._known is None:
            self._known = read_heartbeats(self._connection, self._names)
        topics = {
            each.topic: 1
            for each in self._known
            if each.every_ms is not None and each.every_ms <= within_seconds * 1000
        }
        ends = end_offsets(self._connection, topics) if topics else {}
        return tuple(ends[topic][0] for topic in sorted(topics))
