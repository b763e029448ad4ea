"""A cluster of its own for every test, and an owner of generations on a thread."""

import sys
import uuid
from collections.abc import Iterator

import pytest
import structlog
from confluent_kafka.admin import AdminClient

from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.topics import create_topics
from headgate.generation.owner.shell.service import GenerationService
from headgate.provisioning.time_scale import scaled_seconds
from support.generation_owner import running_owner
from support.kafka_cluster import ANSWER_SECONDS, Cluster
from support.topic_changes import delete_topics
from support.waiting import DEADLINE_SECONDS

WAIT_SECONDS = scaled_seconds(DEADLINE_SECONDS)


@pytest.fixture
def cluster(kafka_bootstrap: str) -> Iterator[Cluster]:
    settings = Cluster(kafka_bootstrap, f"gen-{uuid.uuid4().hex[:10]}")
    yield settings
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    mine = [name for name in admin.list_topics(timeout=ANSWER_SECONDS).topics if settings.cluster in name]
    delete_topics(admin, *mine)


@pytest.fixture
def log(cluster: Cluster) -> Iterator[KafkaLog]:
    create_topics(cluster)
    opened = open_log(cluster)
    yield opened
    opened.close()


@pytest.fixture
def logs_apart() -> Iterator[None]:
    """What a service on a thread logs is not among what a command answers in the same process."""
    structlog.reset_defaults()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    yield
    structlog.reset_defaults()


@pytest.fixture
def owner(log: KafkaLog, cluster: Cluster, logs_apart: None) -> Iterator[GenerationService]:
    with running_owner(log, cluster) as service:
        yield service
