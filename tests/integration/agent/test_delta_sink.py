"""A real lane from topics into Delta tables, read by Polars."""

import os
import signal
from pathlib import Path

import msgspec
import polars
import pyarrow as pa
import pytest

from headgate.agent.core.executor import SpanTask
from headgate.config.crash_points import ArmedPoints, CrashPoint
from headgate.records.control import SpanPlan
from headgate.sinks.delta.engine import create
from headgate.sinks.lake.appended import OWN_COLUMNS
from support.waiting import eventually

from .conftest import DEADLINE_SECONDS, Bed

pytestmark = [pytest.mark.spark, pytest.mark.integration]

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), ("qty", pa.int32())])


def into_lake(bed: Bed, plan: SpanPlan, n: int, folder: Path, mode: str) -> SpanTask:
    task = bed.task(plan, n)
    sink = {"type": "delta", "dsn": f"file://{folder}", "mode": mode}
    spec = msgspec.json.decode(task.spec) | {"sink": sink}
    return msgspec.structs.replace(task, spec=msgspec.json.encode(spec).decode(), feed_id=bed.feed)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_changes_arrive_once_though_a_worker_dies(
    bed: Bed, worker_points: ArmedPoints, tmp_path: Path, mode: str
) -> None:
    plan = bed.table(f"things_{mode}", 2)
    path = tmp_path.joinpath(*plan.table.split("."))
    schema = COLUMNS
    for name, type_ in OWN_COLUMNS.items() if mode == "append" else ():
        schema = schema.append(pa.field(name, type_))
    create(path, schema, {})
    executor, task = bed.executor(), into_lake(bed, plan, 1, tmp_path, mode)
    bed.put(plan, {number: {"name": "x", "qty": number} for number in range(20)})
    executor.add_table(task, prepare=False)
    eventually(lambda: executor.status(task.id).positions == {0: 10, 1: 10}, "it writes")  # type: ignore[union-attr]
    worker_points.arm(CrashPoint.ROWS_SENT)
    bed.put(plan, {number: {"name": "y", "qty": number} for number in range(10, 40)})
    os.kill(worker_points.await_reached(CrashPoint.ROWS_SENT, DEADLINE_SECONDS), signal.SIGKILL)
    bed.put(plan, {3: None})
    eventually(lambda: executor.status(task.id).positions == {0: 25, 1: 26}, "and goes on")  # type: ignore[union-attr]
    found = polars.read_delta(str(path))
    if mode == "upsert":
        rows = {row["id"]: (row["name"], row["qty"]) for row in found.to_dicts()}
        assert len(rows) == found.height
        assert rows == {n: ("x" if n < 10 else "y", n) for n in range(40) if n != 3}
        return
    places = sorted((row["_partition"], row["_offset"]) for row in found.to_dicts())
    assert places == [(0, offset) for offset in range(25)] + [(1, offset) for offset in range(26)]
    (gone,) = (row for row in found.to_dicts() if row["_operation"] == "delete")
    assert (gone["id"], gone["name"], gone["_topic"]) == (3, None, plan.topic)
