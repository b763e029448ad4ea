"""A source topic is deleted and made again: nothing of the new one is taken for the old one's, paused or running."""

from collections.abc import Mapping

import msgspec
import pytest
from msgspec.structs import replace

from headgate.agent.core.executor import SpanTask
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import SpanPlan, TaskState
from headgate.replication.executor import SparkExecutor
from headgate.sources import topic_ids as ids
from headgate.sources.topic_ids import topic_id_of
from support import topic_changes
from support.waiting import eventually

from .conftest import Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

OLD = {n: {"name": "old", "qty": n} for n in range(5)}
NEW = {100 + n: {"name": "new", "qty": n} for n in range(12)}


def id_of(bed: Bed, plan: SpanPlan) -> str | None:
    return topic_id_of(KafkaConnection(bed.bootstrap), plan.topic)


def make_again(bed: Bed, plan: SpanPlan, rows: Mapping[int, Mapping[str, object]] = NEW) -> None:
    """Delete the topic, and re-create it with an event for each of ``rows``."""
    topic_changes.make_again(KafkaConnection(bed.bootstrap), plan.topic, len(plan.start))
    bed.producer = bed.new_producer()
    bed.put(plan, rows)


def failed(executor: SparkExecutor, task: SpanTask) -> str:
    def has_failed() -> bool:
        status = executor.status(task.id)
        return status is not None and status.state is TaskState.FAILED and status.epoch == task.epoch

    eventually(has_failed, lambda: f"the table has not failed: {executor.status(task.id)}")
    status = executor.status(task.id)
    assert status is not None
    assert (status.error_code, status.retryable) == ("source_topic_replaced", False)
    return str(status.error)


def replicated(bed: Bed, executor: SparkExecutor, plan: SpanPlan) -> SpanTask:
    task = bed.task(plan, 1)
    executor.add_table(task, prepare=False)
    reached(executor, task.id, TaskState.REPLICATING)
    bed.put(plan, OLD)
    eventually(lambda: len(bed.rows(plan)) == len(OLD), "the old topic's events are applied")
    return task


def closed(executor: SparkExecutor, task: SpanTask) -> None:
    executor.close_table(task)
    eventually(lambda: executor.is_remove_table_finished(task.id) is not None, "it is sealed")
    executor.forget_table(task.id)


def goes_on_from_the_beginning(bed: Bed, executor: SparkExecutor, plan: SpanPlan, n: int) -> None:
    """As ``feed resume --from earliest`` asks for it."""
    closed(executor, bed.task(plan, n))
    plan = replace(plan, start=dict.fromkeys(plan.start, 0), topic_id=id_of(bed, plan))
    task = replace(bed.task(plan, n + 1), incarnation=2)
    executor.add_table(task, prepare=False)
    reached(executor, task.id, TaskState.REPLICATING)
    eventually(lambda: bed.rows(plan).keys() >= NEW.keys(), "all of the new topic is applied")
    assert stored_ids(bed) == {plan.topic_id}


def stored_ids(bed: Bed) -> set[str | None]:
    """The ids of topics that the sink's offsets belong to."""
    return {topic_id for (topic_id,) in bed.database.execute("SELECT topic_id FROM headgate.progress")}


def test_while_it_is_paused(bed: Bed) -> None:
    plan, executor = bed.table("paused"), bed.executor()
    task = replicated(bed, executor, plan)
    executor.remove_table(task.id, seal=True)
    eventually(lambda: executor.is_remove_table_finished(task.id) is not None, "it is sealed")
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


BATCH_ROWS = 300
MANY = 1_000
"""Below what Spark polls at once (2 000): a batch then leaves polled records behind for whoever comes next."""


def with_small_batches(task: SpanTask) -> SpanTask:
    spec = {**msgspec.json.decode(task.spec), "batch_rows_max": BATCH_ROWS}
    return replace(task, spec=msgspec.json.encode(spec).decode())


def test_records_of_the_old_topic_that_spark_has_polled_are_not_the_new_topics(bed: Bed) -> None:
    """Paused in the middle of a backlog and resumed from earliest in the same agent, in the new topic."""
    plan, executor = bed.table("polled"), bed.executor()
    bed.put(plan, {n: {"name": "old", "qty": n} for n in range(MANY)})
    task = with_small_batches(bed.task(plan, 1))
    with bed.gate(plan, BATCH_ROWS):  # of the second batch, and there are four
        executor.add_table(task, prepare=False)
        eventually(lambda: bed.rows(plan), "a batch is applied")
        executor.remove_table(task.id, seal=True)
    positions = eventually(lambda: executor.is_remove_table_finished(task.id), "it is sealed")
    assert 0 < positions[0] < MANY
    assert positions[0] % BATCH_ROWS == 0, "a batch of the new topic begins where the old one's ended"
    executor.forget_table(task.id)

    make_again(bed, plan, {n: {"name": "new", "qty": n} for n in range(MANY)})
    plan = replace(plan, topic_id=id_of(bed, plan))
    task = with_small_batches(replace(bed.task(plan, 2), incarnation=2))
    executor.add_table(task, prepare=False)

    def is_applied() -> bool:
        status = executor.status(task.id)
        return status is not None and status.positions.get(0) == MANY

    eventually(is_applied, lambda: f"the new topic is not applied: {executor.status(task.id)}")
    assert {name for name, _ in bed.rows(plan).values()} == {"new"}


def test_while_it_runs(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.replication.topic_watch.TOPICS_SECONDS", 1.0)
    plan, executor = bed.table("running"), bed.executor()
    task = replicated(bed, executor, plan)
    make_again(bed, plan)
    assert "was deleted and re-created" in failed(executor, task)
    goes_on_from_the_beginning(bed, executor, plan, 2)


def test_before_the_first_claim(bed: Bed) -> None:
    plan, executor = bed.table("unclaimed"), bed.executor()
    plan = replace(plan, start={0: 3}, topic_id=id_of(bed, plan))  # as resolved when the feed was made
    make_again(bed, plan)
    task = bed.task(plan, 1)
    executor.add_table(task, prepare=False)
    assert f"id is {id_of(bed, plan)}, but the known offsets belong to id {plan.topic_id}" in failed(executor, task)
    assert bed.rows(plan) == {}
    goes_on_from_the_beginning(bed, executor, plan, 2)


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claimed without the topic's id, the table would go on at its offset in whatever topic has that name later."""
    known, answers = ids.topic_ids, [{}, {}]
    monkeypatch.setattr(ids, "topic_ids", lambda *asked: answers.pop() if answers else known(*asked))
    plan, executor = bed.table("young"), bed.executor()
    task = bed.task(plan, 1)
    executor.add_table(task, prepare=False)
    reached(executor, task.id, TaskState.REPLICATING)
    assert answers == []
    assert stored_ids(bed) == {id_of(bed, plan)}
