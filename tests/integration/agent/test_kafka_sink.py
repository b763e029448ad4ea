"""A real lane from topics into topics of the same cluster."""

import os
import signal

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition

from fixtures.registry_server import Registering, RegistryServer, answering
from headgate.agent.core.executor import SpanId, SpanTask
from headgate.config.crash_points import ArmedPoints, CrashPoint
from headgate.records.control import SpanPlan
from integration.agent.test_avro import SCHEMAS, event, of_registry
from support.topic_changes import FETCH_WAIT_MS
from support.waiting import eventually

from .conftest import DEADLINE_SECONDS, Bed

pytestmark = [pytest.mark.spark, pytest.mark.integration]


SHAPED = {"exclude": ["qty"], "rename": {"name": "title"}}


def into_topic(bed: Bed, plan: SpanPlan, n: int, columns: object = SHAPED, **options: object) -> SpanTask:
    target = f"{bed.prefix}copy"
    task = bed.task(msgspec.structs.replace(plan, table=target), n)
    sink = {"type": "kafka", "dsn": f"kafka://{bed.bootstrap}", **options}
    spec = msgspec.json.decode(task.spec) | {"sink": sink, "columns": columns}
    return msgspec.structs.replace(task, spec=msgspec.json.encode(spec).decode(), feed_id=bed.feed)


def records(bed: Bed, partitions: int) -> list[tuple[int, bytes, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bed.bootstrap,
            "group.id": "t",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
        }
    )
    try:
        consumer.assign([TopicPartition(f"{bed.prefix}copy", partition, 0) for partition in range(partitions)])
        found, left = [], partitions
        while left:
            message = consumer.poll(20)
            assert message is not None
            if message.error() is not None:
                left -= 1
            else:
                found.append((message.partition() or 0, message.key() or b"", message.value()))
        return sorted(found, key=lambda each: each[0])
    finally:
        consumer.close()


def test_shaped_changes_arrive_once_in_their_partitions_though_a_worker_dies(
    bed: Bed, worker_points: ArmedPoints
) -> None:
    plan = bed.table("things", 2)
    executor, task = bed.executor(), into_topic(bed, plan, 1)
    bed.put(plan, {number: {"name": "x", "qty": number} for number in range(20)})
    executor.add_table(task, prepare=False)
    eventually(lambda: executor.status(task.id).positions == {0: 10, 1: 10}, "it writes")  # type: ignore[union-attr]
    worker_points.arm(CrashPoint.ROWS_SENT)
    bed.put(plan, {number: {"name": "y", "qty": number} for number in range(20, 40)})
    os.kill(worker_points.await_reached(CrashPoint.ROWS_SENT, DEADLINE_SECONDS), signal.SIGKILL)
    bed.put(plan, {3: None})
    eventually(lambda: executor.status(task.id).positions == {0: 20, 1: 21}, "and goes on")  # type: ignore[union-attr]
    found = records(bed, 2)
    rows = [(n % 2, b'{"id":%d}' % n, b'{"id":%d,"title":"%s"}' % (n, b"x" if n < 20 else b"y")) for n in range(40)]
    assert sorted(found, key=str) == sorted([*rows, (1, b'{"id":3}', None)], key=str)


def out_of_topic(bed: Bed, plan: SpanPlan) -> SpanTask:
    """A feed that reads what ``into_topic`` has written, into the table of ``plan``."""
    task = bed.task(msgspec.structs.replace(plan, topic=f"{bed.prefix}copy"), 1)
    feed = f"{bed.feed}-back"
    spec = msgspec.json.decode(task.spec) | {"feed": feed}
    return msgspec.structs.replace(
        task, id=SpanId(feed, plan.span), feed_id=feed, spec=msgspec.json.encode(spec).decode()
    )


