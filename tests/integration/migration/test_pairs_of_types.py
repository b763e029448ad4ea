"""Which types copy and feed convert alike, measured at the real servers: what ``two_ways`` accepts must be the same.

Each value goes into a column of the new type twice: as ``online`` copies a row, and as the feed applies the event that
the connector makes of it. A pair counts where the server's own ALTER accepts it, and a value where both ways take it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final

import msgspec
import psycopg
import pymysql
import pytest

from fixtures.services import database_connect
from headgate.databases.address import Target
from headgate.databases.postgresql.session import open_connection
from headgate.formats.change import CONNECTOR, Change, Operation
from headgate.migration.strategies.contract import DescribedColumn
from headgate.migration.strategies.mariadb.text import literal as literal_text
from headgate.migration.strategies.mariadb.text import settings
from headgate.migration.strategies.two_ways import converts_alike
from headgate.migration.strategies.widening import loss
from headgate.sinks.contract import ChangeBatch, Claim, OffsetRange, SinkError
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from support import build

pytestmark = pytest.mark.integration

TIME = "io.debezium.time"
MEASURED_MIN: Final = 60
"""Pairs at each database: a test of fewer would measure something else."""

OTHERWISE: Final = {
    "postgresql": [
        ("real", "double precision"), ("real", "numeric"), ("double precision", "text"), ("bytea", "text"),
        ("character(5)", "text"), ("character(5)", "character(3)"), ("bit(3)", "bit(5)"), ("bit(3)", "bit(2)"),
        ("bit(3)", "bit varying(12)"),
        ("bit varying(9)", "bit varying(12)"), ("bit varying(9)", "text"), ("inet", "text"), ("money", "text"),
        ("timestamp with time zone", "text"), ("date", "timestamp without time zone"), ("integer[]", "text"),
        ("time without time zone", "text"), ("interval", "text"), ("numeric(8,3)", "character varying(3)"),
        ("uuid", "character(3)"), ("boolean", "character varying(3)"),
    ],
    "mysql": [
        ("int(11)", "enum('1','x')"), ("int(11)", "set('1','x')"), ("float", "double"), ("double", "int(11)"),
        ("date", "datetime"), ("date", "timestamp"), ("int(10) unsigned zerofill", "text"),
        ("varbinary(9)", "varchar(40)"), ("enum('x','1','7')", "int(11)"), ("varchar(12)", "blob"),
        ("datetime(1)", "varchar(40)"), ("bit(8)", "int(11)"), ("float unsigned zerofill", "double"),
        ("float", "double unsigned zerofill"), ("double unsigned zerofill", "int(11)"),
        ("decimal(8,2) unsigned zerofill", "bit(8)"), ("decimal(8,2) unsigned zerofill", "year(4)"),
        ("decimal(8,2) unsigned zerofill", "text"), ("binary(8)", "binary(4)"), ("binary(4)", "varbinary(3)"),
        ("decimal(8,3)", "varchar(3)"),
    ],
}  # fmt: skip
"""Pairs of which some value here is another by each way, or is refused by the feed whatever it is."""


class Type(msgspec.Struct, frozen=True):
    """``name`` is the server's own text of it; ``values``: a literal → the value in the connector's event.

    ``meaning`` is what the event's schema says of it.
    """

    name: str
    values: Mapping[str, object]
    meaning: str = ""


MOOD: Final = "public.mood"
"""An enum of PostgreSQL's."""

