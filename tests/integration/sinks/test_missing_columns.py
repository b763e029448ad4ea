"""Columns that the sink's table does not have: what comes before is applied, and the table stops exactly there."""

from collections.abc import Callable, Iterator, Sequence

import psycopg
import pytest

from fixtures.services import mariadb_execute
from headgate.formats.change import ABSENT, Change, Operation
from headgate.sinks.contract import (
    ChangeBatch,
    ChangeRefusedError,
    OffsetRange,
    Quarantine,
    QuarantineFullError,
    Sink,
    SinkColumnMissingError,
)
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from support import build

pytestmark = pytest.mark.integration


class Sinks:
    """A sink with a table ``t``, and a log of one partition that is applied to it."""

    def __init__(self, sink: Sink, execute: Callable[[str], list[tuple]]) -> None:
        self.sink, self.execute, self.writer = sink, execute, sink.writer()
        self.claim = build.claim(table="t", topic="shop.t")

    def create(self, columns: str) -> None:
        self.execute(f"CREATE TABLE t ({columns})")
        self.sink.claim(self.claim)

    def apply(self, log: Sequence[Change], quarantine: Quarantine | None = None) -> int:
        """Apply all of ``log`` that is not at the sink yet; how far it came without an error."""
        while (at := self.sink.positions(self.claim)[0]) < len(log):
            rest = [change for change in log if change.offset >= at]
            self.writer.apply(ChangeBatch(self.claim, {0: OffsetRange(at, len(log))}, rest, quarantine))
        return at

    def stops_at(self, log: Sequence[Change], column: str) -> int:
        """The offset at which it stops for want of that column."""
        with pytest.raises(SinkColumnMissingError, match=f"no column {column}") as stopped:
            self.apply(log)
        assert stopped.value.offset == self.sink.positions(self.claim)[0]
        assert stopped.value.retryable
        return stopped.value.offset

    def rows(self, columns: str) -> list[tuple]:
        return self.execute(f"SELECT {columns} FROM t ORDER BY id")


@pytest.fixture(params=["postgresql", "mariadb"])
def sinks(request: pytest.FixtureRequest) -> Iterator[Sinks]:
    if request.param == "postgresql":
        dsn = request.getfixturevalue("postgres_database")
        with psycopg.connect(dsn, autocommit=True) as connection:

            def execute(statement: str) -> list[tuple]:
                cursor = connection.execute(statement)
                return cursor.fetchall() if cursor.description else []

            yield Sinks(PostgresSink(RelationalSettings(dsn)), execute)
        return
    url = request.getfixturevalue("mariadb_database")
    yield Sinks(MysqlSink(RelationalSettings(url)), lambda statement: mariadb_execute(url, statement))


@pytest.fixture(autouse=True)
def _close(sinks: Sinks) -> Iterator[None]:
    yield
    sinks.writer.close()


def log_of(*rows: dict[str, object]) -> list[Change]:
    return [Change(0, offset, Operation.UPSERT, {"id": row["id"]}, row, None, 0) for offset, row in enumerate(rows)]


def test_a_backlog_with_a_renamed_column_goes_on_after_the_rename_at_the_sink(sinks: Sinks) -> None:
    sinks.create("id int PRIMARY KEY, a varchar(9)")
    log = log_of({"id": 1, "a": "x"}, {"id": 2, "b": "y"}, {"id": 3, "b": "z"})
    assert sinks.stops_at(log, "b") == 1
    assert sinks.rows("id, a") == [(1, "x")]
    sinks.execute("ALTER TABLE t RENAME COLUMN a TO b")
    assert sinks.apply(log) == 3
    assert sinks.rows("id, b") == [(1, "x"), (2, "y"), (3, "z")]


def test_a_column_that_is_renamed_there_and_back_stops_at_each_change_of_the_name(sinks: Sinks) -> None:
    sinks.create("id int PRIMARY KEY, a varchar(9)")
    names = ["a", "a", "b", "b", "a", "b"]
    log = log_of(*({"id": n, name: f"v{n}"} for n, name in enumerate(names)))
    stops = []
    for needed, former in (("b", "a"), ("a", "b"), ("b", "a")):
        stops.append(sinks.stops_at(log, needed))
        sinks.execute(f"ALTER TABLE t RENAME COLUMN {former} TO {needed}")
    assert (stops, sinks.apply(log)) == ([2, 4, 5], 6)
    assert sinks.rows("id, b") == [(n, f"v{n}") for n in range(6)]


