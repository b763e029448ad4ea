"""Input topics whose partitions were added to: their keys have moved, and no order between old and new is known.

How many partitions a topic had when it was first copied is noted in the group, as the text of a committed offset that
nothing reads as an offset: there are no others, and it stays for as long as the group does.
"""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from headgate.eventlog.connection import ADMIN_SECONDS_MAX, KafkaConnection
from headgate.generation.changelog.shell.ingest_clients import judge_member
from headgate.sources.offsets import SourceError

__all__ = ["PartitionsGrownError", "PartitionsNoted"]


class PartitionsGrownError(SourceError):
    """An input topic has other partitions than when it was first copied."""


class PartitionsNoted:
    """Of one group. ``ids``: topic → Kafka's id of it; a topic that was made anew may have as many as it likes."""

    def __init__(self, connection: KafkaConnection, member: Any, ids: Mapping[str, str | None]) -> None:
        self._connection, self._member, self._ids = connection, member, ids
        self._known: dict[str, int] = {}
        self._is_noted = False

    def read(self) -> None:
        """Take up what the group has noted. Raises LogError."""
        try:
            found = self._member.committed([TopicPartition(topic, 0) for topic in self._ids], ADMIN_SECONDS_MAX)
        except KafkaException as error:
            # A missing right is told beside the answer, which only does not come.
            judge_member(self._connection, self._member.poll(0))
            raise self._connection.failed("sharing the topics in a group", error) from error
        for each in found:
            topic_id, _, count = (each.metadata or "").partition(" ")
            if count.isdigit() and topic_id == str(self._ids[each.topic]):
                self._known[each.topic] = int(count)
        self._is_noted = self._known.keys() == self._ids.keys()

    def check(self) -> None:
        """Compare with what the brokers say. Raises PartitionsGrownError, LogError."""
        for topic in self._ids:
            try:
                described = self._member.list_topics(topic, ADMIN_SECONDS_MAX).topics.get(topic)
            except KafkaException as error:
                raise self._connection.failed(f"asking for the partitions of {topic}", error) from error
            count = 0 if described is None else len(described.partitions)
            known = self._known.setdefault(topic, count) if count else count
            if count > known:
                raise PartitionsGrownError(
                    f"topic {topic} had {known} partitions when it was first copied and has {count} now: keys have "
                    "moved between them, and nothing says which of a key's changes are older. Let its producer write "
                    "to a new topic, with a fresh copy of its table, and copy that into a new change log"
                )

    def note(self) -> None:
        """Once this process is of the group; again while that fails (a rebalance)."""
        if self._is_noted or self._known.keys() != self._ids.keys():
            return
        texts = [
            TopicPartition(topic, 0, 0, metadata=f"{self._ids[topic]} {count}")
            for topic, count in sorted(self._known.items())
        ]
        try:
            self._member.commit(offsets=texts, asynchronous=False)
        except KafkaException:
            return  # The next look tries again.
        self._is_noted = True
