"""A feed into topics, by the commands that a user types, though an agent is killed."""

import json
import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from fixtures.registry_server import Registering, RegistryServer
from headgate.app.exit_codes import ExitCode
from headgate.config.secrets import ALLOWED_HOSTS
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from integration.cli.conftest import ANSWER_SECONDS, DEADLINE_SECONDS, Service, headgate, make_topics
from integration.cli.test_created_tables import READY_SECONDS
from support.topic_changes import FETCH_WAIT_MS, delete_topics
from support.waiting import eventually

pytestmark = pytest.mark.integration

ROWS = 20


def flat(text: str) -> str:
    return " ".join(text.split())


class Shop:
    """A source topic of two partitions, and the feed that writes it to another topic."""

    def __init__(self, settings: Settings, log: KafkaLog, folder: Any) -> None:
        self.settings = settings
        self.topic = f"{settings.cluster}-db.shop.orders"
        self.target = f"{settings.cluster}-copy.orders"
        make_topics(log, NewTopic(self.topic, 2, 1))
        self.file = folder / "shop.yaml"
        self.write()

    def write(self, feed: dict[str, Any] | None = None, **sink: Any) -> None:
        spec: dict[str, Any] = {
            "feed": "shop",
            "source": {"topics": [self.topic]},
            "sink": {
                "type": "kafka",
                "dsn": f"kafka://{self.settings.bootstrap}",
                "table": f'"{self.settings.cluster}-copy".{{table}}',
            }
            | sink,
        }
        self.file.write_text(yaml.safe_dump(spec | (feed or {})), encoding="utf-8")

    def put(self, numbers: range, **columns: str) -> None:
        with Producer({"bootstrap.servers": self.settings.bootstrap, "enable.idempotence": True}) as producer:
            for number in numbers:
                event = {"op": "c", "before": None, "after": {"id": number, **columns}, "source": {"ts_ms": 1}}
                key, value = json.dumps({"id": number}).encode(), json.dumps(event).encode()
                producer.produce(self.topic, value, key, number % 2)
            assert producer.flush(ANSWER_SECONDS) == 0

    def put_described(self, **columns: str) -> None:
        """An event with schemas, of a row with these columns."""
        fields = [{"field": name, "type": "string", "optional": True} for name in columns]
        after = {"type": "struct", "field": "after", "fields": [{"field": "id", "type": "int64"}, *fields]}
        row = {"id": 1, **columns}
        event = {
            "schema": {"type": "struct", "fields": [after]},
            "payload": {"op": "c", "before": None, "after": row, "source": {"ts_ms": 1}},
        }
        key_schema = {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}
        key = {"schema": key_schema, "payload": {"id": 1}}
        with Producer({"bootstrap.servers": self.settings.bootstrap}) as producer:
            for _ in range(10):  # as many as are looked at
                producer.produce(self.topic, json.dumps(event).encode(), json.dumps(key).encode(), 0)
            assert producer.flush(ANSWER_SECONDS) == 0

    def records(self) -> list[tuple[int, int]]:
        """(partition, id) of every committed record, sorted."""
        given = {"bootstrap.servers": self.settings.bootstrap, "group.id": "t", "enable.partition.eof": True}
        given |= {"isolation.level": "read_committed", "fetch.wait.max.ms": FETCH_WAIT_MS}
        with closing(Consumer(given)) as consumer:
            partitions = consumer.list_topics(timeout=ANSWER_SECONDS).topics
            if self.target not in partitions:
                return []
            numbers = list(partitions[self.target].partitions)
            consumer.assign([TopicPartition(self.target, number, 0) for number in numbers])
            found, left = [], len(numbers)
            while left:
                message = consumer.poll(ANSWER_SECONDS)
                assert message is not None
                if message.error() is not None:
                    left -= 1
                else:
                    found.append((message.partition() or 0, json.loads(message.value() or b"")["id"]))
        return sorted(found)


@pytest.fixture
def shop(settings: Settings, log: KafkaLog, tmp_path: Any) -> Shop:
    return Shop(settings, log, tmp_path)


def expected(count: int) -> list[tuple[int, int]]:
    return sorted((number % 2, number) for number in range(count))


@pytest.mark.spark
@pytest.mark.usefixtures("one_core_spark")
def test_every_change_is_one_record_though_the_agent_is_killed(shop: Shop, serve: Callable[..., Service]) -> None:
    coordinator = serve("owner", "coordinator")
    eventually(lambda: coordinator.get("/readyz")[0] == 200, "the owner is ready", DEADLINE_SECONDS)
    shop.put(range(ROWS))
    dry = headgate("feed", "create", str(shop.file), "--dry-run")
    assert dry.exit_code == 0, dry.stderr
    assert "will be created" in flat(dry.stdout)
    created = headgate("feed", "create", str(shop.file))
    assert created.exit_code == 0, created.stderr
    first = serve("a1", "agent", "--name", "a1")
    eventually(lambda: shop.records() == expected(ROWS), "the records are there", READY_SECONDS)

    listed = headgate("feed", "list", "-o", "json")
    assert listed.exit_code == 0, listed.stderr
    assert [row["feed"] for row in json.loads(listed.stdout)] == ["shop"]
    tables = headgate("table", "list", "shop", "-o", "json")
    assert tables.exit_code == 0, tables.stderr
    (row,) = json.loads(tables.stdout)
    assert (row["agent"], row["error"]) == ("a1", None)
    eventually(lambda: headgate("why", "shop").exit_code == 0, "the agent has reported what it has written")

    verified = headgate("verify", "shop", "--source-dsn", "postgresql://reader@db/shop")
    assert verified.exit_code == ExitCode.DATABASE, verified.output
    assert "sink of type kafka, whose rows cannot be compared" in flat(verified.stderr)
    copied = headgate("table", "resync", "shop", row["span"], "--yes")
    assert copied.exit_code == ExitCode.REQUEST_REFUSED, copied.output
    assert "cannot be copied to a sink of type kafka" in flat(copied.stderr)

    first.process.kill()
    shop.put(range(ROWS, 2 * ROWS))
    serve("a2", "agent", "--name", "a2")
    eventually(lambda: shop.records() == expected(2 * ROWS), "each record once", READY_SECONDS)
    assert headgate("feed", "delete", "shop", "--yes").exit_code == 0
    assert shop.records() == expected(2 * ROWS), "deleting a feed keeps its records"


