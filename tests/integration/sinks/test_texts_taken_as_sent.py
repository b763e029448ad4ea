"""A text that the database would complete, evaluate or cut off is refused; any other arrives as the event has it.

Each case is a column's type, a value without schema, and the column's text afterwards: None where it must be refused.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing

import psycopg
import pytest

from fixtures.services import mariadb_connect
from headgate.formats.change import CONNECTOR, Change, Operation
from headgate.sinks.contract import ChangeBatch, FeedIdentity, OffsetRange, Sink, ValueRefusedError
from headgate.sinks.relational import writer
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from support import build

pytestmark = pytest.mark.integration

Case = tuple[str, object, str | None]

WORDS = ("now", "today", "tomorrow", "yesterday", "allballs", "NOW", " now ", "now()", "Today")
TIMES = ("date", "time", "timetz", "timestamp", "timestamptz", "timestamp(3)", "day")


def refused(declared: str, *values: object) -> list[Case]:
    return [(declared, value, None) for value in values]


def kept(declared: str, *values: str) -> list[Case]:
    return [(declared, value, value) for value in values]


POSTGRESQL: list[Case] = [
    *(case for declared in TIMES for case in refused(declared, *WORDS, "today 12:00", "tomorrow allballs")),
    *(case for declared in TIMES for case in refused(f"{declared}[]", ["now"], '{"today"}', "{tomorrow}", "{now}")),
    *refused("daterange", "[today,tomorrow)", "[2026-01-01,now)", '["yesterday",)'),
    *refused("tsrange", "[now,)", '["today 01:00",)'),
    *refused("tstzrange[]", ["[now,)"], '{"[today,)"}'),
    *refused("datemultirange", "{[today,tomorrow)}"),
    *refused("days", "[today,tomorrow]"),
    *refused("stay", "(1,now)", '(1,"today")'),
    *refused("stay[]", ["(1,now)"]),
    *kept("stay", "(1,2026-01-02)"),
    *refused("date", "01/02/2026", "26-02-28", "20260228", "2026-2-3", "2026-060", "Jan 8 99", "J2451187", "2026.02.2"),
    *kept("date", "2026-02-28", "infinity", "-infinity", "12026-05-01", "0044-03-15 BC"),
    ("date", "epoch", "1970-01-01"),
    ("date", "2026-02-28Z", "2026-02-28"),
    ("date", "2026-02-28 00:00:00", "2026-02-28"),
    *refused("date", "2026-02-28 23:59:59"),
    ("date", "+12026-05-01", "12026-05-01"),
    ("date[]", "{2026-02-28,NULL}", "{2026-02-28,NULL}"),
    ("date[]", "[5:6]={2026-02-28,infinity}", "[5:6]={2026-02-28,infinity}"),
    *refused("date[]", "{2026-02-28", "{2026-02-28}}", "{,}", "2026-02-28"),
    *refused("time", "04:05 PM", "040506", "04:05:06 PST", "4:05"),
    *kept("time", "04:05:06", "24:00:00"),
    *refused("timetz", "04:05:06 EST", "04:05:06 Europe/Paris"),
    ("timetz", "04:05:06-08:00", "04:05:06-08"),
    *refused("timestamp", "2026-02-28 01:02:03 PST", "01/02/2026 03:04:05", "2026-02-28 04:05 PM", "Sat Feb 28 2026"),
    *kept("timestamp", "2026-02-28 01:02:03.000004", "infinity"),
    ("timestamp", "epoch", "1970-01-01 00:00:00"),
    *refused("timestamptz", "2026-02-28 01:02:03 PST", "2026-02-28T01:02:03 Europe/Paris", "2026-02-28 01:02:03 zulu"),
    ("timestamptz", "2026-02-28T01:02:03+05:30", "2026-02-27 19:32:03+00"),
    *refused("interval", "1", "1.5 months", "1-2", "yesterday", "now", "1 fortnight"),
    ("interval", "P1Y2M3DT4H5M6.5S", "1 year 2 mons 3 days 04:05:06.5"),
    *kept("interval", "1 year 2 mons 3 days 04:05:06.5", "-1 days +02:03:00"),
    *kept("daterange", "[2026-01-01,2026-02-01)", "empty", "(,2026-01-01)"),
    ("tsrange", '["2026-01-01 00:00:00",infinity)', '["2026-01-01 00:00:00",infinity)'),
    ("tstzmultirange", '{["2026-01-01 00:00:00+00",)}', '{["2026-01-01 00:00:00+00",)}'),
    *refused("integer", " 12", "12 ", "0x10", "0b1", "0o7", "1_000", "12abc", ""),
    *kept("integer", "12", "-12"),
    *refused("bigint[]", ["0x10"], "{0x10}", "{1_000}"),
    *refused("numeric", "0x1F", "1_0", " 1", "1 "),
    *kept("numeric", "1.50", "NaN", "-Infinity"),
    *refused("double precision", "0x1p3", " 1.5", "1.5 "),
    *refused("money", "$1", "1,000.50", "(1.00)"),
    *refused("boolean", "of", "yes", "y", "on", "tr", " t", "2"),
    ("boolean", "true", "true"),
    ("boolean", "f", "false"),
    *refused("varchar(3)", "abc  ", "abcd"),
    *kept("varchar(3)", "abc", "ab "),
    *refused("varchar(3)[]", ["abc  "], '{"abc  "}'),
    *refused("char(3)", "abc  "),
    *refused("name", "x" * 64, "é" * 32),
    *kept("name", "x" * 63),
    *refused("name[]", ["x" * 64]),
    *refused('"char"', "ab", "é"),
    *kept('"char"', "a"),
    *refused("oid", -1, "-1", "pg_class", "0x10"),
    *refused("xid", "-1", -1),
    *refused("regclass", "pg_class", "information_schema.tables"),
    *refused("regtype", "integer"),
    *refused("regrole[]", ["postgres"]),
    *refused("cidr", "10.1", "10", "128.1"),
    *refused("inet", "10.1/16"),
    *refused("macaddr8", "08:00:2b:01:02:03"),
    ("bit(4)", "Dw==", "1111"),
    *refused("bit(4)", "EA=="),
    ("positive_days", [20_512], "{2026-02-28}"),
]  # fmt: skip

MARIADB: list[Case] = [
    *refused("year", "0", "1", "26", "70", 26, 1900, 2156, "26 "),
    ("year", 0, "0000"),
    ("year", "0000", "0000"),
    ("year", 2026, "2026"),
    ("year", "1901", "1901"),
    *refused("enum('a','b','c')", "2", 2, "0", 0, "", "A", "a ", "d"),
    *kept("enum('a','b','c')", "b"),
    *kept("enum('0','1','2')", "2", "0"),
    ("enum('0','1','2')", 2, "2"),
    *kept("enum('it''s','so, so','c\\\\d')", "it's", "so, so", "c\\d"),
    *refused("set('a','b','c')", "3", 3, "d", "a,d", "A", "a, b"),
    *kept("set('a','b','c')", "a,c", "", "b"),
    *kept("set('1','2','3')", "3", "1,2"),
    *refused("timestamp NOT NULL", None),
    *refused("timestamp(6) NOT NULL DEFAULT '2026-01-01'", None),
    *refused("int NOT NULL AUTO_INCREMENT UNIQUE", None),
    ("timestamp NULL", None, None),
    *refused("int", "12abc", "", " 12", "12 ", "0x10", "true"),
    *kept("int", "12", "-12"),
    *refused("decimal(5,2)", " 1", "0x10", "1,5", "NaN"),
    *refused("double", " 1.5", "0x1p3"),
    *refused("bit(4)", "EA==", 16, -1),
    *refused("bit(64)", -1, 2**64),
    *refused("date", "26-2-3", "26-02-28", "20260228", "2026/02/28", "2026.02.28", "2026-2-3", "now", "2026-02-30"),
    *kept("date", "2026-02-28"),
    ("date", "2026-02-28Z", "2026-02-28"),
    ("date", "2026-02-28T00:00:00", "2026-02-28"),
    *refused("date", "2026-02-28T23:59:59"),
    *refused("time", "12", "1234", "123456", "1:2:3", "1 10:00:00", "now", "10:00:00 PM"),
    *kept("time", "23:59:58", "-01:00:00", "838:59:59"),
    ("time", "10:11", "10:11:00"),
    *refused("datetime", "20260228", "26-02-28 01:02:03", "2026-2-3 4:5:6", "2026-02-28 010203", "2026+02+28 01:02:03"),
    *kept("datetime", "2026-02-28 01:02:03"),
    *refused("datetime(6)", "now", "2026-02-28 01:02:03 PST"),
    *refused("varchar(3)", "abc  ", "abcd"),
    *kept("varchar(3)", "abc", "ab "),
    *refused("char(3)", "abc  "),
    *refused("tinytext", "x" * 255 + " "),
    *kept("tinytext", "x" * 255),
    *refused("inet6", "1.2.3.4"),
    ("float", 3.4028235e38, "3.40282e38"),
    ("float", "-3.4028235e38", "-3.40282e38"),
    *refused("float", 3.4028236e38, "1e39"),
    *refused("boolean", "true", "yes"),
]  # fmt: skip


def by_column(cases: list[Case]) -> dict[str, list[tuple[object, str | None]]]:
    """A column's type → its values and their texts: a table costs a hundred times what a row does."""
    found: dict[str, list[tuple[object, str | None]]] = {}
    for declared, value, expected in cases:
        found.setdefault(declared, []).append((value, expected))
    return found


