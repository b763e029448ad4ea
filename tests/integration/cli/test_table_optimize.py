"""``headgate table optimize`` of a table whose agent is killed in the middle: the next one carries the request out."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog

from headgate.config.crash_points import VARIABLE, ArmedPoints, CrashPoint
from headgate.config.secrets import ALLOWED_FOLDERS
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from headgate.provisioning.time_scale import scaled_seconds
from integration.cli.conftest import DEADLINE_SECONDS, Service, headgate
from integration.cli.test_created_tables import READY_SECONDS, ROWS, Shop
from integration.cli.test_snapshot import Snapshots, owner
from support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.integration]

SMALL_FILES = 4
"""Rows that come one by one, each in a commit of its own."""


class DeltaOrders:
    """The table as readers see it: Polars, and the versions that they may have begun to read."""

    def __init__(self, lake: Path) -> None:
        self.sink = {"type": "delta", "dsn": f"file://{lake}"}
        self._path = lake / "shop" / "orders"

    def version(self) -> int:
        from deltalake import DeltaTable

        return DeltaTable(self._path).version()

    def files(self) -> int:
        from deltalake import DeltaTable

        return len(DeltaTable(self._path).file_uris())

    def rows(self, version: int | None = None) -> dict[int, str]:
        if not (self._path / "_delta_log").is_dir():
            return {}
        return _by_id(polars.scan_delta(str(self._path), version=version).collect().to_dicts())


class IcebergOrders:
    """The same of a table of Iceberg, whose versions are snapshots."""

    def __init__(self, lake: Path) -> None:
        catalog = f"sqlite:///{lake}/catalog.db"
        self.sink = {"type": "iceberg", "dsn": f"{catalog}?warehouse={lake}"}
        self._catalog = SqlCatalog("default", uri=catalog, warehouse=f"file://{lake}")
        self._catalog.create_tables()

    def version(self) -> int:
        snapshot = self._catalog.load_table("shop.orders").current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    def files(self) -> int:
        return len(list(self._catalog.load_table("shop.orders").scan().plan_files()))

    def rows(self, version: int | None = None) -> dict[int, str]:
        if not self._catalog.table_exists("shop.orders"):
            return {}
        return _by_id(self._catalog.load_table("shop.orders").scan(snapshot_id=version).to_arrow().to_pylist())


def _by_id(rows: list[dict[str, Any]]) -> dict[int, str]:
    found = {row["id"]: row["what"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


@pytest.fixture
def snapshots(
    settings: Settings, log: KafkaLog, postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Snapshots]:
    (tmp_path / "lake").mkdir()
    monkeypatch.setenv(ALLOWED_FOLDERS, str(tmp_path / "lake"))
    shop = Shop(settings, log, postgres_database, postgres_database, tmp_path)
    with shop.source, shop.sink:
        shop.add("orders")
        yield Snapshots(shop, settings, log, postgres_database)


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        pytest.param(IcebergOrders, CrashPoint.BEFORE_COMMIT, id="iceberg, before its commit"),
        pytest.param(DeltaOrders, CrashPoint.COMPACTED, id="delta, before files are removed", marks=pytest.mark.long),
    ],
)
@pytest.mark.usefixtures("one_core_spark")
def test_a_request_whose_agent_is_killed_is_carried_out_by_the_next_and_disturbs_no_reader(
    snapshots: Snapshots,
    serve: Callable[..., Service],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    kind: type[DeltaOrders | IcebergOrders],
    point: CrashPoint,
) -> None:
    shop, orders = snapshots.shop, kind(tmp_path / "lake")
    spec = yaml.safe_load(shop.file.read_text(encoding="utf-8"))
    spec["sink"] = {**orders.sink, "commit_interval_seconds": 1, "maintenance": {"scheduled": False}}
    shop.file.write_text(yaml.safe_dump(spec), encoding="utf-8")
    owner(serve)
    created = headgate("feed", "create", str(shop.file))
    assert created.exit_code == 0, created.stderr
    points = ArmedPoints(tmp_path / "points")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "points"))
    serve("a1", "agent", "--name", "a1")
    monkeypatch.delenv(VARIABLE)
    for number in range(ROWS, ROWS + SMALL_FILES + 1):
        if number > ROWS:
            snapshots.change("orders", number, f"ä{number}")
        eventually(lambda there=number: len(orders.rows()) == there, f"{number} rows are there", READY_SECONDS)
    assert orders.files() > SMALL_FILES
    held, seen = orders.version(), orders.rows()

    points.arm(point)
    command = [sys.executable, "-m", "headgate", "table", "optimize", "shop", "shop.orders", "-o", "json"]
    asked = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    frozen = points.await_reached(point, scaled_seconds(DEADLINE_SECONDS))
    os.kill(frozen, signal.SIGKILL)
    assert asked.poll() is None, "nothing has been reported of the request"
    assert orders.rows() == seen
    assert (orders.files() == 1) is (point is CrashPoint.COMPACTED)
    snapshots.change("orders", 1, "changed")
    snapshots.change("orders", 2, None)
    serve("a2", "agent", "--name", "a2")
    told, errors = asked.communicate(timeout=scaled_seconds(READY_SECONDS))
    assert asked.returncode == 0, errors
    outcome = json.loads(told)
    assert outcome["status"] == "done", outcome
    before = {CrashPoint.BEFORE_COMMIT: SMALL_FILES + 1, CrashPoint.COMPACTED: 1}[point]
    assert f"{before} data file" in outcome["reason"], outcome
    assert "1 data file (" in outcome["reason"], outcome

    left = {number: f"ä{number}" for number in range(3, ROWS + SMALL_FILES + 1)} | {1: "changed"}
    eventually(lambda: orders.rows() == left, "the changes since are there", READY_SECONDS)
    verified = headgate("verify", "shop", "-o", "json")
    assert verified.exit_code == 0, verified.stderr
    assert json.loads(verified.stdout)["differences"] == 0
    assert orders.rows(held) == seen, "a reader of the version before it finds all that it needs"
