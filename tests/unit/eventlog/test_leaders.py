"""A leader that moves is asked again by a new client, for a while; anything else is an error at once.

No client is asked two things at a time (docs/bugs.md, B25).
"""

import re
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog import leaders
from headgate.eventlog.connection import ASKERS_IDLE_MAX, BrokerUnreachableError, KafkaConnection
from headgate.eventlog.leaders import LEADER_MOVES, REMEMBERED, AskedStableEnds, ask_offsets
from headgate.eventlog.log import LogError, Partition

AT = TopicPartition("t", 3)


class Answer(msgspec.Struct):
    offset: int


class Late(msgspec.Struct):
    """Given when the test says so."""

    future: "Future[Answer]" = msgspec.field(default_factory=Future)


class Broker:
    """Gives one answer after the other, each to a client of its own."""

    def __init__(self, *answers: int | Answer | Late) -> None:
        self.answers: Iterator[int | Answer | Late] = iter(answers)
        self.clients: list[Any] = []

    def client(self, *_: Any, **__: Any) -> "Client":
        self.clients.append(Client(self))
        return self.clients[-1]


class Client:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.asked = 0

    def list_offsets(self, asked: Any, **_: Any) -> dict[TopicPartition, "Future[Answer]"]:
        future: Future[Answer] = Future()
        answer = next(self._broker.answers)
        self.asked += 1
        if isinstance(answer, Late):
            future = answer.future
        elif isinstance(answer, int):
            future.set_exception(KafkaException(KafkaError(answer)))
        else:
            future.set_result(answer)
        return dict.fromkeys(asked, future)

    def poll(self, _seconds: float) -> int:
        return 0


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> KafkaConnection:
    monkeypatch.setattr(leaders, "LEADER_POLL_SECONDS", 0.0)
    return KafkaConnection("nowhere:1")


def asked(connection: KafkaConnection, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> dict[TopicPartition, Any]:
    monkeypatch.setattr(connection, "client", broker.client)
    return ask_offsets(connection, {AT: OffsetSpec.latest()}, "looking")


@pytest.mark.parametrize("code", sorted(LEADER_MOVES))
def test_a_leader_that_moves_is_asked_by_a_new_client(
    connection: KafkaConnection, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    broker = Broker(code, code, Answer(7))
    assert asked(connection, broker, monkeypatch)[AT].offset == 7
    assert len(broker.clients) == 3


@pytest.mark.parametrize("code", sorted(REMEMBERED))
def test_a_client_that_remembers_what_is_over_is_replaced_and_a_new_one_is_believed(
    connection: KafkaConnection, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    broker = Broker(code, Answer(7))
    assert asked(connection, broker, monkeypatch)[AT].offset == 7
    assert len(broker.clients) == 2
    connection.close()
    with pytest.raises(LogError, match=rf"looking: t\[3\].*{KafkaError(code).name()}"):
        asked(connection, Broker(code, code), monkeypatch)


def test_a_leader_that_could_not_be_asked_has_no_offset(
    connection: KafkaConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BrokerUnreachableError, match=r"looking: t\[3\] .*the leader of t\[3\] is away"):
        asked(connection, Broker(Answer(OFFSET_INVALID)), monkeypatch)
    monkeypatch.setattr(connection, "client", Broker(Answer(OFFSET_INVALID)).client)
    connection.close()
    ends = AskedStableEnds(connection, [Partition("t", 3)])
    with pytest.raises(BrokerUnreachableError, match=r"asking for the ends of partitions .*is away"):
        ends.answer()


def test_not_for_ever(connection: KafkaConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "LEADER_SECONDS_MAX", 0.0)
    with pytest.raises(LogError, match=r"looking: t\[3\].*FENCED_LEADER_EPOCH"):
        asked(connection, Broker(KafkaError.FENCED_LEADER_EPOCH), monkeypatch)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(KafkaError.TOPIC_AUTHORIZATION_FAILED, LogError), (KafkaError._TRANSPORT, BrokerUnreachableError)],
)
def test_another_error_is_one_at_once(
    connection: KafkaConnection, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=r"t\[3\]"):
        asked(connection, Broker(code, Answer(7)), monkeypatch)


def test_nothing_is_asked_about_nothing(connection: KafkaConnection) -> None:
    assert ask_offsets(connection, {}, "looking") == {}


def test_a_client_is_asked_one_thing_at_a_time_and_again_when_it_has_answered(
    connection: KafkaConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Late()
    broker = Broker(late, Answer(7), Answer(8))
    monkeypatch.setattr(connection, "client", broker.client)
    ends = AskedStableEnds(connection, [Partition("t", 3)])
    assert ask_offsets(connection, {AT: OffsetSpec.latest()}, "looking")[AT].offset == 7
    assert [client.asked for client in broker.clients] == [1, 1]

    assert ends.answer() is None
    late.future.set_result(Answer(5))
    assert [ends.answer(), ends.answer()] == [{Partition("t", 3): 5}] * 2
    assert ask_offsets(connection, {AT: OffsetSpec.latest()}, "looking")[AT].offset == 8
    assert sorted(client.asked for client in broker.clients) == [1, 2], "it was given back, once"
    assert connection.take_asker() is not connection.take_asker()


def test_what_has_failed_is_not_asked_again(connection: KafkaConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(KafkaError._TRANSPORT, Answer(OFFSET_INVALID), Answer(7))
    monkeypatch.setattr(connection, "client", broker.client)
    with pytest.raises(BrokerUnreachableError):
        ask_offsets(connection, {AT: OffsetSpec.latest()}, "looking")
    with pytest.raises(BrokerUnreachableError):
        AskedStableEnds(connection, [Partition("t", 3)]).answer()
    ask_offsets(connection, {AT: OffsetSpec.latest()}, "looking")
    assert [client.asked for client in broker.clients] == [1, 1, 1]


def test_few_wait_to_be_asked(connection: KafkaConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    monkeypatch.setattr(connection, "client", broker.client)
    many = ASKERS_IDLE_MAX + 3
    for asker in [connection.take_asker() for _ in range(many)]:
        connection.give_back(asker)
    assert len(broker.clients) == many
    kept = [connection.take_asker() for _ in range(many)]
    assert len(broker.clients) == many + 3, "those that were kept, and new ones for the rest"
    assert len({id(asker) for asker in kept}) == many


def test_nothing_else_asks_leaders() -> None:
    product = Path(leaders.__file__).parents[1]
    asking = re.compile(r"\.(list_offsets|delete_records)\(")
    found = [path.name for path in sorted(product.rglob("*.py")) if asking.search(path.read_text(encoding="utf-8"))]
    assert found == ["leaders.py"]
