"""A topic of one table whose workers and agents end: another table's event is not taken for the first of the topic."""

import os
import signal

import msgspec
import pytest
from msgspec.structs import replace

from headgate.agent.core.executor import SpanTask
from headgate.config.crash_points import ArmedPoints, CrashPoint
from headgate.records.control import SpanPlan, TaskState
from headgate.replication.executor import SparkExecutor
from support.kafka_cluster import ANSWER_SECONDS
from support.waiting import eventually

from .conftest import DEADLINE_SECONDS, Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]


def put(bed: Bed, plan: SpanPlan, table: str, number: int) -> None:
    source = {"ts_ms": 5, "db": "d", "schema": "public", "table": table}
    event = {"op": "c", "after": {"id": number, "name": table, "qty": 1}, "source": source}
    bed.raw(plan, b'{"id":%d}' % number, msgspec.json.encode(event))
    bed.producer.flush(ANSWER_SECONDS)


def refused(executor: SparkExecutor, task: SpanTask) -> None:
    def has_failed() -> bool:
        status = executor.status(task.id)
        return status is not None and status.state is TaskState.FAILED and status.epoch == task.epoch

    eventually(has_failed, "the table has failed")
    status = executor.status(task.id)
    assert status is not None
    assert (status.error_code, status.retryable) == ("change_undecodable", False)
    where = f"public.orders: topic {task.plan.topic}, partition 0, offset 1"
    assert f"{where}: the topic carries changes of d.public.orders and of d.public.items" in str(status.error)


def test_after_worker_and_agent_have_ended_the_topic_is_still_the_first_tables(
    bed: Bed, worker_points: ArmedPoints
) -> None:
    plan, executor = bed.table("orders"), bed.executor()
    task = bed.task(plan, 1)
    worker_points.arm(CrashPoint.COMMITTED)
    put(bed, plan, "orders", 0)
    executor.add_table(task, prepare=False)
    pid = worker_points.await_reached(CrashPoint.COMMITTED, DEADLINE_SECONDS)
    put(bed, plan, "items", 1)
    os.kill(pid, signal.SIGKILL)  # the only process that has met the table, and it has told nobody but the sink
    refused(executor, task)

    executor.close()
    again = bed.executor()
    task = bed.task(plan, 2)
    again.add_table(task, prepare=False)
    refused(again, task)
    assert bed.rows(plan) == {0: ("orders", 1)}

    again.close_table(task)
    eventually(lambda: again.is_remove_table_finished(task.id) is not None, "it is sealed")
    again.forget_table(task.id)
    task = replace(bed.task(replace(plan, start={0: 1}), 3), incarnation=2)
    again.add_table(task, prepare=False)
    reached(again, task.id, TaskState.REPLICATING)
    eventually(lambda: bed.rows(plan).keys() == {0, 1}, "after a rewind it is the table that is met then")
