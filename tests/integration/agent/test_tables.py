"""One topic with the changes of several tables, each in a sink table of its own: nobody's trouble is another's."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.agent.core.executor import SpanId, SpanTask
from headgate.agent.core.span import states
from headgate.config.crash_points import ArmedPoints, CrashPoint
from headgate.eventlog.kafka import KafkaLog
from headgate.records.control import Epoch, SpanPlan, TaskState
from headgate.records.keys import DeadLetterKey
from support.kafka_cluster import ANSWER_SECONDS
from support.topic_changes import make_topics
from support.waiting import eventually

from .conftest import DEADLINE_SECONDS, Bed, reached
from .test_lane_crashes import NOTE, noted
from .test_quarantine import executor_with_dead_letters, letters_on, log

__all__ = ["log"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

PARTITIONS = 2


class Shop:
    """A topic of tables orders, items, idle (named by the feed) and audit (not named), and what they are to be."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.topic = f"{bed.prefix}shop"
        self.wanted: dict[str, dict[int, tuple[str, int]]] = {"orders": {}, "items": {}, "idle": {}}
        self.length = [0] * PARTITIONS
        admin = AdminClient({"bootstrap.servers": bed.bootstrap})
        make_topics(admin, NewTopic(self.topic, PARTITIONS, 1))
        for table in self.wanted:
            self.make(table)
        start = dict.fromkeys(range(PARTITIONS), 0)
        self.plans = {t: SpanPlan(f"public.{t}", self.topic, f"public.{t}", start) for t in self.wanted}

    def make(self, table: str) -> None:
        self.bed.database.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, name text, qty int)")

    def task(self, table: str, n: int, **more: Any) -> SpanTask:
        spec = {
            "feed": self.bed.feed,
            "source": {"topics": [self.topic], "tables": [f"public.{each}" for each in self.wanted]},
            "sink": {"type": "postgresql", "dsn": self.bed.dsn},
            **more,
        }
        text = msgspec.json.encode(spec).decode()
        return SpanTask(self.id(table), "0-7", 1, Epoch(3, n), self.plans[table], text)

    def id(self, table: str) -> SpanId:
        return SpanId(self.bed.feed, f"public.{table}")

    def say(self, value: bytes, number: int = 0) -> None:
        self.bed.raw(self.plans["orders"], b'{"id":%d}' % number, value, number % PARTITIONS)
        self.length[number % PARTITIONS] += 1

    def put(self, table: str, numbers: range, qty: int = 0) -> None:
        source = {"ts_ms": 5, "db": "d", "schema": "public", "table": table}
        for number in numbers:
            after = {"id": number, "name": f"{table} {number}", "qty": qty}
            self.say(msgspec.json.encode({"op": "u", "after": after, "source": source}), number)
            if table in self.wanted:
                self.wanted[table][number] = (after["name"], qty)
        self.bed.producer.flush(ANSWER_SECONDS)

    def truncate(self, table: str, partition: int) -> None:
        source = {"ts_ms": 5, "db": "d", "schema": "public", "table": table}
        self.say(msgspec.json.encode({"op": "t", "after": None, "source": source}), partition)
        self.bed.producer.flush(ANSWER_SECONDS)
        if partition == 0:
            self.wanted[table].clear()

    @property
    def ends(self) -> dict[int, int]:
        return dict(enumerate(self.length))

    def has(self, *tables: str) -> bool:
        return all(self.bed.rows(self.plans[table]) == self.wanted[table] for table in tables)


