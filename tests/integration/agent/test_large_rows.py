"""Rows of ten megabytes, many more than workers and JVM could hold: they come over in portions, in bounded memory.

Compressed they are small, so that a single fetch brings many more of them than there is memory: the JVM is lost once or
twice, says why, and then takes them one by one.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.control import SpanPlan
from support.topic_changes import make_topics
from support.waiting import eventually

from .conftest import Bed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.long,
]

ROW_BYTES = 10 << 20
ROWS = 150
"""1.5 GB in one batch, in two tasks."""

PARTITIONS = 2
MEMORY_MAX = 3 << 30
"""Of all workers together: two that work, each with its 128 MB of values, several times over once decoded."""


class Watched:
    """The most that workers have held."""

    def __init__(self, bed: Bed) -> None:
        self.workers_bytes = self.jvm_bytes = 0
        self._bed = bed
        self._over = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.1):
            now = self._bed.runtime.memory_bytes()
            self.workers_bytes = max(self.workers_bytes, now["workers"])
            self.jvm_bytes = max(self.jvm_bytes, now["jvm"])


@pytest.mark.timeout(scaled_seconds(900))
def test_they_come_over_in_bounded_memory(bed: Bed) -> None:
    plan = _table_for_large_rows(bed)
    text = "ä" * (ROW_BYTES // 2)
    with Producer(
        {"bootstrap.servers": bed.bootstrap, "message.max.bytes": 2 * ROW_BYTES, "compression.type": "lz4"}
    ) as producer:
        for number in range(ROWS):
            value = msgspec.json.encode({"op": "c", "after": {"id": number, "name": text, "qty": number}})
            producer.produce(plan.topic, value, b'{"id":%d}' % number, number % PARTITIONS)
            producer.flush(60)
    executor = bed.executor()
    task = bed.task(plan, 1)
    watched = Watched(bed)
    with watched.running():
        executor.add_table(task, prepare=False)
        half = ROWS // PARTITIONS
        eventually(lambda: executor.status(task.id).error is not None, "a fetch is too large")  # type: ignore[union-attr]
        assert "HEADGATE_SPARK__MEMORY" in str(executor.status(task.id).error)  # type: ignore[union-attr]
        eventually(lambda: executor.status(task.id).positions == {0: half, 1: half}, "all of it")  # type: ignore[union-attr]
        eventually(lambda: executor.status(task.id).error is None, "nothing is left of it")  # type: ignore[union-attr]
    wanted = (ROWS, ROW_BYTES // 2)
    assert bed.database.execute("SELECT count(*), min(length(name)) FROM large").fetchone() == wanted
    assert watched.workers_bytes < MEMORY_MAX


def _table_for_large_rows(bed: Bed) -> SpanPlan:
    """Its topic takes them."""
    bed.database.execute("CREATE TABLE large (id bigint PRIMARY KEY, name text, qty int)")
    topic = f"{bed.prefix}public.large"
    admin = AdminClient({"bootstrap.servers": bed.bootstrap})
    wanted = {"max.message.bytes": str(2 * ROW_BYTES)}
    make_topics(admin, NewTopic(topic, PARTITIONS, 1, config=wanted))
    return SpanPlan(span="large", topic=topic, table="public.large", start=dict.fromkeys(range(PARTITIONS), 0))