class Columns:
    """One column after the other, each in a table of its own, which takes that column's values one after the other."""

    def __init__(self, sink: Sink, database: str) -> None:
        self._sink = sink
        self._writer = sink.writer()
        self._database = database
        self._claim = build.claim()
        self._applied = 0
        self.made = 0

    def claim(self) -> None:
        """Begin to write to the table, which is there and empty."""
        self._applied = 0
        self._claim = build.claim(identity=FeedIdentity("c", "0-1", "f"), table=f"{self._database}.{self.table}")
        self._sink.claim(self._claim)

    @property
    def table(self) -> str:
        return f"t{self.made}"

    def write(self, row: int, value: object, connector: str) -> str | None:
        """Why the value was refused as that of a new row, None if it was not."""
        at, values = self._applied, {"id": row, "v": value}
        change = Change(0, at, Operation.UPSERT, {"id": row}, values, 0, 0, {CONNECTOR: connector})
        try:
            self._writer.apply(ChangeBatch(self._claim, {0: OffsetRange(at, at + 1)}, [change]))
        except ValueRefusedError as error:
            return str(error)
        self._applied += 1
        return None

    def close(self) -> None:
        self._writer.close()


@pytest.fixture(params=["at once", "staged"])
def postgres_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "staged":
        monkeypatch.setattr(writer, "CHANGES_AT_ONCE_MAX", -1)
    return str(request.param)


