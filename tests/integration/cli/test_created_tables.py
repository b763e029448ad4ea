"""A feed into an empty database: its tables are created, though the agent is killed before it claims the first."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fixtures.spare_databases import SpareDatabases
from headgate.app.exit_codes import ExitCode
from headgate.config.crash_points import VARIABLE, ArmedPoints, CrashPoint
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from headgate.provisioning.time_scale import scaled_seconds
from integration.cli.conftest import ANSWER_SECONDS, DEADLINE_SECONDS, Service, headgate, make_topics
from support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.integration]

READY_SECONDS = 300.0
"""For an agent to have started its Spark."""

ROWS = 20

Session = psycopg.Connection[tuple[Any, ...]]


class Shop:
    """A source with tables and topics for their changes, an empty sink, and the feed between them."""

    def __init__(self, settings: Settings, log: KafkaLog, source: str, sink: str, folder: Path) -> None:
        self._settings, self._log = settings, log
        self.source, self.sink = (psycopg.connect(dsn, autocommit=True) for dsn in (source, sink))
        self.source.execute("CREATE SCHEMA shop")
        self._database = str(conninfo_to_dict(source)["dbname"])
        self.file = folder / "shop.yaml"
        spec = {
            "feed": "shop",
            "source": {
                "topic_pattern": rf"{settings.cluster}-db\.shop\..*",
                "database": self._address(source, folder / "reader"),
            },
            "sink": {"type": "postgresql"} | self._address(sink, folder / "writer"),
        }
        self.file.write_text(yaml.safe_dump(spec), encoding="utf-8")

    def _address(self, dsn: str, password_file: Path) -> dict[str, str]:
        given = {name: value for name, value in conninfo_to_dict(dsn).items() if value is not None}
        password_file.write_text(str(given.pop("password", "")), encoding="utf-8")
        return {"dsn": make_conninfo("", **given), "password_file": str(password_file)}

    def add(self, table: str) -> None:
        """A table with rows at the source, and a topic that has them."""
        self.source.execute(f"CREATE TABLE shop.{table} (id bigint PRIMARY KEY, what varchar(9) NOT NULL)".encode())
        self.source.execute(f"INSERT INTO shop.{table} SELECT n, 'ä' || n FROM generate_series(1, {ROWS}) n".encode())
        make_topics(self._log, NewTopic(self._topic(table), 1, 1))
        self.add_events(table)

    def _topic(self, table: str) -> str:
        return f"{self._settings.cluster}-db.shop.{table}"

    def add_events(self, table: str) -> None:
        """The events of its rows, on its topic."""
        topic = self._topic(table)
        place = {"connector": "postgresql", "db": self._database, "schema": "shop", "table": table, "ts_ms": 1}
        with Producer({"bootstrap.servers": self._settings.bootstrap, "enable.idempotence": True}) as producer:
            for number in range(1, ROWS + 1):
                event = {"op": "c", "before": None, "after": {"id": number, "what": f"ä{number}"}, "source": place}
                producer.produce(topic, json.dumps(event).encode(), json.dumps({"id": number}).encode())
            assert producer.flush(ANSWER_SECONDS) == 0

    def rows(self, table: str) -> int | None:
        """Rows at the sink; None if it has no such table."""
        if self.sink.execute("SELECT to_regclass(%s)", (f"shop.{table}",)).fetchall() == [(None,)]:
            return None
        ((count,),) = self.sink.execute(f"SELECT count(*) FROM shop.{table}".encode()).fetchall()
        return int(count)


@pytest.fixture
def shop(
    settings: Settings, log: KafkaLog, postgres_database: str, spare_databases: SpareDatabases, tmp_path: Path
) -> Iterator[Shop]:
    with spare_databases.database() as parameters:
        sink = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters)
        shop = Shop(settings, log, postgres_database, sink, tmp_path)
        with shop.source, shop.sink:
            shop.add("orders")
            yield shop


@pytest.mark.usefixtures("one_core_spark")
def test_an_empty_target_gets_its_tables_though_an_agent_is_killed_before_the_claim(
    shop: Shop, serve: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = serve("owner", "coordinator")
    eventually(lambda: coordinator.get("/readyz")[0] == 200, "the owner is ready", DEADLINE_SECONDS)

    dry = headgate("feed", "create", str(shop.file), "--dry-run", "-o", "json")
    assert dry.exit_code == 0, dry.stderr
    told = json.loads(dry.stdout)
    assert [(span["table"], span["at_sink"]) for span in told["spans"]] == [("shop.orders", "missing")]
    assert 'CREATE TABLE IF NOT EXISTS "shop"."orders"' in told["statements"]
    assert shop.rows("orders") is None
    created = headgate("feed", "create", str(shop.file))
    assert created.exit_code == 0, created.stderr
    assert shop.rows("orders") is None, "the owner writes to no sink"

    points = ArmedPoints(tmp_path / "points")
    points.arm(CrashPoint.BEFORE_CLAIM)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "points"))
    serve("a1", "agent", "--name", "a1")
    killed = points.await_reached(CrashPoint.BEFORE_CLAIM, scaled_seconds(READY_SECONDS))
    assert shop.rows("orders") == 0
    os.kill(killed, signal.SIGKILL)
    monkeypatch.delenv(VARIABLE)
    serve("a2", "agent", "--name", "a2")
    eventually(lambda: shop.rows("orders") == ROWS, "the rows are there", READY_SECONDS)

    shop.add("items")
    eventually(lambda: shop.rows("items") == ROWS, "a table that joins is created, too", READY_SECONDS)
    verified = headgate("verify", "shop")
    assert verified.exit_code == 0, verified.stderr


def test_a_database_that_the_events_do_not_come_from_is_refused(shop: Shop, postgres_database: str) -> None:
    other = yaml.safe_load(shop.file.read_text(encoding="utf-8"))
    other["source"]["database"] = {name: value for name, value in other["sink"].items() if name != "type"}
    shop.file.write_text(yaml.safe_dump(other), encoding="utf-8")
    dry = headgate("feed", "create", str(shop.file), "--dry-run")
    assert dry.exit_code == ExitCode.SOURCE, dry.stderr
    assert f"come from database {conninfo_to_dict(postgres_database)['dbname']}" in " ".join(dry.stderr.split())


def test_what_the_connector_changes_is_told_before_the_tables_exist(shop: Shop) -> None:
    shop.source.execute("ALTER TABLE shop.orders ADD COLUMN sizes numeric[]")
    dry = headgate("feed", "create", str(shop.file), "--dry-run", "-o", "json")
    assert dry.exit_code == 0, dry.stderr
    warned = [warning for warning in json.loads(dry.stdout)["warnings"] if "does not touch a large array" in warning]
    assert [("shop.orders: sizes (numeric[])" in warning) for warning in warned] == [True]


def test_column_options_shape_the_statements_and_are_compared_with_the_source(shop: Shop) -> None:
    spec = yaml.safe_load(shop.file.read_text(encoding="utf-8"))
    shop.source.execute("ALTER TABLE shop.orders ADD COLUMN secret text")

    def dry(**columns: Any) -> Any:
        shop.file.write_text(yaml.safe_dump(spec | {"tables": {"shop.orders": {"columns": columns}}}), encoding="utf-8")
        return headgate("feed", "create", str(shop.file), "--dry-run", "-o", "json")

    shaped = dry(rename={"id": "number"}, mask={"what": None}, exclude=["secret"])
    assert shaped.exit_code == 0, shaped.stderr
    told = json.loads(shaped.stdout)
    assert '"number" bigint NOT NULL,\n  "what" character varying(9),\n  PRIMARY KEY ("number")' in told["statements"]
    assert "secret" not in told["statements"]
    for columns, why in (
        ({"exclude": ["gone"]}, "tables.shop.orders.columns names gone, which the source's table does not have"),
        ({"exclude": ["id"]}, "table shop.orders: column id is part of the key and is excluded"),
        ({"rename": {"what": "id"}}, "columns id and what both become id at the sink"),
        ({"mask": {"what": {"sha256": "no-such-salt"}}}, "mask.sha256: cannot read no-such-salt"),
    ):
        refused = dry(**columns)
        assert refused.exit_code != 0
        assert why in " ".join(refused.stderr.split())
