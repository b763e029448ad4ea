"""A cluster of its own for each test on the real broker, and the command as users call it."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from typer.core import TyperGroup
from typer.testing import CliRunner, Result

from headgate.cli.main import LAB_COMMANDS, app
from headgate.config.settings import Settings, load_settings
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.topics import create_topics
from headgate.provisioning.time_scale import TIME_SCALE_VARIABLE, scaled_seconds
from support import topic_changes
from support.served_process import ServedProcess
from support.waiting import eventually

DEADLINE_SECONDS = 180.0
"""For a fact to become true on a machine that does other things as well."""

ANSWER_SECONDS = scaled_seconds(120.0)
"""For the broker to answer, or a process that was told to end to be gone."""

LEASE_SECONDS = scaled_seconds(5.0)
"""The default, longer on a slow machine: a shorter one runs out although nobody was killed, and owners and sessions
change."""

SHOWN_LINES = 60
"""Of a service's log, behind a test that has failed: enough for what it did last."""

ROWS = 500
"""Of the feed in ``shop_file``."""


@pytest.fixture
def settings(kafka_bootstrap: str, kafka_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a cluster that does not exist yet, in the environment too."""
    kept = ("TEST", "SECRETS", "CONNECTIONS", TIME_SCALE_VARIABLE)
    for name in [
        name for name in os.environ if name.startswith("HEADGATE_") and not any(part in name for part in kept)
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADGATE_BOOTSTRAP", kafka_bootstrap)
    monkeypatch.setenv("HEADGATE_CLUSTER", kafka_prefix.removesuffix("."))
    monkeypatch.setenv("HEADGATE_REPLICATION_FACTOR", "1")
    monkeypatch.setenv("HEADGATE_HTTP__PORT", "0")
    monkeypatch.setenv("HEADGATE_LOG__FORMAT", "json")
    monkeypatch.setenv("HEADGATE_LEASE_SECONDS", str(LEASE_SECONDS))
    return load_settings({"shards": 1})


@pytest.fixture
def log(settings: Settings) -> Iterator[KafkaLog]:
    """The cluster's log, with its topics created (1 shard)."""
    create_topics(settings)
    log = open_log(settings)
    yield log
    log.close()


def headgate(*arguments: str) -> Result:
    """The command, in this process; it waits for outcomes as long as tests wait for facts, unless told otherwise."""
    return CliRunner().invoke(app, list(arguments), default_map=_all_timeouts())


def make_topics(log: KafkaLog, *topics: NewTopic) -> None:
    """Create them at the log's broker, and wait until it knows them."""
    topic_changes.make_topics(log.connection.admin, *topics)


@cache
def _all_timeouts() -> dict[str, Any]:
    return _timeouts(typer.main.get_command(app))


def _timeouts(command: Any) -> dict[str, Any]:
    """The default of every ``--timeout``, as click takes defaults: by command, then by option."""
    if isinstance(command, TyperGroup):
        context = command.context_class(command)
        names = set(command.list_commands(context)) - set(LAB_COMMANDS)
        return {name: _timeouts(command.get_command(context, name)) for name in names}
    return {"timeout": scaled_seconds(DEADLINE_SECONDS)}


class Service(ServedProcess):
    """``headgate serve …`` as a process; its log lines are JSON in a file."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        super().__init__(folder / f"{name}.log", *arguments)

    def get(self, path: str) -> tuple[int, str]:
        eventually(lambda: self.said("started"), "the service has started")
        return self.answer(path)

    def end(self) -> None:
        self.kill()
        # Shown with a test that fails.
        sys.stdout.write("\n".join([f"--- {self.log_file.name}", *self.log.splitlines()[-SHOWN_LINES:], ""]))


def replicate(node: Service, shop_file: Path) -> None:
    """Create the feed, and wait until the node has applied all of its rows."""
    created = headgate("feed", "create", str(shop_file))
    assert created.exit_code == 0, created.stderr

    def applied() -> bool:
        assert node.process.poll() is None, node.log
        (row,) = json.loads(headgate("table", "list", "shop", "-o", "json").stdout)
        return bool(row["state"] == "replicating" and row["rows"] == ROWS)

    eventually(applied, "all rows are applied", seconds=300)


@pytest.fixture
def one_core_spark(settings: Settings, spark_jars: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that are started here have a Spark with one core, and its jars."""
    monkeypatch.setenv("HEADGATE_SPARK__JARS", ",".join(map(str, spark_jars)))
    monkeypatch.setenv("HEADGATE_SPARK__MASTER", "local[1]")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts services; whatever still runs is killed afterwards."""
    services: list[Service] = []

    def start(name: str, *arguments: str) -> Service:
        services.append(Service(tmp_path, name, *arguments))
        return services[-1]

    yield start
    for service in services:
        service.end()


def change(number: int) -> tuple[bytes, bytes]:
    """Key and value of row ``number``, inserted into src.orders."""
    after = {"id": number, "what": f"ä{number}"}
    source = {
        "connector": "postgresql",
        "schema": "src",
        "table": "orders",
        "lsn": 1000 + number,
        "ts_ms": 1_700_000_000_000,
    }
    event = {"before": None, "after": after, "source": source, "op": "c", "ts_ms": 1_700_000_000_000}
    return json.dumps({"id": number}).encode(), json.dumps(event).encode()


@pytest.fixture
def shop_file(settings: Settings, log: KafkaLog, postgres_database: str, tmp_path: Path) -> Path:
    """The YAML of feed shop: 500 rows on a topic, in src.orders as they are to be, and an empty table for them."""
    topic = f"{settings.cluster}-shop.src.orders"
    make_topics(log, NewTopic(topic, 1, 1))
    given = {name: value for name, value in conninfo_to_dict(postgres_database).items() if value is not None}
    password = tmp_path / "password"
    password.write_text(str(given.pop("password", "")), encoding="utf-8")
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute("CREATE SCHEMA src; CREATE TABLE src.orders (id int PRIMARY KEY, what text)")
        database.execute(f"INSERT INTO src.orders SELECT n, 'ä' || n FROM generate_series(1, {ROWS}) n")
        database.execute("CREATE TABLE orders (id int PRIMARY KEY, what text)")
    with Producer({"bootstrap.servers": settings.bootstrap, "enable.idempotence": True}) as producer:
        for number in range(1, ROWS + 1):
            key, value = change(number)
            producer.produce(topic, key=key, value=value)
        assert producer.flush(ANSWER_SECONDS) == 0
    file = tmp_path / "shop.yaml"
    sink = {
        "type": "postgresql",
        "dsn": make_conninfo("", **given),
        "password_file": str(password),
        "table": "public.{table}",
    }
    file.write_text(yaml.safe_dump({"feed": "shop", "source": {"topics": [topic]}, "sink": sink}), encoding="utf-8")
    return file
