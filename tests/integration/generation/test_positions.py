"""Where a writer goes on: by its last committed record, whatever its neighbours have open beside it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from headgate.eventlog.kafka import KafkaLog
from headgate.generation.changelog.core.outbox import Written
from headgate.generation.changelog.shell.producer import Outgoing, WriterProducer, read_written
from headgate.generation.changelog.shell.wire import (
    POSITIONS_PARTITIONS,
    encode_written,
    positions_partition,
    positions_topic,
)
from support.kafka_cluster import ANSWER_SECONDS
from support.topic_changes import make_topics

pytestmark = pytest.mark.integration

LOOK_SECONDS = 2.0


@pytest.fixture
def topic(log: KafkaLog) -> str:
    name = f"{log.cluster}.data"
    asked = NewTopic(positions_topic(name), POSITIONS_PARTITIONS, 1)
    make_topics(log.connection.admin, asked)
    return name


@pytest.fixture
def neighbour(log: KafkaLog) -> Iterator[Producer]:
    settings = {"bootstrap.servers": log.connection.bootstrap_servers, "transactional.id": f"{log.cluster}.neighbour"}
    with Producer(settings) as producer:
        producer.init_transactions(30)
        yield producer


def test_a_neighbours_open_transaction_hides_no_position(log: KafkaLog, topic: str, neighbour: Producer) -> None:
    """Else a writer's next life would write again what stands on the log already."""
    where, place = positions_topic(topic), positions_partition("w")
    mine = WriterProducer(log.connection, log.cluster, "orders", "w")
    mine.init()
    mine.commit([Outgoing(where, place, b"w", encode_written(Written(6, 6)))])
    neighbour.begin_transaction()
    neighbour.produce(where, key=b"neighbour", value=b"{}", partition=place)
    assert neighbour.flush(ANSWER_SECONDS) == 0
    mine.commit([Outgoing(where, place, b"w", encode_written(Written(7, 7)))])
    mine.close()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(read_written, log.connection, log.cluster, "orders", topic, "w")
        wait([found], LOOK_SECONDS)
        try:
            assert not found.done() or found.result() == Written(7, 7)
        finally:
            neighbour.abort_transaction(30)
        assert found.result() == Written(7, 7)
