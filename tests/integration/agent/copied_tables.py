"""A table at a source and at its sink, for tests that copy rows from one to the other."""

from collections.abc import Iterator, Mapping

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

    def whole(self, *, delete: bool = False) -> SpanTask:
        """A task that copies the whole table."""
        return replace(self.task(), copy=CopyOrder("whole", shown_row_copy(RowCopy(keys=None, delete=delete))))

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
