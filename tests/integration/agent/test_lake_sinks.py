"""A real lane from topics into lake tables, read by Polars."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import msgspec
import polars
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from headgate.agent.core.executor import SpanTask
from headgate.config.crash_points import ArmedPoints, CrashPoint
from headgate.records.control import SpanPlan
from headgate.replication.executor import SparkExecutor
from headgate.sinks.delta.engine import create
from headgate.sinks.lake.appended import OWN_COLUMNS
from headgate.sinks.lake.files import LocalFiles
from headgate.sinks.lake.names import path_of
from support.waiting import eventually

from .conftest import DEADLINE_SECONDS, Bed

pytestmark = [pytest.mark.spark, pytest.mark.integration]

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), ("qty", pa.int32())])


class Kind(NamedTuple):
    """How a lake below a folder is addressed, and how its users create and read a table."""

    type: str
    dsn: Callable[[Path], str]
    create: Callable[[Path, str, pa.Schema], None]
    read: Callable[[Path, str], polars.DataFrame]


def delta_folder(folder: Path, table: str) -> Path:
    return folder.joinpath(*table.split("."))


def iceberg_catalog(folder: Path) -> SqlCatalog:
    return SqlCatalog("default", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")


def create_iceberg(folder: Path, table: str, schema: pa.Schema) -> None:
    iceberg_catalog(folder).create_namespace(table.rpartition(".")[0])
    iceberg_catalog(folder).create_table(table, schema)


def read_iceberg(folder: Path, table: str) -> polars.DataFrame:
    with patch.dict(os.environ, {"POLARS_ICEBERG_PLANNER": "pyiceberg"}):  # it warns without its own
        return polars.scan_iceberg(iceberg_catalog(folder).load_table(table)).collect()


DELTA = Kind(
    "delta",
    lambda folder: f"file://{folder}",
    lambda folder, table, schema: create(LocalFiles(folder), path_of(table), schema, {}),
    lambda folder, table: polars.read_delta(str(delta_folder(folder, table))),
)
ICEBERG = Kind("iceberg", lambda folder: f"sqlite:///{folder}/catalog.db", create_iceberg, read_iceberg)


def into_lake(
    bed: Bed, plan: SpanPlan, n: int, folder: Path, mode: str, *, kind: Kind = DELTA, interval: int = 1, **feed: object
) -> SpanTask:
    task = bed.task(plan, n)
    sink = {"type": kind.type, "dsn": kind.dsn(folder), "mode": mode, "commit_interval_seconds": interval}
    spec = msgspec.json.decode(task.spec) | {"sink": sink, **feed}
    return msgspec.structs.replace(task, spec=msgspec.json.encode(spec).decode(), feed_id=bed.feed)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        pytest.param(DELTA, "append", id="delta-append"),
        pytest.param(ICEBERG, "upsert", id="iceberg-upsert"),
        # Of these the sinks' contract kills a writer in every run of the tests, and no worker whose batch is run again.
        pytest.param(DELTA, "upsert", id="delta-upsert", marks=pytest.mark.long),
        pytest.param(ICEBERG, "append", id="iceberg-append", marks=pytest.mark.long),
    ],
)
def test_changes_arrive_once_though_a_worker_dies(
    bed: Bed, worker_points: ArmedPoints, tmp_path: Path, mode: str, kind: Kind
) -> None:
    plan = bed.table(f"things_{mode}", 2)
    schema = COLUMNS
    for name, type_ in OWN_COLUMNS.items() if mode == "append" else ():
        schema = schema.append(pa.field(name, type_))
    kind.create(tmp_path, plan.table, schema)
    executor, task = bed.executor(), into_lake(bed, plan, 1, tmp_path, mode, kind=kind)
    bed.put(plan, {number: {"name": "x", "qty": number} for number in range(20)})
    executor.add_table(task, prepare=False)
    eventually(lambda: executor.status(task.id).positions == {0: 10, 1: 10}, "it writes")  # type: ignore[union-attr]
    worker_points.arm(CrashPoint.ROWS_SENT)
    bed.put(plan, {number: {"name": "y", "qty": number} for number in range(10, 40)})
    os.kill(worker_points.await_reached(CrashPoint.ROWS_SENT, DEADLINE_SECONDS), signal.SIGKILL)
    bed.put(plan, {3: None})
    eventually(lambda: executor.status(task.id).positions == {0: 25, 1: 26}, "and goes on")  # type: ignore[union-attr]
    found = kind.read(tmp_path, plan.table)
    if mode == "upsert":
        rows = {row["id"]: (row["name"], row["qty"]) for row in found.to_dicts()}
        assert len(rows) == found.height
        assert rows == {n: ("x" if n < 10 else "y", n) for n in range(40) if n != 3}
        return
    places = sorted((row["_topic_partition"], row["_offset"]) for row in found.to_dicts())
    assert places == [(0, offset) for offset in range(25)] + [(1, offset) for offset in range(26)]
    (gone,) = (row for row in found.to_dicts() if row["_operation"] == "delete")
    assert (gone["id"], gone["name"], gone["_topic"]) == (3, None, plan.topic)


def positions(executor: SparkExecutor, task: SpanTask) -> dict[int, int]:
    status = executor.status(task.id)
    assert status is not None
    return status.positions


def rows_waiting(executor: SparkExecutor) -> int:
    """Offsets behind the last batch, on lanes that hold their next one back."""
    return sum(lane._interval.rows_waiting for lane in executor._queries.lanes.values())


def test_a_batch_is_held_back_until_it_is_full_and_holds_up_nobody(bed: Bed, tmp_path: Path) -> None:
    plan = bed.table("held", 1)
    DELTA.create(tmp_path, plan.table, COLUMNS)
    first, task = bed.executor(), into_lake(bed, plan, 1, tmp_path, "upsert", interval=900, batch_rows_max=50)
    bed.put(plan, {number: {"name": "x", "qty": number} for number in range(5)})
    first.add_table(task, prepare=False)
    eventually(lambda: positions(first, task) == {0: 5}, "the first batch is committed at once")
    bed.put(plan, {number: {"name": "x", "qty": number} for number in range(5, 20)})
    eventually(lambda: rows_waiting(first) == 15, "the next one waits")
    assert (positions(first, task), first.status(task.id).lag_ms) == ({0: 5}, 0)  # type: ignore[union-attr]
    bed.put(plan, {number: {"name": "x", "qty": number} for number in range(20, 55)})
    eventually(lambda: positions(first, task) == {0: 55}, "it is full")
    bed.put(plan, {1: None})
    eventually(lambda: rows_waiting(first) == 1, "the next one waits again")

    first.remove_table(task.id, seal=True)
    eventually(lambda: first.is_remove_table_finished(task.id) == {0: 55}, "the table leaves without that batch")
    second, moved = bed.executor(), into_lake(bed, plan, 2, tmp_path, "upsert", interval=900, batch_rows_max=50)
    second.add_table(moved, prepare=False)
    eventually(lambda: positions(second, moved) == {0: 56}, "the next agent writes it at once")
    bed.put(plan, {2: None})
    eventually(lambda: rows_waiting(second) == 1, "and waits as well")
    second.close()
    found = DELTA.read(tmp_path, plan.table)
    assert sorted(found["id"].to_list()) == [0, *range(2, 55)]
