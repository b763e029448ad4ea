"""Bad changes on a real lane: failed by name, or set aside with their bytes before anything moves past them."""

import uuid
from collections.abc import Iterator

import msgspec
import pytest

from headgate.agent.core.executor import SpanTask
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.log import Delivery
from headgate.eventlog.replay import read_to_end
from headgate.eventlog.snapshot import all_partitions
from headgate.eventlog.topics import create_topics
from headgate.records.control import ChangeQuarantined, TaskState
from headgate.records.keys import DeadLetterKey
from headgate.replication.executor import SparkExecutor
from headgate.replication.plan import DeadLetterTarget
from headgate.replication.queries import ExecutorSettings
from support.kafka_cluster import ANSWER_SECONDS, Cluster
from support.waiting import eventually

from .conftest import Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]


def _row(number: int) -> dict[str, object]:
    return {"name": f"n{number}", "qty": number}


def _quarantined(task: SpanTask, per_hour_max: int = 100) -> SpanTask:
    spec = msgspec.json.decode(task.spec) | {"on_bad_change": "quarantine", "quarantine_per_hour_max": per_hour_max}
    return msgspec.structs.replace(task, spec=msgspec.json.encode(spec).decode())


@pytest.fixture
def log(bed: Bed) -> Iterator[KafkaLog]:
    settings = Cluster(bed.bootstrap, f"c{uuid.uuid4().hex[:8]}", shards=2)
    create_topics(settings)
    made = open_log(settings)
    yield made
    made.close()


def executor_with_dead_letters(bed: Bed, log: KafkaLog) -> SparkExecutor:
    box = DeadLetterTarget(bed.bootstrap, log.cluster, log.shards)
    settings = ExecutorSettings(bootstrap=bed.bootstrap, cluster_id="test/headgate.", dead_letters=box)
    bed.executors.append(SparkExecutor(bed.runtime, settings))
    return bed.executors[-1]


def letters_on(log: KafkaLog) -> dict[DeadLetterKey, ChangeQuarantined]:
    read = read_to_end(log, all_partitions(log, ("deadletter",)))
    return {item.key: item.value for item in read if isinstance(item, Delivery)}  # type: ignore[misc]


def test_bad_changes_are_set_aside_with_their_bytes_and_the_rest_is_applied(bed: Bed, log: KafkaLog) -> None:
    plan = bed.table("goods")
    bed.put(plan, {n: _row(n) for n in range(50)})
    bed.producer.produce(plan.topic, b"\xff\x00garbage", b'{"id":50}', 0, headers=[("trace", b"\x01"), ("none", None)])
    bed.put(plan, {51: {"name": "x", "qty": 2**40}})
    bed.put(plan, {n: _row(n) for n in range(52, 100)})
    bed.raw(plan, b'{"other":1}', b'{"op":"c","after":{"other":1}}')
    bed.producer.flush(ANSWER_SECONDS)
    executor = executor_with_dead_letters(bed, log)
    task = _quarantined(bed.task(plan, 1))
    executor.add_table(task, prepare=False)
    eventually(lambda: executor.status(task.id).positions == {0: 101}, "all of it is dealt with")  # type: ignore[union-attr]

    assert sorted(bed.rows(plan)) == [n for n in range(100) if n not in (50, 51)]
    letters = letters_on(log)
    assert {key.offset: letter.error_code for key, letter in letters.items()} == {
        50: "change_undecodable",
        51: "value_refused",
        100: "value_refused",
    }
    (garbage,) = [letter for key, letter in letters.items() if key.offset == 50]
    key = DeadLetterKey(bed.feed, "public.goods", plan.topic, 0, 50)
    assert key in letters
    assert (garbage.key, garbage.value, garbage.epoch) == (b'{"id":50}', b"\xff\x00garbage", task.epoch)
    assert [(header.name, header.value) for header in garbage.headers] == [("trace", b"\x01"), ("none", None)]
    assert "out of range" in next(letter.error for key, letter in letters.items() if key.offset == 51)
    eventually(lambda: executor.status(task.id).error is None, "the table is well")  # type: ignore[union-attr]


