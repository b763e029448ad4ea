"""A feed into an empty folder of Delta tables: rows come once, though the agent's process is killed on the way."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import polars
import pytest
import yaml

from headgate.config.crash_points import VARIABLE, ArmedPoints, CrashPoint
from headgate.config.secrets import ALLOWED_FOLDERS
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from headgate.provisioning.time_scale import scaled_seconds
from integration.cli.conftest import DEADLINE_SECONDS, Service, headgate
from integration.cli.test_created_tables import READY_SECONDS, ROWS, Shop
from support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.integration]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    monkeypatch.setenv(ALLOWED_FOLDERS, str(folder))
    return folder


@pytest.fixture
def shop(settings: Settings, log: KafkaLog, postgres_database: str, lake: Path, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(settings, log, postgres_database, postgres_database, tmp_path)
    spec = yaml.safe_load(shop.file.read_text(encoding="utf-8"))
    spec["sink"] = {"type": "delta", "dsn": f"file://{lake}", "mode": "append", "commit_interval_seconds": 1}
    spec["sink"]["partition_by"] = ["_operation", "what"]
    shop.file.write_text(yaml.safe_dump(spec), encoding="utf-8")
    with shop.source, shop.sink:
        shop.add("orders")
        yield shop


def offsets(lake: Path) -> list[int]:
    """Those of all changes in the table, as often as they are there."""
    folder = lake / "shop" / "orders"
    return sorted(polars.read_delta(str(folder))["_offset"].to_list()) if (folder / "_delta_log").is_dir() else []


POINTS = (CrashPoint.BEFORE_CLAIM, CrashPoint.BEFORE_COMMIT, CrashPoint.COMMITTED)
"""An agent is killed at each. In every run of the tests, one is killed before the claim of a table in a database
(test_created_tables.py), and a lake's writer before its commit (the sink's contract)."""


@pytest.mark.usefixtures("one_core_spark")
@pytest.mark.parametrize("killed_at", [POINTS[-1:], pytest.param(POINTS, marks=pytest.mark.long)], ids=["last", "each"])
def test_an_agent_that_is_killed_around_a_commit_is_followed_by_one_that_writes_the_rest_once(
    shop: Shop,
    lake: Path,
    serve: Callable[..., Service],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    killed_at: tuple[CrashPoint, ...],
) -> None:
    coordinator = serve("owner", "coordinator")
    eventually(lambda: coordinator.get("/readyz")[0] == 200, "the owner is ready", DEADLINE_SECONDS)

    dry = headgate("feed", "create", str(shop.file), "--dry-run", "-o", "json")
    assert dry.exit_code == 0, dry.stderr
    told = json.loads(dry.stdout)
    assert [(span["table"], span["at_sink"]) for span in told["spans"]] == [("shop.orders", "missing")]
    assert f"CREATE TABLE delta.`{lake}/shop/orders` (\n  `id` bigint,\n  `what` string," in told["statements"]
    assert ") USING DELTA\nPARTITIONED BY (`_operation`, `what`)" in told["statements"]
    created = headgate("feed", "create", str(shop.file))
    assert created.exit_code == 0, created.stderr
    assert not (lake / "shop").exists(), "the owner creates no table"

    points = ArmedPoints(tmp_path / "points")
    for number, point in enumerate(killed_at, 1):
        points.arm(point)
        monkeypatch.setenv(VARIABLE, str(tmp_path / "points"))
        name = f"a{number}"
        serve(name, "agent", "--name", name)
        killed = points.await_reached(point, scaled_seconds(READY_SECONDS))
        assert (lake / "shop" / "orders" / "_delta_log").is_dir(), "it was created before the claim"
        assert offsets(lake) == ([*range(ROWS)] if point is CrashPoint.COMMITTED else [])
        os.kill(killed, signal.SIGKILL)
    monkeypatch.delenv(VARIABLE)
    serve("last", "agent", "--name", "last")
    shop.add_events("orders")
    eventually(lambda: len(offsets(lake)) >= 2 * ROWS, "the rows are there", READY_SECONDS)
    assert offsets(lake) == [*range(2 * ROWS)]
    assert list((lake / "shop" / "orders").glob("_operation=upsert/what=*/*.parquet"))
    spec = yaml.safe_load(shop.file.read_text(encoding="utf-8"))
    spec["sink"]["partition_by"] = ["what"]
    shop.file.write_text(yaml.safe_dump(spec), encoding="utf-8")
    refused = headgate("feed", "update", str(shop.file))
    assert refused.exit_code != 0
    assert "table shop.orders has the partitions [_operation, what], and the feed has partition_by: [what]" in " ".join(
        refused.stderr.split()
    )
