"""Tables of one agent beside each other: a huge, a stuck and a broken neighbour, and a sink that goes away."""

import threading
from collections.abc import Callable
from contextlib import closing

import msgspec
import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from headgate.records.control import SpanPlan, TaskState
from support.kafka_cluster import ANSWER_SECONDS
from support.topic_changes import change_settings
from support.waiting import eventually

from .conftest import Bed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

BATCH_ROWS = 20_000
BACKLOG = 5 * BATCH_ROWS

LARGE_BYTES = 8 << 20


def _row(number: int) -> dict[str, object]:
    return {"name": f"n{number}", "qty": number}


class Flood(threading.Thread):
    """Writes to a table for as long as it is to be behind, however fast it is read."""

    def __init__(self, bed: Bed, plan: SpanPlan, reached: Callable[[], int]) -> None:
        super().__init__(name="flood", daemon=True)
        self.written = 0
        self._bed, self._plan, self._reached = bed, plan, reached
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            if self.written - self._reached() >= BACKLOG:
                self._over.wait(0.02)
                continue
            for number in range(self.written, self.written + BATCH_ROWS):
                event = b'{"op":"c","after":{"id":%d,"name":"x","qty":1}}' % number
                self._bed.raw(self._plan, b'{"id":%d}' % number, event)
            self._bed.producer.flush(ANSWER_SECONDS)
            self.written += BATCH_ROWS

    def close(self) -> None:
        self._over.set()
        self.join(ANSWER_SECONDS)


def test_what_small_tables_get_now_is_there_before_a_huge_or_a_stuck_one_is_done(bed: Bed) -> None:
    huge, stuck, small = bed.table("huge"), bed.table("stuck"), bed.table("small")
    tasks = [bed.task(plan, 1) for plan in (huge, stuck, small)]
    spec = msgspec.json.encode(msgspec.json.decode(tasks[0].spec) | {"batch_rows_max": BATCH_ROWS}).decode()
    tasks = [msgspec.structs.replace(task, spec=spec) for task in tasks]
    executor = bed.executor()

    def reached() -> int:
        status = executor.status(tasks[0].id)
        return 0 if status is None else sum(status.positions.values())

    with psycopg.connect(bed.dsn) as holder:
        holder.execute("LOCK TABLE stuck IN ACCESS EXCLUSIVE MODE")
        with closing(Flood(bed, huge, reached)) as flood:
            flood.start()
            eventually(lambda: flood.written >= BACKLOG, "the huge one has a backlog")
            bed.put(stuck, {n: _row(n) for n in range(10)})
            for task in tasks:
                executor.add_table(task, prepare=False)
            eventually(reached, "the huge one has begun")
            bed.put(small, {n: _row(n) for n in range(5)})
            eventually(lambda: len(bed.rows(small)) == 5, "what is written now")
        eventually(lambda: executor.status(tasks[1].id).error_code == "sink_unavailable", "it says so")  # type: ignore[union-attr]
        assert executor.status(tasks[1].id).positions == {0: 0}  # type: ignore[union-attr]
    eventually(lambda: len(bed.rows(stuck)) == 10, "the lock is gone")
    eventually(lambda: reached() == flood.written, "all of it")


def test_records_of_several_megabytes_come_over(bed: Bed) -> None:
    plan = bed.table("large")
    change_settings(
        AdminClient({"bootstrap.servers": bed.bootstrap}), plan.topic, {"max.message.bytes": str(LARGE_BYTES)}
    )
    bed.producer.close()
    bed.producer = Producer({"bootstrap.servers": bed.bootstrap, "message.max.bytes": LARGE_BYTES})
    text = "ä" * 2_000_000
    for number in range(15):
        value = msgspec.json.encode({"op": "c", "after": {"id": number, "name": text, "qty": number}})
        bed.raw(plan, b'{"id":%d}' % number, value)
    assert bed.producer.flush(60) == 0
    executor = bed.executor()
    task = bed.task(plan, 1)
    executor.add_table(task, prepare=False)
    eventually(lambda: executor.status(task.id).positions == {0: 15}, "all of it")  # type: ignore[union-attr]
    assert bed.database.execute("SELECT count(*), min(length(name)) FROM large").fetchone() == (15, 2_000_000)


def test_a_sink_that_goes_away_is_waited_for_without_reading_and_gone_on_with(bed: Bed) -> None:
    plan = bed.table("patient")
    executor = bed.executor()
    task = bed.task(plan, 1)
    executor.add_table(task, prepare=False)
    bed.put(plan, {n: _row(n) for n in range(10)})
    eventually(lambda: len(bed.rows(plan)) == 10, "it writes")
    name = bed.database.info.dbname
    server = bed.dsn.rpartition("/")[0] + "/postgres"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND application_name LIKE %s"
        admin.execute(ended, (name, "headgate%"))
        bed.put(plan, {n: _row(n) for n in range(10, 500)})
        said = "sink_unavailable"
        eventually(lambda: executor.status(task.id).error_code == said, "it is said")  # type: ignore[union-attr]
        eventually(lambda: executor.lanes == {}, "nothing is read meanwhile")
        status = executor.status(task.id)
        assert status is not None
        assert (status.error_code, status.retryable) == (said, True)
        assert status.state is not TaskState.FAILED
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    eventually(lambda: sorted(bed.rows(plan)) == list(range(500)), "nothing was lost")
    eventually(lambda: executor.status(task.id).error is None, "and it is well again")  # type: ignore[union-attr]


def test_a_span_that_retention_overtakes_fails_and_its_neighbour_on_the_lane_goes_on(bed: Bed) -> None:
    late, kept = bed.table("late"), bed.table("kept")
    count, name = 20_000, b"x" * 2_000  # several times what a consumer fetches ahead
    for number in range(count):
        bed.raw(late, b'{"id":%d}' % number, b'{"op":"c","after":{"id":%d,"name":"%s","qty":1}}' % (number, name))
    bed.put(kept, {n: _row(n) for n in range(10)})
    tasks = [bed.task(plan, 1) for plan in (late, kept)]
    spec = msgspec.json.encode(msgspec.json.decode(tasks[0].spec) | {"batch_rows_max": 500}).decode()
    executor = bed.executor()
    with bed.gate(late, count // 2):
        for task in tasks:
            executor.add_table(msgspec.structs.replace(task, spec=spec), prepare=False)
        eventually(lambda: executor.status(tasks[0].id).rows > 0, "the late one has begun")  # type: ignore[union-attr]
        bed.delete_before(late, 0, count - 1)
    eventually(lambda: executor.status(tasks[0].id).state is TaskState.FAILED, "it is refused")  # type: ignore[union-attr]
    status = executor.status(tasks[0].id)
    assert status is not None
    assert (status.error_code, status.retryable) == ("source_offset_expired", False)
    assert f"{late.topic}[0]: offset {status.positions[0]} is the next to apply" in str(status.error)
    bed.put(kept, {n: _row(n) for n in range(10, 20)})
    eventually(lambda: len(bed.rows(kept)) == 20, "its neighbour goes on")
    assert executor.status(tasks[1].id).state is TaskState.REPLICATING  # type: ignore[union-attr]
