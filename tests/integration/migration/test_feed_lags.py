"""How far a feed is behind, as a migration asks: by what its agents say, and by the age of the topic's records."""

import time
import uuid
from contextlib import closing

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.sharding import place
from headgate.migration.shell.feed_lags import FeedLags
from headgate.records.base import Fact
from headgate.records.control import Assignment, Epoch
from headgate.records.keys import FeedKey, ProgressKey, SpanKey
from integration.cli.conftest import log, settings
from support import build
from support.kafka_cluster import ANSWER_SECONDS
from support.topic_changes import make_topics

pytestmark = pytest.mark.integration

__all__ = ["log", "settings"]

PRIMARY = Assignment("a", "s1", Epoch(1, 1))
HOUR_MS = 3_600_000


def test_a_feed_is_behind_by_the_age_of_its_oldest_change_that_is_not_applied(
    log: KafkaLog, kafka_bootstrap: str
) -> None:
    topic = f"lag-{uuid.uuid4().hex[:8]}"
    make_topics(log.connection.admin, NewTopic(topic, 2, 1))

    def write(key: object, value: object) -> None:
        with closing(log.writer("test")) as writer:
            writer.write([place(Fact(key, value), 0)], 30)  # type: ignore[arg-type]

    def applied(first: int, second: int) -> None:
        said = build.span_progressed(epoch=PRIMARY.epoch, positions={0: first, 1: second})
        write(ProgressKey("shop", "orders", PRIMARY.agent, PRIMARY.session), said)

    with closing(FeedLags(log)) as lags:
        assert lags.why({"shop": 0.0}) == "", "a feed that is gone has no lag"
        write(FeedKey("shop"), build.feed_of(topic, "orders", partitions=2))
        primary = build.span_dispatched(incarnation=0, primary=PRIMARY)
        write(SpanKey("shop", "orders"), primary)
        assert lags.why({"shop": 5.0}) == "", "there is nothing to apply"
        producer = Producer({"bootstrap.servers": kafka_bootstrap})
        now_ms = time.time_ns() // 1_000_000
        for partition, age_ms in ((0, 2 * HOUR_MS), (0, HOUR_MS), (1, 2 * HOUR_MS)):
            producer.produce(topic, b"x", partition=partition, timestamp=now_ms - age_ms)
        producer.flush(ANSWER_SECONDS)
        assert lags.why({"shop": 600.0}) == "feed shop: orders is more than 600 s behind (--max-feed-lag)"
        assert lags.why({"shop": 3 * 3600.0}) == ""
        applied(1, 1)
        assert "orders is more than 600 s behind" in lags.why({"shop": 600.0}), "one change of an hour ago is left"
        assert lags.why({"shop": 1.5 * 3600}) == "", "those of two hours ago are applied"
        applied(2, 1)
        assert lags.why({"shop": 600.0}) == ""
