"""A broker that is away while the others still name it as a leader: requests to it wait, and do not spin.

So it is when two of three brokers are killed, since the one that is left cannot elect leaders. Here the second of two
brokers is killed, and the first does not miss it for as long as the test runs.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka.admin import NewTopic, OffsetSpec

from headgate.eventlog.connection import BrokerUnreachableError, KafkaConnection, KafkaProperty
from headgate.eventlog.leaders import offsets_of
from headgate.eventlog.log import Partition
from headgate_lab.embedded.broker import EmbeddedKafka
from support.topic_changes import make_topics
from support.waiting import eventually

T = TypeVar("T")

TOPIC = "led-by-the-lost"
LOST = 2
UNMISSED = {"broker.session.timeout.ms": "600000"}
ATTEMPTS_MAX = 100
"""Of connecting within one request. By librdkafka's back-off, 0.1 s and twice as much each time, there are fewer than
ten; without it there are some thousand a second."""


class CountingConnection(KafkaConnection):
    """Its clients tell how often each has tried to connect to the lost broker."""

    attempts = 0

    def client(self, make: Callable[..., T], **ours: KafkaProperty | Callable[..., None]) -> T:
        return super().client(make, stats_cb=self._count, statistics_interval_ms=200, **ours)

    def _count(self, statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        self.attempts = sum(broker["connects"] for broker in brokers if broker["nodeid"] == LOST)


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    """Of two brokers, of which the second leads TOPIC and is killed."""
    with EmbeddedKafka(tmp_path / "kept", settings=UNMISSED) as kept:
        lost = EmbeddedKafka(tmp_path / "lost", joins=kept, node=LOST, settings=UNMISSED)
        lost.start()
        try:
            admin = KafkaConnection(kept.bootstrap).admin
            make_topics(admin, NewTopic(TOPIC, 1, replica_assignment=[[LOST]]))
        finally:
            lost.kill()
        yield kept.bootstrap


def test_a_request_to_a_lost_leader_does_not_connect_without_a_pause(bootstrap: str) -> None:
    connection = CountingConnection(bootstrap)
    with pytest.raises(BrokerUnreachableError):
        offsets_of(connection, [Partition(TOPIC, 0)], OffsetSpec.latest(), "looking for the end")
    eventually(lambda: connection.admin.poll(0) is not None and connection.attempts > 0, "it has told of its attempts")
    assert connection.attempts < ATTEMPTS_MAX