POSTGRESQL: Final = (
    Type("smallint", {"0": 0, "7": 7, "-32768": -32768}),
    Type("integer", {"1": 1, "12345": 12345, "16777217": 16777217}),
    Type("bigint", {"2": 2, "-9007199254740993": -9007199254740993}),
    Type("numeric(8,3)", {"1.250": "1.250", "-2.500": "-2.500", "7.000": "7.000", "0.100": "0.100"}),
    Type("numeric", {"1e20": "100000000000000000000", "0.15": "0.15", "'NaN'": "NaN"}),
    Type("real", {"0.1": 0.1, "2.5": 2.5, "16777216": 16777216.0, "1e10": 1e10}, "float"),
    Type(
        "double precision", {"0.1": 0.1, "2.5": 2.5, "0.30000000000000004": 0.30000000000000004, "1e15": 1e15}, "double"
    ),
    Type("boolean", {"true": True, "false": False}),
    Type("character(5)", {"'ab'": "ab   ", "'12'": "12   "}),
    Type("character varying(12)", {"'ab '": "ab ", "'longer text'": "longer text", "'12'": "12"}),
    Type("text", {"''": "", "'x '": "x ", "'glad'": "glad", "'{\"a\": 1}'": '{"a": 1}'}),
    Type("bytea", {r"'\x0041'": "AEE="}, "bytes"),
    Type("date", {"'2026-02-28'": 20512}, f"{TIME}.Date"),
    Type("time without time zone", {"'23:59:59.6'": 86_399_600_000}, f"{TIME}.MicroTime"),
    Type(
        "timestamp without time zone",
        {"'2026-02-28 23:59:59.6'": 1_772_323_199_600_000, "'1969-12-31 12:00:00'": -43_200_000_000},
        f"{TIME}.MicroTimestamp",
    ),
    Type(
        "timestamp with time zone",
        {"'2026-02-28 23:59:59.6+02'": "2026-02-28T21:59:59.600000Z"},
        f"{TIME}.ZonedTimestamp",
    ),
    Type("interval", {"'1 day 02:03:04.6'": "P0Y0M1DT2H3M4.6S"}, f"{TIME}.Interval"),
    Type(
        "uuid",
        {"'44350cb3-8ab4-d5f9-47b0-0e004d0b65f8'": "44350cb3-8ab4-d5f9-47b0-0e004d0b65f8"},
        "io.debezium.data.Uuid",
    ),
    Type("json", {'\'{"b": 1, "a":2}\'': '{"b": 1, "a":2}', "'1'": "1"}, "io.debezium.data.Json"),
    Type("jsonb", {'\'{"b": 1, "a":2}\'': '{"a": 2, "b": 1}', "'1'": "1"}, "io.debezium.data.Json"),
    Type("bit(3)", {"B'101'": "BQ==", "B'001'": "AQ=="}, "io.debezium.data.Bits(3)"),
    Type("bit varying(9)", {"B'10101'": "FQ==", "B'00101'": "BQ=="}, "io.debezium.data.Bits(9)"),
    Type("inet", {"'10.0.0.1'": "10.0.0.1", "'10.0.0.1/8'": "10.0.0.1/8"}),
    Type("cidr", {"'10.0.0.0/8'": "10.0.0.0/8"}),
    Type("macaddr", {"'08:00:2b:01:02:03'": "08:00:2b:01:02:03"}),
    Type("money", {"'12.50'": "12.50"}),
    Type("oid", {"7": 7}),
    Type("integer[]", {"'{1,NULL,2}'": [1, None, 2]}, "array(int32)"),
    Type("text[]", {"'{a,NULL,\"b c\"}'": ["a", None, "b c"]}, "array(string)"),
    Type(MOOD, {"'glad'": "glad", "'sad'": "sad"}, "io.debezium.data.Enum"),
)
POSTGRESQL_AFTER: Final = (
    "smallint", "integer", "bigint", "numeric(8,3)", "numeric(4,1)", "numeric", "real", "double precision", "text",
    "character varying(40)", "character varying(3)", "character(40)", "character(3)", "date",
    "timestamp without time zone", "timestamp(0) without time zone", "timestamp(0) with time zone",
    "time(0) without time zone", "interval(0)", "json", "jsonb", "bit(2)", "bit(5)", "bit varying(2)",
    "bit varying(12)", "bigint[]",
)  # fmt: skip

