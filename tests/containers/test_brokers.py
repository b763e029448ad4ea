"""docker-compose.brokers.yml: of three brokers one is killed, one cut off, two killed, while rows are written."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from containers.busy_feed import busy_feed, create_shop, goes_on
from containers.conftest import FOR_FEEDS, Compose, brought_up, docker, eventually, left_of
from containers.ports import ALL_BROKERS
from headgate.eventlog.connection import KafkaConnection
from headgate.provisioning.time_scale import scaled_seconds

pytestmark = [pytest.mark.containers, pytest.mark.timeout(scaled_seconds(3600))]

BROKERS = {1: "kafka", 2: "kafka-2", 3: "kafka-3"}
COPIES = 3
TWO_LOST_SECONDS = 20.0
"""Longer than the brokers' session timeout. Nothing that is written then counts."""


ASKED_SECONDS = scaled_seconds(30.0)
"""For one answer of the brokers, which are asked again if it does not come."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[Compose]:
    compose = Compose(f"headgate-brokers-{os.getpid()}", "docker-compose.brokers.yml")
    with brought_up(compose, FOR_FEEDS) as compose:
        yield compose


@pytest.fixture(scope="module")
def admin(brokers: Compose) -> AdminClient:
    assert brokers.project, "it is up"
    return KafkaConnection(ALL_BROKERS).admin


def partitions(admin: AdminClient, name: str | None = None) -> list[Any]:
    """Of one topic, or of all; each with its leader and who is in sync. Empty while nobody answers."""
    try:
        names = [name] if name else list(admin.list_topics(timeout=ASKED_SECONDS).topics)
        asked = admin.describe_topics(TopicCollection(names), request_timeout=ASKED_SECONDS)
        return [one for future in asked.values() for one in future.result(2 * ASKED_SECONDS).partitions]
    except (KafkaException, TimeoutError):
        return []


def is_whole(admin: AdminClient) -> bool:
    found = partitions(admin)
    return bool(found) and all(len(one.isr) == COPIES for one in found)


def leader(admin: AdminClient, topic: str) -> int:
    """Of its first partition; -1 while it has none."""
    (one, *_) = eventually(lambda: partitions(admin, topic), "the brokers answer")
    return -1 if one.leader is None else int(one.leader.id)


def test_every_topic_has_three_copies(brokers: Compose, admin: AdminClient) -> None:
    create_shop(brokers)
    eventually(lambda: is_whole(admin), "each partition has three copies in sync")


def test_brokers_are_killed_and_cut_off_under_load(brokers: Compose, admin: AdminClient) -> None:
    with busy_feed(brokers) as load:
        for fault in (killed(brokers, admin), cut_off(brokers, admin), two_killed(brokers, admin)):
            with fault:
                load.check()
            eventually(lambda: is_whole(admin), "it has caught up")
            load.check()
        goes_on("all brokers are back")


@contextmanager
def killed(brokers: Compose, admin: AdminClient) -> Iterator[None]:
    """The broker to which whatever is decided is written."""
    victim = leader(admin, "headgate.dispatch")
    docker("kill", brokers.container(BROKERS[victim]))
    eventually(lambda: leader(admin, "headgate.dispatch") not in (victim, -1), "another broker leads")
    goes_on("one broker is killed")
    yield
    docker("start", brokers.container(BROKERS[victim]))


@contextmanager
def cut_off(brokers: Compose, admin: AdminClient) -> Iterator[None]:
    """The broker by which processes tell of themselves: it runs, and nobody reaches it, nor it anybody."""
    victim = leader(admin, "headgate.announce")
    network, container = f"{brokers.project}_default", brokers.container(BROKERS[victim])
    docker("network", "disconnect", network, container)
    eventually(lambda: leader(admin, "headgate.announce") not in (victim, -1), "another broker leads")
    goes_on("one broker is cut off")
    yield
    docker("network", "connect", "--alias", BROKERS[victim], network, container)


@contextmanager
def two_killed(brokers: Compose, admin: AdminClient) -> Iterator[None]:
    """All but one, which may take nothing alone: everybody waits."""
    kept = leader(admin, "headgate.announce")
    lost = [brokers.container(service) for number, service in BROKERS.items() if number != kept]
    docker("kill", *lost)
    time.sleep(TWO_LOST_SECONDS)  # the fault itself: it lasts so long
    yield
    docker("start", *lost)
    goes_on("two brokers were killed and are back")


def test_nothing_is_left_after_down(brokers: Compose) -> None:
    brokers("down", "--volumes", "--remove-orphans")
    assert left_of(brokers.project) == []
