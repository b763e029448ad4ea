"""A source topic is deleted under a running lane: its table stops with the reason, its neighbour goes on."""

import pytest
from confluent_kafka.admin import AdminClient

from headgate.agent.core.executor import TaskStatus
from headgate.records.control import SpanPlan, TaskState
from support.topic_changes import delete_topics
from support.waiting import eventually

from .conftest import Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

STEP = 20
"""Rows written to the neighbour between two looks: there is always something under way."""


def test_its_table_stops_with_the_reason_and_its_neighbour_goes_on(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.replication.topic_watch.TOPICS_SECONDS", 1.0)
    gone, kept = bed.table("gone", partitions=2), bed.table("kept", partitions=2)
    executor = bed.executor()
    tasks = {plan.span: bed.task(plan, 1) for plan in (gone, kept)}
    for task in tasks.values():
        executor.add_table(task, prepare=False)
    for task in tasks.values():
        reached(executor, task.id, TaskState.REPLICATING)
    eventually(lambda: [len(spans) for spans in executor.lanes.values()] == [2], "one lane has both")
    written = dict.fromkeys(tasks, 0)

    def write(plan: SpanPlan) -> None:
        begin = written[plan.span]
        bed.put(plan, {n: {"name": "x", "qty": n} for n in range(begin, begin + STEP)})
        written[plan.span] += STEP

    def status(plan: SpanPlan) -> TaskStatus:
        found = executor.status(tasks[plan.span].id)
        assert found is not None
        return found

    write(gone)
    eventually(lambda: len(bed.rows(gone)) == STEP, "both are written")
    eventually(lambda: sum(status(gone).positions.values()) == STEP, "and known to be")
    admin = AdminClient({"bootstrap.servers": bed.bootstrap})
    delete_topics(admin, gone.topic)

    def has_failed() -> bool:
        write(kept)
        assert status(kept).state is not TaskState.FAILED
        return status(gone).state is TaskState.FAILED

    eventually(has_failed, "the table whose topic is gone has failed")
    assert (status(gone).error_code, status(gone).retryable) == ("source_topic_missing", True)
    assert gone.topic in str(status(gone).error)
    assert sum(status(gone).positions.values()) == STEP
    write(kept)
    eventually(lambda: len(bed.rows(kept)) == written[kept.span], "its neighbour has all, also what came meanwhile")
    eventually(lambda: status(kept).error is None, "and no error")
    assert len(bed.rows(gone)) == STEP