ENUM: Final = "io.debezium.data.Enum"
MARIADB: Final = (
    Type("tinyint(4)", {"0": 0, "1": 1, "-128": -128}),
    Type("int(11)", {"0": 0, "7": 7, "16777217": 16777217}),
    Type("int(10) unsigned zerofill", {"1": 1, "7": 7, "2026": 2026, "4294967295": 4294967295}),
    Type("bigint(20)", {"1": 1, "2": 2, "2026": 2026, "-9007199254740993": -9007199254740993}),
    Type("decimal(8,3)", {"1.250": "1.250", "-2.500": "-2.500", "7.000": "7.000"}),
    Type("float", {"0.1": 0.1, "2.5": 2.5, "16777216": 16777216.0}, "float"),
    Type("double", {"0.1": 0.1, "2.5": 2.5, "1e15": 1e15, "0.30000000000000004": 0.30000000000000004}, "double"),
    Type("decimal(8,2) unsigned zerofill", {"1.25": "1.25", "7.00": "7.00", "49.00": "49.00", "2026.00": "2026.00"}),
    Type("float unsigned zerofill", {"0.1": 0.1, "2.5": 2.5, "7": 7.0}, "float"),
    Type("double unsigned zerofill", {"0.1": 0.1, "2.5": 2.5, "7": 7.0}, "double"),
    Type("bit(1)", {"b'1'": True}, "boolean"),
    Type("bit(8)", {"b'00110001'": "MQ==", "b'00000001'": "AQ=="}, "io.debezium.data.Bits(8)"),
    Type("bit(16)", {"b'0000000100110001'": "MQE=", "b'0000000000000001'": "AQA="}, "io.debezium.data.Bits(16)"),
    Type("char(5)", {"'ab'": "ab", "'12'": "12", "'x'": "x"}),
    Type("varchar(12)", {"'ab '": "ab ", "'longer text'": "longer text", "'12'": "12", "'x'": "x", "'1'": "1"}),
    Type("text", {"''": "", "'x'": "x", "'20260228'": "20260228", "'12'": "12"}),
    Type("binary(4)", {"x'41420000'": "QUIAAA=="}, "bytes"),
    Type("binary(8)", {"x'4142000000000000'": "QUIAAAAAAAA="}, "bytes"),
    Type("varbinary(9)", {"x'4142'": "QUI=", "x'31'": "MQ=="}, "bytes"),
    Type("blob", {"x'4142'": "QUI="}, "bytes"),
    Type("date", {"'2026-02-28'": 20512}, f"{TIME}.Date"),
    Type("time(1)", {"'23:59:59.6'": 86_399_600_000}, f"{TIME}.MicroTime"),
    Type("datetime(1)", {"'2026-02-28 23:59:59.6'": 1_772_323_199_600}, f"{TIME}.Timestamp"),
    Type("timestamp(1)", {"'2026-02-28 21:59:59.6'": "2026-02-28T21:59:59.6Z"}, f"{TIME}.ZonedTimestamp"),
    Type("year(4)", {"2026": 2026, "0": 0}, f"{TIME}.Year"),
    Type("enum('x','1','7')", {"'x'": "x", "'1'": "1", "'7'": "7"}, ENUM),
    Type("set('x','1')", {"'x'": "x", "'x,1'": "x,1", "''": ""}, "io.debezium.data.EnumSet"),
    Type("uuid", {"'5e045c13-0000-4000-8000-000000000001'": "5e045c13-0000-4000-8000-000000000001"}),
    Type("inet6", {"'::1'": "::1"}),
)
MARIADB_AFTER: Final = (
    "tinyint(4)", "int(11)", "int(10) unsigned zerofill", "bigint(20)", "decimal(8,3)", "decimal(4,1)", "decimal(12,6)",
    "decimal(8,2) unsigned zerofill", "float", "float unsigned zerofill", "double", "double unsigned zerofill",
    "bit(1)", "bit(8)", "bit(16)", "binary(4)", "binary(8)", "char(5)", "varchar(3)", "varchar(40)", "text",
    "varbinary(3)", "blob", "date", "time", "datetime", "datetime(6)", "timestamp", "year(4)", "enum('1','x')",
    "set('1','x')",
)  # fmt: skip

Pair = tuple[str, str]
Measured = tuple[str, str | None, str | None]
"""A literal, and what is in the new column by the copy and by the feed; None where it refuses the value."""


