"""A real lane whose Python worker dies, or freezes and is overtaken, at a named point of the commit path."""

import os
import signal

import pytest

from headgate.config.crash_points import ArmedPoints, CrashPoint
from headgate.records.control import SpanPlan, TaskState
from support.waiting import eventually

from .conftest import DEADLINE_SECONDS, Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

NOTE = """
CREATE TABLE noted (id bigint);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO public.noted VALUES (NEW.id); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE ON {table}
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
"""


def noted_table(bed: Bed, name: str) -> SpanPlan:
    plan = bed.table(name)
    bed.database.execute(NOTE.format(table=plan.table))
    return plan


def noted(bed: Bed) -> list[int]:
    """Every row that was ever written, in no order, as often as it was written."""
    return sorted(row for (row,) in bed.database.execute("SELECT id FROM noted"))


def put(bed: Bed, plan: SpanPlan, numbers: range) -> None:
    bed.put(plan, {number: {"name": "x", "qty": number} for number in numbers})


@pytest.mark.parametrize("point", [CrashPoint.ROWS_SENT, CrashPoint.BEFORE_COMMIT, CrashPoint.COMMITTED])
def test_a_batch_whose_worker_dies_is_written_once(bed: Bed, worker_points: ArmedPoints, point: CrashPoint) -> None:
    plan = noted_table(bed, "mortal")
    executor = bed.executor()
    task = bed.task(plan, 1)
    put(bed, plan, range(20))
    executor.add_table(task, prepare=False)
    eventually(lambda: noted(bed) == [*range(20)], "it writes")

    worker_points.arm(point)
    put(bed, plan, range(20, 50))
    os.kill(worker_points.await_reached(point, DEADLINE_SECONDS), signal.SIGKILL)
    put(bed, plan, range(50, 60))
    eventually(lambda: len(bed.rows(plan)) == 60, "another worker goes on")
    eventually(lambda: executor.status(task.id).positions == {0: 60}, "and the driver knows it")  # type: ignore[union-attr]
    assert noted(bed) == [*range(60)]


@pytest.mark.parametrize("point", [CrashPoint.ROWS_SENT, CrashPoint.BEFORE_COMMIT])
def test_a_worker_that_was_overtaken_while_it_stood_still_writes_nothing(
    bed: Bed, worker_points: ArmedPoints, point: CrashPoint
) -> None:
    plan = noted_table(bed, "overtaken")
    old, new = bed.executor(), bed.executor()
    task = bed.task(plan, 1)
    worker_points.arm(point)
    put(bed, plan, range(20))
    old.add_table(task, prepare=False)
    pid = worker_points.await_reached(point, DEADLINE_SECONDS)
    try:
        new.add_table(bed.task(plan, 2), prepare=False)
        eventually(lambda: noted(bed) == [*range(20)], "the new one has claimed and written")
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: old.status(task.id).state is TaskState.FAILED, "the old one is told")  # type: ignore[union-attr]
    assert old.status(task.id).error_code == "sink_fenced"  # type: ignore[union-attr]
    put(bed, plan, range(20, 30))
    eventually(lambda: len(bed.rows(plan)) == 30, "the new one goes on")
    assert noted(bed) == [*range(30)]
    assert reached(new, task.id, TaskState.REPLICATING)
