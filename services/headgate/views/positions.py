"""Each feed's positions as a consumer group, so that its lag shows in the tools people have (kcat, AKHQ, Burrow).

For information only: Headgate reads no group, and resetting one has no effect. The positions are
those of the feed's checkpoint, which is at or below what its sink has.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from headgate.eventlog.connection import BrokerUnreachableError, KafkaConnection
from headgate.eventlog.log import LogError
from headgate.eventlog.snapshot import Snapshot
from headgate.records.control import FeedProgressed, FeedRecorded
from headgate.records.keys import FeedKey, FeedProgressKey

GROUP_PREFIX: Final = "feed."
"""Behind the cluster's prefix, before the feed's name. Names to which rights are given by prefix end with a dot."""

ANSWER_SECONDS_MAX: Final = 5.0
"""For one request: a process that is to end waits for it."""

AGAIN_SECONDS: Final = 3600.0
"""How often all is written again: brokers delete commits of an empty group after a week, by default."""

_log = logging.getLogger(__name__)

Places = dict[tuple[str, int], int]
"""Source topic and partition → next offset."""


def positions_of(snapshot: Snapshot) -> dict[str, Places]:
    """Feed → its positions; where tables share a partition, the least. Feeds without a checkpoint are left out."""
    found: dict[str, Places] = {}
    for key, record in snapshot.each(FeedKey, FeedRecorded):
        said = snapshot.get(FeedProgressKey(key.feed), FeedProgressed)
        if said is None or (said.feed_id, said.incarnation) != (record.feed_id, record.incarnation):
            continue
        places: Places = {}
        for table, topic in sorted({(plan.table, plan.topic) for plan in record.spans}):
            for partition, offset in said.positions.get(table, {}).items():
                places[topic, partition] = min(offset, places.get((topic, partition), offset))
        if places:
            found[key.feed] = places
    return found


class Groups:
    """Writes what has changed since it was asked last; a refusal of the broker is logged once, and retried."""

    def __init__(
        self, connection: KafkaConnection, prefix: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._prefix = prefix
        self._clock = clock
        self._written: dict[str, tuple[float, Places]] = {}
        self._complained = ""

    def write(self, feeds: Mapping[str, Places], is_over: Callable[[], bool]) -> None:
        """Commit the positions of these feeds, and forget the groups of those that are gone; until ``is_over``.

        A broker that does not answer ends it: the others would only wait as long. One that refuses does not.
        """
        now = self._clock()
        changed: dict[str, Places | None] = dict.fromkeys(set(self._written) - set(feeds))
        for feed, places in feeds.items():
            before = self._written.get(feed)
            if before is None or before[1] != places or now - before[0] >= AGAIN_SECONDS:
                changed[feed] = places
        for feed in sorted(changed):
            if is_over() or not self._ask(feed, changed[feed]):
                return

    def _ask(self, feed: str, places: Places | None) -> bool:
        """Whether it was answered."""
        group = f"{self._prefix}{GROUP_PREFIX}{feed}"
        try:
            if places is None:
                asked = self._connection.admin.delete_consumer_groups([group], request_timeout=ANSWER_SECONDS_MAX)
                self._connection.wait(f"forgetting {group}", asked[group])
                del self._written[feed]
                return True
            self._alter(group, places)
            self._written[feed] = (self._clock(), places)
        except (LogError, KafkaException) as error:
            if str(error) != self._complained:
                self._complained = str(error)
                _log.warning("positions of feed %s are not shown as a consumer group: %s", feed, error)
            return not isinstance(error, BrokerUnreachableError)
        return True

    def _alter(self, group: str, places: Places) -> None:
        wanted = [TopicPartition(topic, number, offset) for (topic, number), offset in sorted(places.items())]
        asked = self._connection.admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=ANSWER_SECONDS_MAX
        )
        told = self._connection.wait(f"writing positions to {group}", asked[group])
        for place in told.topic_partitions:
            if place.error is not None:
                raise KafkaException(place.error)
