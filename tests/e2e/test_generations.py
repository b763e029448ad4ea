"""A change log under load: 1, 16, 4, 64, 1 streams, while writers and owner are killed; order and equality hold.

And the reason why it exists: the same load on a plain topic whose partitions are added to, which is reordered.
"""

import os
import random
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.eventlog.kafka import KafkaLog
from headgate.generation import ChangeReader
from headgate.generation.shell.tail import GenerationTail
from headgate.provisioning.time_scale import scaled_seconds
from integration.eventlog.conftest import cluster, log
from support.kafka_cluster import ANSWER_SECONDS, Cluster
from support.served_process import ServedProcess
from support.topic_changes import add_partitions, delete_topics, make_topics

__all__ = ["cluster", "log"]

pytestmark = [pytest.mark.integration, pytest.mark.e2e, pytest.mark.long]

SOURCE = Path(__file__).parents[1] / "support" / "change_source.py"
WRITERS = ("w0", "w1", "w2")
KEYS = 40
COUNT = 1_500
PER_SECOND = 20
SET = "orders"
WAIT_SECONDS = scaled_seconds(800)


class Processes:
    """What the test starts, and kills by its own handles only."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self._folder = cluster, folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._owners: list[ServedProcess] = []

    def start_owner(self, name: str) -> None:
        given = ["--bootstrap", self.cluster.bootstrap, "--cluster", self.cluster.cluster, "--http-port", "0"]
        given += ["--log-level", "error"]
        environment = {**os.environ, "HEADGATE_REPLICATION_FACTOR": "1"}
        owner = ServedProcess(self._folder / f"{name}.log", "generation", *given, environment=environment)
        self._owners.append(owner)
        self.running[name] = owner.process

    def start_writer(self, name: str) -> None:
        given = [self.cluster.bootstrap, self.cluster.cluster, SET, name, str(KEYS), str(COUNT), str(PER_SECOND)]
        self.running[name] = subprocess.Popen([sys.executable, str(SOURCE), *given], stdout=subprocess.DEVNULL)

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait(ANSWER_SECONDS)

    def stop(self) -> None:
        for name in list(self.running):
            self.kill(name)
        for owner in self._owners:  # shown with a test that fails
            sys.stdout.write(f"--- {owner.log_file.name}\n{owner.log}")


@pytest.fixture
def processes(cluster: Cluster, log: KafkaLog, tmp_path: Path) -> Iterator[Processes]:
    started = Processes(cluster, tmp_path)
    yield started
    started.stop()


def headgate(cluster: Cluster, *arguments: str) -> str:
    command = [sys.executable, "-m", "headgate", "generation", *arguments, "--bootstrap", cluster.bootstrap]
    command += ["--cluster", cluster.cluster]
    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled_seconds(300), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_sixteen_four_sixty_four_and_one_stream_with_writers_and_owner_killed(
    cluster: Cluster, log: KafkaLog, processes: Processes
) -> None:
    chance = random.Random(11)  # noqa: S311 - which writer dies, no secret
    processes.start_owner("o1")
    processes.start_owner("o2")
    headgate(cluster, "create", SET, "--topic", f"{cluster.cluster}.data", "--partitions", "128", "--timeout", "120")
    for name in WRITERS:
        processes.start_writer(name)
    reader = ChangeReader(log, SET, "r")
    found: dict[bytes, list[int]] = defaultdict(list)
    read = 0
    deadline = time.monotonic() + WAIT_SECONDS
    stages = [
        (0.10, lambda: headgate(cluster, "resize", SET, "--streams", "16", "--timeout", "120")),
        (0.25, lambda: _restart(processes, chance.choice(WRITERS))),
        (0.40, lambda: _kill_owner(processes)),
        (0.45, lambda: headgate(cluster, "resize", SET, "--streams", "4", "--timeout", "120")),
        (0.55, lambda: _restart(processes, chance.choice(WRITERS))),
        (0.60, lambda: headgate(cluster, "resize", SET, "--streams", "64", "--timeout", "120")),
        (0.70, lambda: _kill_owner(processes)),
        (0.75, lambda: headgate(cluster, "resize", SET, "--streams", "1", "--timeout", "120")),
        (0.85, lambda: _restart(processes, chance.choice(WRITERS))),
    ]
    total = len(WRITERS) * COUNT
    while read < total:
        assert time.monotonic() < deadline, f"{read} of {total} changes; gaps {reader.gaps}"
        for change in reader.poll(0.1):
            assert change.key is not None
            found[change.key].append(int(change.value or b""))
            read += 1
        if stages and read >= stages[0][0] * total:
            stages.pop(0)[1]()
    reader.close()
    assert stages == []
    assert reader.gaps == []
    assert reader.refused == 0
    expected = {f"{writer}-{key}".encode(): list(range(key, COUNT, KEYS)) for writer in WRITERS for key in range(KEYS)}
    assert dict(found) == expected, "each key's changes once, in their order"
    tail = GenerationTail(log, SET, "check")
    tail.read_to_end()
    streams = [len(tail.state.map_of(SET, each.epoch).streams) for each in tail.state.sets[SET].generations]
    assert streams == [1, 16, 4, 64, 1]
    tail.close()


def _restart(processes: Processes, name: str) -> None:
    if processes.running[name].poll() is None:
        processes.kill(name)
        processes.start_writer(name)


def _kill_owner(processes: Processes) -> None:
    processes.kill("o1")
    processes.start_owner("o1")


def test_the_same_load_on_a_topic_that_grows_is_reordered(kafka_bootstrap: str) -> None:
    """The control: plain Kafka, keyed, from 1 to 16 partitions. What is read is not what was written.

    The newest partition is read first and the oldest last. Kafka keeps an order within a partition only, so this is as
    lawful as any other, and it is what happens to a group whose members are not equally far: whoever has the old
    partition has all the backlog, whoever is given a new one has none and is done with it first.
    """
    topic = f"plain-{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    make_topics(admin, NewTopic(topic, 1, 1))
    _produce(kafka_bootstrap, topic, range(COUNT))
    add_partitions(admin, topic, 16)
    _produce(kafka_bootstrap, topic, range(COUNT, 2 * COUNT))
    found = {number: _read(kafka_bootstrap, topic, number) for number in range(16)}
    delete_topics(admin, topic)
    by_key: dict[int, list[int]] = defaultdict(list)
    for number in sorted(found, reverse=True):
        for key, value in found[number]:
            by_key[key].append(value)
    assert {key: sorted(each) for key, each in by_key.items()} == {
        key: list(range(key, 2 * COUNT, KEYS)) for key in range(KEYS)
    }, "nothing is lost"
    reordered = {key for key, each in by_key.items() if any(a > b for a, b in pairwise(each))}
    moved = {key for number in range(1, 16) for key, _ in found[number]}
    assert reordered == moved
    assert len(moved) > KEYS / 2, (
        "most keys go elsewhere: if plain growth kept their order, nobody would need change logs"
    )


def _produce(bootstrap: str, topic: str, numbers: range) -> None:
    with Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "acks": "all"}) as producer:
        for number in numbers:
            producer.produce(topic, key=str(number % KEYS), value=str(number).ljust(400))
            producer.poll(0)
        assert producer.flush(60) == 0


def _read(bootstrap: str, topic: str, partition: int) -> list[tuple[int, int]]:
    """All keys and values of one partition, in its order."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "control", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        assert time.monotonic() < deadline
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append((int(message.key()), int(message.value())))
        elif error.code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found
