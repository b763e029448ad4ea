"""How many copies of a topic a cluster can hold. With a real broker: tests/integration/eventlog/test_topics.py."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.replicas import too_many_copies
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.kafka.topics import Wanted, create

TOO_MANY = KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, "Unable to replicate 3 time(s)"))


def with_brokers(count: int, monkeypatch: pytest.MonkeyPatch) -> KafkaConnection:
    connection = KafkaConnection("broker:9092")
    described: Future[Any] = Future()
    described.set_result(SimpleNamespace(nodes=[object()] * count))
    admin = SimpleNamespace(describe_cluster=lambda: described)
    monkeypatch.setattr(KafkaConnection, "admin", property(lambda _connection: admin))
    return connection


@pytest.mark.parametrize(
    ("brokers", "said"),
    [
        (1, "Kafka at broker:9092 has 1 broker. Add brokers, or use 1. The only copy is then lost with its broker"),
        (2, "Kafka at broker:9092 has 2 brokers. Add brokers, or use 2. Every broker must then be up"),
    ],
)
def test_what_the_cluster_can_hold_is_proposed(brokers: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = too_many_copies(with_brokers(brokers, monkeypatch), 3, TOO_MANY, "use {copies}")
    assert found == f"3 copies need as many brokers, and {said}"


def test_another_cause_is_not_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    enough = with_brokers(3, monkeypatch)
    assert too_many_copies(enough, 3, TOO_MANY, "use {copies}") is None
    denied = KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))
    assert too_many_copies(with_brokers(1, monkeypatch), 3, denied, "use {copies}") is None


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted(copies=3), "3 copies need as many brokers.* Add brokers, or set sink.topic.replication_factor to 1"),
        (Wanted(), "its default.replication.factor needs more brokers, .* set sink.topic.replication_factor to 1"),
        (Wanted(copies=3, fewer_copies="x={copies}"), "Add brokers, or x=1"),
    ],
)
def test_a_topic_of_a_sink(wanted: Wanted, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = with_brokers(1, monkeypatch)
    refused: Future[None] = Future()
    refused.set_exception(TOO_MANY)
    connection.admin.create_topics = lambda new, **_further: {new[0].topic: refused}
    with pytest.raises(SinkRefusedError, match=rf"topic orders was not created: .*{said}") as found:
        create(connection, "orders", wanted)
    assert "Unable to replicate" not in str(found.value)
