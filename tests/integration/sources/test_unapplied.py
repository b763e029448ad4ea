"""How long a table's oldest change has waited, found out at a real broker, whatever any agent reports."""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import SpanPlan
from headgate.sources.unapplied import UnappliedWatch
from support.kafka_cluster import ANSWER_SECONDS
from support.topic_changes import make_topics
from support.waiting import eventually

pytestmark = pytest.mark.integration

FIRST_MS = 1_700_000_000_000
"""Append time of offset 0 of partition 0; each offset is a second later, partition 1 an hour."""

HOUR_MS = 3_600_000


class Topic:
    """Two partitions with three records each, and what watches them."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap, self.name = bootstrap, f"{prefix}public.t"
        self.connection = KafkaConnection(bootstrap)
        self.watch = UnappliedWatch(self.connection)
        make_topics(self.connection.admin, NewTopic(self.name, 2, 1))
        for partition in (0, 1):
            for offset in range(3):
                self.put(partition, FIRST_MS + partition * HOUR_MS + offset * 1000)

    def put(self, partition: int, append_ms: int) -> None:
        with Producer({"bootstrap.servers": self.bootstrap}) as producer:
            producer.produce(self.name, b"{}", partition=partition, timestamp=append_ms)
            assert producer.flush(ANSWER_SECONDS) == 0

    def look(self, *reached: int, feed: str = "0-1") -> int | None:
        """What a look finds of the table, which has come so far in each partition."""
        plan = SpanPlan("public.t", self.name, "public.t", {0: 0, 1: 0})
        return self.watch.look(feed, [plan], {"public.t": dict(enumerate(reached))}).unapplied.get("public.t")


@pytest.fixture
def topic(kafka_bootstrap: str, kafka_prefix: str) -> Topic:
    return Topic(kafka_bootstrap, kafka_prefix)


def test_a_table_that_is_behind_at_the_same_place_for_the_second_time_does_not_get_on(topic: Topic) -> None:
    assert topic.look(1, 3) is None, "it may be on its way"
    assert topic.look(1, 3) == FIRST_MS + 1000
    assert topic.look(2, 3) is None, "it has moved"
    assert topic.look(2, 3) == FIRST_MS + 2000
    assert topic.look(3, 3) is None, "it has applied everything"
    assert topic.look(3, 3) is None


def test_the_oldest_of_its_partitions_counts(topic: Topic) -> None:
    topic.look(3, 1)
    assert topic.look(3, 1) == FIRST_MS + HOUR_MS + 1000
    topic.look(0, 1)
    assert topic.look(0, 1) == FIRST_MS


def test_where_nothing_is_known_of_a_table_its_start_counts(topic: Topic) -> None:
    topic.look()
    assert topic.look() == FIRST_MS


def test_behind_a_place_there_may_be_nothing_but_markers(topic: Topic, kafka_prefix: str) -> None:
    settings = {"bootstrap.servers": topic.bootstrap, "transactional.id": f"{kafka_prefix}t"}
    with Producer(settings) as producer:
        producer.init_transactions(ANSWER_SECONDS)
        producer.begin_transaction()
        producer.produce(topic.name, b"{}", partition=0, timestamp=FIRST_MS + 9000)
        assert producer.flush(ANSWER_SECONDS) == 0, "it stands on the log before it is aborted"
        producer.abort_transaction(ANSWER_SECONDS)
    for _ in range(3):
        assert topic.look(3, 3) is None, "the record was aborted"
    topic.put(0, FIRST_MS + 60_000)
    # The broker writes the marker of the abort behind its answer; until then nothing after it can be read.
    eventually(lambda: topic.look(3, 3) == FIRST_MS + 60_000, "it is looked for again once the partition has grown")


def test_feeds_are_told_apart(topic: Topic) -> None:
    topic.look(1, 3, feed="0-1")
    assert topic.look(1, 3, feed="0-2") is None
    assert topic.look(1, 3, feed="0-1") == FIRST_MS + 1000
