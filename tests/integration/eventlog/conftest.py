"""A Headgate cluster of its own for every test, on the broker that all share."""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from eventlog_contract import SHARDS
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.log import Partition
from headgate.eventlog.topics import CONTROL_TOPICS, create_topics, topic_name


class Cluster(msgspec.Struct, frozen=True):
    """What headgate.config's settings say of a cluster."""

    bootstrap: str
    cluster: str
    shards: int = SHARDS
    replication_factor: int = 1
    kafka: Mapping[str, Any] = {}


class Foreigner:
    """Somebody else on our topics: raw bytes, and transactions left as they are."""

    def __init__(self, cluster: Cluster, **properties: Any) -> None:
        self._cluster = cluster
        self.producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, **properties})

    def put(self, partition: Partition, key: bytes | None, value: bytes | None) -> None:
        self.producer.produce(
            topic_name(self._cluster.cluster, partition.topic), partition=partition.number, key=key, value=value
        )

    def flush(self) -> None:
        assert self.producer.flush(20) == 0


@pytest.fixture
def cluster(kafka_bootstrap: str) -> Iterator[Cluster]:
    """A name nobody has used; its topics, if the test made any, are deleted."""
    settings = Cluster(kafka_bootstrap, f"test-{uuid.uuid4().hex[:12]}")
    yield settings
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    existing = admin.list_topics(timeout=10).topics
    names = [topic_name(settings.cluster, topic.name) for topic in CONTROL_TOPICS]
    if present := [name for name in names if name in existing]:
        for future in admin.delete_topics(present).values():
            future.result(20)


@pytest.fixture
def log(cluster: Cluster) -> Iterator[KafkaLog]:
    """Empty control topics, opened."""
    create_topics(cluster)
    opened = open_log(cluster)
    yield opened
    opened.close()
