"""A source topic is deleted and made again: nothing of the new one is taken for the old one's, paused or running."""

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from msgspec.structs import replace

from headgate.agent.core.executor import SpanTask
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import SpanPlan, TaskState
from headgate.replication.executor import SparkExecutor
from headgate.sources.topic_ids import topic_ids

from .conftest import Bed, reached, until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    # Py4J leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

OLD = {n: {"name": "old", "qty": n} for n in range(5)}
NEW = {100 + n: {"name": "new", "qty": n} for n in range(12)}


def id_of(bed: Bed, plan: SpanPlan) -> str | None:
    return topic_ids(KafkaConnection(bed.bootstrap), [plan.topic]).get(plan.topic)


def make_again(bed: Bed, plan: SpanPlan) -> None:
    """Delete the topic, and make it again with twelve events."""
    admin = AdminClient({"bootstrap.servers": bed.bootstrap})
    for future in admin.delete_topics([plan.topic]).values():
        future.result()

    def is_made() -> bool:
        (future,) = admin.create_topics([NewTopic(plan.topic, len(plan.start), 1)]).values()
        return future.exception() is None  # a broker goes on deleting for a while

    until(is_made, "the topic is made again")
    bed.put(plan, NEW)


def failed(executor: SparkExecutor, task: SpanTask) -> str:
    def has_failed() -> bool:
        status = executor.status(task.id)
        return status is not None and status.state is TaskState.FAILED and status.epoch == task.epoch

    until(has_failed, "the table has failed")
    status = executor.status(task.id)
    assert status is not None
    assert (status.error_code, status.retryable) == ("source_topic_replaced", False)
    return str(status.error)


def replicated(bed: Bed, executor: SparkExecutor, plan: SpanPlan) -> SpanTask:
    task = bed.task(plan, 1)
    executor.add_table(task, prepare=False)
    reached(executor, task.id, TaskState.REPLICATING)
    bed.put(plan, OLD)
    until(lambda: len(bed.rows(plan)) == len(OLD), "the old topic's events are applied")
    return task


def closed(executor: SparkExecutor, task: SpanTask) -> None:
    executor.close_table(task)
    until(lambda: executor.is_remove_table_finished(task.id) is not None, "it is sealed")
    executor.forget_table(task.id)


def goes_on_from_the_beginning(bed: Bed, executor: SparkExecutor, plan: SpanPlan, n: int) -> None:
    """As ``feed resume --from earliest`` asks for it."""
    closed(executor, bed.task(plan, n))
    plan = replace(plan, start=dict.fromkeys(plan.start, 0), topic_id=id_of(bed, plan))
    task = replace(bed.task(plan, n + 1), incarnation=2)
    executor.add_table(task, prepare=False)
    reached(executor, task.id, TaskState.REPLICATING)
    until(lambda: bed.rows(plan).keys() >= NEW.keys(), "all of the new topic is applied")
    stored = bed.database.execute("SELECT DISTINCT topic_id FROM headgate.progress").fetchall()
    assert stored == [(plan.topic_id,)]


def test_while_it_is_paused(bed: Bed) -> None:
    plan, executor = bed.table("paused"), bed.executor()
    task = replicated(bed, executor, plan)
    executor.remove_table(task.id, seal=True)
    until(lambda: executor.is_remove_table_finished(task.id) is not None, "it is sealed")
    executor.forget_table(task.id)
    before = id_of(bed, plan)
    make_again(bed, plan)
    task = bed.task(plan, 2)
    executor.add_table(task, prepare=False)
    error = failed(executor, task)
    assert f"id is {id_of(bed, plan)}, the sink's offset 5 is of {before}" in error
    assert "feed resume --from earliest" in error
    assert bed.rows(plan).keys() == OLD.keys()
    goes_on_from_the_beginning(bed, executor, plan, 3)


def test_while_it_runs(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.replication.topic_watch.TOPICS_SECONDS", 1.0)
    plan, executor = bed.table("running"), bed.executor()
    task = replicated(bed, executor, plan)
    make_again(bed, plan)
    assert "was deleted and made again" in failed(executor, task)
    goes_on_from_the_beginning(bed, executor, plan, 2)


def test_before_the_first_claim(bed: Bed) -> None:
    plan, executor = bed.table("unclaimed"), bed.executor()
    plan = replace(plan, start={0: 3}, topic_id=id_of(bed, plan))  # as resolved when the feed was made
    make_again(bed, plan)
    task = bed.task(plan, 1)
    executor.add_table(task, prepare=False)
    assert f"id is {id_of(bed, plan)}, the offsets known are of {plan.topic_id}" in failed(executor, task)
    assert bed.rows(plan) == {}
    goes_on_from_the_beginning(bed, executor, plan, 2)
