"""A target broker that has lost the ends of transactions: the next claim ends them as they were decided (ADR 0126)."""

from collections.abc import Collection, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.config.sink_spec import SinkSpec
from headgate.databases import address
from headgate.eventlog import proofs
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.decisions import decisions_of
from headgate.eventlog.hanging import hidden_of
from headgate.eventlog.log import LogError, Partition
from headgate.records.control import Epoch
from headgate.sinks.contract import ChangeBatch, Claim, FeedIdentity, OffsetRange, SinkUnavailableError
from headgate.sinks.kafka import writing
from headgate.sinks.kafka.progress import PROGRESS_TOPIC, partition_of, removed_key
from headgate.sinks.kafka.sink import KafkaSink
from headgate.sinks.kafka.target import TargetCluster
from headgate_lab.embedded.broker import EmbeddedKafka
from integration.sinks.contract import upsert
from integration.sinks.kafka_bench import records_of
from support.kafka_cluster import ANSWER_SECONDS
from support.lost_ends import PATIENT, lose_markers
from support.topic_changes import make_topics
from support.waiting import eventually

pytestmark = pytest.mark.integration

SHOP = FeedIdentity("other/headgate.", "0-7", "shop")
PARTITIONS = 2


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One of our own, since it is killed and its files are changed."""
    with EmbeddedKafka(tmp_path_factory.mktemp("lost") / "kafka", settings=PATIENT) as kafka:
        yield kafka


class Process:
    """A sink as one process has it, and a writer."""

    def __init__(self, bootstrap: str) -> None:
        at = address.Target(f"kafka://{bootstrap}")
        self.target = TargetCluster(at)
        self.sink = KafkaSink(lambda: at, options=SinkSpec(type="kafka", dsn=at.dsn), target=self.target)
        self.writer = self.sink.writer()

    def claim(self, claim: Claim) -> int:
        """Where it goes on, the same in all partitions."""
        (position,) = set(self.sink.claim(claim).values())
        return position

    def write(self, claim: Claim, first: int, count: int) -> None:
        """The same keys in each partition."""
        numbers = range(first, first + count)
        changes = [upsert(number, number, "a", partition=p) for p in range(PARTITIONS) for number in numbers]
        ranges = {partition: OffsetRange(first, first + count) for partition in range(PARTITIONS)}
        self.writer.apply(ChangeBatch(claim, ranges, changes))

    def close(self) -> None:
        self.writer.close()
        self.target.close()


def claim_of(topic: str, n: int) -> Claim:
    return Claim(SHOP, topic, "shop.public.orders", Epoch(3, n), 0, dict.fromkeys(range(PARTITIONS), 0))


def progress_of(topic: str) -> Partition:
    return Partition(PROGRESS_TOPIC, partition_of(topic))


def rows_of(topic: str) -> list[Partition]:
    return [Partition(topic, number) for number in range(PARTITIONS)]


def expected(count: int) -> list[tuple[int, bytes]]:
    return [(partition, b'{"id":%d}' % number) for partition in range(PARTITIONS) for number in range(count)]


class Lost:
    """Topics whose holder's last transaction has lost its markers somewhere: all with one kill of the broker."""

    def __init__(self, broker: EmbeddedKafka) -> None:
        self._broker = broker
        self.processes: dict[str, Process] = {}
        self._lost: list[Partition] = []

    def write(self, topic: str, *lost: Partition) -> None:
        make_topics(AdminClient({"bootstrap.servers": self._broker.bootstrap}), NewTopic(topic, PARTITIONS, 1))
        process = self.processes[topic] = Process(self._broker.bootstrap)
        process.claim(claim_of(topic, 1))
        process.write(claim_of(topic, 1), 0, 2)
        process.write(claim_of(topic, 1), 2, 2)
        self._lost += lost

    def lose(self) -> None:
        for process in self.processes.values():
            connection, holder = process.target.connection, process.target.holder.id
            eventually(lambda c=connection, h=holder: decisions_of(c, h).is_over, "the broker is done with it")  # type: ignore[misc]
        lose_markers(self._broker, self._lost)


EVERYWHERE, PROGRESS, ROWS, ALIVE = "copy.everywhere", "copy.progress", "copy.rows.1", "copy.alive"


@pytest.fixture(scope="module")
def lost(broker: EmbeddedKafka) -> Iterator[Lost]:
    made = Lost(broker)
    assert len({partition_of(topic) for topic in (EVERYWHERE, PROGRESS, ROWS, ALIVE)}) == 4, "each is on its own"
    made.write(EVERYWHERE, *rows_of(EVERYWHERE), progress_of(EVERYWHERE))
    made.write(PROGRESS, progress_of(PROGRESS))
    made.write(ROWS, *rows_of(ROWS))
    made.write(ALIVE, *rows_of(ALIVE))
    made.lose()
    yield made
    for process in made.processes.values():
        process.close()


