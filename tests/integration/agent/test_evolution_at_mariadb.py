"""A MariaDB's table follows a table of either database: a column comes back with its values, and digits are kept."""

from collections.abc import Callable
from typing import Any

import msgspec
import pymysql
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from fixtures.services import mariadb_execute
from headgate.agent.core.executor import CopyOrder, SpanTask
from headgate.records.control import SpanPlan, TaskState
from headgate.records.error_codes import COPYING_CODES
from headgate.records.row_copies import RowCopy, shown_row_copy
from headgate.replication import column_watch
from headgate.replication.executor import SparkExecutor
from support.kafka_cluster import ANSWER_SECONDS
from support.topic_changes import make_topics
from support.waiting import eventually

from .conftest import Bed, reached
from .test_table_copy_to_mariadb import Run, source

__all__ = ["source"]

pytestmark = [pytest.mark.spark, pytest.mark.integration]

ROWS = 20


class Ends:
    """``items`` at a source, and ``copied`` at a MariaDB, under a feed that evolves it."""

    def __init__(self, bed: Bed, address: str, run: Run, target: str) -> None:
        self.bed, self._address, self._run, self._target = bed, address, run, target
        self.is_postgresql = address.startswith("postgresql")
        schema = "public" if self.is_postgresql else target.rsplit("/", 1)[1]
        topic = f"{bed.prefix}{schema}.items"
        make_topics(AdminClient({"bootstrap.servers": bed.bootstrap}), NewTopic(topic, 1, 1))
        self.plan = SpanPlan(span="copied", topic=topic, table="copied", start={0: 0})
        self.at_source("CREATE TABLE items (id bigint PRIMARY KEY, price decimal(8,2), at decimal(4,0))")
        self.at_sink("CREATE TABLE copied (id bigint PRIMARY KEY, price decimal(8,2), at decimal(4,0))")

    def at_source(self, statement: str) -> list[tuple[Any, ...]]:
        return self._run(statement, None)

    def at_sink(self, statement: str) -> list[tuple[Any, ...]]:
        return mariadb_execute(self._target, statement)

    def put(self, number: int, price: str, name: str = "price") -> None:
        """As a writer does, and the connector after it. ``name``: what the column is called."""
        self.at_source(f"INSERT INTO items (id, {name}, at) VALUES ({number}, {price}, {number})")
        row = {"id": number, name: price, "at": str(number)}
        event = {"before": None, "after": row, "source": {"ts_ms": 1}, "op": "c"}
        self.bed.raw(self.plan, msgspec.json.encode({"id": number}), msgspec.json.encode(event))
        assert self.bed.producer.flush(ANSWER_SECONDS) == 0

    def task(self, n: int, copy: CopyOrder | None = None) -> SpanTask:
        given = self.bed.task(self.plan, n, database={"dsn": self._address})
        spec = msgspec.json.decode(given.spec)
        spec["sink"] = {"type": "mysql", "dsn": self._target, "tables": "evolve"}
        return msgspec.structs.replace(given, spec=msgspec.json.encode(spec).decode(), copy=copy)

    def is_equal(self, query: str = "SELECT id, price, at FROM {} ORDER BY id") -> bool:
        try:
            return self.at_sink(query.format("copied")) == self.at_source(query.format("items"))
        except pymysql.err.OperationalError:  # the sink lacks a column
            return False


@pytest.fixture
def ends(bed: Bed, source: tuple[str, Run], mariadb_database: str) -> Ends:
    return Ends(bed, *source, mariadb_database)


def test_a_mariadb_follows_more_digits_and_gets_a_dropped_column_back(ends: Ends) -> None:
    executor = ends.bed.executor()
    executor.add_table(task := ends.task(1), prepare=False)
    for number in range(ROWS):
        ends.put(number, f"{number}.25")
    eventually(ends.is_equal, "the rows of before")

    changed = "ALTER COLUMN price TYPE numeric(10,4)" if ends.is_postgresql else "MODIFY price decimal(10,4)"
    ends.at_source(f"ALTER TABLE items {changed}")
    ends.put(ROWS, "1.2345")
    eventually(ends.is_equal, "the column is widened, and nothing was rounded")

    ends.at_sink("ALTER TABLE copied DROP COLUMN price")
    ends.put(ROWS + 1, "2.3456")
    eventually(_says(executor, task, "price of table"), "it stops")
    status = executor.status(task.id)
    assert status is not None
    assert status.error_code == "resync_needed"

    if ends.is_postgresql:
        ends.at_source("ALTER TABLE items ALTER COLUMN at TYPE text")
        _resync(executor, ends, task, 2)
        eventually(_says(executor, task, "text at the source and decimal at the sink"), "rows cannot be copied")
        executor.add_table(ends.task(3), prepare=False)
        eventually(_says(executor, task, "was added again at the sink, and its values"), "it still waits")
        ends.at_source("ALTER TABLE items ALTER COLUMN at TYPE numeric(4,0) USING at::numeric")
    _resync(executor, ends, task, 4)
    eventually(lambda: _is_copied(executor, task), "it is copied")
    eventually(ends.is_equal, "every row has its value")


