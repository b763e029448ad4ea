"""A feed into an empty database copies the rows that were at the source before it, whatever is killed meanwhile."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from psycopg.conninfo import conninfo_to_dict

from fixtures.services import mariadb_execute
from headgate.app.exit_codes import ExitCode
from headgate.config.crash_points import VARIABLE, ArmedPoints, CrashPoint
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from headgate.provisioning.time_scale import scaled_seconds
from integration.cli.conftest import ANSWER_SECONDS, DEADLINE_SECONDS, Service, headgate, make_topics
from integration.cli.test_created_tables import READY_SECONDS, ROWS, Shop, shop
from support.waiting import eventually

__all__ = ["shop"]

pytestmark = [pytest.mark.spark, pytest.mark.integration]

RANGE = 5
"""A range of a limited copy has the rows of one second."""


class Snapshots:
    """The shop, whose tables have rows that no event of their topics has."""

    def __init__(self, shop: Shop, settings: Settings, log: KafkaLog, source: str) -> None:
        self.shop, self._settings, self._log = shop, settings, log
        self._database = str(conninfo_to_dict(source)["dbname"])

    def choose(self, snapshot: Any = "initial", **more: Any) -> None:
        spec = yaml.safe_load(self.shop.file.read_text(encoding="utf-8")) | {"snapshot": snapshot, **more}
        self.shop.file.write_text(yaml.safe_dump(spec), encoding="utf-8")

    def add(self, table: str, key: str = "PRIMARY KEY") -> None:
        """A table with rows at the source, and an empty topic."""
        self.shop.source.execute(f"CREATE TABLE shop.{table} (id bigint {key}, what varchar(9) NOT NULL)".encode())
        self.shop.source.execute(
            f"INSERT INTO shop.{table} SELECT n, 'ä' || n FROM generate_series(1, {ROWS}) n".encode()
        )
        make_topics(self._log, NewTopic(f"{self._settings.cluster}-db.shop.{table}", 1, 1))

    def change(self, table: str, number: int, what: str | None) -> None:
        """As a writer does, and the connector after it."""
        self.shop.source.execute(f"DELETE FROM shop.{table} WHERE id = {number}".encode())
        if what is not None:
            self.shop.source.execute(f"INSERT INTO shop.{table} VALUES ({number}, '{what}')".encode())
        place = {"connector": "postgresql", "db": self._database, "schema": "shop", "table": table, "ts_ms": 1}
        row = None if what is None else {"id": number, "what": what}
        event = {"op": "d" if row is None else "c", "before": {"id": number}, "after": row, "source": place}
        topic = f"{self._settings.cluster}-db.shop.{table}"
        with Producer({"bootstrap.servers": self._settings.bootstrap, "enable.idempotence": True}) as producer:
            producer.produce(topic, json.dumps(event).encode(), json.dumps({"id": number}).encode())
            assert producer.flush(ANSWER_SECONDS) == 0

    def rows(self, table: str) -> dict[int, str]:
        return {} if self.shop.rows(table) is None else _rows(self.shop.sink, table)

    def is_equal(self, table: str) -> bool:
        return self.rows(table) == _rows(self.shop.source, table)


def _rows(session: Any, table: str) -> dict[int, str]:
    return dict(session.execute(f"SELECT id, what FROM shop.{table}".encode()).fetchall())


@pytest.fixture
def snapshots(shop: Shop, settings: Settings, log: KafkaLog, postgres_database: str) -> Snapshots:
    made = Snapshots(shop, settings, log, postgres_database)
    made.choose()
    return made


def owner(serve: Callable[..., Service]) -> Service:
    coordinator = serve("owner", "coordinator")
    eventually(lambda: coordinator.get("/readyz")[0] == 200, "the owner is ready", DEADLINE_SECONDS)
    return coordinator


def create(shop: Shop) -> str:
    created = headgate("feed", "create", str(shop.file))
    assert created.exit_code == 0, created.stderr
    return " ".join(created.stderr.split())


def is_done(feed: str = "shop") -> bool:
    """Whether every table replicates and none is being copied."""
    told = headgate("feed", "show", feed, "-o", "json")
    return told.exit_code == 0 and {row["state"] for row in json.loads(told.stdout)["spans"]} == {"replicating"}


@pytest.mark.usefixtures("one_core_spark")
def test_rows_from_before_the_feed_are_copied_and_changes_follow(
    snapshots: Snapshots, serve: Callable[..., Service]
) -> None:
    shop = snapshots.shop
    snapshots.add("empty")
    shop.source.execute("DELETE FROM shop.empty")
    shop.source.execute("DELETE FROM shop.orders WHERE id = 7")
    owner(serve)
    dry = headgate("feed", "create", str(shop.file), "--dry-run", "-o", "json")
    assert json.loads(dry.stdout)["copies"] == ["shop.empty", "shop.orders"], dry.stderr
    told = create(shop)
    assert "the rows of 2 are copied from the source" in told
    assert "no logical replication slot" in told
    assert shop.rows("orders") is None, "the owner writes to no sink"
    snapshots.change("orders", 8, "changed")
    snapshots.change("orders", ROWS + 1, "new")
    snapshots.change("orders", 9, None)
    serve("a1", "agent", "--name", "a1")
    eventually(lambda: shop.rows("empty") == 0, "a table without rows is created", READY_SECONDS)
    eventually(lambda: snapshots.is_equal("orders"), "all rows are there", READY_SECONDS)
    assert 7 not in snapshots.rows("orders"), "what the topic had before was not applied"
    eventually(is_done, "nothing is left to copy", DEADLINE_SECONDS)

    snapshots.add("items")
    snapshots.change("items", 3, "third")
    eventually(lambda: snapshots.is_equal("items"), "a table that joins is copied, too", READY_SECONDS)
    snapshots.change("empty", 1, "first")
    eventually(lambda: snapshots.is_equal("empty"), "and the log goes on", DEADLINE_SECONDS)
    verified = headgate("verify", "shop")
    assert verified.exit_code == 0, verified.stderr


@pytest.mark.usefixtures("one_core_spark")
def test_a_snapshot_survives_its_agent_and_its_owner_and_a_pause(
    snapshots: Snapshots, serve: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = snapshots.shop
    snapshots.choose({"mode": "initial", "max_rows_per_second": RANGE}, spread="manual")
    first_owner = owner(serve)
    create(shop)
    points = ArmedPoints(tmp_path / "points")
    points.arm(CrashPoint.COMMITTED)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "points"))
    first = serve("a1", "agent", "--name", "a1")
    monkeypatch.delenv(VARIABLE)
    frozen = points.await_reached(CrashPoint.COMMITTED, scaled_seconds(READY_SECONDS))
    assert shop.rows("orders") == RANGE, "one range is copied"
    first_owner.process.kill()
    first.process.kill()
    os.kill(frozen, signal.SIGKILL)
    shop.sink.execute("UPDATE shop.orders SET what = 'touched' WHERE id = 1")
    serve("second", "coordinator")
    serve("a2", "agent", "--name", "a2")
    paused = headgate("feed", "pause", "shop")
    assert paused.exit_code == 0, paused.stderr
    resumed = headgate("feed", "resume", "shop")
    assert resumed.exit_code == 0, resumed.stderr
    eventually(lambda: shop.rows("orders") == ROWS, "all rows are there", READY_SECONDS)
    eventually(is_done, "nothing is left to copy", DEADLINE_SECONDS)
    assert snapshots.rows("orders")[1] == "touched", "what was copied before was not copied again"


@pytest.mark.usefixtures("one_core_spark")
def test_rows_of_a_mariadb_are_copied_to_another_one(
    settings: Settings, log: KafkaLog, mariadb_database: str, serve: Callable[..., Service], tmp_path: Path
) -> None:
    address = urlsplit(mariadb_database)
    space, target = address.path.strip("/"), f"{address.path.strip('/')}_sink"
    password = tmp_path / "password"
    password.write_text(unquote(address.password or ""), encoding="utf-8")

    def database(name: str) -> dict[str, str]:
        dsn = f"mysql://{address.username}@{address.hostname}:{address.port}/{name}"
        return {"dsn": dsn, "password_file": str(password)}

    topic = f"{settings.cluster}-db.{space}.items"
    spec = {
        "feed": "shop",
        "source": {"topics": [topic], "database": database(space)},
        "sink": {"type": "mysql", "table": f"{target}.{{table}}"} | database(target),
        "snapshot": "initial",
    }
    file = tmp_path / "shop.yaml"
    file.write_text(yaml.safe_dump(spec), encoding="utf-8")

    def run(statement: str) -> list[Any]:
        return mariadb_execute(mariadb_database, statement)

    def rows(where: str) -> list[Any]:
        there = run(f"SELECT 1 FROM information_schema.tables WHERE table_schema = '{where}' AND table_name = 'items'")
        return run(f"SELECT * FROM {where}.items ORDER BY id") if there else []

    run(f"CREATE DATABASE {target}")
    run("CREATE TABLE items (id bigint PRIMARY KEY, what varchar(9) NOT NULL, day datetime(3) NULL)")
    run("INSERT INTO items SELECT seq, CONCAT('ä', seq), '2026-11-28 10:11:12.123' FROM seq_1_to_20")
    owner(serve)
    absent = headgate("feed", "create", str(file))
    assert absent.exit_code == ExitCode.SOURCE, absent.stderr
    assert "snapshot.mode=no_data creates a table's topic at its first change" in " ".join(absent.stderr.split())
    make_topics(log, NewTopic(topic, 1, 1))
    created = headgate("feed", "create", str(file))
    assert created.exit_code == 0, created.stderr
    serve("a1", "agent", "--name", "a1")
    eventually(lambda: len(rows(target)) == 20, "all rows are there", READY_SECONDS)
    run("UPDATE items SET what = 'changed' WHERE id = 3")
    place = {"connector": "mariadb", "db": space, "table": "items", "ts_ms": 1}
    event = {"op": "u", "before": None, "after": {"id": 3, "what": "changed", "day": None}, "source": place}
    run("UPDATE items SET day = NULL WHERE id = 3")
    with Producer({"bootstrap.servers": settings.bootstrap, "enable.idempotence": True}) as producer:
        producer.produce(topic, json.dumps(event).encode(), json.dumps({"id": 3}).encode())
        assert producer.flush(ANSWER_SECONDS) == 0
    eventually(lambda: rows(target) == rows(space), "and the log is applied", DEADLINE_SECONDS)
    eventually(is_done, "nothing is left to copy", DEADLINE_SECONDS)
    run(f"DROP DATABASE {target}")


def test_tables_whose_rows_cannot_be_copied_are_refused_together(
    snapshots: Snapshots, serve: Callable[..., Service]
) -> None:
    shop = snapshots.shop
    owner(serve)
    snapshots.add("keyless", key="NOT NULL")
    snapshots.add("dated")
    shop.source.execute("ALTER TABLE shop.dated ALTER id TYPE numeric")
    shop.sink.execute("CREATE SCHEMA shop")
    shop.sink.execute("CREATE TABLE shop.orders (id bigint PRIMARY KEY, what varchar(9))")
    shop.sink.execute("INSERT INTO shop.orders VALUES (1, 'there')")
    snapshots.choose(tables={"shop.keyless": {"keyless": "append"}})

    def dry() -> Any:
        return headgate("feed", "create", str(shop.file), "--dry-run")

    refused = dry()
    assert refused.exit_code == ExitCode.SOURCE, refused.stderr
    said = " ".join(refused.stderr.split())
    assert "rows cannot be copied of 3 of 3 tables" in said
    for why in (
        "shop.keyless: the sink's table has no key",
        "shop.dated: rows of shop.dated cannot be named by column id, which is of type numeric",
        "shop.orders: the target table has rows. Empty it, or choose with snapshot.existing_rows",
    ):
        assert why in said
    never = {"snapshot": "never"}
    snapshots.choose(
        {"mode": "initial", "existing_rows": "delete"},
        tables={"shop.keyless": {"keyless": "append", **never}, "shop.dated": never},
    )
    eventually(lambda: dry().exit_code == 0, "it is accepted", DEADLINE_SECONDS)
