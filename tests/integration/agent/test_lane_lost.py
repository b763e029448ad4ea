"""A lane that cannot do its work: its tables say so, with the reason, and go on by themselves when they can."""

import os
import signal

import pytest

from headgate.config.crash_points import ArmedPoints, CrashPoint
from support.waiting import eventually

from .conftest import DEADLINE_SECONDS, Bed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]


def _row(number: int) -> dict[str, object]:
    return {"name": f"n{number}", "qty": number}


def test_a_context_that_spark_has_stopped_is_replaced_though_its_jvm_lives(bed: Bed) -> None:
    plan = bed.table("orphan")
    executor = bed.executor()
    task = bed.task(plan, 1)
    executor.add_table(task, prepare=False)
    bed.put(plan, {n: _row(n) for n in range(10)})
    eventually(lambda: len(bed.rows(plan)) == 10, "it writes")
    jvm = bed.runtime.pid
    bed.runtime.start().sparkContext._jsc.sc().stop()  # as for an application that its master has removed
    bed.put(plan, {n: _row(n) for n in range(10, 30)})
    eventually(lambda: len(bed.rows(plan)) == 30, "it writes again")
    assert bed.runtime.pid != jvm


def test_a_table_whose_worker_dies_in_every_batch_says_so(bed: Bed, worker_points: ArmedPoints) -> None:
    plan = bed.table("deadly")
    executor = bed.executor()
    task = bed.task(plan, 1)
    bed.put(plan, {n: _row(n) for n in range(10)})
    worker_points.arm(CrashPoint.ROWS_SENT)
    executor.add_table(task, prepare=False)
    for _ in range(4):
        worker = worker_points.await_reached(CrashPoint.ROWS_SENT, DEADLINE_SECONDS)
        worker_points.arm(CrashPoint.ROWS_SENT)
        os.kill(worker, signal.SIGKILL)
    worker = worker_points.await_reached(CrashPoint.ROWS_SENT, DEADLINE_SECONDS)
    status = executor.status(task.id)
    worker_points.disarm()
    os.kill(worker, signal.SIGKILL)
    assert status is not None
    assert (status.error_code, status.retryable) == ("lane_lost", True)
    eventually(lambda: len(bed.rows(plan)) == 10, "it is written once nobody dies any more")
    eventually(lambda: executor.status(task.id).error is None, "and is well again")  # type: ignore[union-attr]