def test_columns_that_are_added_dropped_and_renamed_in_a_backlog(sinks: Sinks) -> None:
    sinks.create("id int PRIMARY KEY, a varchar(9), b varchar(9) NOT NULL")
    log = log_of(
        {"id": 1, "a": "a", "b": "b"},
        {"id": 2, "a": "a", "b": "b"},
        {"id": 3, "a": "a", "b": "b", "x": 8},
        {"id": 4, "a": "a", "x": 9},
        {"id": 5, "renamed": "r", "x": 10},
    )
    assert sinks.stops_at(log, "x") == 2
    sinks.execute("ALTER TABLE t ADD COLUMN x int NOT NULL DEFAULT 7")
    with pytest.raises(ChangeRefusedError) as stopped:
        sinks.apply(log)
    assert stopped.value.offset == 3
    sinks.execute("ALTER TABLE t DROP COLUMN b")
    assert sinks.stops_at(log, "renamed") == 4
    sinks.execute("ALTER TABLE t RENAME COLUMN a TO renamed")
    assert sinks.apply(log) == 5
    assert sinks.rows("id, renamed, x") == [(1, "a", 7), (2, "a", 7), (3, "a", 8), (4, "a", 9), (5, "r", 10)]


def test_changes_before_the_missing_column_are_applied_even_if_they_are_many(sinks: Sinks) -> None:
    sinks.create("id int PRIMARY KEY, a int")
    log = log_of(*({"id": n, "a": n} for n in range(700)), {"id": 3, "a": ABSENT}, {"id": 700, "a": 1, "c": 1})
    assert sinks.stops_at(log, "c") == 701
    assert sinks.execute("SELECT count(*) FROM t") == [(700,)]


def test_other_partitions_are_not_held_back(sinks: Sinks) -> None:
    sinks.create("id int PRIMARY KEY, a int")
    claim = build.claim(identity=sinks.claim.identity, table="t", topic="shop.two", start={0: 0, 1: 0})
    sinks.sink.claim(claim)
    changes = [*log_of({"id": 1, "a": 1}, {"id": 2, "b": 1})]
    changes += [Change(1, n, Operation.UPSERT, {"id": 10 + n}, {"id": 10 + n, "a": n}, None, 0) for n in range(3)]
    ranges = {0: OffsetRange(0, 2), 1: OffsetRange(0, 3)}
    assert sinks.writer.apply(ChangeBatch(claim, ranges, changes)).positions == {0: 1, 1: 3}
    assert [row[0] for row in sinks.rows("id")] == [1, 10, 11, 12]


def test_quarantine_sets_the_change_aside_once_it_is_not_patient_any_more(sinks: Sinks) -> None:
    sinks.create("id int PRIMARY KEY, a int")
    log = log_of({"id": 1, "a": 1}, {"id": 2, "b": 2}, {"id": 3, "a": 3}, {"id": 4, "b": 4})
    kept: list[ChangeRefusedError] = []
    with pytest.raises(SinkColumnMissingError):
        sinks.apply(log, Quarantine(kept.extend, 9, patient=True))
    assert (sinks.sink.positions(sinks.claim), kept) == ({0: 1}, [])
    assert sinks.apply(log, Quarantine(kept.extend, 9, patient=False)) == 4
    assert [(error.offset, error.code) for error in kept] == [(1, "sink_column_missing"), (3, "sink_column_missing")]
    assert [row[0] for row in sinks.rows("id")] == [1, 3]
    more = [*log, Change(0, 4, Operation.UPSERT, {"id": 5}, {"id": 5, "b": 1}, None, 0)]
    with pytest.raises(QuarantineFullError):
        sinks.apply(more, Quarantine(kept.extend, 0, patient=False))


def test_a_column_in_another_case(sinks: Sinks, request: pytest.FixtureRequest) -> None:
    """MariaDB does not tell cases apart, so its table has the column; PostgreSQL's does not."""
    sinks.create("id int PRIMARY KEY, amount int, stays int")
    log = log_of({"id": 1, "amount": 1, "stays": 1}, {"id": 2, "Amount": 2, "stays": 2})
    log.append(Change(0, 2, Operation.UPSERT, {"ID": 3}, {"ID": 3, "AMOUNT": 3, "Stays": 3}, None, 0))
    log.append(Change(0, 3, Operation.UPSERT, {"ID": 3}, {"ID": 3, "AMOUNT": 4, "Stays": ABSENT}, None, 0))
    log.append(Change(0, 4, Operation.DELETE, {"ID": 1}, None, None, 0))
    if isinstance(sinks.sink, PostgresSink):
        assert sinks.stops_at(log, "Amount") == 1
        return
    assert sinks.apply(log) == 5
    assert sinks.rows("id, amount, stays") == [(2, 2, 2), (3, 4, 3)]
    assert sinks.apply([*log, Change(0, 5, Operation.DELETE, {"Id": 2}, None, None, 0)]) == 6
    assert sinks.rows("id") == [(3,)]