def test_a_record_that_is_skipped_by_name_is_set_aside_and_the_next_bad_one_stops_the_table(
    bed: Bed, log: KafkaLog
) -> None:
    plan = bed.table("skipping")
    bed.put(plan, {n: _row(n) for n in range(10)})
    bed.raw(plan, b'{"id":10}', b"garbage")
    bed.put(plan, {11: {"name": "x", "qty": 2**40}, 12: _row(12)})
    bed.put(plan, {13: {"name": "x", "qty": 2**41}, 14: _row(14)})
    bed.producer.flush(ANSWER_SECONDS)
    executor = executor_with_dead_letters(bed, log)
    task = bed.task(plan, 1)
    spec = msgspec.json.decode(task.spec) | {"skip": [f"{plan.topic}/0/10", f"{plan.topic}/0/11"]}
    task = msgspec.structs.replace(task, spec=msgspec.json.encode(spec).decode())
    executor.add_table(task, prepare=False)

    def has_failed() -> bool:
        status = executor.status(task.id)
        return status is not None and status.state is TaskState.FAILED

    eventually(has_failed, "the bad change that nobody named stops the table")
    status = executor.status(task.id)
    assert status is not None
    assert (status.error_code, status.positions) == ("value_refused", {0: 13})
    assert sorted(bed.rows(plan)) == [*range(10), 12]
    assert {key.offset: letter.error_code for key, letter in letters_on(log).items()} == {
        10: "change_undecodable",
        11: "value_refused",
    }


def test_more_than_its_share_fails_the_table_and_nothing_is_lost(bed: Bed, log: KafkaLog) -> None:
    plan, other = bed.table("broken"), bed.table("sound")
    bed.put(plan, {n: _row(n) for n in range(10)})
    bed.database.execute("ALTER TABLE broken ADD CHECK (qty < 10)")
    bed.put(plan, {n: _row(n) for n in range(10, 20)})
    bed.put(other, {n: _row(n) for n in range(10)})
    executor = executor_with_dead_letters(bed, log)
    task = _quarantined(bed.task(plan, 1), per_hour_max=3)
    executor.add_table(task, prepare=False)
    executor.add_table(_quarantined(bed.task(other, 1), per_hour_max=3), prepare=False)
    eventually(lambda: executor.status(task.id).state is TaskState.FAILED, "it fails")  # type: ignore[union-attr]
    status = executor.status(task.id)
    assert status is not None
    assert (status.error_code, status.retryable) == ("quarantine_full", False)
    assert f"topic {plan.topic}, partition 0, offset 10" in str(status.error)
    eventually(lambda: len(bed.rows(other)) == 10, "the other one goes on")
    assert letters_on(log) == {}

    bed.database.execute("ALTER TABLE broken DROP CONSTRAINT broken_qty_check")
    again = _quarantined(bed.task(plan, 2), per_hour_max=3)
    executor.add_table(again, prepare=False)
    eventually(lambda: len(bed.rows(plan)) == 20, "mended, it goes on with all of them")


def test_what_only_a_rule_between_rows_refuses_is_set_aside_after_some_tries(bed: Bed, log: KafkaLog) -> None:
    plan = bed.table("unique_names")
    bed.database.execute("ALTER TABLE unique_names ADD UNIQUE (name); INSERT INTO unique_names VALUES (-1, 'n5', 0)")
    bed.put(plan, {n: _row(n) for n in range(10)})
    executor = executor_with_dead_letters(bed, log)
    task = _quarantined(bed.task(plan, 1))
    executor.add_table(task, prepare=False)
    eventually(lambda: executor.status(task.id).positions == {0: 10}, "the time for an answer has passed")  # type: ignore[union-attr]
    assert {key.offset: letter.error_code for key, letter in letters_on(log).items()} == {5: "constraint_violated"}
    assert sorted(bed.rows(plan)) == [-1, 0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_without_quarantine_a_refused_change_names_its_place_and_what_is_before_it_is_there(bed: Bed) -> None:
    plan = bed.table("strict", partitions=2)
    bed.put(plan, {n: _row(n) for n in range(20)})
    bed.put(plan, {20: {"name": "x", "qty": 2**40}, 22: _row(22), 21: _row(21)})
    executor = bed.executor()
    task = bed.task(plan, 1)
    executor.add_table(task, prepare=False)
    eventually(lambda: executor.status(task.id).state is TaskState.FAILED, "it fails")  # type: ignore[union-attr]
    status = executor.status(task.id)
    assert status is not None
    assert (status.error_code, status.retryable) == ("value_refused", False)
    assert status.error is not None
    for word in ("public.strict", "column qty", f"topic {plan.topic}", "partition 0", "offset 10"):
        assert word in status.error
    assert sorted(bed.rows(plan)) == [*range(20), 21]
    assert status.positions == {0: 10, 1: 11}

    bed.database.execute("ALTER TABLE strict ALTER qty TYPE bigint")
    executor.add_table(bed.task(plan, 2), prepare=False)
    reached(executor, task.id, TaskState.REPLICATING)
    eventually(lambda: sorted(bed.rows(plan)) == list(range(23)), "nothing was lost")
