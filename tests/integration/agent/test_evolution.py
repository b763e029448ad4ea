"""A table of the source gets a column while its changes flow: the sink's table gets it at that place in the log."""

from collections.abc import Iterator

import msgspec
import psycopg
import pytest

from fixtures.spare_databases import SpareDatabases
from headgate.agent.core.executor import CopyOrder, SpanId, SpanTask
from headgate.records.control import Epoch, SpanPlan, TaskState
from headgate.records.error_codes import COPYING_CODES
from headgate.records.row_copies import RowCopy, shown_row_copy
from headgate.records.spans import divide
from headgate.replication import column_watch
from headgate.replication.executor import SparkExecutor
from support.kafka_cluster import ANSWER_SECONDS
from support.waiting import eventually

from .conftest import Bed, reached

pytestmark = [pytest.mark.spark, pytest.mark.integration]


class Source:
    """The database that the events of a bed come from, with the tables that its sink has."""

    def __init__(self, bed: Bed, dsn: str) -> None:
        self.bed, self.dsn = bed, dsn
        self.database = psycopg.connect(dsn, autocommit=True)

    def table(self, name: str, partitions: int = 1) -> SpanPlan:
        self.database.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text, qty int)".encode())
        return self.bed.table(name, partitions)

    def task(self, plan: SpanPlan, n: int) -> SpanTask:
        spec = {
            "feed": self.bed.feed,
            "source": {"topic_pattern": ".*", "database": {"dsn": self.dsn}},
            "sink": {"type": "postgresql", "dsn": self.bed.dsn, "tables": "evolve"},
        }
        text = msgspec.json.encode(spec).decode()
        return SpanTask(SpanId(self.bed.feed, plan.span), "0-7", 1, Epoch(3, n), plan, text)


