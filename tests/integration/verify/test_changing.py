"""Two tables compared on real databases while both change, in all four pairs of kinds: writers act between readings."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fixtures.services import mariadb_connect
from headgate.databases.address import Target
from headgate.eventlog.clock import wall_ms
from headgate.verify import comparing
from headgate.verify.comparing import TableCompared, compare_table
from headgate.verify.contract import Side
from headgate.verify.mysql import MysqlSide
from headgate.verify.postgresql import PostgresSide
from headgate.verify.settling import Settling
from support.quiet_connector import QuietConnector

pytestmark = pytest.mark.integration

PAIRS = [(source, target) for source in ("postgresql", "mysql") for target in ("postgresql", "mysql")]


class Database:
    """One side's database, and a table of it that is called ``role``."""

    def __init__(self, kind: str, dsn: str, role: str) -> None:
        self.kind, self._dsn, self._role = kind, dsn, role
        self.table = f"public.{role}" if kind == "postgresql" else f"{dsn.rsplit('/', 1)[1]}.{role}"

    def execute(self, statement: str) -> None:
        """``t`` in it is the table; types are PostgreSQL's and MariaDB's own."""
        statement = statement.format(t=self._role)
        if self.kind == "mysql":
            with closing(mariadb_connect(self._dsn)) as session, session.cursor() as cursor:
                cursor.execute("SET time_zone = '+00:00'")
                cursor.execute(statement)
            return
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute("SET TimeZone TO 'UTC'")
            connection.execute(statement.encode())

    def side(self) -> Side:
        if self.kind == "mysql":
            return MysqlSide(Target(self._dsn))
        info = psycopg.conninfo.conninfo_to_dict(self._dsn)
        return PostgresSide(Target(make_conninfo("", **{name: str(value) for name, value in info.items()})))


class Pair(QuietConnector):
    """A source and a target. ``changes`` happen one by one, in the pauses between two readings."""

    def __init__(self, source: Database, target: Database) -> None:
        self.source, self.target = source, target
        self.changes: list[Callable[[], None]] = []
        self.between: list[Callable[[], None]] = []
        """Changes that happen while the tables are read for the first time, one behind each part."""
        self._seconds = 0.0

    def both(self, statement: str) -> None:
        for database in (self.source, self.target):
            database.execute(statement)

    def compare(self) -> TableCompared:
        settling = Settling(self, seconds=1, timeout_seconds=4, now=lambda: self._seconds, pause=self._pause)
        with closing(self.source.side()) as here, closing(self.target.side()) as there:
            return compare_table(
                here, there, self.source.table, self.target.table, settling=settling, on_rows=self._on_rows
            )

    def ends(self) -> Mapping[int, int]:
        return {}

    def why_behind(self, _ends: Mapping[int, int]) -> str:
        return ""

    def _pause(self, seconds: float) -> None:
        self._seconds += seconds
        if self.changes:
            self.changes.pop(0)()

    def _on_rows(self, _rows: int) -> None:
        if self.between:
            self.between.pop(0)()


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> Pair:
    source, target = (
        Database(
            kind, request.getfixturevalue("postgres_database" if kind == "postgresql" else "mariadb_database"), role
        )
        for kind, role in zip(request.param, ("here", "there"), strict=True)
    )
    return Pair(source, target)


def found(compared: TableCompared) -> list[tuple[Any, ...]]:
    return sorted((each.kind, *each.key.values(), *each.columns) for each in compared.examples)


