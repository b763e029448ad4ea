"""A broker that is killed, stays away for longer than anybody waits for it, and comes back: all goes on by itself."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import yaml
from confluent_kafka import Producer

from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.embedded.broker import EmbeddedKafka
from integration.cli.conftest import ANSWER_SECONDS, ROWS, Service, change, headgate
from support.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.usefixtures("one_core_spark"),
]

OUTAGE_SESSIONS = 6
"""Of an agent, each of which lives for a lease: 36 s, longer than any query, client or session waits for a broker."""

LINES_MAX = 120
"""What may be logged about it by coordinator and agent together, who try several times a second: 1 300 lines once."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One of our own, since it is killed."""
    with EmbeddedKafka(tmp_path_factory.mktemp("gone") / "kafka") as kafka:
        yield kafka


@pytest.fixture(scope="module")
def kafka_bootstrap(broker: EmbeddedKafka) -> str:
    return broker.bootstrap


@pytest.fixture
def producer(broker: EmbeddedKafka) -> Iterator[Producer]:
    settings = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0}
    with Producer(settings) as producer:
        yield producer


@pytest.mark.timeout(scaled_seconds(1200))
def test_a_feed_goes_on_after_its_broker_was_away(
    broker: EmbeddedKafka,
    producer: Producer,
    *,
    shop_file: Path,
    serve: Callable[..., Service],
    postgres_database: str,
) -> None:
    node = serve("node", "node", "--name", "n1")
    eventually(lambda: node.get("/readyz")[0] == 200, "coordinator and agent are ready", seconds=300)
    created = headgate("feed", "create", str(shop_file))
    assert created.exit_code == 0, created.stderr
    (topic,) = yaml.safe_load(shop_file.read_text(encoding="utf-8"))["source"]["topics"]

    def put(first: int, last: int) -> None:
        for number in range(first, last + 1):
            key, value = change(number)
            producer.produce(topic, value, key)

    def rows() -> int:
        assert node.process.poll() is None, node.log_file.read_text(encoding="utf-8")
        with psycopg.connect(postgres_database) as database:
            return int(database.execute("SELECT count(*) FROM orders").fetchone()[0])  # type: ignore[index]

    eventually(lambda: rows() == ROWS, "all rows are there", seconds=300)
    before = len(node.lines())
    broker.kill()
    put(ROWS + 1, ROWS + 200)  # they wait in the producer

    def sessions_over() -> int:
        return sum("is over: no acknowledged heartbeat" in line["event"] for line in node.lines()[before:])

    eventually(lambda: sessions_over() >= OUTAGE_SESSIONS, "it tries, and gives up, session after session")
    assert node.get("/readyz")[0] != 200, "it says that it is not ready"
    broker.start()
    assert producer.flush(ANSWER_SECONDS) == 0
    put(ROWS + 201, ROWS + 300)
    assert producer.flush(ANSWER_SECONDS) == 0
    eventually(lambda: rows() == ROWS + 300, "nothing is lost", seconds=300)
    assert len(node.lines()) - before < LINES_MAX

    def well() -> bool:
        (row,) = json.loads(headgate("table", "list", "shop", "-o", "json").stdout)
        return bool(row["state"] == "replicating" and not row["error"])

    eventually(well, "nothing is left of it")