@pytest.mark.parametrize("columns", [{}, {"exclude": ["qty"]}], ids=["as it came", "shaped"])
def test_another_feed_reads_the_events_and_its_table_ends_as_the_source(bed: Bed, columns: dict[str, object]) -> None:
    plan = bed.table("things", 2)
    executor = bed.executor()
    executor.add_table(into_topic(bed, plan, 1, columns, format="debezium"), prepare=False)
    bed.put(plan, {number: {"name": "x", "qty": number} for number in range(20)})
    bed.put(plan, {number: {"name": "y", "qty": -number} for number in range(5)})
    bed.put(plan, {7: None, 8: None})
    bed.put(plan, {8: {"name": "again", "qty": 1}})
    into = SpanId(bed.feed, plan.span)
    eventually(lambda: executor.status(into).positions == {0: 15, 1: 13}, "it writes")  # type: ignore[union-attr]
    back = out_of_topic(bed, plan)
    executor.add_table(back, prepare=False)
    expected: dict[int, tuple[str, int | None]] = {number: ("x", number) for number in range(20)}
    expected |= {number: ("y", -number) for number in range(5)} | {8: ("again", 1)}
    del expected[7]
    if columns:
        expected = {number: (name, None) for number, (name, _) in expected.items()}
    eventually(lambda: bed.rows(plan) == expected, "the table is as the source")
    keys = [(key, value is None) for _, key, value in records(bed, 2)]
    assert keys.count((b'{"id":7}', True)) == 1
    if not columns:
        sent = {value for _, _, value in records(bed, 2)}
        assert all(b'"before"' in value and b'"source"' in value for value in sent if value is not None)


def stopping(task: SpanTask) -> SpanTask:
    """With a bad change stopping its table."""
    spec = msgspec.json.decode(task.spec) | {"on_bad_change": "fail"}
    return msgspec.structs.replace(task, spec=msgspec.json.encode(spec).decode())


def test_avro_events_are_written_on_byte_for_byte_for_readers_with_the_same_registry(bed: Bed) -> None:
    plan = bed.table("goods", 2)
    events = [event(number) for number in range(6)]
    deleted_key, deletion = event(2, deleted=True)
    for number, each in enumerate([*events, (deleted_key, deletion)]):
        bed.raw(plan, *each, partition=number % 2)
    bed.producer.flush(DEADLINE_SECONDS)
    with RegistryServer() as registry:
        registry.answer = answering(SCHEMAS)
        executor = bed.executor()
        task = stopping(of_registry(into_topic(bed, plan, 1, {}, format="debezium"), registry.url))
        executor.add_table(task, prepare=False)
        eventually(lambda: executor.status(task.id).positions == {0: 4, 1: 3}, "it writes")  # type: ignore[union-attr]
    found = [(key, value) for _, key, value in records(bed, 2)]
    assert found == [*events[::2], (deleted_key, deletion), (deleted_key, None), *events[1::2]]


def test_rows_in_avro_wait_for_the_sinks_registry_and_are_shaped(bed: Bed) -> None:
    """Ids are those of the sink's registry, whatever the source's has under them. Another table does not wait."""
    plan, other = bed.table("goods", 2), bed.table("others", 1)
    events = [event(number) for number in range(6)]
    for number, each in enumerate([*events, event(2, deleted=True)]):
        bed.raw(plan, *each, partition=number % 2)
    bed.raw(other, *event(1))
    bed.producer.flush(DEADLINE_SECONDS)
    with RegistryServer() as source, RegistryServer() as target:
        source.answer, registering = answering(SCHEMAS), Registering(first_id=900)
        target.answer = (503, "")
        executor = bed.executor()
        shaped = into_topic(bed, plan, 1, SHAPED, format="avro", registry={"url": target.url})
        task, plain = (stopping(of_registry(each, source.url)) for each in (shaped, bed.task(other, 1)))
        executor.add_table(task, prepare=False)
        executor.add_table(msgspec.structs.replace(plain, id=SpanId(f"{bed.feed}-2", other.span)), prepare=False)

        def waits() -> bool:
            status = executor.status(task.id)
            return status is not None and status.error_code == "sink_unavailable"

        eventually(waits, "the table waits for its registry")
        status = executor.status(task.id)
        assert status is not None
        assert status.retryable
        assert f"sink.registry: the schema registry at {target.url} cannot be used: it answers 503" in str(status.error)
        eventually(lambda: bed.rows(other) == {1: ("n1", 1)}, "the other table is written")
        target.answer = registering
        eventually(lambda: executor.status(task.id).positions == {0: 4, 1: 3}, "it writes")  # type: ignore[union-attr]
    found = [
        (partition, registering.read(key), None if value is None else registering.read(value))
        for partition, key, value in records(bed, 2)
    ]
    rows: list[tuple[int, object, object]] = [(n % 2, {"id": n}, {"id": n, "title": f"n{n}"}) for n in range(6)]
    assert found == [*rows[::2], (0, {"id": 2}, None), *rows[1::2]]
    assert registering.subjects.keys() == {f"{bed.prefix}copy-key", f"{bed.prefix}copy-value"}