def test_changes_on_their_way_are_no_differences_and_planted_ones_are(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By ranges of a composite key of numbers, negative ones and ones of more than 53 bits too."""
    monkeypatch.setattr(comparing, "ROWS_PER_RANGE", 4)
    pair.both("CREATE TABLE {t} (a bigint, b int, c varchar(9), n decimal(12,4), PRIMARY KEY (a, b))")
    rows = [(a, b) for a in (-5, 1, 9007199254740993, 9007199254740994) for b in (-1, 0, 2, 3, 4)]
    pair.both(f"INSERT INTO {{t}} VALUES {', '.join(f'({a}, {b}, $x$, 1.5)' for a, b in rows)}".replace("$", "'"))
    pair.target.execute("DELETE FROM {t} WHERE a = 9007199254740993 AND b = 2")
    pair.target.execute("INSERT INTO {t} VALUES (9007199254740995, 0, 'y', 0)")
    pair.target.execute("UPDATE {t} SET c = 'X' WHERE a = 1 AND b = 0")

    for database in (pair.source, pair.target):  # of the first range, already read, and of one still to be read
        pair.between.append(partial(database.execute, "UPDATE {t} SET n = 2.5 WHERE a IN (-5, 9007199254740994)"))
    pair.source.execute("UPDATE {t} SET n = 7 WHERE a = 1 AND b = 4")
    pair.source.execute("DELETE FROM {t} WHERE a = 1 AND b = 3")
    pair.source.execute("INSERT INTO {t} VALUES (1, 8, 'new', 0)")
    pair.changes = [
        lambda: pair.target.execute("UPDATE {t} SET n = 7.0 WHERE a = 1 AND b = 4"),
        lambda: pair.target.execute("UPDATE {t} SET b = 8, c = 'new', n = 0 WHERE a = 1 AND b = 3"),
    ]
    compared = pair.compare()
    assert found(compared) == [
        ("differs", "1", "0", "c"),
        ("missing", "9007199254740993", "2"),
        ("surplus", "9007199254740995", "0"),
    ]
    assert (compared.differences, compared.unsettled, compared.rows) == (3, 0, 22)


def test_a_row_that_keeps_changing_is_named(pair: Pair) -> None:
    pair.both("CREATE TABLE {t} (id int PRIMARY KEY, n int)")
    pair.both("INSERT INTO {t} VALUES (1, 0), (2, 0)")
    pair.source.execute("UPDATE {t} SET n = -1")
    pair.changes = [partial(pair.source.execute, f"UPDATE {{t}} SET n = {n} WHERE id = 1") for n in range(1, 40)]
    compared = pair.compare()
    assert found(compared) == [("differs", "2", "n")]
    assert [(each.key, each.columns) for each in compared.unsettled_examples] == [({"id": "1"}, ("n",))]


def test_text_keys_are_found_exactly_whatever_their_collation(pair: Pair) -> None:
    """A collation finds more than was asked for: a, A and ä are three keys here, and one of them differs."""
    for database in (pair.source, pair.target):
        collation = "COLLATE utf8mb4_bin" if database.kind == "mysql" else ""
        database.execute(f"CREATE TABLE {{t}} (a varchar(20) {collation}, b varchar(9), n int, PRIMARY KEY (a, b))")
    values = ", ".join(f"('{a}', '{b}', 1)" for a in ("a", "A", "ä", "%s", "o''k", "🦉") for b in ("x", "y"))
    pair.both(f"INSERT INTO {{t}} VALUES {values}")
    pair.target.execute("UPDATE {t} SET n = 2 WHERE a IN ('A', '%s') AND b = 'y'")
    pair.source.execute("UPDATE {t} SET n = 3 WHERE a = '🦉'")
    pair.changes = [lambda: pair.target.execute("UPDATE {t} SET n = 3 WHERE a = '🦉'")]
    compared = pair.compare()
    assert found(compared) == [("differs", "%s", "y", "n"), ("differs", "A", "y", "n")]
    assert (compared.unsettled, compared.rows) == (0, 12)


def test_keys_of_other_types_are_found_by_their_text(pair: Pair) -> None:
    """2.10 and 2.1 are one key, and so are .50 and .5 of a second; no index can be asked for either."""
    for database in (pair.source, pair.target):
        kind = "datetime(3)" if database.kind == "mysql" else "timestamp(3)"
        database.execute(f"CREATE TABLE {{t}} (k decimal(6,2), at {kind}, n int, PRIMARY KEY (k, at))")
    at = "2026-01-02 03:04:05.5"
    pair.both(f"INSERT INTO {{t}} VALUES (2.10, '{at}', 1), (10, '{at}', 1), (0, '{at}', 1)")
    pair.source.execute("UPDATE {t} SET n = 2 WHERE k >= 2")
    pair.changes = [lambda: pair.target.execute("UPDATE {t} SET n = 2 WHERE k = 10")]
    (example,) = pair.compare().examples
    assert (example.kind, example.key["k"], example.columns) == ("differs", "2.1", ("n",))
    assert example.key["at"].startswith(at)


def test_a_table_without_a_key_is_read_again_as_a_whole(pair: Pair) -> None:
    pair.both("CREATE TABLE {t} (a varchar(9), n decimal(9,2))")
    pair.both("INSERT INTO {t} VALUES ('x', 1), ('x', 1), (NULL, 2), ('', 2)")
    pair.source.execute("INSERT INTO {t} VALUES ('new', 3), ('new', 3), ('lost', 4)")
    pair.changes = [lambda: pair.target.execute("INSERT INTO {t} VALUES ('new', 3.0), ('new', 3.0)")]
    compared = pair.compare()
    assert found(compared) == [("missing", "lost", "4")]
    assert (compared.keyless, compared.unsettled) == (True, 0)


TYPES = {
    "postgresql": "b boolean, s smallint, l bigint, n numeric(30,8), t text, c varchar(9), y bytea, d date, "
    "at timestamp(6), z timestamptz(3), u uuid, tm time(3)",
    "mysql": "b boolean, s smallint, l bigint, n decimal(30,8), t longtext, c varchar(9), y longblob, d date, "
    "at datetime(6), z timestamp(3) NULL, u uuid, tm time(3)",
}
VALUES = (
    "(1, TRUE, -1, 9007199254740993, 12345678901234567890.10, 'o''k, 🦉\n', '', {bytes}, '2026-01-02', "
    "'2026-01-02 03:04:05.5', '2026-01-02 03:04:05.120', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '12:00:00.5'), "
    "(2, FALSE, 0, 0, 0, '', 'ä', {bytes}, '0001-01-01', '2026-01-02 03:04:05', '2026-01-02 03:04:05', "
    "'00000000-0000-0000-0000-000000000000', '00:00:00'), "
    "(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
)


def fill_types(pair: Pair) -> None:
    for database in (pair.source, pair.target):
        database.execute(f"CREATE TABLE {{t}} (id int PRIMARY KEY, {TYPES[database.kind]})")
        given = "x'00ff'" if database.kind == "mysql" else "'\\x00ff'"
        database.execute(f"INSERT INTO {{t}} VALUES {VALUES.replace('{bytes}', given)}")


def test_equal_ranges_are_compared_by_checksum_alone(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every type that both databases write in the same way: no row leaves its database."""
    fill_types(pair)
    read: list[object] = []

    def rows(*given: object, **_: object) -> Iterator[object]:
        read.append(given)
        return iter(())

    for kind in (PostgresSide, MysqlSide):
        monkeypatch.setattr(kind, "rows", rows)
    compared = pair.compare()
    assert (compared.rows, compared.differences, read) == (3, 0, [])


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        ("t = 'x', c = NULL WHERE id = 2", {"t", "c"}),
        ("t = 'ä', c = '' WHERE id = 2", {"t", "c"}),
        ("c = '' WHERE id = 3", {"c"}),
        ("l = 9007199254740992 WHERE id = 1", {"l"}),
        ("n = 12345678901234567890.11 WHERE id = 1", {"n"}),
        ("y = NULL, t = 'N' WHERE id = 2", {"y", "t"}),
    ],
)
def test_what_a_checksum_could_take_for_equal_is_found(pair: Pair, change: str, columns: set[str]) -> None:
    """NULL and the empty text, values that move to another column, digits beyond those of a double."""
    fill_types(pair)
    pair.target.execute(f"UPDATE {{t}} SET {change}")
    (example,) = pair.compare().examples
    assert set(example.columns) == columns


