"""A topic that its broker denies for a moment: it is asked for again before it is taken as missing."""

from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config.start_offsets import StartOffsets
from headgate.eventlog.connection import KafkaConnection
from headgate.migration.shell import feeds as shell
from headgate.migration.shell.feeds import ChangeFeeds
from headgate.migration.shell.topic_tail import FeedsUnavailableError, Tail
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.online.lane_plan import ChangeTopic
from headgate.sources import topic_ids, topics
from headgate.sources.origin import Origin

TOPIC = "shop.public.items"


class Broker:
    """Answers what topics there are; the first ``denials`` times without the table's."""

    def __init__(self, denials: float, partitions: int = 2) -> None:
        self.denials, self.partitions, self.asked = denials, partitions, 0
        self.names: list[str | None] = []

    def list_topics(self, topic: str | None = None, **_: float) -> Any:
        self.names.append(topic)
        return SimpleNamespace(topics={} if self._denies() else {TOPIC: self._topic()})

    def _denies(self) -> bool:
        self.asked += 1
        return self.asked <= self.denials

    def _topic(self) -> Any:
        return SimpleNamespace(error=None, partitions=dict.fromkeys(range(self.partitions)))


class Denying(KafkaConnection):
    """A connection to such a broker."""

    def __init__(self, broker: Broker) -> None:
        super().__init__("127.0.0.1:1")
        self.broker = broker

    @property
    def admin(self) -> Any:
        return self.broker


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends and ids are known without a broker, and nobody waits for a topic that never comes."""
    ids = iter([{}, {}])
    monkeypatch.setattr(topics, "MADE_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(shell, "end_offsets", lambda _, asked: {TOPIC: dict.fromkeys(range(asked[TOPIC]), 7)})
    monkeypatch.setattr(shell, "check_retention", lambda *_: {})
    monkeypatch.setattr(shell, "origins", lambda *_: {})
    monkeypatch.setattr(topic_ids, "topic_ids", lambda *_: next(ids, {TOPIC: "id"}))


def _feeds(broker: Broker) -> ChangeFeeds:
    log: Any = SimpleNamespace(connection=Denying(broker))
    return ChangeFeeds(log)


@pytest.fixture
def tail(request: pytest.FixtureRequest) -> Any:
    made = Tail(Denying(request.param), TOPIC, {0: 0}, None)
    yield made, request.param
    made.close()


@pytest.mark.parametrize("tail", [Broker(3)], indirect=True)
def test_partitions_are_asked_for_again(tail: tuple[Tail, Broker]) -> None:
    assert tail[0].partitions(30.0) == {0, 1}
    assert tail[1].names == [None] * 4, "a broker with auto.create.topics.enable creates a topic that is named"


@pytest.mark.parametrize("tail", [Broker(float("inf"))], indirect=True)
def test_partitions_that_are_denied_for_all_the_time_end_the_try(tail: tuple[Tail, Broker]) -> None:
    """And not the change: the next try finds out without a lock whether the topic is gone."""
    with pytest.raises(FeedsUnavailableError, match=f"has not listed topic {TOPIC}"):
        tail[0].partitions(0.05)


@pytest.mark.usefixtures("at_once")
def test_a_denied_topic_ends_nothing() -> None:
    assert _feeds(Broker(2)).ends(TOPIC) == {0: 7, 1: 7}
    assert _feeds(Broker(2))._id_of(TOPIC) == "id"
    _feeds(Broker(2)).check_topic(ChangeTopic(TOPIC), [Origin("postgresql", "shop", "public.items")])
    _feeds(Broker(2)).check_start(TOPIC, StartOffsets(offsets={0: 1, 1: 1}, topic_id="id"))


@pytest.mark.usefixtures("at_once")
def test_a_topic_that_stays_away_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "MADE_SECONDS_MAX", 0.0)
    with pytest.raises(RefusedError, match="is gone"):
        _feeds(Broker(float("inf"))).ends(TOPIC)
    monkeypatch.setattr(topic_ids, "topic_ids", lambda *_: {})
    with pytest.raises(RefusedError, match="is gone"):
        _feeds(Broker(0)).check_start(TOPIC, StartOffsets(offsets={0: 1}, topic_id="id"))


@pytest.mark.usefixtures("at_once")
def test_a_topic_with_fewer_partitions_was_re_created() -> None:
    with pytest.raises(RefusedError, match="it has only 1 partitions"):
        _feeds(Broker(0, partitions=1)).check_start(TOPIC, StartOffsets(offsets={0: 1, 1: 1}, topic_id=None))
