"""docker-compose.brokers.yml: three brokers, of which two must have a write."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from containers.busy_feed import TARGET, rows
from containers.conftest import FOR_FEEDS, Compose, brought_up, eventually, left_of

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]

ADDRESSES = "127.0.0.1:29092,127.0.0.1:29093,127.0.0.1:29094"
COPIES = 3


@pytest.fixture(scope="module")
def brokers() -> Iterator[Compose]:
    compose = Compose(f"headgate-brokers-{os.getpid()}", "docker-compose.brokers.yml")
    with brought_up(compose, FOR_FEEDS) as compose:
        yield compose


@pytest.fixture(scope="module")
def admin(brokers: Compose) -> AdminClient:
    assert brokers.project, "it is up"
    return AdminClient({"bootstrap.servers": ADDRESSES, "log_level": 0})


def partitions(admin: AdminClient) -> list[Any]:
    """Of all topics; each with who is in sync. Empty while nobody answers."""
    try:
        names = list(admin.list_topics(timeout=30).topics)
        asked = admin.describe_topics(TopicCollection(names), request_timeout=30)
        return [one for future in asked.values() for one in future.result(40).partitions]
    except (KafkaException, TimeoutError):
        return []


def is_whole(admin: AdminClient) -> bool:
    found = partitions(admin)
    return bool(found) and all(len(one.isr) == COPIES for one in found)


def test_every_topic_has_three_copies(brokers: Compose, admin: AdminClient) -> None:
    created = brokers.command("feed", "create", "/feeds/shop.yaml", "--timeout", "300")
    assert created["status"] == "done", created
    eventually(lambda: rows(TARGET, "orders") == 1000, "the snapshot has come")
    eventually(lambda: is_whole(admin), "each partition has three copies in sync")


def test_nothing_is_left_after_down(brokers: Compose) -> None:
    brokers("down", "--volumes", "--remove-orphans")
    assert left_of(brokers.project) == []
