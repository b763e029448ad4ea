"""A whole table is copied to MariaDB from each source, by keys that the two servers order in different ways."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from msgspec.structs import replace

from fixtures.services import database_connect, mariadb_execute
from fixtures.spare_databases import SpareDatabases
from headgate.agent.core.executor import CopyOrder, SpanTask
from headgate.agent.core.span import states
from headgate.records.control import SpanPlan, TaskState
from headgate.records.error_codes import COPYING_CODES
from headgate.records.row_copies import RowCopy, shown_row_copy
from headgate.replication import row_copy
from support.topic_changes import make_topics
from support.waiting import eventually

from .conftest import Bed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

Key = tuple[str | int, ...]
Rows = dict[Key, int]
Run = Callable[[str, object], list[tuple[Any, ...]]]

ROWS: Final = 40
RANGE: Final = 10

TEXTS: Final = [f"{'bAéZcÄ'[number % 6]}{number:02}" for number in range(ROWS + 20)]
"""By bytes the capitals come first, and the letters with accents last; a collation puts them among the others."""

COLUMNS: Final = {
    "integer": {"id": "bigint"},
    "text": {"code": "varchar(20)"},
    "composite": {"code": "varchar(20)", "id": "bigint"},
}

EACH_ONCE: Final = {("mariadb", "text"), ("postgresql", "text"), ("postgresql", "composite")}
"""Sources and kinds of keys that are copied in every run of the tests. Orders of texts at two servers must agree, so
they are from both. An integer is copied, too: with transactions, from both."""


class Ends:
    """A table at a source, and another one at a MariaDB, with the same key."""

    def __init__(self, bed: Bed, source: str, run: Run, target: str, columns: dict[str, str]) -> None:
        self.bed, self.columns, self._source, self._run, self._target = bed, columns, source, run, target
        schema = "public" if source.startswith("postgresql") else target.rsplit("/", 1)[1]
        self.topic = f"{bed.prefix}{schema}.items"
        make_topics(AdminClient({"bootstrap.servers": bed.bootstrap}), NewTopic(self.topic, 1, 1))

    def create(self, collation: str) -> None:
        """``collation`` is of every text at a MariaDB."""
        key = ", ".join(self.columns)

        def declared(suffix: str) -> str:
            named = (f"{n} {kind}{suffix * kind.startswith('varchar')} NOT NULL" for n, kind in self.columns.items())
            return f"({', '.join(named)}, qty int, PRIMARY KEY ({key}))"

        here = "" if self._source.startswith("postgresql") else f" COLLATE {collation}"
        self._run(f"CREATE TABLE items {declared(here)}", None)
        mariadb_execute(self._target, f"CREATE TABLE copied {declared(f' COLLATE {collation}')}")

    def key(self, number: int) -> Key:
        return tuple(number if kind == "bigint" else TEXTS[number] for kind in self.columns.values())

    def put(self, key: Key, qty: int) -> None:
        places = ", ".join("%s" for _ in (*key, qty))
        self._run(f"INSERT INTO items VALUES ({places})", (*key, qty))

    def delete(self, key: Key) -> None:
        condition = " AND ".join(f"{name} = %s" for name in self.columns)
        self._run(f"DELETE FROM items WHERE {condition}", key)

    def change(self, key: Key, qty: int | None) -> None:
        """As a writer does, and the connector after it."""
        self.delete(key)
        if qty is not None:
            self.put(key, qty)
        self.log(key, qty)

    def log(self, key: Key, qty: int | None) -> None:
        """As the connector does."""
        named = dict(zip(self.columns, key, strict=True))
        row = None if qty is None else {**named, "qty": qty}
        event = {"before": named, "after": row, "source": {"ts_ms": 1}, "op": "d" if row is None else "c"}
        plan = SpanPlan(span="copied", topic=self.topic, table="copied", start={0: 0})
        self.bed.raw(plan, msgspec.json.encode(named), msgspec.json.encode(event))
        assert self.bed.producer.flush(60) == 0

    def begin(self) -> Any:
        """A transaction at the source: a connection whose statements others do not see before it commits."""
        session = database_connect(self._source)
        session.cursor().execute("BEGIN")
        return session

    def surplus(self, key: Key, qty: int) -> None:
        """A row that is put at the sink, by nobody whom the log knows."""
        places = ", ".join("%s" for _ in (*key, qty))
        mariadb_execute(self._target, f"INSERT INTO copied VALUES ({places})", (*key, qty))

    @property
    def source(self) -> Rows:
        return {row[:-1]: row[-1] for row in self._run("SELECT * FROM items", None)}

    @property
    def sink(self) -> Rows:
        return {row[:-1]: row[-1] for row in mariadb_execute(self._target, "SELECT * FROM copied")}

    def task(self) -> SpanTask:
        """A task that copies the whole table."""
        plan = SpanPlan(span="copied", topic=self.topic, table="copied", start={0: 0})
        given = self.bed.task(plan, 1, database={"dsn": self._source})
        spec = msgspec.json.decode(given.spec) | {"sink": {"type": "mysql", "dsn": self._target}}
        order = CopyOrder("whole", shown_row_copy(RowCopy(keys=None, delete=True)))
        return replace(given, spec=msgspec.json.encode(spec).decode(), copy=order)


@pytest.fixture(params=["postgresql", "mariadb"])
def source(
    request: pytest.FixtureRequest, mariadb_database: str, spare_databases: SpareDatabases
) -> Iterator[tuple[str, Run]]:
    if request.param == "mariadb":
        yield mariadb_database, lambda statement, given: mariadb_execute(mariadb_database, statement, given)
        return
    with spare_databases.database() as parameters:
        dsn = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters)

        def run(statement: str, given: Any) -> list[tuple[Any, ...]]:
            with psycopg.connect(dsn, autocommit=True) as connection:
                cursor = connection.execute(statement.encode(), given)
                return cursor.fetchall() if cursor.description else []

        yield dsn, run


@pytest.fixture(params=sorted(COLUMNS))
def ends(request: pytest.FixtureRequest, bed: Bed, source: tuple[str, Run], mariadb_database: str) -> Ends:
    return Ends(bed, *source, mariadb_database, COLUMNS[request.param])


@pytest.fixture
def between_turns(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """One range in each turn, and what is done after each: the first one here, until none is left."""
    monkeypatch.setattr(row_copy, "RANGE_ROWS", RANGE)
    monkeypatch.setattr(row_copy, "RANGE_ROWS_MAX", RANGE)
    monkeypatch.setattr(row_copy, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(row_copy, "FIRST_TURN_SECONDS", 0.0)
    monkeypatch.setattr(states, "CATCH_UP_SECONDS_MIN", 0.0)
    actions: list[Callable[[], None]] = []
    copy_ranges = row_copy.RowCopier.copy_ranges

    def copied(self: row_copy.RowCopier, *given: Any, **named: Any) -> row_copy.CopyReached:
        reached = copy_ranges(self, *given, **named)
        if actions:
            actions.pop(0)()
        return reached

    monkeypatch.setattr(row_copy.RowCopier, "copy_ranges", copied)
    return actions


def copy(ends: Ends) -> None:
    """The whole table, to its end."""
    executor = ends.bed.executor()
    executor.add_table(task := ends.task(), prepare=False)

    def is_done() -> bool:
        status = executor.status(task.id)
        assert status is not None
        assert status.state is not TaskState.FAILED, status
        assert " after an error" not in (status.error or ""), status
        return status.state is TaskState.REPLICATING and status.error_code not in COPYING_CODES

    eventually(is_done, "nothing is left to copy")


@pytest.mark.parametrize(
    ("source", "ends"),
    [
        pytest.param(source, kind, marks=() if (source, kind) in EACH_ONCE else pytest.mark.long)
        for source in ("postgresql", "mariadb")
        for kind in sorted(COLUMNS)
    ],
    indirect=True,
)
def test_a_table_that_changes_between_turns_is_copied(ends: Ends, between_turns: list[Callable[[], None]]) -> None:
    """Each change is to a key that is copied already, to one that is not yet, and to new ones."""
    ends.create("utf8mb4_nopad_bin")
    for number in range(ROWS):
        ends.put(ends.key(number), number)
    ends.surplus(ends.key(5), -1)
    for number in (ROWS + 15, ROWS + 16, ROWS + 17):
        ends.surplus(ends.key(number), -2)

    def changes(turn: int) -> Callable[[], None]:
        def change() -> None:
            for number in range(turn, ROWS, 7):
                ends.change(ends.key(number), None if number % 2 else 100 * turn + number)
            ends.change(ends.key(ROWS + turn), turn)

        return change

    between_turns += [changes(turn) for turn in range(4)]
    copy(ends)
    assert between_turns == [], "the copy took a turn for each"
    eventually(lambda: ends.sink == ends.source, "it is as at the source")
    assert len(ends.source) > ROWS / 2
    ends.change(ends.key(2), 12345)
    eventually(lambda: ends.sink[ends.key(2)] == 12345, "and the log goes on")


@pytest.mark.parametrize("source", ["mariadb"], indirect=True)
@pytest.mark.parametrize("ends", ["text"], indirect=True)
def test_a_key_that_the_sink_spells_in_another_way_becomes_that_of_the_source(
    ends: Ends, between_turns: list[Callable[[], None]]
) -> None:
    """The collation takes both for one, so the sink cannot have the row as it is at the source beside the other."""
    ends.create("utf8mb4_general_ci")
    for number in range(ROWS):
        ends.put(ends.key(number), number)
        ends.surplus((TEXTS[number].swapcase(),), -1)
    ends.surplus(("surplus",), -2)
    between_turns += [lambda: ends.change(ends.key(0), None), lambda: ends.change(ends.key(1), 100)]
    copy(ends)
    eventually(lambda: ends.sink == ends.source, "it is as at the source")
    assert len(ends.source) == ROWS - 1


@pytest.mark.parametrize("ends", ["integer"], indirect=True)
def test_transactions_that_are_open_through_the_copy_and_rows_that_move_between_ranges(
    ends: Ends, between_turns: list[Callable[[], None]]
) -> None:
    """One writes before and commits in the middle, one rolls back, and one is open until all is copied."""
    ends.create("utf8mb4_nopad_bin")
    for number in range(ROWS):
        ends.put((number,), number)

    def written(*statements: str) -> Any:
        session = ends.begin()
        for statement in statements:
            session.cursor().execute(statement)
        return session

    copied, later = 3, ROWS - 3
    middle = written(
        f"UPDATE items SET qty = -1 WHERE id IN ({copied}, {later})",
        "INSERT INTO items VALUES (1000, -1)",
        "DELETE FROM items WHERE id IN (12, 31)",
    )
    undone = written(
        f"UPDATE items SET qty = -2 WHERE id IN ({copied + 1}, {later + 1})",
        "INSERT INTO items VALUES (1001, -2)",
        "DELETE FROM items WHERE id = 13",
    )
    last = written("UPDATE items SET qty = -3 WHERE id IN (5, 33)", "INSERT INTO items VALUES (-5, -3)")

    def move(before: int, after: int) -> None:
        ends.change((before,), None)
        ends.change((after,), before)

    def first_turn() -> None:
        assert ends.sink[copied,] == copied, "what is not committed is not copied"
        move(6, 2000)  # from a range that is copied to one that is not
        move(later + 2, -7)  # and the other way round
        ends.change((7,), None)
        ends.change((30,), None)

    def second_turn() -> None:
        undone.rollback()
        middle.commit()
        for key, qty in ((copied, -1), (later, -1), (1000, -1), (12, None), (31, None)):
            ends.log((key,), qty)

    between_turns += [first_turn, second_turn, lambda: move(-7, 2001)]
    copy(ends)
    assert between_turns == [], "the copy took a turn for each"
    last.commit()
    for key in (5, 33, -5):
        ends.log((key,), -3)
    eventually(lambda: ends.sink == ends.source, "it is as at the source")
    assert {(1000,): -1, (2001,): -7, (-5,): -3}.items() <= ends.source.items()
    assert (1001,) not in ends.source
    for session in (middle, undone, last):
        session.close()
