"""Rows from before the feed are copied into a lake while the table changes, though the copying process is killed."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from msgspec.structs import replace

from fixtures.spare_databases import SpareDatabases
from headgate.agent.core.executor import CopyOrder, SpanTask
from headgate.agent.core.span import states
from headgate.config.crash_points import ArmedPoints, CrashPoint
from headgate.records.control import TaskState
from headgate.records.error_codes import COPYING_CODES
from headgate.records.row_copies import RowCopy, shown_row_copy
from headgate.replication import row_copy
from headgate.replication.executor import SparkExecutor
from headgate.sinks.lake.appended import OWN_COLUMNS
from support.waiting import eventually

from .conftest import DEADLINE_SECONDS, Bed
from .test_lake_sinks import COLUMNS, DELTA, ICEBERG, Kind, into_lake

pytestmark = [pytest.mark.spark, pytest.mark.integration]

ROWS = 100
RANGE = 30
NEVER_SECONDS = 900
"""A commit interval: what waits for it is not written in this test."""


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One range in each turn."""
    monkeypatch.setattr(row_copy, "RANGE_ROWS", RANGE)
    monkeypatch.setattr(row_copy, "RANGE_ROWS_MAX", RANGE)
    monkeypatch.setattr(row_copy, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(row_copy, "FIRST_TURN_SECONDS", 0.0)
    monkeypatch.setattr(states, "CATCH_UP_SECONDS_MIN", 0.0)


@pytest.fixture
def source(spare_databases: SpareDatabases) -> Iterator[str]:
    """The address of a database whose table has rows that no event has."""
    with spare_databases.database() as parameters:
        dsn = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters)
        with psycopg.connect(dsn, autocommit=True) as session:
            session.execute("CREATE TABLE items (id bigint PRIMARY KEY, name text, qty int)")
            session.execute("INSERT INTO items SELECT n, 'row ' || n, n FROM generate_series(1, %s) n", (ROWS,))
        yield dsn


def whole(task: SpanTask) -> SpanTask:
    """The same, which copies the whole table."""
    return replace(task, copy=CopyOrder("whole", shown_row_copy(RowCopy(keys=None))))


def is_copied(executor: SparkExecutor, task: SpanTask) -> bool:
    status = executor.status(task.id)
    assert status is not None
    return status.state is TaskState.REPLICATING and status.error_code not in COPYING_CODES


@pytest.mark.parametrize(
    "into", [(DELTA, "upsert"), (DELTA, "append"), (ICEBERG, "append")], ids=lambda into: f"{into[0].type}-{into[1]}"
)
def test_a_copy_goes_on_where_it_was_and_waits_for_no_commit_interval(
    bed: Bed, worker_points: ArmedPoints, source: str, tmp_path: Path, into: tuple[Kind, str]
) -> None:
    kind, mode = into
    plan = bed.table("items")
    database = {"topic_pattern": ".*", "database": {"dsn": source}}
    task_of = partial(into_lake, bed, plan, folder=tmp_path, mode=mode, kind=kind, interval=NEVER_SECONDS)
    schema = COLUMNS
    for name, type_ in OWN_COLUMNS.items() if mode == "append" else ():
        schema = schema.append(pa.field(name, type_))
    kind.create(tmp_path, plan.table, schema)
    first = bed.executor()
    points = {CrashPoint.ROWS_SENT: 0, CrashPoint.COMMITTED: RANGE}
    for point, rows in points.items():
        worker_points.arm(point)
        if point is CrashPoint.ROWS_SENT:
            first.add_table(whole(task_of(n=1, source=database)), prepare=False)
        os_process = worker_points.await_reached(point, DEADLINE_SECONDS)
        assert kind.read(tmp_path, plan.table).height == rows
        if point is CrashPoint.COMMITTED:
            first.kill()  # its workers, too
        else:
            os.kill(os_process, signal.SIGKILL)
    with psycopg.connect(source, autocommit=True) as session:
        session.execute("UPDATE items SET name = 'changed' WHERE id IN (1, 100)")
        session.execute("DELETE FROM items WHERE id = 2")
    bed.put(plan, {1: {"name": "changed", "qty": 1}, 100: {"name": "changed", "qty": 100}, 2: None})
    second, task = bed.executor(), whole(task_of(n=2, source=database))
    second.add_table(task, prepare=False)
    eventually(lambda: is_copied(second, task), "nothing is left to copy")
    eventually(lambda: second.status(task.id).positions == {0: 3}, "the log is applied")  # type: ignore[union-attr]
    found = kind.read(tmp_path, plan.table).to_dicts()
    wanted = {n: ("changed" if n in (1, 100) else f"row {n}", n) for n in range(1, ROWS + 1) if n != 2}
    if mode == "upsert":
        assert {row["id"]: (row["name"], row["qty"]) for row in found} == wanted
        assert len(found) == len(wanted)
        return
    read = [row for row in found if row["_operation"] == "read"]
    assert sorted(row["id"] for row in read) == [*range(1, ROWS + 1)], "each row once"
    newest = {row["id"]: row for row in sorted(found, key=lambda row: (row["_offset"], row["_operation"] != "read"))}
    assert {n: (r["name"], r["qty"]) for n, r in newest.items() if r["_operation"] != "delete"} == wanted
