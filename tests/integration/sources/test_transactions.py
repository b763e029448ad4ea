"""The topic of transaction ends on a real broker: what is refused of it, and where evidence begins."""

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from headgate.config.feed import FeedSpec
from headgate.config.sink_spec import SinkSpec
from headgate.config.source_spec import SourceSpec
from headgate.eventlog.connection import KafkaConnection
from headgate.formats.transactions import TransactionProgress
from headgate.records.source_tables import Tail
from headgate.sources.discovery import look_again
from headgate.sources.offsets import RECORD_TIME_MARGIN_MS, SourceUnreachableError
from headgate.sources.topics import plan_spans
from headgate.sources.transactions import EndReader, TransactionsUnusableError, first_end, look_back, rests_at
from support.kafka_cluster import ANSWER_SECONDS
from support.topic_changes import delete_topics, make_topics

pytestmark = pytest.mark.integration

NOON_MS = 1_795_262_400_000


class Connector:
    """Topics with one prefix, written by hand."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.connection = KafkaConnection(bootstrap)
        self.prefix = prefix
        self.ends = f"{prefix}shop.transaction"
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def make(self, name: str, partitions: int = 1) -> str:
        topic = f"{self.prefix}{name}"
        make_topics(self.connection.admin, NewTopic(topic, partitions, 1))
        return topic

    def write(self, topic: str, value: object, at_ms: int = NOON_MS) -> None:
        raw = None if value is None else json.dumps(value).encode()
        self._producer.produce(topic, raw, b"{}", 0, timestamp=at_ms)
        assert self._producer.flush(ANSWER_SECONDS) == 0

    def end(self, transaction: str, at_ms: int) -> None:
        record = {"id": f"{transaction}:1", "ts_ms": at_ms, "event_count": None, "data_collections": None}
        self.write(self.ends, {**record, "status": "BEGIN"}, at_ms)
        counts = [{"data_collection": "public.a", "event_count": 2}]
        self.write(self.ends, {**record, "status": "END", "event_count": 2, "data_collections": counts}, at_ms)

    def close(self) -> None:
        self._producer.close()
        self.connection.close()

    def spec(self, pattern: str = "shop[.].*") -> FeedSpec:
        source = SourceSpec(topic_pattern=f"{self.prefix}{pattern}", transaction_topic=self.ends)
        return FeedSpec(feed="f", source=source, sink=SinkSpec(type="postgresql", dsn="host=nowhere"))

    def refused(self, pattern: str = "shop[.].*") -> str:
        with pytest.raises(TransactionsUnusableError) as caught:
            plan_spans(self.connection, self.spec(pattern), "x.")
        return str(caught.value)


@pytest.fixture
def shop(kafka_bootstrap: str, kafka_prefix: str) -> Iterator[Connector]:
    with closing(Connector(kafka_bootstrap, kafka_prefix)) as connector:
        yield connector


def test_the_transaction_topic_must_be_there_and_is_no_table(shop: Connector) -> None:
    table = shop.make("shop.public.a")
    assert "does not exist. Set provide.transaction.metadata=true" in shop.refused()
    shop.make("shop.transaction")
    assert [plan.topic for plan in plan_spans(shop.connection, shop.spec(), "x.")] == [table]
    shop.end("7", NOON_MS)
    assert [plan.topic for plan in plan_spans(shop.connection, shop.spec(), "x.")] == [table]
    shop.write(shop.ends, {"op": "c", "after": {"id": 1}})
    assert "does not hold the ends of transactions" in shop.refused()


def test_what_ends_of_transactions_cannot_tell_of_is_refused(shop: Connector) -> None:
    shop.make("shop.public.a")
    shop.make("shop.public.wide", 3)
    shop.make("crm.public.a")
    shop.make("shop.transaction")
    assert "wide has 3 partitions" in shop.refused()
    assert "does not belong to the connector that writes" in shop.refused("(shop[.]public[.]a|crm[.].*)")


def test_ends_in_several_partitions_are_refused(shop: Connector) -> None:
    shop.make("shop.public.a")
    shop.make("shop.transaction", 2)
    assert "has 2 partitions, so the order of commits is lost" in shop.refused()


def test_a_second_look_leaves_out_what_cannot_join(shop: Connector) -> None:
    shop.make("shop.public.a")
    shop.make("shop.transaction")
    known = plan_spans(shop.connection, shop.spec(), "x.")
    new, wide = shop.make("shop.public.b"), shop.make("shop.public.wide", 2)
    found = look_again(shop.connection, shop.spec(), known, "x.")
    assert [plan.topic for plan in found.joined] == [new]
    (notice,) = found.notices
    assert f"left out: topic {wide} has 2 partitions" in notice
    delete_topics(shop.connection.admin, shop.ends)
    assert f"transaction topic {shop.ends} no longer exists" in " ".join(
        look_again(shop.connection, shop.spec(), known, "x.").notices
    )


def test_evidence_begins_at_the_last_change_before_the_position(shop: Connector) -> None:
    topic = shop.make("shop.public.a")
    shop.make("shop.transaction")
    assert look_back(shop.connection, topic, 0) == (TransactionProgress(), None)
    change = {"op": "c", "transaction": {"id": "7:1", "data_collection_order": 2}}
    shop.write(topic, change, NOON_MS)
    shop.write(topic, {**change, "op": "d"}, NOON_MS + 1)
    shop.write(topic, None, NOON_MS + 2)
    shop.write(topic, {**change, "transaction": {"id": "8:1", "data_collection_order": 1}}, NOON_MS + 3)
    assert look_back(shop.connection, topic, 3) == (TransactionProgress(Tail("7", 2), True), NOON_MS + 2)
    assert look_back(shop.connection, topic, 4) == (TransactionProgress(Tail("8", 1), True), NOON_MS + 3)
    assert [rests_at(shop.connection, topic, position) for position in (3, 4)] == [False, True]


def test_ends_are_read_from_before_that_change_on(shop: Connector) -> None:
    shop.make("shop.transaction")
    assert first_end(shop.connection, shop.ends, None) == first_end(shop.connection, shop.ends, NOON_MS) == 0
    for number in range(4):
        shop.end(str(number), NOON_MS + number * RECORD_TIME_MARGIN_MS)
    assert first_end(shop.connection, shop.ends, None) == 0
    start = first_end(shop.connection, shop.ends, NOON_MS + 2 * RECORD_TIME_MARGIN_MS)
    assert start == 2
    assert first_end(shop.connection, shop.ends, NOON_MS + 9 * RECORD_TIME_MARGIN_MS) == 8

    reader = EndReader(shop.connection, shop.ends, start)
    try:
        assert read(reader, 3) == ["1", "2", "3"]
        assert reader.next == 8
        reader.go_to(6)
        assert read(reader, 1) == ["3"]
        reader.go_to(99)
        with pytest.raises(SourceUnreachableError, match=r"shop\.transaction"):
            read(reader, 1)
    finally:
        reader.close()


def read(reader: EndReader, count: int) -> list[str]:
    found: list[str] = []
    for _ in range(100):
        found += [end.transaction for _, end in reader.read(0.2)]
        if len(found) >= count:
            break
    return found
