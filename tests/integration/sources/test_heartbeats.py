"""Heartbeats of connectors on a real broker: how often they come, when the last one came, and how many there are."""

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from headgate.eventlog.connection import KafkaConnection
from headgate.sources.heartbeats import PREFIX, Heartbeats, Pulse, read_heartbeats
from support.kafka_cluster import ANSWER_SECONDS
from support.topic_changes import make_topics

pytestmark = pytest.mark.integration

FIRST_MS = 1_767_000_000_000


def test_heartbeats_are_read_and_counted(kafka_bootstrap: str, kafka_prefix: str) -> None:
    connection, producer = KafkaConnection(kafka_bootstrap), Producer({"bootstrap.servers": kafka_bootstrap})
    prefixes = [f"{kafka_prefix}{name}" for name in ("often", "seldom", "expired", "none", "other")]
    topics = [f"{prefix}.public.t" for prefix in prefixes[:4]]
    make_topics(connection.admin, *(NewTopic(f"{PREFIX}{prefix}", 1, 1) for prefix in prefixes))

    def beat(prefix: str, *seconds: int) -> None:
        for at in seconds:
            producer.produce(f"{PREFIX}{prefix}", b"{}", b"{}", timestamp=FIRST_MS + at * 1000)
        assert producer.flush(ANSWER_SECONDS) == 0

    often, seldom, expired, _, other = prefixes
    beat(often, 0, 10, 20, 500, 510)
    beat(seldom, 0, 300)
    beat(other, 0, 1)
    beat(expired, 0, 1)
    for future in connection.admin.delete_records([TopicPartition(f"{PREFIX}{expired}", 0, 2)]).values():
        future.result(ANSWER_SECONDS)
    assert set(read_heartbeats(connection, topics)) == {
        Heartbeats(f"{PREFIX}{often}", FIRST_MS + 510_000, 10_000),
        Heartbeats(f"{PREFIX}{seldom}", FIRST_MS + 300_000, 300_000),
        Heartbeats(f"{PREFIX}{expired}", None, None),
    }
    pulse = Pulse(connection, topics)
    assert pulse.beats(60) == (5,)
    beat(often, 520)
    assert pulse.beats(60) == (6,)
    assert pulse.beats(300) == (6, 2)
    assert pulse.beats(9) == ()
    producer.close()
    connection.close()
