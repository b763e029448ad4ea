"""A target broker that is killed or frozen while a process writes: nothing is lost, and nothing is there twice."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self

import pytest

from headgate.config.sink_spec import SinkSpec
from headgate.eventlog.connection import KafkaConnection
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.control import Epoch
from headgate.sinks.contract import ChangeBatch, Claim, FeedIdentity, OffsetRange, SinkUnavailableError
from headgate.sinks.kafka import target
from headgate.sinks.registry import open_sink
from headgate_lab.embedded.broker import EmbeddedKafka
from integration.sinks.contract import upsert
from integration.sinks.kafka_bench import records_of
from support.kafka_cluster import ANSWER_SECONDS
from support.lost_ends import PATIENT
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled_seconds(900))]

SHOP = FeedIdentity("other/headgate.", "0-7", "shop")
TOPIC = "copy.orders"
PARTITIONS = 3
BATCH = 5
BATCHES_BETWEEN = 4
"""Between two faults."""

EACH = [signal.SIGKILL, signal.SIGSTOP]
IN_TURN = [*EACH, signal.SIGKILL, signal.SIGKILL]
"""One kill behind the other too: takes one and a half minutes."""


def claim(n: int) -> Claim:
    return Claim(SHOP, TOPIC, "shop.public.orders", Epoch(3, n), 0, dict.fromkeys(range(PARTITIONS), 0))


class Writer:
    """Writes as an agent does: after an error it claims again, and goes on from the sink's positions."""

    def __init__(self, bootstrap: str) -> None:
        self._spec = SinkSpec(type="kafka", dsn=f"kafka://{bootstrap}")
        self.reached = 0
        self.errors: list[str] = []
        self._epochs = iter(range(1, 10_000))
        self._stop = threading.Event()
        self.committed = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        with closing(open_sink(self._spec)) as sink:
            sink.prepare(claim(0), PARTITIONS)  # type: ignore[attr-defined]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_why: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with closing(open_sink(self._spec)) as sink:
                    mine = claim(next(self._epochs))
                    (self.reached,) = set(sink.claim(mine).values())
                    with closing(sink.writer()) as writer:
                        while not self._stop.is_set():
                            self._write(mine, writer)
            except SinkUnavailableError as error:
                self.errors.append(str(error))

    def _write(self, mine: Claim, writer: object) -> None:
        first = self.reached
        changes = [
            upsert(number, number, "a", partition=partition)
            for partition in range(PARTITIONS)
            for number in range(first, first + BATCH)
        ]
        ranges = {partition: OffsetRange(first, first + BATCH) for partition in range(PARTITIONS)}
        writer.apply(ChangeBatch(mine, ranges, changes))  # type: ignore[attr-defined]
        with self.committed:
            self.reached = first + BATCH
            self.committed.notify_all()

    def wait_for(self, count: int) -> None:
        """Returns right behind a commit, when the broker is still ending the transaction."""
        with self.committed:
            assert self.committed.wait_for(lambda: self.reached >= count, scaled_seconds(240)), self.errors[-3:]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path / "kafka", settings=PATIENT) as kafka:
        yield kafka


@pytest.mark.parametrize("faults", [EACH, pytest.param(IN_TURN, marks=pytest.mark.long)], ids=["each", "in turn"])
def test_a_broker_that_is_killed_and_frozen_in_turn_loses_and_doubles_nothing(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, faults: list[signal.Signals]
) -> None:
    monkeypatch.setattr(target, "_targets", {})
    with Writer(broker.bootstrap) as writer:
        for how in faults:
            writer.wait_for(writer.reached + BATCHES_BETWEEN * BATCH)
            os.kill(broker.pid, how)
            if how is signal.SIGKILL:
                broker.kill()
                broker.start()
            else:
                failed = len(writer.errors)
                eventually(lambda f=failed: len(writer.errors) > f, "it has noticed")  # type: ignore[misc]
                os.kill(broker.pid, signal.SIGCONT)
        writer.wait_for(writer.reached + BATCHES_BETWEEN * BATCH)
    found = [record[:2] for record in records_of(broker.bootstrap, TOPIC)]
    assert found == [(p, b'{"id":%d}' % number) for p in range(PARTITIONS) for number in range(writer.reached)]


REPLICATED = PATIENT | {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
}
"""As clusters of three brokers have it: what was acknowledged survives one of them."""


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[EmbeddedKafka]]:
    with ExitStack() as stack:
        first = stack.enter_context(EmbeddedKafka(tmp_path / "1", settings=REPLICATED))
        others = [EmbeddedKafka(tmp_path / str(n), settings=REPLICATED, joins=first, node=n) for n in (2, 3)]
        yield [first, *(stack.enter_context(other) for other in others)]


def is_replicated(bootstrap: str) -> bool:
    """Whether each partition of the cluster is in sync on all three brokers."""
    topics = KafkaConnection(bootstrap).admin.list_topics(timeout=ANSWER_SECONDS).topics.values()
    return all(len(part.isrs) == 3 for topic in topics for part in topic.partitions.values())


@pytest.mark.long
def test_the_loss_of_one_of_three_brokers_stops_nothing(
    brokers: list[EmbeddedKafka], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two is killed, rows are written without it, and it comes back. The third one is the controller."""
    monkeypatch.setattr(target, "_targets", {})
    with Writer(",".join(broker.bootstrap for broker in brokers)) as writer:
        for broker in brokers[1:]:
            writer.wait_for(writer.reached + BATCHES_BETWEEN * BATCH)
            broker.kill()
            writer.wait_for(writer.reached + BATCHES_BETWEEN * BATCH)
            broker.start()
            eventually(lambda: is_replicated(brokers[0].bootstrap), "all partitions are in sync")
        writer.wait_for(writer.reached + BATCHES_BETWEEN * BATCH)
    found = [record[:2] for record in records_of(brokers[0].bootstrap, TOPIC)]
    assert found == [(p, b'{"id":%d}' % number) for p in range(PARTITIONS) for number in range(writer.reached)]