@pytest.fixture
def shop(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr(states, "REST_SECONDS", 0.5)
    return Shop(bed)


def test_tables_of_one_topic_fail_move_and_rest_each_for_itself(bed: Bed, shop: Shop) -> None:
    first, second = bed.executor(), bed.executor()
    shop.put("orders", range(100))
    shop.put("audit", range(50))
    for table in shop.wanted:
        first.add_table(shop.task(table, 1), prepare=False)
    shop.put("items", range(60))
    eventually(lambda: shop.has("orders", "items"), "each table has its own rows")
    eventually(lambda: [len(spans) for spans in first.lanes.values()] == [3], "one lane has them all")
    eventually(lambda: first.status(shop.id("idle")).positions == shop.ends, "the sink follows for one without rows")  # type: ignore[union-attr]
    status = reached(first, shop.id("idle"), TaskState.REPLICATING)
    assert (status.rows, status.passed_over >= 50, status.passed_over_table) == (0, True, "public.audit")

    bed.database.execute("ALTER TABLE items RENAME TO gone")
    shop.put("items", range(30, 90), qty=1)
    shop.put("orders", range(50, 150), qty=1)
    eventually(lambda: first.status(shop.id("items")).state is TaskState.FAILED, "it has no table any more")  # type: ignore[union-attr]
    eventually(lambda: shop.has("orders"), "its neighbour goes on")

    bed.database.execute("ALTER TABLE gone RENAME TO items")
    shop.put("idle", range(5))
    first.remove_table(shop.id("orders"), seal=True)
    sealed = reached(first, shop.id("orders"), TaskState.STOPPED)
    second.add_table(shop.task("orders", 2), prepare=False)
    first.add_table(shop.task("items", 2), prepare=False)
    shop.put("orders", range(140, 180), qty=2)
    shop.put("items", range(80, 100), qty=2)
    eventually(lambda: shop.has("orders", "items", "idle"), "moved, mended, woken: each is as its source")
    at = reached(second, shop.id("orders"), TaskState.REPLICATING).positions
    assert all(at[partition] >= position for partition, position in sealed.positions.items())

    shop.truncate("idle", 1)
    eventually(
        lambda: first.status(shop.id("idle")).state is TaskState.FAILED, "a TRUNCATE has no order among partitions"
    )  # type: ignore[union-attr]
    shop.put("items", range(3))
    for executor, table in ((second, "orders"), (first, "items")):
        eventually(lambda e=executor, t=table: e.status(shop.id(t)).positions == shop.ends, f"{table} is at the end")
    assert shop.has("orders", "items", "idle")


@pytest.mark.parametrize("point", [CrashPoint.BEFORE_COMMIT, CrashPoint.COMMITTED])
def test_tables_of_one_topic_whose_worker_dies_between_their_commits_are_written_once(
    bed: Bed, shop: Shop, worker_points: ArmedPoints, point: CrashPoint
) -> None:
    bed.database.execute(NOTE.format(table="orders"))
    bed.database.execute(
        "CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE ON items DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION note()"
    )
    executor = bed.executor()
    for table in ("orders", "items"):
        executor.add_table(shop.task(table, 1), prepare=False)
    shop.put("orders", range(20))
    shop.put("items", range(100, 120))
    eventually(lambda: shop.has("orders", "items"), "both are written")

    worker_points.arm(point)
    shop.put("items", range(120, 140))
    shop.put("orders", range(20, 40))
    os.kill(worker_points.await_reached(point, DEADLINE_SECONDS), signal.SIGKILL)
    shop.put("orders", range(40, 60))
    shop.put("items", range(140, 160))
    eventually(lambda: shop.has("orders", "items"), "another worker goes on with both")
    for table in ("orders", "items"):
        eventually(lambda t=table: executor.status(shop.id(t)).positions == shop.ends, f"{table} is at the end")
    assert noted(bed) == [*range(60), *range(100, 160)]


def test_what_does_not_say_its_table_is_set_aside_once_and_a_truncate_is_for_the_one_it_names(
    bed: Bed, shop: Shop, log: KafkaLog
) -> None:
    executor = executor_with_dead_letters(bed, log)
    shop.put("orders", range(0, 20, 2))
    shop.say(b"\xffgarbage")
    shop.put("idle", range(0, 20, 2))
    shop.put("items", range(0, 20, 2))
    shop.plans = {table: msgspec.structs.replace(plan, start={0: 0}) for table, plan in shop.plans.items()}
    for table in shop.wanted:
        executor.add_table(shop.task(table, 1, on_bad_change="quarantine"), prepare=False)
    eventually(lambda: shop.has("orders", "items", "idle"), "all that is good is there")
    shop.truncate("idle", 0)
    for table in shop.wanted:
        eventually(lambda t=table: executor.status(shop.id(t)).positions == {0: 32}, f"{table} is past it all")
    assert shop.has("orders", "items", "idle")
    letters = letters_on(log)
    assert list(letters) == [DeadLetterKey(bed.feed, "public.orders", shop.topic, 0, 10)]
    assert next(iter(letters.values())).value == b"\xffgarbage"