@pytest.mark.parametrize("topic", [EVERYWHERE, PROGRESS, ROWS])
def test_the_next_process_ends_it_and_goes_on_exactly_once(lost: Lost, broker: EmbeddedKafka, topic: str) -> None:
    with closing(Process(broker.bootstrap)) as successor:
        assert successor.claim(claim_of(topic, 2)) == 4
        assert not hidden_of(successor.target.connection, [*rows_of(topic), progress_of(topic)])
        assert [record[:2] for record in records_of(broker.bootstrap, topic)] == expected(4)
        successor.write(claim_of(topic, 2), 4, 2)
    assert [record[:2] for record in records_of(broker.bootstrap, topic)] == expected(6)


def test_a_holder_that_lives_on_has_another_id_end_it_before_it_writes_there_again(
    lost: Lost, broker: EmbeddedKafka
) -> None:
    """The abort of its own next transaction would end the earlier one as well, which was confirmed."""
    process = lost.processes[ALIVE]
    process.target.ledger.close()  # it may have read on to where other tests' partitions were cut off
    held = process.target.holder.id
    process.writer.apply(ChangeBatch(claim_of(ALIVE, 1), {0: OffsetRange(4, 5)}, [upsert(4, 4, "a")]))
    assert process.target.holder.id != held
    assert [record[:2] for record in records_of(broker.bootstrap, ALIVE)] == sorted([*expected(4), (0, b'{"id":4}')])


def test_an_open_transaction_of_a_neighbour_is_no_reason_for_another_id(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proofs, "PROOF_SECONDS_MAX", 0.0)
    topic = "copy.busy"
    make_topics(AdminClient({"bootstrap.servers": broker.bootstrap}), NewTopic(topic, PARTITIONS, 1))
    neighbour = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "neighbour"})
    neighbour.init_transactions(ANSWER_SECONDS)
    with closing(Process(broker.bootstrap)) as process:
        process.claim(claim_of(topic, 1))
        process.write(claim_of(topic, 1), 0, 2)
        held = process.target.holder.id
        neighbour.begin_transaction()
        at = progress_of(topic)
        neighbour.produce(at.topic, partition=at.number, key=removed_key(FeedIdentity("other", "0-1", "a")))
        assert neighbour.flush(ANSWER_SECONDS) == 0
        process.write(claim_of(topic, 1), 2, 2)
        assert process.target.holder.id == held
        neighbour.abort_transaction(ANSWER_SECONDS)
    assert [record[:2] for record in records_of(broker.bootstrap, topic)] == expected(4)


def test_a_partition_that_does_not_answer_does_not_retire_the_producer(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that is away is no lost end: what goes to the other partitions is committed, the rest is retried."""
    topic = "copy.away"
    make_topics(AdminClient({"bootstrap.servers": broker.bootstrap}), NewTopic(topic, PARTITIONS, 1))
    monkeypatch.setattr(writing, "CHECK_SECONDS", 0.0)
    answered = proofs.offsets_of

    def offsets_of(connection: KafkaConnection, partitions: Collection[Partition], *more: Any) -> dict[Partition, int]:
        if Partition(topic, 1) in partitions:
            raise LogError("the leader is away")
        return answered(connection, partitions, *more)

    with closing(Process(broker.bootstrap)) as process:
        process.claim(claim_of(topic, 1))
        process.write(claim_of(topic, 1), 0, 2)
        held = process.target.holder.id
        monkeypatch.setattr(proofs, "offsets_of", offsets_of)
        process.writer.apply(ChangeBatch(claim_of(topic, 1), {0: OffsetRange(2, 3)}, [upsert(2, 2, "a")]))
        there = ChangeBatch(claim_of(topic, 1), {1: OffsetRange(2, 3)}, [upsert(2, 2, "a", partition=1)])
        with pytest.raises(SinkUnavailableError, match="the leader is away"):
            process.writer.apply(there)
        monkeypatch.setattr(proofs, "offsets_of", answered)
        process.writer.apply(there)
        assert process.target.holder.id == held
    assert [record[:2] for record in records_of(broker.bootstrap, topic)] == expected(3)


def test_a_lost_end_elsewhere_in_the_topic_is_found_by_the_next_check(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "copy.beside"
    monkeypatch.setattr(writing, "CHECK_SECONDS", 0.0)
    made = Lost(broker)
    made.write(topic, Partition(topic, 1))
    made.lose()
    with closing(made.processes[topic]) as process:
        process.target.ledger.close()  # it may have read on to where other tests' partitions were cut off
        held = process.target.holder.id
        process.writer.apply(ChangeBatch(claim_of(topic, 1), {0: OffsetRange(4, 5)}, [upsert(4, 4, "a")]))
        assert process.target.holder.id != held
        # The markers of a commit come some milliseconds behind it.
        eventually(lambda: not hidden_of(process.target.connection, rows_of(topic)), "nothing is hidden")
    found = [record[:2] for record in records_of(broker.bootstrap, topic)]
    assert found == sorted([*expected(4), (0, b'{"id":4}')])
