"""Columns are added at the sink, or brought back, though the agent is killed between the statement and the rows."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer

from fixtures.spare_databases import SpareDatabases
from headgate.config.crash_points import CrashPoint
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from headgate.provisioning.time_scale import scaled_seconds
from integration.cli.armed_agent import armed, replicating
from integration.cli.conftest import ANSWER_SECONDS, DEADLINE_SECONDS, Service, headgate
from integration.cli.test_created_tables import READY_SECONDS, ROWS, Shop
from support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.integration]


class EvolvingShop(Shop):
    """A shop whose feed alters its tables."""

    def evolve(self) -> None:
        spec = yaml.safe_load(self.file.read_text(encoding="utf-8"))
        spec["sink"]["tables"] = "evolve"
        self.file.write_text(yaml.safe_dump(spec), encoding="utf-8")

    def write(self, table: str, numbers: range, *columns: str) -> None:
        """Rows with the new columns, in their order, at the source and on the topic."""
        topic = f"{self._settings.cluster}-db.shop.{table}"
        place = {"connector": "postgresql", "db": self._database, "schema": "shop", "table": table, "ts_ms": 2}
        with Producer({"bootstrap.servers": self._settings.bootstrap, "enable.idempotence": True}) as producer:
            for number in numbers:
                after = {"id": number, "what": "new", **dict.fromkeys(columns, number)}
                values = ", ".join(f"'{value}'" for value in after.values())
                self.source.execute(f"INSERT INTO shop.{table} VALUES ({values})".encode())
                event = {"op": "c", "before": None, "after": after, "source": place}
                producer.produce(topic, json.dumps(event).encode(), json.dumps({"id": number}).encode())
            assert producer.flush(ANSWER_SECONDS) == 0


@pytest.fixture
def shop(
    settings: Settings, log: KafkaLog, postgres_database: str, spare_databases: SpareDatabases, tmp_path: Path
) -> Iterator[EvolvingShop]:
    with spare_databases.database() as parameters:
        sink = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters)
        shop = EvolvingShop(settings, log, postgres_database, sink, tmp_path)
        with shop.source, shop.sink:
            shop.add("orders")
            shop.evolve()
            yield shop


@pytest.mark.usefixtures("one_core_spark")
def test_a_table_gets_its_columns_though_agents_are_killed_between_the_statement_and_the_rows(
    shop: EvolvingShop, serve: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the source has got, and one that was dropped at the sink, which comes back with its values."""
    points, _ = replicating(shop, serve, tmp_path, monkeypatch)

    points.arm(CrashPoint.ALTERED)
    shop.source.execute("ALTER TABLE shop.orders ADD COLUMN extra int NOT NULL DEFAULT 7")
    shop.write("orders", range(ROWS + 1, ROWS + 11), "extra")
    killed = points.await_reached(CrashPoint.ALTERED, scaled_seconds(READY_SECONDS))
    assert shop.sink.execute("SELECT count(*), min(extra), max(extra) FROM shop.orders").fetchall() == [(ROWS, 7, 7)]
    os.kill(killed, signal.SIGKILL)
    second = armed(serve, "a2", tmp_path, monkeypatch)
    eventually(lambda: shop.rows("orders") == ROWS + 10, "the rows behind the change are there", READY_SECONDS)
    verified = headgate("verify", "shop")
    assert verified.exit_code == 0, verified.stderr

    shop.source.execute("ALTER TABLE shop.orders ADD COLUMN more int")
    shop.write("orders", range(ROWS + 11, ROWS + 21), "extra", "more")
    eventually(lambda: shop.rows("orders") == ROWS + 20, "rows with the column are there", READY_SECONDS)

    shop.sink.execute("ALTER TABLE shop.orders DROP COLUMN more")
    shop.write("orders", range(ROWS + 21, ROWS + 31), "extra", "more")
    eventually(lambda: "more of table shop.orders was dropped at the sink" in _why(), "it stops", DEADLINE_SECONDS)
    assert "resync_needed" in _why()
    assert shop.rows("orders") == ROWS + 20

    points.arm(CrashPoint.ALTERED)
    asked = [sys.executable, "-m", "headgate", "table", "resync", "shop", "shop.orders", "--yes", "--timeout"]
    with subprocess.Popen([*asked, str(scaled_seconds(600.0))], stderr=subprocess.PIPE, text=True) as asking:
        killed = points.await_reached(CrashPoint.ALTERED, scaled_seconds(READY_SECONDS))
        assert shop.sink.execute("SELECT count(*), count(more) FROM shop.orders").fetchall() == [(ROWS + 20, 0)]
        assert killed == second.process.pid
        os.kill(killed, signal.SIGKILL)
        serve("a3", "agent", "--name", "a3")
        _, told = asking.communicate()
    assert asking.returncode == 0, told
    eventually(lambda: shop.rows("orders") == ROWS + 30, "and the log goes on", READY_SECONDS)
    verified = headgate("verify", "shop")
    assert verified.exit_code == 0, verified.stderr


def _why() -> str:
    return " ".join(headgate("why", "shop").output.split())
