"""Rows that the log did not bring: copied from the source while the table stands still, on a real lane."""

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from fixtures.spare_databases import SpareDatabases
from headgate.agent.core.executor import CopyOrder, SpanTask, TaskStatus
from headgate.records.control import TaskState
from headgate.records.row_copies import RowCopy, shown_row_copy
from headgate.replication.executor import SparkExecutor
from support.waiting import eventually

from .conftest import Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

Row = tuple[str, int]


class Copied:
    """A table at a source and its sink, an executor, and requests to copy rows."""

    def __init__(self, bed: Bed, source: str) -> None:
        self.bed, self.source = bed, source
        self.plan = bed.table("items")
        self.executor: SparkExecutor = bed.executor()
        self._epochs = 0
        self.database = psycopg.connect(source, autocommit=True)
        self.database.execute("CREATE TABLE items (id bigint PRIMARY KEY, name text, qty int)")

    def has(self, rows: Mapping[int, Row]) -> None:
        """The source's rows."""
        self.database.execute("DELETE FROM items")
        for number, (name, qty) in rows.items():
            self.database.execute("INSERT INTO items VALUES (%s, %s, %s)", (number, name, qty))

    def log(self, rows: Mapping[int, Row | None]) -> None:
        """Changes that the connector has written."""
        self.bed.put(
            self.plan, {n: None if row is None else {"name": row[0], "qty": row[1]} for n, row in rows.items()}
        )

    def task(self, keys: list[int] | None = None, *, delete: bool = False, column: str = "id") -> SpanTask:
        self._epochs += 1
        task = self.bed.task(self.plan, self._epochs, database={"dsn": self.source})
        if keys is None:
            return task
        rows = RowCopy(columns=(column,), keys=tuple((str(key),) for key in keys), delete=delete)
        return replace(task, copy=CopyOrder(f"r{self._epochs}", shown_row_copy(rows)))

    def start(self, task: SpanTask) -> None:
        """Give the executor the span under that task."""
        self.executor.add_table(task, prepare=False)
        reached(self.executor, task.id, TaskState.REPLICATING)

    def seal(self, task: SpanTask) -> None:
        self.executor.remove_table(task.id, seal=True)
        reached(self.executor, task.id, TaskState.STOPPED)

    def failed(self, task: SpanTask) -> TaskStatus:
        """Its status, once it has failed."""

        def there() -> TaskStatus | None:
            status = self.executor.status(task.id)
            return status if status is not None and status.state is TaskState.FAILED else None

        found: TaskStatus = eventually(there, "it fails")
        return found

    @property
    def sink(self) -> dict[int, Row]:
        return self.bed.rows(self.plan)


@pytest.fixture
def copied(bed: Bed, spare_databases: SpareDatabases) -> Iterator[Copied]:
    with spare_databases.database() as parameters:
        made = Copied(bed, "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters))
        yield made
        made.database.close()


def test_rows_are_copied_before_the_log_goes_on_and_end_as_the_source_has_them(copied: Copied) -> None:
    task = copied.task()
    copied.start(task)
    copied.log({1: ("one", 1), 2: ("two", 2), 3: ("three", 3), 4: ("four", 4)})
    eventually(lambda: len(copied.sink) == 4, "the log is applied")
    copied.seal(task)
    # Row 2 was changed at the sink, row 5 lost there, row 6 is only there. Row 3 was deleted at the source, row 4 has
    # got another key, and row 1 was changed: the log has all of that behind the sink's position.
    copied.bed.database.execute("UPDATE items SET name = 'wrong' WHERE id = 2")
    copied.bed.database.execute("INSERT INTO items VALUES (6, 'surplus', 6)")
    copied.has({1: ("uno", 1), 2: ("two", 2), 5: ("five", 5), 7: ("four", 4)})
    copied.log({3: None, 4: None, 7: ("four", 4), 1: ("first", 1)})
    copied.log({1: ("uno", 1)})

    copied.start(copied.task([1, 2, 3, 4, 5, 6], delete=True))
    wanted = {1: ("uno", 1), 2: ("two", 2), 5: ("five", 5), 7: ("four", 4)}
    eventually(lambda: copied.sink == wanted, "all are as at the source")
    copied.log({8: ("eight", 8)})
    eventually(lambda: copied.sink == {**wanted, 8: ("eight", 8)}, "and the log goes on")


def test_rows_that_only_the_sink_has_are_left_unless_they_are_to_be_deleted(copied: Copied) -> None:
    copied.bed.database.execute("INSERT INTO items VALUES (6, 'surplus', 6)")
    copied.has({1: ("one", 1)})
    copied.start(copied.task([1, 6]))
    assert copied.sink == {1: ("one", 1), 6: ("surplus", 6)}, "before the first batch, by now"


@pytest.mark.parametrize(
    ("keys", "column", "words"),
    [
        (["x"], "id", "'x' is not an integer"),
        ([1], "qty", "rows were named by qty, and the sink finds them by id"),
        ([1], "none", "rows were named by none, and the sink finds them by id"),
    ],
)
def test_a_copy_that_cannot_be_made_is_an_error_of_its_own(
    copied: Copied, keys: list[Any], column: str, words: str
) -> None:
    copied.has({1: ("one", 1)})
    task = copied.task(keys, column=column)
    copied.executor.add_table(task, prepare=False)
    status = copied.failed(task)
    assert (status.error_code, status.retryable) == ("copy_failed", False)
    assert words in (status.error or "")
    assert copied.sink == {}
    copied.start(copied.task())


def test_a_value_that_the_sink_refuses_stops_the_copy_and_writes_nothing(copied: Copied) -> None:
    copied.bed.database.execute("ALTER TABLE items ADD CHECK (qty < 10)")
    copied.has({1: ("one", 1), 2: ("two", 20)})
    task = copied.task([1, 2])
    copied.executor.add_table(task, prepare=False)
    status = copied.failed(task)
    assert status.error_code == "copy_failed"
    assert "check violation" in (status.error or "")
    assert copied.sink == {}
