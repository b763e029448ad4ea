"""A cluster of its own for every test, and an owner of generations on a thread."""

import sys
from collections.abc import Iterator

import pytest
import structlog

from headgate.eventlog.kafka import KafkaLog
from headgate.generation.owner.shell.service import GenerationService
from headgate.provisioning.time_scale import scaled_seconds
from integration.eventlog.conftest import cluster, log
from support.generation_owner import running_owner
from support.kafka_cluster import Cluster
from support.waiting import DEADLINE_SECONDS

__all__ = ["cluster", "log", "logs_apart", "owner"]

WAIT_SECONDS = scaled_seconds(DEADLINE_SECONDS)


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
