"""The groups that go with a cluster. With a real broker: tests/integration/cli/test_cluster_delete.py."""

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Final

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate.config.rights import RIGHTS, Resource, group_stems
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.consumer_groups import delete_groups, groups_among, groups_of_cluster
from headgate.eventlog.log import LogError

GROUPS: Final = ("prod.feed.shop", "prod.views.1", "prod.ingest.log.i", "prod.feed.views.1", "prod.feed.feed.shop")
OTHERS: Final = ("product.feed.shop", "prod.other.x", "prod", "my.prod.feed.x")


def test_every_group_that_a_service_has_a_right_to() -> None:
    rights = [name for right in RIGHTS if right.resource is Resource.GROUP for name in right.names]
    groups = [f"{name.format(cluster='prod')}x" for name in rights]
    assert groups_among([*groups, *OTHERS], "prod", group_stems(), []) == sorted(groups)


@pytest.mark.parametrize(
    ("cluster", "topics", "found"),
    [
        ("prod", ["prod.announce"], GROUPS),
        ("prod", ["prod.announce", "prod.feed.announce"], GROUPS[:3]),
        ("prod.feed", ["prod.announce", "prod.feed.announce"], GROUPS[3:]),
    ],
)
def test_a_cluster_whose_name_begins_with_another_ones(cluster: str, topics: list[str], found: Sequence[str]) -> None:
    assert groups_among([*GROUPS, *OTHERS], cluster, group_stems(), topics) == sorted(found)


def test_brokers_that_do_not_answer_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their groups would be left, and not reported."""
    listed: Future[SimpleNamespace] = Future()
    error = KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE))
    listed.set_result(SimpleNamespace(valid=[], errors=[error]))
    admin = SimpleNamespace(list_consumer_groups=lambda **_: listed)
    monkeypatch.setattr(KafkaConnection, "admin", property(lambda _connection: admin))
    with pytest.raises(LogError, match="COORDINATOR_NOT_AVAILABLE"):
        groups_of_cluster(KafkaConnection("broker:9092"), "prod", group_stems())


def test_groups_that_are_left_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    done: dict[str, Future[None]] = {name: Future() for name in ("a", "b", "c")}
    done["a"].set_result(None)
    done["b"].set_exception(KafkaException(KafkaError(KafkaError.NON_EMPTY_GROUP)))
    done["c"].set_exception(KafkaException(KafkaError(KafkaError.GROUP_ID_NOT_FOUND)))
    admin = SimpleNamespace(delete_consumer_groups=lambda _names, **_: done)
    monkeypatch.setattr(KafkaConnection, "admin", property(lambda _connection: admin))
    left = delete_groups(KafkaConnection("broker:9092"), list(done))
    assert ([*left], "NON_EMPTY_GROUP" in left["b"]) == (["b"], True)
