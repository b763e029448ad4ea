"""A partition that the sink keeps refusing is given up although the other partition of its table goes on."""

import pytest

from headgate.agent.core.executor import TaskStatus
from headgate.records.control import TaskState
from support.waiting import eventually

from .conftest import Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

STEP = 3_000
"""Rows at once: enough for the two partitions to be in two tasks."""


def test_it_is_given_up_and_says_why(bed: Bed) -> None:
    plan = bed.table("stuck", partitions=2)
    bed.database.execute(f"CREATE UNIQUE INDEX ON {plan.table} (name)")
    bed.database.execute(f"INSERT INTO {plan.table} VALUES (-2, 'taken', 0)")  # nothing of the source will move it
    executor, task = bed.executor(), bed.task(plan, 1)
    executor.add_table(task, prepare=False)
    reached(executor, task.id, TaskState.REPLICATING)
    bed.put(plan, {0: {"name": "taken", "qty": 0}})
    bed.put(plan, {2 * n: {"name": f"even {n}", "qty": n} for n in range(1, STEP)})
    written = 0

    def status() -> TaskStatus:
        found = executor.status(task.id)
        assert found is not None
        return found

    def has_failed() -> bool:
        nonlocal written
        if status().positions.get(1, 0) == written:  # the other partition is always behind
            numbers = range(written, written + STEP)
            bed.put(plan, {2 * n + 1: {"name": f"odd {n}", "qty": n} for n in numbers})
            written += STEP
        return status().state is TaskState.FAILED

    eventually(has_failed, "the table has failed")
    assert (status().error_code, status().retryable) == ("constraint_violated", True)
    assert "stuck_name_idx" in str(status().error)
    assert status().positions[0] == 0
    assert status().positions[1] >= STEP
