"""A MariaDB's table follows a table of either database: a column comes back with its values, and digits are kept."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from fixtures.services import mariadb_execute
from headgate.agent.core.executor import CopyOrder, SpanTask
from headgate.records.control import SpanPlan, TaskState
from headgate.records.error_codes import COPYING_CODES
from headgate.records.row_copies import RowCopy, shown_row_copy
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

    def put(self, number: int, price: str) -> None:
        """As a writer does, and the connector after it."""
        self.at_source(f"INSERT INTO items VALUES ({number}, {price}, {number})")
        row = {"id": number, "price": price, "at": str(number)}
        event = {"before": None, "after": row, "source": {"ts_ms": 1}, "op": "c"}
        self.bed.raw(self.plan, msgspec.json.encode({"id": number}), msgspec.json.encode(event))
        assert self.bed.producer.flush(ANSWER_SECONDS) == 0

    def task(self, n: int, copy: CopyOrder | None = None) -> SpanTask:
        given = self.bed.task(self.plan, n, database={"dsn": self._address})
        spec = msgspec.json.decode(given.spec)
        spec["sink"] = {"type": "mysql", "dsn": self._target, "tables": "evolve"}
        return msgspec.structs.replace(given, spec=msgspec.json.encode(spec).decode(), copy=copy)

    def is_equal(self) -> bool:
        query = "SELECT id, price, at FROM {} ORDER BY id"
        return self.at_sink(query.format("copied")) == self.at_source(query.format("items"))


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
