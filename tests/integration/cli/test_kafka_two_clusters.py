"""A feed from one Kafka cluster into another, while the broker of each is killed and frozen in turn."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.embedded.broker import EmbeddedKafka
from integration.cli.conftest import ANSWER_SECONDS, Service, headgate, make_topics
from integration.sinks.kafka_bench import records_of
from support.lost_ends import PATIENT
from support.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.usefixtures("one_core_spark"),
    pytest.mark.timeout(scaled_seconds(1500)),
]

PARTITIONS = 3
TARGET = "copy.orders"
PAUSE_SECONDS = 0.01
"""Between two changes: some hundred a second, so that each fault meets some on their way."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """It has the source topic and Headgate's own."""
    with EmbeddedKafka(tmp_path_factory.mktemp("source") / "kafka", settings=PATIENT) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path_factory.mktemp("target") / "kafka", settings=PATIENT) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def kafka_bootstrap(source: EmbeddedKafka) -> str:
    return source.bootstrap


class Changes:
    """Flow into the source topic until the block ends: change number n goes to partition n modulo PARTITIONS."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.count = 0

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            event = {"op": "c", "before": None, "after": {"id": self.count}, "source": {"ts_ms": 1}}
            key = json.dumps({"id": self.count}).encode()
            self._producer.produce(self._topic, json.dumps(event).encode(), key, self.count % PARTITIONS)
            self._producer.poll(0)
            self.count += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_why: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(ANSWER_SECONDS) == 0


def copied(target: EmbeddedKafka) -> list[tuple[int, int]]:
    """(partition, id) of every committed record, in the order of each partition."""
    return [(partition, json.loads(key or b"")["id"]) for partition, key, _ in records_of(target.bootstrap, TARGET)]


def expected(count: int) -> list[tuple[int, int]]:
    return [(partition, number) for partition in range(PARTITIONS) for number in range(partition, count, PARTITIONS)]


def reported() -> list[dict[str, Any]]:
    listed = headgate("table", "list", "shop", "-o", "json")
    return list(json.loads(listed.stdout)) if listed.exit_code == 0 else []


def test_every_change_arrives_once_though_each_broker_is_killed_and_frozen(
    source: EmbeddedKafka,
    target: EmbeddedKafka,
    *,
    settings: Settings,
    log: KafkaLog,
    serve: Callable[..., Service],
    tmp_path: Path,
) -> None:
    topic = f"{settings.cluster}-db.shop.orders"
    make_topics(log, NewTopic(topic, PARTITIONS, 1))
    spec = {
        "feed": "shop",
        "source": {"topics": [topic]},
        "sink": {"type": "kafka", "dsn": f"kafka://{target.bootstrap}", "table": "copy.{table}"},
    }
    file = tmp_path / "shop.yaml"
    file.write_text(yaml.safe_dump(spec), encoding="utf-8")
    node = serve("node", "node", "--name", "n1")
    eventually(lambda: node.get("/readyz")[0] == 200, "coordinator and agent are ready")
    created = headgate("feed", "create", str(file))
    assert created.exit_code == 0, created.stderr

    def grows() -> None:
        before = len(copied(target))
        eventually(lambda: len(copied(target)) > before, "the target topic grows")

    def over() -> int:
        return sum("is over: no acknowledged heartbeat" in line["event"] for line in node.lines())

    with Changes(source.bootstrap, topic) as changes:
        eventually(lambda: any(row["agent"] for row in reported()), "the agent has the table")
        for broker, how in (
            (target, signal.SIGKILL),
            (source, signal.SIGKILL),
            (target, signal.SIGSTOP),
            (source, signal.SIGSTOP),
            (target, signal.SIGKILL),
        ):
            grows()
            os.kill(broker.pid, how)
            if how is signal.SIGKILL:
                broker.kill()
                broker.start()
                continue
            try:
                if broker is target:
                    eventually(lambda: any(row["error"] for row in reported()), "the table's error is reported")
                else:
                    ended = over()
                    eventually(lambda e=ended: over() > e, "the session ends with its lease")  # type: ignore[misc]
            finally:
                os.kill(broker.pid, signal.SIGCONT)
        grows()
    eventually(lambda: len(copied(target)) >= changes.count, lambda: f"{len(copied(target))} of {changes.count}")
    assert copied(target) == expected(changes.count)