class Recorded(Ends):
    """The same from a MariaDB, whose statements its connector records."""

    def __init__(self, bed: Bed, target: str) -> None:
        super().__init__(bed, target, lambda statement, given: mariadb_execute(target, statement, given), target)
        self._database = target.rsplit("/", 1)[1]
        self._topic = self.plan.topic.removesuffix(f".{self._database}.items")
        make_topics(AdminClient({"bootstrap.servers": bed.bootstrap}), NewTopic(self._topic, 1, 1))
        self.record("CREATE TABLE items")

    def record(self, statement: str) -> None:
        """As the connector does after a statement."""
        rows = self.at_source(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() "
            "AND table_name = 'items' ORDER BY ordinal_position"
        )
        table = {"columns": [{"name": name} for (name,) in rows]}
        change = {"type": "ALTER", "id": f'"{self._database}"."items"', "table": table}
        value = {"databaseName": self._database, "ddl": statement, "tableChanges": [change]}
        self.bed.producer.produce(self._topic, msgspec.json.encode(value))
        assert self.bed.producer.flush(ANSWER_SECONDS) == 0

    def alter(self, clauses: str) -> None:
        self.at_source(statement := f"ALTER TABLE items {clauses}")
        self.record(statement)


def test_a_column_of_a_mariadb_that_is_another_one_stops_its_table_until_all_rows_are_copied(
    bed: Bed, mariadb_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_watch, "COLUMNS_SECONDS", 0.2)
    ends, executor = Recorded(bed, mariadb_database), bed.executor()
    executor.add_table(task := ends.task(1), prepare=False)
    for number in range(ROWS):
        ends.put(number, f"{number}.25")
    eventually(ends.is_equal, "the rows of before")
    ends.alter("ADD INDEX (price), COMMENT 'as it was'")

    ends.alter("DROP COLUMN price, ADD COLUMN price decimal(8,2) AFTER id")
    eventually(_says(executor, task, "column price of table copied was dropped and added again"), "it stops")
    _resync(executor, ends, task, 2)
    eventually(lambda: _is_copied(executor, task), "it is copied")
    eventually(ends.is_equal, "no row has a value of the former column")

    ends.alter("DROP COLUMN price")
    ends.alter("CHANGE at price decimal(4,0)")
    eventually(_says(executor, task, "column price of table copied was dropped"), "another one has its name")
    _resync(executor, ends, task, 3)
    eventually(lambda: _is_copied(executor, task), "it is copied")
    eventually(lambda: ends.is_equal("SELECT id, price FROM {} ORDER BY id"), "rows have the values of that one")


def test_fewer_digits_at_a_source_stop_the_table_until_all_rows_are_copied(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_watch, "COLUMNS_SECONDS", 0.2)
    executor = ends.bed.executor()
    executor.add_table(task := ends.task(1), prepare=False)
    for number in range(ROWS):
        ends.put(number, f"{number}.25")
    eventually(ends.is_equal, "the rows of before")
    kind = "numeric" if ends.is_postgresql else "decimal"
    changed = "ALTER TABLE items " + ("ALTER COLUMN price TYPE " if ends.is_postgresql else "MODIFY price ") + kind
    ends.at_source(f"{changed}(10,3)")
    ends.put(ROWS, "1.125")
    eventually(ends.is_equal, "more digits change no value")

    ends.at_source(f"{changed}(10,1)")
    eventually(_says(executor, task, f"(price is {kind}(10,1), and was {kind}(10,3))"), "it stops")
    status = executor.status(task.id)
    assert status is not None
    assert status.error_code == "resync_needed"
    _resync(executor, ends, task, 2)
    eventually(lambda: _is_copied(executor, task), "it is copied")
    eventually(ends.is_equal, "every row has the value that the source has rounded")


def test_a_column_that_a_mariadb_has_renamed_keeps_its_values(bed: Bed, mariadb_database: str) -> None:
    ends, executor = Recorded(bed, mariadb_database), bed.executor()
    executor.add_table(ends.task(1), prepare=False)
    for number in range(ROWS):
        ends.put(number, f"{number}.25")
    eventually(ends.is_equal, "the rows of before")
    ends.alter("CHANGE price amount decimal(8,2)")
    ends.put(ROWS, "1.5", "amount")
    names = "SELECT id, amount, at FROM {} ORDER BY id"
    eventually(lambda: ends.is_equal(names), "the column has its new name, and all values")


def _resync(executor: SparkExecutor, ends: Ends, task: SpanTask, n: int) -> None:
    """As `headgate table resync` does: the span is sealed, and dispatched again with an order to copy the table."""
    executor.remove_table(task.id, seal=True)
    reached(executor, task.id, TaskState.STOPPED)
    order = CopyOrder(f"whole{n}", shown_row_copy(RowCopy(keys=None, delete=True)))
    executor.add_table(ends.task(n, order), prepare=False)


def _says(executor: SparkExecutor, task: SpanTask, text: str) -> Callable[[], bool]:
    return lambda: text in str(getattr(executor.status(task.id), "error", None))


def _is_copied(executor: SparkExecutor, task: SpanTask) -> bool:
    status = executor.status(task.id)
    assert status is not None
    assert status.state is not TaskState.FAILED, status
    return status.state is TaskState.REPLICATING and status.error_code not in COPYING_CODES