@pytest.mark.spark
@pytest.mark.usefixtures("one_core_spark")
def test_a_record_that_is_too_large_is_set_aside_and_a_deleted_topic_stops_its_table_with_the_way_out(
    shop: Shop, log: KafkaLog, serve: Callable[..., Service]
) -> None:
    shop.write({"on_bad_change": "quarantine"}, topic={"config": {"max.message.bytes": 2_000}})
    node = serve("node", "node", "--name", "n1")
    eventually(lambda: node.get("/readyz")[0] == 200, "coordinator and agent are ready", DEADLINE_SECONDS)
    created = headgate("feed", "create", str(shop.file))
    assert created.exit_code == 0, created.stderr
    shop.put(range(ROWS))
    shop.put(range(ROWS, ROWS + 1), note="x" * 4_000)
    shop.put(range(ROWS + 1, ROWS + 2))
    good = sorted({*expected(ROWS + 2)} - {(ROWS % 2, ROWS)})
    eventually(lambda: shop.records() == good, "all but the large one are there", READY_SECONDS)
    (row,) = eventually(set_aside, "the large one is listed")
    shown = headgate("deadletter", "show", "shop", row["place"])
    assert "max.message.bytes" in flat(shown.stdout), shown.output

    delete_topics(log.connection.admin, shop.target)
    shop.put(range(ROWS + 2, ROWS + 3))
    eventually(lambda: "does not exist" in (text := why()) and "--from earliest" in text, why, READY_SECONDS)
    for words in (("pause", "shop"), ("resume", "shop", "--from", "earliest", "--yes")):
        done = headgate("feed", *words)
        assert done.exit_code == 0, done.stderr
    whole = sorted({*expected(ROWS + 3)} - {(ROWS % 2, ROWS)})
    eventually(lambda: shop.records() == whole, "all changes are written again, each once", READY_SECONDS)


def set_aside() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(headgate("deadletter", "list", "shop", "-o", "json").stdout)
    return rows


def why() -> str:
    return flat(headgate("why", "shop").output)


def refused(shop: Shop) -> str:
    dry = headgate("feed", "create", str(shop.file), "--dry-run")
    assert dry.exit_code not in (0, 1), dry.output
    assert "Traceback" not in dry.output
    return flat(dry.stderr)


def test_what_does_not_apply_to_topics_is_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.write(tables="create")
    assert "sink.tables cannot be used with sinks of type kafka" in refused(shop)
    shop.write(partitions="by-kee")
    assert "by-key" in refused(shop)
    shop.write(dsn="kafka://user:pass@host:9092")
    assert "has a user before its brokers" in (text := refused(shop))
    assert "pass@" not in text
    shop.write(table=f"{shop.settings.prefix}{{table}}")
    assert "as the control topics of this Headgate cluster do" in refused(shop)
    shop.write(table=f'"{shop.settings.cluster}-db".{{schema}}.{{table}}')
    assert "is one that the feed itself reads" in refused(shop)
    shop.write(topic={"config": {"retention.mss": 1}})
    assert "Correct sink.topic" in refused(shop)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        shop.write(dsn=f"kafka://127.0.0.1:{port}")
        assert f"127.0.0.1:{port}" in refused(shop)
    monkeypatch.setenv(ALLOWED_HOSTS, "db.example")
    shop.write()
    assert f"which is not in {ALLOWED_HOSTS}" in refused(shop)


def test_a_sink_in_avro_is_refused_without_its_registry_and_without_schemas(shop: Shop) -> None:
    with RegistryServer() as registry:
        registry.answer = (401, "")
        options: dict[str, Any] = {"format": "avro", "registry": {"url": registry.url}}
        shop.write(**options)
        assert "refuses access (401). Correct sink.registry.user" in refused(shop)
        registry.answer = Registering()
        shop.put(range(1))
        assert f"topic {shop.topic}, for sink.format: avro: the event has no schema" in refused(shop)
        shop.put_described(**{"2nd name": "x"})
        assert 'columns.rename: {"2nd name": _2nd_name}' in refused(shop)
        renamed = {"columns": {"rename": {"2nd name": "second"}}}
        shop.write(renamed, **options)
        dry = headgate("feed", "create", str(shop.file), "--dry-run")
        assert dry.exit_code == 0, dry.stderr
        assert "will be created" in flat(dry.stdout)
        assert registry.answer.subjects == {}, "a check registers nothing"
    shop.write(renamed, **options)
    assert "sink.registry: the schema registry at" in refused(shop)
    shop.write(format="avro")
    assert "sink.format: avro needs sink.registry.url" in refused(shop)
    shop.write(registry=options["registry"])
    assert "sink.registry cannot be used with sink.format: flat" in refused(shop)
    shop.write({"source": {"topics": [shop.topic], "format": "maxwell-json"}}, **options)
    assert "sink.format: avro needs events with schemas" in refused(shop)
