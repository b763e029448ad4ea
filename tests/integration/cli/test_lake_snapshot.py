"""Feeds into empty lakes copy the rows that were at the source before, though an agent is killed, and are verified."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import polars
import pytest
import yaml

from fixtures.iceberg_rest import RestServer, running_rest_catalog
from headgate.app.exit_codes import ExitCode
from headgate.config.crash_points import VARIABLE, ArmedPoints, CrashPoint
from headgate.config.secrets import ALLOWED_FOLDERS
from headgate.provisioning.time_scale import scaled_seconds
from integration.cli.conftest import Service, headgate
from integration.cli.test_created_tables import READY_SECONDS, ROWS, Shop, shop
from integration.cli.test_snapshot import RANGE, Snapshots, is_done, owner, snapshots
from integration.sinks.iceberg_bench import new_catalog
from integration.sinks.iceberg_rest_bench import TOKEN
from support.waiting import eventually

__all__ = ["shop", "snapshots"]

pytestmark = [pytest.mark.spark, pytest.mark.integration]


def feed_file(shop: Shop, folder: Path, name: str, sink: dict[str, object]) -> Path:
    """The shop's feed under another name, into another sink."""
    spec = yaml.safe_load(shop.file.read_text(encoding="utf-8"))
    initial = {"mode": "initial", "max_rows_per_second": RANGE}
    spec |= {"feed": name, "snapshot": initial, "spread": "manual"}
    spec["sink"] = {**sink, "commit_interval_seconds": 1}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(spec), encoding="utf-8")
    return file


@pytest.fixture
def rest_catalog(tmp_path: Path) -> Iterator[RestServer]:
    """An Iceberg REST catalog, with its token in a file."""
    (tmp_path / "lake" / "ice").mkdir(parents=True)
    (tmp_path / "token").write_text(TOKEN)
    catalog = new_catalog(f"sqlite:///{tmp_path}/lake/catalog.db", tmp_path / "lake")
    catalog.create_tables()
    with running_rest_catalog(catalog, TOKEN) as server:
        yield server


@pytest.mark.usefixtures("one_core_spark")
def test_a_snapshot_into_lakes_survives_its_agent_and_is_verified(
    snapshots: Snapshots,
    rest_catalog: RestServer,
    serve: Callable[..., Service],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = snapshots.shop
    lake = tmp_path / "lake"
    monkeypatch.setenv(ALLOWED_FOLDERS, str(lake))
    delta = feed_file(shop, tmp_path, "shop", {"type": "delta", "dsn": f"file://{lake}"})
    at_rest = {"dsn": f"rest+{rest_catalog.url}?warehouse={lake}/ice", "password_file": str(tmp_path / "token")}
    iceberg = feed_file(shop, tmp_path, "ice", {"type": "iceberg", **at_rest})
    append = feed_file(
        shop, tmp_path, "log", {"type": "delta", "dsn": f"file://{lake}", "mode": "append", "table": "log.{table}"}
    )
    owner(serve)
    created = headgate("feed", "create", str(delta))
    assert created.exit_code == 0, created.stderr
    assert "the rows of 1 are copied from the source" in " ".join(created.stderr.split())
    points = ArmedPoints(tmp_path / "points")
    points.arm(CrashPoint.COMMITTED)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "points"))
    first = serve("a1", "agent", "--name", "a1")
    monkeypatch.delenv(VARIABLE)
    frozen = points.await_reached(CrashPoint.COMMITTED, scaled_seconds(READY_SECONDS))
    path = str(lake / "shop" / "orders")
    assert polars.read_delta(path).height == RANGE, "one range is copied"
    first.process.kill()
    os.kill(frozen, signal.SIGKILL)
    for file in (iceberg, append):
        created = headgate("feed", "create", str(file))
        assert created.exit_code == 0, created.stderr
    snapshots.change("orders", 1, "changed")
    snapshots.change("orders", 2, None)
    serve("a2", "agent", "--name", "a2")
    eventually(lambda: is_done("shop") and is_done("ice") and is_done("log"), "nothing is left to copy", READY_SECONDS)
    for feed in ("shop", "ice"):
        verified = headgate("verify", feed, "-o", "json")
        assert verified.exit_code == 0, verified.stderr
        told = json.loads(verified.stdout)
        assert (told["differences"], told["unsettled"], told["skipped"]) == (0, 0, {})
        assert told["rows"] >= ROWS - 1
    read = polars.read_delta(str(lake / "log" / "orders")).filter(polars.col("_operation") == "read")
    assert sorted(read["id"].to_list()) == sorted(set(read["id"].to_list())), "each row once"
    refused = headgate("verify", "log")
    assert refused.exit_code == ExitCode.DATABASE
    assert "writes a row for every change (sink.mode: append)" in " ".join(refused.stderr.split())

    at = headgate("table", "at", "shop", "shop.orders", "--ts", "2999-01-01T00:00:00Z", "-o", "json")
    assert at.exit_code == 0, at.stderr
    found = json.loads(at.stdout)
    assert (found["missing"], found["next_version"], found["is_copying"]) == (0, None, False)
    assert polars.scan_delta(path, version=int(found["version"])).collect().height == ROWS - 1
    assert f"VERSION AS OF {found['version']}" in found["readers"]["spark"]
    before = headgate("table", "at", "ice", "shop.orders", "--ts", "2020-01-01T00:00:00Z")
    assert before.exit_code == ExitCode.NOT_FOUND
    assert "Use a later time" in " ".join(before.stderr.split())

    shop.source.execute("UPDATE shop.orders SET what = 'silent' WHERE id = 9")
    repaired = headgate("verify", "shop", "--settle", "0", "--repair", "--yes", "-o", "json")
    assert repaired.exit_code == 0, repaired.stderr
    rows = polars.read_delta(path).filter(polars.col("id") == 9)
    assert rows["what"].to_list() == ["silent"]