class Database(ABC):
    """Tables of one new type after the other, and the real sink that writes them."""

    connector: str
    types: tuple[Type, ...]
    after: tuple[str, ...]

    def __init__(self, url: str) -> None:
        self.url = url
        self._offset = 0
        self._writer: Any = None

    @abstractmethod
    def make(self, number: int, new: str) -> str:
        """The table for values of that type; its name as a claim has it."""

    @abstractmethod
    def is_altered(self, old: Type, new: str) -> bool:
        """Whether the server's ALTER knows the change."""

    @abstractmethod
    def copied(self, old: Type, literal: str, new: str) -> str | None:
        """The value as the copy makes it."""

    @abstractmethod
    def shown(self, number: int, row: int) -> str:
        """What the feed has written."""

    @abstractmethod
    def sink(self) -> Any:
        """The sink."""

    @abstractmethod
    def close(self) -> None:
        """End the session."""

    def alike(self, old: str, new: str) -> bool:
        """What ``online`` takes them for at a submission that allows every loss."""
        return converts_alike(
            old,
            new,
            is_postgresql=self.connector == "postgresql",
            is_enum=old == MOOD,
            is_wider=self.is_wider(old, new),
        )

    def is_wider(self, old: str, new: str) -> bool:
        """Whether the new type holds every value of the old one."""
        return loss(old, new, is_enum=old == MOOD) is None

    def measured(self, pairs: Iterable[Pair]) -> dict[Pair, list[Measured]]:
        found: dict[Pair, list[Measured]] = {}
        known = {each.name: each for each in self.types}
        sink = self.sink()
        by_new: dict[str, list[Type]] = {}
        for old, new in pairs:
            by_new.setdefault(new, []).append(known[old])
        for number, (new, olds) in enumerate(by_new.items()):
            claim = build.claim(table=self.make(number, new))
            sink.claim(claim)
            with closing(sink.writer()) as self._writer:
                self._offset = 0
                for was in olds:
                    found[was.name, new] = [
                        (text, self.copied(was, text, new), self._fed(claim, number, was, event))
                        for text, event in was.values.items()
                    ]
        sink.close()
        return found

    def _fed(self, claim: Claim, number: int, old: Type, event: object) -> str | None:
        at = self._offset
        semantics = {CONNECTOR: self.connector} | ({"v": old.meaning} if old.meaning else {})
        change = Change(0, at, Operation.UPSERT, {"id": at}, {"id": at, "v": event}, None, 0, semantics)
        try:
            self._writer.apply(ChangeBatch(claim, {0: OffsetRange(at, at + 1)}, [change]))
        except SinkError:
            return None
        self._offset += 1
        return self.shown(number, at)


class Postgres(Database):
    connector, types, after = "postgresql", POSTGRESQL, POSTGRESQL_AFTER

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._session = open_connection(Target(url), application_name="pairs", lock_seconds=5)
        self._session.execute(f"CREATE TYPE {MOOD} AS ENUM ('glad', 'sad')")

    def _one(self, statement: str) -> str:
        ((found,),) = self._session.execute(statement.encode()).fetchall()
        return str(found)

    def make(self, number: int, new: str) -> str:
        self._session.execute(f"CREATE TABLE public.t{number} (id int PRIMARY KEY, v {new})".encode())
        return f"public.t{number}"

    def is_altered(self, old: Type, new: str) -> bool:
        try:
            with self._session.transaction(force_rollback=True):
                self._session.execute(f"CREATE TEMP TABLE t (v {old.name}); ALTER TABLE t ALTER v TYPE {new}".encode())
        except psycopg.Error:
            return False
        return True

    def copied(self, old: Type, literal: str, new: str) -> str | None:
        try:
            return self._one(f"SELECT (({literal})::{old.name})::{new}::text")
        except psycopg.Error:
            return None

    def shown(self, number: int, row: int) -> str:
        return self._one(f"SELECT v::text FROM public.t{number} WHERE id = {row}")

    def sink(self) -> PostgresSink:
        return PostgresSink(RelationalSettings(self.url, rounds=True))

    def close(self) -> None:
        self._session.close()