def test_empty_tables_are_equal(pair: Pair) -> None:
    pair.both("CREATE TABLE {t} (id int PRIMARY KEY, n int)")
    compared = pair.compare()
    assert (compared.rows, compared.differences, compared.unsettled) == (0, 0, 0)


def test_positions_are_those_of_the_sinks_own_rows(postgres_database: str, mariadb_database: str) -> None:
    """None without the fence's tables; of this feed and table only."""
    for database in (Database("postgresql", postgres_database, "t"), Database("mysql", mariadb_database, "t")):
        with closing(database.side()) as side:
            assert side.applied("0-7", "public.t") == {}


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_a_database_tells_its_time_as_its_changes_do(request: pytest.FixtureRequest, kind: str) -> None:
    dsn = request.getfixturevalue("postgres_database" if kind == "postgresql" else "mariadb_database")
    with closing(Database(kind, dsn, "t").side()) as side:
        first = wall_ms()
        read = side.clock_ms()
        assert first <= read <= wall_ms()
        assert side.why_log_unread() == ""


def test_a_slot_that_nobody_reads_is_named(postgres_database: str) -> None:
    with closing(Database("postgresql", postgres_database, "t").side()) as side:
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            name = f"unread_{connection.info.dbname}"[:63]
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
            try:
                why = side.why_log_unread()
            finally:
                connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
        assert why == f"no replication slot of the source is read ({name}): is the connector running?"
        assert side.why_log_unread() == ""
