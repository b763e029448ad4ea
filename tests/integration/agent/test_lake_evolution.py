"""A lake's table follows its source while changes flow, though a worker dies and another agent takes the table."""

import os
import signal
from pathlib import Path

import msgspec
import polars
import pytest

from headgate.agent.core.executor import SpanTask
from headgate.config.crash_points import ArmedPoints, CrashPoint
from headgate.records.control import SpanPlan
from support.waiting import eventually

from .conftest import DEADLINE_SECONDS, Bed
from .test_lake_sinks import DELTA, ICEBERG, Kind, iceberg_catalog, into_lake

pytestmark = [pytest.mark.spark, pytest.mark.integration]

LARGE = 2**40


def evolving(bed: Bed, plan: SpanPlan, n: int, folder: Path, kind: Kind) -> SpanTask:
    """The source's table is the one that the bed has at its database."""
    task = into_lake(bed, plan, n, folder, "upsert", kind=kind)
    spec = msgspec.json.decode(task.spec)
    spec["source"]["database"] = {"dsn": bed.dsn}
    spec["sink"]["tables"] = "evolve"
    return msgspec.structs.replace(task, spec=msgspec.json.encode(spec).decode())


def rows(found: polars.DataFrame) -> list[tuple[object, ...]]:
    return sorted(found.select("id", "name", "qty", "extra").rows()) if "extra" in found.columns else []


@pytest.mark.parametrize("kind", [DELTA, ICEBERG], ids=lambda kind: kind.type)
def test_a_table_follows_its_source_though_a_worker_dies_and_the_table_moves(
    bed: Bed, worker_points: ArmedPoints, tmp_path: Path, kind: Kind
) -> None:
    plan = bed.table("evolved", 2)
    if kind is ICEBERG:
        iceberg_catalog(tmp_path)  # it must exist
    first, task = bed.executor(), evolving(bed, plan, 1, tmp_path, kind)
    bed.put(plan, {number: {"name": "x", "qty": number} for number in range(20)})
    first.add_table(task, prepare=False)
    eventually(lambda: first.status(task.id).positions == {0: 10, 1: 10}, "it writes")  # type: ignore[union-attr]

    bed.database.execute("ALTER TABLE evolved ADD COLUMN extra int NOT NULL DEFAULT 7, ALTER COLUMN qty TYPE bigint")
    bed.put(plan, {number: {"name": "late", "qty": number} for number in (0, 20)})
    worker_points.arm(CrashPoint.ROWS_SENT)
    bed.put(plan, {number: {"name": "y", "qty": LARGE + number, "extra": number} for number in range(10, 30, 2)})
    os.kill(worker_points.await_reached(CrashPoint.ROWS_SENT, DEADLINE_SECONDS), signal.SIGKILL)
    second, moved = bed.executor(), evolving(bed, plan, 2, tmp_path, kind)
    second.add_table(moved, prepare=False)
    bed.put(plan, {number: {"name": "z", "qty": number, "extra": None} for number in (1, 31)})
    bed.put(plan, {33: {"name": "late", "qty": 33}})

    wanted: dict[int, tuple[object, ...]] = {number: (number, "x", number, 7) for number in range(20)}
    wanted[0] = (0, "late", 0, 7)
    wanted |= {number: (number, "y", LARGE + number, number) for number in range(10, 30, 2)}
    wanted |= {1: (1, "z", 1, None), 31: (31, "z", 31, None), 33: (33, "late", 33, 7)}
    eventually(lambda: second.status(moved.id).positions == {0: 22, 1: 13}, "and goes on")  # type: ignore[union-attr]
    assert rows(kind.read(tmp_path, plan.table)) == sorted(wanted.values())
