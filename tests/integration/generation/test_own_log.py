"""Whatever is opened by a cluster's address closes the log that was opened for it, also when it cannot be opened."""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import LogError
from headgate.generation import ChangeReader, ChangeWriter, TimestampReader, TimestampStreams
from support.kafka_cluster import Cluster

from .test_change_log import SET, Operator

pytestmark = pytest.mark.integration

OPENERS: list[tuple[type[Any], tuple[str, ...]]] = [
    (ChangeWriter, (SET, "w")),
    (ChangeReader, (SET, "r")),
    (TimestampStreams, (SET,)),
    (TimestampReader, (SET, "r")),
]


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many connections have been closed that were open."""
    opened: list[KafkaConnection] = []
    made, ended = KafkaConnection.__init__, KafkaConnection.close
    left: set[int] = set()

    def make(connection: KafkaConnection, *given: Any, **more: Any) -> None:
        made(connection, *given, **more)
        opened.append(connection)
        left.add(id(connection))

    def end(connection: KafkaConnection) -> None:
        left.discard(id(connection))
        ended(connection)

    monkeypatch.setattr(KafkaConnection, "__init__", make)
    monkeypatch.setattr(KafkaConnection, "close", end)
    return lambda: len(opened) - len(left)


@pytest.mark.parametrize(("opener", "names"), OPENERS, ids=[opener.__name__ for opener, _ in OPENERS])
def test_it_is_closed_with_it_and_where_it_cannot_be_opened(
    *,
    log: KafkaLog,
    cluster: Cluster,
    owner: object,
    opener: type[Any],
    names: tuple[str, ...],
    closed: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Operator(log).create()
    where = {"bootstrap": cluster.bootstrap, "cluster": cluster.cluster}
    with opener.open(*names, **where) as opened:
        assert closed() == 0
    opened.close()
    assert closed() == 1
    with pytest.raises(LogError, match="does not exist"):
        opener.open(*names, bootstrap=cluster.bootstrap, cluster="no-such-cluster")
    assert closed() == 2

    def refuse(*_given: object, **_more: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(opener, "__init__", refuse)
    with pytest.raises(ZeroDivisionError):
        opener.open(*names, **where)
    assert closed() == 3
