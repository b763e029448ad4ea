"""A JVM that really runs out of memory, twice: rows come over one by one, and polls grow again afterwards."""

from collections.abc import Iterator

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.control import SpanPlan
from headgate.records.error_codes import MEMORY_SHORT
from headgate.replication.poll_size import POLL_RECORDS_MAX, PollSize
from headgate.replication.spark import SparkRuntime
from support.topic_changes import make_topics
from support.waiting import eventually

from .conftest import Bed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.long,
]

HEAP = "512m"
"""Spark wants 450 MiB at least."""

LARGE_BYTES = 20 << 20
LARGE_ROWS = 40
"""A poll of 2 000 records has all of them, and the next smaller one 20: both are more than the heap."""

SMALL_ROWS = 5_000

BATCH_ROWS = 20
"""A lane says that it reads in small portions once it has finished a batch."""


@pytest.fixture
def small_heap(spark_runtime: SparkRuntime) -> Iterator[None]:
    """The session's Spark, with a heap that the rows do not fit into."""
    usual = spark_runtime.settings
    for settings in (msgspec.structs.replace(usual, driver_memory=HEAP), usual):
        spark_runtime.stop()
        spark_runtime.settings, spark_runtime.poll_size = settings, PollSize()
        spark_runtime.start()
        if settings is not usual:
            yield


@pytest.mark.timeout(scaled_seconds(900))
@pytest.mark.usefixtures("small_heap")
def test_after_two_ends_for_want_of_memory_everything_arrives_and_polls_grow_again(bed: Bed) -> None:
    sizes, text = bed.runtime.poll_size, "ä" * (LARGE_BYTES // 2)
    plan = _table_for_large_rows(bed)
    with Producer(
        {"bootstrap.servers": bed.bootstrap, "message.max.bytes": 2 * LARGE_BYTES, "compression.type": "lz4"}
    ) as producer:
        for number in range(LARGE_ROWS):
            value = msgspec.json.encode({"op": "c", "after": {"id": number, "name": text, "qty": number}})
            producer.produce(plan.topic, value, b'{"id":%d}' % number)
            producer.flush(60)
    executor, task = bed.executor(), bed.task(plan, 1)
    spec = {**msgspec.json.decode(task.spec), "batch_rows_max": BATCH_ROWS}
    task = msgspec.structs.replace(task, spec=msgspec.json.encode(spec).decode())
    executor.add_table(task, prepare=False)

    def code() -> str | None:
        status = executor.status(task.id)
        return None if status is None else status.error_code

    eventually(lambda: sizes.failures == 2, "the JVM has run out of memory twice")
    assert sizes.records == 1
    eventually(lambda: code() == MEMORY_SHORT, "the table says that it is read in small portions")
    eventually(lambda: _count(bed) == LARGE_ROWS, "the large rows are applied")
    assert sizes.failures == 2, "one by one they fit"

    bed.put(plan, {number: {"name": "x", "qty": number} for number in range(LARGE_ROWS, LARGE_ROWS + SMALL_ROWS)})
    sizes.calm_seconds = 0.0
    eventually(lambda: _count(bed) == LARGE_ROWS + SMALL_ROWS, "everything is applied")
    eventually(lambda: sizes.records == POLL_RECORDS_MAX, "polls have their full size")
    eventually(lambda: code() is None, "nothing is left of it")
    assert bed.database.execute("SELECT DISTINCT length(name) FROM large ORDER BY 1").fetchall() == [
        (1,), (LARGE_BYTES // 2,),
    ]  # fmt: skip


def _count(bed: Bed) -> int:
    row = bed.database.execute("SELECT count(*) FROM large").fetchone()
    return 0 if row is None else int(row[0])


def _table_for_large_rows(bed: Bed) -> SpanPlan:
    """Its topic takes them."""
    bed.database.execute("CREATE TABLE large (id bigint PRIMARY KEY, name text, qty int)")
    topic = f"{bed.prefix}public.large"
    admin = AdminClient({"bootstrap.servers": bed.bootstrap})
    wanted = {"max.message.bytes": str(2 * LARGE_BYTES)}
    make_topics(admin, NewTopic(topic, 1, 1, config=wanted))
    return SpanPlan(span="large", topic=topic, table="public.large", start={0: 0})