@pytest.fixture
def source(bed: Bed, spare_databases: SpareDatabases) -> Iterator[Source]:
    with spare_databases.database() as parameters:
        made = Source(bed, "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters))
        with made.database:
            yield made


def rows(bed: Bed, columns: str, table: str) -> list[tuple[object, ...]]:
    """Nothing while the table does not have the columns."""
    try:
        query = f"SELECT {columns} FROM {table} ORDER BY id".encode()
        return bed.database.execute(query, prepare=False).fetchall()  # a plan is of the columns as they were
    except psycopg.errors.UndefinedColumn:
        return []


def test_parts_of_a_table_at_two_agents_go_on_with_a_column_that_the_source_has_got(bed: Bed, source: Source) -> None:
    plan = source.table("hot", partitions=2)
    parts = divide(plan, 2)
    executors = [bed.executor(), bed.executor()]
    for executor, part in zip(executors, parts, strict=True):
        executor.add_table(source.task(part, 1), prepare=False)
    bed.put(plan, {n: {"name": "old", "qty": n} for n in range(40)})
    eventually(lambda: len(bed.rows(plan)) == 40, "the rows of before")

    source.database.execute("ALTER TABLE hot ADD COLUMN extra int NOT NULL DEFAULT 7")
    bed.put(plan, {n: {"name": "old", "qty": -n} for n in range(5)})
    bed.put(plan, {n: {"name": "new", "qty": n, "extra": n} for n in range(20, 60)})
    wanted = [(n, "old", -n, 7) for n in range(5)] + [(n, "old", n, 7) for n in range(5, 20)]
    wanted += [(n, "new", n, n) for n in range(20, 60)]
    eventually(lambda: rows(bed, "id, name, qty, extra", "hot") == wanted, "rows of before and after the change")
    for executor, part in zip(executors, parts, strict=True):
        span = SpanId(bed.feed, part.span)
        eventually(lambda e=executor, s=span: e.status(s).error is None, "nothing is wrong any more")  # type: ignore[union-attr]

    # As a connector that was restarted sends changes again, of before and of after.
    bed.put(plan, {n: {"name": "again", "qty": n} for n in range(3)})
    bed.put(plan, {58: {"name": "again", "qty": 58, "extra": None}, 60: {"name": "older", "qty": 60}})
    wanted[:3] = [(n, "again", n, 7) for n in range(3)]
    wanted[58] = (58, "again", 58, None)  # type: ignore[assignment]
    wanted.append((60, "older", 60, 7))
    eventually(lambda: rows(bed, "id, name, qty, extra", "hot") == wanted, "changes that were sent again")


def with_schema(number: int, extra: object, kind: str) -> bytes:
    """An event whose schema says what ``extra`` is."""
    fields = [("id", "int64"), ("name", "string"), ("qty", "int32"), ("extra", kind)]
    after = {"field": "after", "type": "struct", "optional": True,
             "fields": [{"field": name, "type": type_, "optional": True} for name, type_ in fields]}  # fmt: skip
    payload = {"before": None, "after": {"id": number, "name": "n", "qty": 0, "extra": extra}, "op": "c", "ts_ms": 1}
    return msgspec.json.encode({"schema": {"type": "struct", "fields": [after]}, "payload": payload})


def test_a_column_that_was_dropped_and_added_with_another_type_stops_the_table_until_it_is_altered(
    bed: Bed, source: Source
) -> None:
    plan, executor = source.table("t"), bed.executor()
    task = source.task(plan, 1)
    source.database.execute("ALTER TABLE t ADD COLUMN extra int")
    source.database.execute("ALTER TABLE t DROP COLUMN extra")
    source.database.execute("ALTER TABLE t ADD COLUMN extra text")
    bed.put(plan, {1: {"name": "before", "qty": 1}})
    for number, extra, kind in ((2, 5, "int32"), (3, "five", "string")):
        bed.raw(plan, msgspec.json.encode({"id": number}), with_schema(number, extra, kind))
    assert bed.producer.flush(ANSWER_SECONDS) == 0

    executor.add_table(task, prepare=False)
    eventually(
        lambda: "when it had another type (int32), and the source's column is text now" in str(_error(executor, task)),
        "the change of the former column is refused",
    )
    assert bed.rows(plan) == {1: ("before", 1)}
    bed.database.execute("ALTER TABLE t ADD COLUMN extra text")
    eventually(lambda: rows(bed, "id, extra", "t") == [(1, None), (2, "5"), (3, "five")], "it goes on by itself")
    reached(executor, task.id, TaskState.REPLICATING)


def test_a_type_that_the_source_has_widened_is_widened_and_a_bad_value_stays_refused(bed: Bed, source: Source) -> None:
    plan, executor = source.table("w"), bed.executor()
    bed.database.execute("ALTER TABLE w ADD COLUMN gone int NOT NULL")
    source.database.execute("ALTER TABLE w ADD COLUMN gone int NOT NULL")
    executor.add_table(source.task(plan, 1), prepare=False)
    bed.put(plan, {1: {"name": "before", "qty": 1, "gone": 1}})
    eventually(lambda: 1 in bed.rows(plan), "the row of before")
    source.database.execute("ALTER TABLE w ALTER COLUMN qty TYPE bigint, DROP COLUMN gone")
    bed.put(plan, {2: {"name": "large", "qty": 2**40}, 3: {"name": "after", "qty": 3}})
    wanted = [(1, 1, 1), (2, 2**40, None), (3, 3, None)]
    eventually(
        lambda: rows(bed, "id, qty, gone", "w") == wanted, "a value that did not fit, and a row without a column"
    )

    bed.put(plan, {4: {"name": "bad", "qty": "many"}})
    failed = eventually(lambda: _failed(executor, SpanId(bed.feed, plan.span)), "no alteration helps")
    assert failed == "value_refused"


def _copied(executor: SparkExecutor, source: Source, plan: SpanPlan, n: int) -> SpanTask:
    """As after `headgate table resync`: the span is sealed, and dispatched again with an order to copy the table."""
    span = SpanId(source.bed.feed, plan.span)
    executor.remove_table(span, seal=True)
    reached(executor, span, TaskState.STOPPED)
    order = CopyOrder(f"whole{n}", shown_row_copy(RowCopy(keys=None, delete=True)))
    executor.add_table(task := msgspec.structs.replace(source.task(plan, n), copy=order), prepare=False)

    def is_done() -> bool:
        status = executor.status(span)
        assert status is not None
        assert status.state is not TaskState.FAILED, status
        return status.state is TaskState.REPLICATING and status.error_code not in COPYING_CODES

    eventually(is_done, "the table is copied")
    return task


def _equal(bed: Bed, source: Source, columns: str, table: str) -> bool:
    query = f"SELECT {columns} FROM {table} ORDER BY id".encode()
    return rows(bed, columns, table) == source.database.execute(query).fetchall()


def test_a_column_that_was_dropped_at_the_sink_stops_the_table_and_a_resync_brings_its_values_back(
    bed: Bed, source: Source
) -> None:
    plan, executor = source.table("d"), bed.executor()
    executor.add_table(task := source.task(plan, 1), prepare=False)
    for number in range(20):
        source.database.execute("INSERT INTO d VALUES (%s, 'x', %s)", (number, number))
    bed.put(plan, {n: {"name": "x", "qty": n} for n in range(20)})
    eventually(lambda: _equal(bed, source, "id, name, qty", "d"), "the rows of before")

    bed.database.execute("ALTER TABLE d DROP COLUMN qty")
    source.database.execute("INSERT INTO d VALUES (20, 'x', 20)")
    bed.put(plan, {20: {"name": "x", "qty": 20}})
    eventually(lambda: "qty of table public.d was dropped at the sink" in str(_error(executor, task)), "it stops")
    status = executor.status(task.id)
    assert status is not None
    assert status.error_code == "resync_needed"
    assert rows(bed, "qty", "d") == [], "the column was not added"

    _copied(executor, source, plan, 2)
    eventually(lambda: _equal(bed, source, "id, name, qty", "d"), "every row has its value")
    source.database.execute("UPDATE d SET qty = 100 WHERE id = 3")
    bed.put(plan, {3: {"name": "x", "qty": 100}})
    eventually(lambda: _equal(bed, source, "id, name, qty", "d"), "and the log goes on")


def test_a_column_that_the_source_has_replaced_stops_the_next_claim_and_a_resync_copies_behind_the_log(
    bed: Bed, source: Source
) -> None:
    plan, executor = source.table("r"), bed.executor()
    executor.add_table(source.task(plan, 1), prepare=False)
    span = SpanId(bed.feed, plan.span)
    for number in range(20):
        source.database.execute("INSERT INTO r VALUES (%s, 'x', %s)", (number, number))
    bed.put(plan, {n: {"name": "x", "qty": n} for n in range(20)})
    eventually(lambda: _equal(bed, source, "id, name, qty", "r"), "the rows of before")
    executor.remove_table(span, seal=True)
    reached(executor, span, TaskState.STOPPED)

    # Changes of the former column are still to be applied when the source has the new one.
    bed.put(plan, {n: {"name": "y", "qty": -n} for n in range(5)})
    source.database.execute("UPDATE r SET name = 'y' WHERE id < 5; ALTER TABLE r DROP COLUMN qty, ADD COLUMN qty int")
    executor.add_table(task := source.task(plan, 2), prepare=False)
    eventually(lambda: "qty of table public.r was dropped and added again" in str(_error(executor, task)), "it stops")
    assert rows(bed, "qty", "r") == [(n,) for n in range(20)]

    _copied(executor, source, plan, 3)
    eventually(lambda: _equal(bed, source, "id, name, qty", "r"), "no row has a value of the former column")
    executor.remove_table(span, seal=True)
    reached(executor, span, TaskState.STOPPED)
    executor.add_table(source.task(plan, 4), prepare=False)
    reached(executor, span, TaskState.REPLICATING)


def test_a_column_that_gets_the_name_of_a_dropped_one_stops_a_table_that_replicates(
    bed: Bed, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_watch, "COLUMNS_SECONDS", 0.2)
    plan, executor = source.table("g"), bed.executor()
    source.database.execute("INSERT INTO g SELECT n, 'x', n FROM generate_series(0, 4) n")
    executor.add_table(task := source.task(plan, 1), prepare=False)
    bed.put(plan, {n: {"name": "x", "qty": n} for n in range(5)})
    eventually(lambda: _equal(bed, source, "id, name, qty", "g"), "the rows of before")
    source.database.execute("ALTER TABLE g DROP COLUMN qty")
    source.database.execute("UPDATE g SET name = 'y' WHERE id = 0")
    bed.put(plan, {0: {"name": "y"}})
    eventually(lambda: rows(bed, "name", "g")[0] == ("y",), "the table goes on without the column")
    assert executor.status(task.id).error is None

    source.database.execute("ALTER TABLE g RENAME COLUMN name TO qty")
    eventually(lambda: "column qty of table public.g was dropped and added" in str(_error(executor, task)), "it stops")


def test_a_renamed_column_is_renamed_at_its_place_in_the_log(bed: Bed, source: Source) -> None:
    plan, executor = source.table("n"), bed.executor()
    executor.add_table(task := source.task(plan, 1), prepare=False)
    for number in range(3):
        source.database.execute("INSERT INTO n VALUES (%s, 'x', %s)", (number, number))
    bed.put(plan, {n: {"name": "x", "qty": n} for n in range(3)})
    eventually(lambda: _equal(bed, source, "id, name, qty", "n"), "the rows of before")
    source.database.execute("ALTER TABLE n RENAME COLUMN qty TO amount")
    source.database.execute("UPDATE n SET amount = 7 WHERE id = 1")
    bed.put(plan, {1: {"name": "x", "amount": 7}})
    eventually(lambda: _equal(bed, source, "id, name, amount", "n"), "the column has its new name, and all values")
    reached(executor, task.id, TaskState.REPLICATING)


@pytest.mark.parametrize("tables", ["evolve", "existing"])
def test_more_digits_than_the_sink_keeps_are_never_rounded(bed: Bed, source: Source, tables: str) -> None:
    plan, executor = source.table("s"), bed.executor()
    for database in (source.database, bed.database):
        database.execute("ALTER TABLE s ADD COLUMN price numeric(8,2), ADD COLUMN at timestamp(0)")
    task = source.task(plan, 1)
    spec = msgspec.json.decode(task.spec)
    spec["sink"]["tables"] = tables
    task = msgspec.structs.replace(task, spec=msgspec.json.encode(spec).decode())
    executor.add_table(task, prepare=False)
    source.database.execute("ALTER TABLE s ALTER COLUMN price TYPE numeric(10,4), ALTER COLUMN at TYPE timestamp(3)")
    source.database.execute("INSERT INTO s VALUES (1, 'x', 1, 1.2345, '2026-01-02 03:04:05.678')")
    bed.put(plan, {1: {"name": "x", "qty": 1, "price": "1.2345", "at": "2026-01-02T03:04:05.678Z"}})
    if tables == "evolve":
        eventually(lambda: _equal(bed, source, "id, price, at", "s"), "the types are widened")
        return
    assert eventually(lambda: _failed(executor, task.id), "it is refused") == "value_refused"
    assert "than the column keeps" in str(_error(executor, task))
    assert bed.rows(plan) == {}


def _failed(executor: SparkExecutor, span: SpanId) -> str | None:
    status = executor.status(span)
    return status.error_code if status is not None and status.state is TaskState.FAILED else None


def _error(executor: SparkExecutor, task: SpanTask) -> str | None:
    status = executor.status(task.id)
    return None if status is None else status.error


def test_changes_from_before_a_rename_that_come_after_it_have_their_values_in_the_renamed_column(
    bed: Bed, source: Source
) -> None:
    plan, executor = source.table("r", partitions=2), bed.executor()
    executor.add_table(task := source.task(plan, 1), prepare=False)
    for number in range(8):
        source.database.execute("INSERT INTO r VALUES (%s, 'x', %s)", (number, number))
    bed.put(plan, {n: {"name": "x", "qty": n} for n in range(8)})
    eventually(lambda: _equal(bed, source, "id, name, qty", "r"), "the rows of before")
    source.database.execute("ALTER TABLE r RENAME COLUMN qty TO amount")
    source.database.execute("UPDATE r SET amount = 7 WHERE id = 1")
    bed.put(plan, {1: {"name": "x", "amount": 7}})
    eventually(lambda: _equal(bed, source, "id, name, amount", "r"), "the column has its new name")

    # Rows that changed before it, but come later: from another partition, or sent again by a connector.
    for number in (2, 3, 8, 9):
        source.database.execute(
            "INSERT INTO r VALUES (%s, 'x', %s) ON CONFLICT (id) DO UPDATE SET amount = excluded.amount",
            (number, 100 + number),
        )
    bed.put(plan, {n: {"name": "x", "qty": 100 + n} for n in (2, 3, 8, 9)})
    eventually(lambda: _equal(bed, source, "id, name, amount", "r"), "their values are in the renamed column")
    bed.put(plan, {n: {"name": "x", "qty": -n} for n in range(4)})
    bed.put(plan, {n: {"name": "x", "amount": 200 + n} for n in range(4)})
    source.database.execute("UPDATE r SET amount = 200 + id WHERE id < 4")
    eventually(lambda: _equal(bed, source, "id, name, amount", "r"), "what was sent again is followed by what is newer")

    # A second new name, which the sink meets without having met the first.
    source.database.execute("ALTER TABLE r RENAME COLUMN amount TO total")
    source.database.execute("UPDATE r SET total = 5 WHERE id = 5")
    bed.put(plan, {5: {"name": "x", "total": 5}})
    eventually(lambda: _equal(bed, source, "id, name, total", "r"), "the column has its last name")
    reached(executor, task.id, TaskState.REPLICATING)

    # Another column gets the former name: no value goes into a column that it is not of.
    source.database.execute("ALTER TABLE r DROP COLUMN total, ADD COLUMN qty int")
    bed.put(plan, {6: {"name": "x", "qty": 66}})
    eventually(lambda: _error(executor, task) is not None, "the change is refused")
    assert rows(bed, "total", "r")[6] == (6,)


def test_a_copy_gives_renamed_columns_their_values_though_no_change_has_the_new_name_yet(
    bed: Bed, source: Source
) -> None:
    plan, executor = source.table("p"), bed.executor()
    executor.add_table(source.task(plan, 1), prepare=False)
    source.database.execute("INSERT INTO p VALUES (1, 'x', 1)")
    bed.put(plan, {1: {"name": "x", "qty": 1}})
    eventually(lambda: _equal(bed, source, "id, name, qty", "p"), "the row of before")
    source.database.execute("ALTER TABLE p RENAME COLUMN qty TO amount")
    source.database.execute("INSERT INTO p VALUES (2, 'y', 2)")  # its change is not in the topic
    _copied(executor, source, plan, 2)
    assert _equal(bed, source, "id, name, amount", "p")
    bed.put(plan, {1: {"name": "before", "qty": 11}})
    source.database.execute("UPDATE p SET name = 'before', amount = 11 WHERE id = 1")
    eventually(lambda: _equal(bed, source, "id, name, amount", "p"), "a change of before the rename comes later")
