"""What a producer asks before it writes to a partition again, of brokers that are played."""

from collections.abc import Collection, Mapping

import pytest
from confluent_kafka import IsolationLevel

from headgate.eventlog import proofs
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.proofs import Proofs

A, B, OTHER = Partition("a", 0), Partition("a", 1), Partition("b", 0)


class First:
    """The first record that is hidden in a partition."""

    def __init__(self, at: Partition, writer: str) -> None:
        self.at = at
        self.writer = writer

    def topic(self) -> str:
        return self.at.topic

    def partition(self) -> int:
        return self.at.number


class Brokers:
    """Ends of partitions, up to where they can be read, and who hides the rest."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ends = {A: 10, B: 10, OTHER: 10}
        self.stable = dict(self.ends)
        self.first: dict[Partition, str] = {}
        self.away: set[Partition] = set()
        self.asked = 0
        monkeypatch.setattr(proofs, "offsets_of", self.offsets_of)
        monkeypatch.setattr(proofs, "first_hidden", self.first_hidden)
        monkeypatch.setattr(proofs, "PROOF_SECONDS_MAX", 0.0)

    def offsets_of(
        self,
        _connection: object,
        partitions: Collection[Partition],
        _spec: object,
        _what: str,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> Mapping[Partition, int]:
        self.asked += 1
        if self.away.intersection(partitions):
            raise LogError("the leader is away")
        known = self.ends if isolation is IsolationLevel.READ_UNCOMMITTED else self.stable
        return {partition: known[partition] for partition in partitions}

    def first_hidden(self, _connection: object, partitions: Collection[Partition]) -> list[First]:
        return [First(each, self.first[each]) for each in partitions if each in self.first]


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    return Brokers(monkeypatch)


@pytest.fixture
def mine() -> Proofs:
    return Proofs(KafkaConnection("127.0.0.1:1"), lambda first: first.writer == "me")  # type: ignore[attr-defined]


def test_only_where_it_has_committed_anything_is_asked(brokers: Brokers, mine: Proofs) -> None:
    assert not mine.lost([A, B])
    mine.committed({A: 10})
    assert not mine.lost([B, OTHER])
    assert brokers.asked == 0
    assert not mine.lost([A])
    assert not mine.lost([A])
    assert brokers.asked == 1, "what is proved once stays so"


def test_an_end_that_is_not_known_is_asked_for_once(brokers: Brokers, mine: Proofs) -> None:
    mine.committed({A: None})
    brokers.stable[A], brokers.first[A] = 5, "me"
    assert mine.lost([A]) == {A}
    brokers.ends[A], brokers.stable[A] = 20, 15  # behind it, others write without a pause
    assert not mine.lost([A])


def test_its_own_commit_that_stays_hidden_is_lost(brokers: Brokers, mine: Proofs) -> None:
    mine.committed({A: 10, B: 10, OTHER: 10})
    brokers.stable[A] = brokers.stable[OTHER] = 9
    brokers.first |= {A: "me", OTHER: "neighbour"}
    assert mine.lost([A, B, OTHER]) == {A}
    assert mine.lost([A]) == {A}, "it is asked about again"
    assert mine.of_topic("a") == {A}
    assert mine.of_topic("b") == {OTHER}


def test_behind_a_neighbours_transaction_it_is_proved_once_that_has_ended(
    brokers: Brokers, mine: Proofs, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine.committed({A: 10})
    brokers.stable[A], brokers.first[A] = 8, "neighbour"
    assert not mine.lost([A])
    monkeypatch.setattr(proofs, "PROOF_SECONDS_MAX", float("inf"))
    assert not mine.lost([A]), "a neighbour that is known is not waited for"
    monkeypatch.setattr(proofs, "PROOF_SECONDS_MAX", 0.0)
    brokers.stable[A], brokers.first[A] = 9, "me"
    assert mine.lost([A]) == {A}


def test_what_readers_have_got_is_proved_by_them(brokers: Brokers, mine: Proofs) -> None:
    mine.committed({A: 10, B: 10, OTHER: None})
    mine.seen({A: 10, B: 9, OTHER: 10})
    assert mine.of_topic("a") == {B}
    assert mine.of_topic("b") == {OTHER}, "which end it has is not known"
    assert brokers.asked == 0


def test_a_partition_that_does_not_answer_leaves_all_unproved(brokers: Brokers, mine: Proofs) -> None:
    mine.committed({A: 10, B: 10})
    brokers.away = {B}
    with pytest.raises(LogError, match="away"):
        mine.lost([A, B])
    assert mine.of_topic("a") == {A, B}
    assert not mine.lost([A])