class Mariadb(Database):
    connector, types, after = "mysql", MARIADB, MARIADB_AFTER

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._connection = database_connect(url)
        self._cursor = self._connection.cursor()
        self._cursor.execute("SET time_zone = '+00:00'")
        self._tables: dict[str, str] = {}
        self._new = ""

    def make(self, number: int, new: str) -> str:
        self._new = new
        for table in (f"TABLE t{number} (id int PRIMARY KEY, ", "OR REPLACE TEMPORARY TABLE became ("):
            self._cursor.execute(f"CREATE {table}v {new} NULL) CHARACTER SET utf8mb4")
        return f"{self.url.rpartition('/')[2]}.t{number}"

    def is_altered(self, old: Type, new: str) -> bool:
        del old, new
        return True

    def copied(self, old: Type, literal: str, new: str) -> str | None:
        """As the copy's INSERT of the literal, which must be what the comparison has: the server's own conversion."""
        was = self._was(old)
        row = list(old.values).index(literal)
        texts = []
        try:
            ((given,),) = self._rows(f"SELECT {literal_text(_column(old.name))} FROM {was} WHERE id = {row}")
            is_strict = loss(old.name, new) is None
            self._cursor.execute(settings(strict=is_strict))
            for select in (f"VALUES ({given})", f"SELECT v FROM {was} WHERE id = {row}"):
                self._cursor.execute("DELETE FROM became")
                self._cursor.execute(f"INSERT {'' if is_strict else 'IGNORE '}INTO became {select}")
                texts += [str(text) for (text,) in self._rows(f"SELECT {literal_text(_column(new))} FROM became")]
        except pymysql.Error:
            return None
        return texts[0] if texts[0] == texts[1] else f"{texts[0]}, and the server's own conversion is {texts[1]}"

    def _was(self, old: Type) -> str:
        """The table with the values of a type."""
        if old.name not in self._tables:
            name = self._tables[old.name] = f"was{len(self._tables)}"
            self._cursor.execute(f"CREATE TEMPORARY TABLE {name} (id int, v {old.name} NULL) CHARACTER SET utf8mb4")
            for row, literal in enumerate(old.values):
                self._cursor.execute(f"INSERT INTO {name} VALUES ({row}, {literal})")
        return self._tables[old.name]

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        self._cursor.execute(statement)
        return list(self._cursor.fetchall())

    def shown(self, number: int, row: int) -> str:
        ((text,),) = self._rows(f"SELECT {literal_text(_column(self._new))} FROM t{number} WHERE id = {row}")
        return str(text)

    def sink(self) -> MysqlSink:
        return MysqlSink(RelationalSettings(self.url, rounds=True))

    def close(self) -> None:
        self._connection.close()


def _column(kind: str) -> DescribedColumn:
    return DescribedColumn(name="v", type=kind, is_nullable=True)


@pytest.fixture(params=["postgresql", "mariadb"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    if request.param == "postgresql":
        opened: Database = Postgres(request.getfixturevalue("postgres_database"))
    else:
        opened = Mariadb(request.getfixturevalue("mariadb_database"))
    yield opened
    opened.close()


def test_pairs_that_online_accepts_are_converted_alike(database: Database) -> None:
    pairs = [
        (old.name, new)
        for new in database.after
        for old in database.types
        if old.name != new and database.alike(old.name, new) and database.is_altered(old, new)
    ]
    measured = database.measured(pairs)
    assert len(measured) == len(pairs) > MEASURED_MIN
    refused = {
        pair: [each for each in values if each[1] is not None and each[2] is None]
        for pair, values in measured.items()
        if database.is_wider(*pair)
    }
    assert {pair: values for pair, values in refused.items() if values} == {}, "all values of a wider type come through"
    taken = {pair: [each for each in values if None not in each] for pair, values in measured.items()}
    assert {
        pair: differing
        for pair, values in taken.items()
        if (differing := [each for each in values if each[1] != each[2]])
    } == {}
    assert {pair for pair, values in taken.items() if not values} == set(), "of each pair some value fits"


def test_pairs_that_online_refuses_are_not(database: Database) -> None:
    refused = OTHERWISE[database.connector]
    assert [pair for pair in refused if database.alike(*pair)] == []
    measured = database.measured(refused)
    assert [
        pair
        for pair, values in measured.items()
        if all(copied == fed for _, copied, fed in values if copied is not None)
    ] == []
