"""A Headgate cluster of its own for every test, on the broker that all share."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from confluent_kafka.admin import AdminClient

from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.topics import create_topics
from support.kafka_cluster import ANSWER_SECONDS, Cluster, Foreign, Foreigner
from support.topic_changes import delete_topics


@pytest.fixture
def cluster(kafka_bootstrap: str) -> Iterator[Cluster]:
    """A name nobody has used; its topics, if the test made any, are deleted."""
    settings = Cluster(kafka_bootstrap, f"test-{uuid.uuid4().hex[:12]}")
    yield settings
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    mine = [name for name in admin.list_topics(timeout=ANSWER_SECONDS).topics if settings.cluster in name]
    delete_topics(admin, *mine)


@pytest.fixture
def log(cluster: Cluster) -> Iterator[KafkaLog]:
    """Empty control topics, opened."""
    create_topics(cluster)
    opened = open_log(cluster)
    yield opened
    opened.close()


@pytest.fixture
def foreign(cluster: Cluster) -> Iterator[Foreign]:
    """Other programs on the cluster's topics."""
    with ExitStack() as opened:
        yield lambda **properties: opened.enter_context(closing(Foreigner(cluster, **properties)))