@pytest.fixture(params=["", "?bulk=insert"])
def columns(mariadb_database: str, request: pytest.FixtureRequest) -> Iterator[Columns]:
    sink = MysqlSink(RelationalSettings(mariadb_database + request.param))
    with closing(Columns(sink, mariadb_database.rsplit("/", 1)[1])) as columns:
        yield columns


def test_postgresql(postgres_database: str, postgres_way: str) -> None:
    """The database's own settings are unusual ones, because no text may depend on them."""
    del postgres_way
    wrong: list[object] = []
    with psycopg.connect(postgres_database, autocommit=True) as server:
        server.execute("CREATE DOMAIN day AS date")
        server.execute("CREATE DOMAIN positive_day AS date CHECK (VALUE > '1970-01-01')")
        server.execute("CREATE DOMAIN positive_days AS date[]")
        server.execute("CREATE TYPE days AS RANGE (subtype = timestamptz)")
        server.execute("CREATE TYPE stay AS (room int, day date)")
        (name,) = server.execute("SELECT current_database()").fetchone() or ("",)
        for setting in ("DateStyle = 'SQL, DMY'", "IntervalStyle = 'sql_standard'", "array_nulls = off"):
            server.execute(f'ALTER DATABASE "{name}" SET {setting}')
        with closing(Columns(PostgresSink(RelationalSettings(postgres_database)), "public")) as columns:
            for declared, cases in by_column(POSTGRESQL).items():
                columns.made += 1
                server.execute(f"CREATE TABLE {columns.table} (id int PRIMARY KEY, v {declared})")
                columns.claim()
                for row, (value, expected) in enumerate(cases):
                    why = columns.write(row, value, "postgresql")
                    rows = server.execute(f"SELECT v::text FROM {columns.table} WHERE id = %s", (row,)).fetchall()
                    wrong += _differences(declared, value, expected, why, rows)
    assert not wrong


def test_mariadb(mariadb_database: str, columns: Columns) -> None:
    wrong: list[object] = []
    with closing(mariadb_connect(mariadb_database)) as server, server.cursor() as cursor:
        cursor.execute("SET SESSION explicit_defaults_for_timestamp = 0")
        for declared, cases in by_column(MARIADB).items():
            columns.made += 1
            cursor.execute(f"CREATE TABLE {columns.table} (id int PRIMARY KEY, v {declared})")
            columns.claim()
            for row, (value, expected) in enumerate(cases):
                why = columns.write(row, value, "mysql")
                cursor.execute(f"SELECT CAST(v AS CHAR) FROM {columns.table} WHERE id = %s", (row,))
                wrong += _differences(declared, value, expected, why, cursor.fetchall())
    assert not wrong


def _differences(
    declared: str, value: object, expected: str | None, why: str | None, rows: Sequence[Sequence[object]]
) -> list[object]:
    """What is not as the case says. A refused value has no row; NULL expects one with NULL."""
    is_refused_rightly = (expected is None and value is not None) or "NOT NULL" in declared
    found: object = rows[0][0] if why is None else "refused" if ", column v: " in why else why
    right = "refused" if is_refused_rightly else expected
    if found == right and (why is None) == (len(rows) == 1):
        return []
    return [(declared, value, f"got {found!r}, not {right!r}", why)]
