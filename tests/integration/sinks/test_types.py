"""What every column type of a source becomes in each sink: captured by the real connectors, applied, read back.

docs/types.md is what these tests found; ``--rewrite-types`` writes it anew. What Avro says is compared with what JSON
with schema says, to the letter that a sink writes.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import psycopg
import pytest

from fixtures.capture import Sources
from fixtures.registry_server import OF_SOURCE
from fixtures.services import mariadb_connect, mariadb_execute
from headgate.config.registry_spec import RegistrySpec
from headgate.formats.change import CONNECTOR, Change, Operation
from headgate.formats.debezium_avro import DebeziumAvroDecoder
from headgate.formats.schema_registry import SchemaRegistry
from headgate.provisioning.time_scale import scaled_seconds
from headgate.sinks.contract import ChangeBatch, FeedIdentity, OffsetRange, Sink, SinkError, SinkWriter
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.mysql.catalog import MysqlSinkColumn
from headgate.sinks.relational.mysql.values import column_text as mysql_text
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.postgresql.values import column_text as postgresql_text
from headgate.sinks.relational.session import RelationalSettings
from headgate.sinks.relational.times import NotTextError
from headgate_lab.embedded.registry import EmbeddedRegistry
from support import build

# Two connectors start in each test, on a machine that may be busy.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled_seconds(900))]

PAGE = Path(__file__).parents[3] / "docs" / "types.md"
START, END = "<!-- {}: begin -->\n", "<!-- {}: end -->\n"


class Type(msgspec.Struct, frozen=True):
    """A column of the source, a value in it, and the columns that take it."""

    declared: str
    literal: str
    postgresql: str
    mysql: str


POSTGRESQL = [
    Type("smallint", "-32768", "smallint", "smallint"),
    Type("integer", "2147483647", "integer", "int"),
    Type("bigint", "-9223372036854775808", "bigint", "bigint"),
    Type("oid", "4294967295", "oid", "int unsigned"),
    Type("numeric(12,2)", "-1234567890.12", "numeric(12,2)", "decimal(12,2)"),
    Type("numeric", "123456789012345678.123456789", "numeric", "decimal(40,20)"),
    Type("numeric", "'NaN'", "numeric", "decimal(40,20)"),
    Type("numeric", "'Infinity'", "numeric", "decimal(40,20)"),
    Type("numeric(12,2)", "-1234567890.12", "text", "longtext"),
    Type("real", "1.5", "real", "float"),
    Type("double precision", "-1e300", "double precision", "double"),
    Type("double precision", "'NaN'", "double precision", "double"),
    Type("double precision", "'-Infinity'", "double precision", "double"),
    Type("money", "12.5", "money", "decimal(19,2)"),
    Type("boolean", "true", "boolean", "boolean"),
    Type("char(5)", "'ab'", "char(5)", "char(5)"),
    Type("varchar(20)", "'naïve 漢字 🚪'", "varchar(20)", "varchar(20)"),
    Type("text", "E'a\\tb\\\\c\\nd'", "text", "longtext"),
    Type("text", "repeat('long ', 2)", "text", "longtext"),
    Type("date", "'2026-02-28'", "date", "date"),
    Type("date", "'0001-01-01'", "date", "date"),
    Type("date", "'9999-12-31'", "date", "date"),
    Type("date", "'12345-01-01'", "date", "date"),
    Type("date", "'0044-03-15 BC'", "date", "date"),
    Type("date", "'infinity'", "date", "date"),
    Type("date", "'2026-02-28'", "text", "varchar(20)"),
    Type("time", "'23:59:59.999999'", "time", "time(6)"),
    Type("time(3)", "'03:04:05.678'", "time(3)", "time(3)"),
    Type("time", "'23:59:59.999999'", "text", "varchar(20)"),
    Type("timetz", "'03:04:05.678+02'", "timetz", "time(6)"),
    Type("timetz", "'01:04:05.678+02'", "time", "time(6)"),
    Type("timestamp", "'1969-12-31 23:59:59.999999'", "timestamp", "datetime(6)"),
    Type("timestamp(3)", "'2026-01-02 03:04:05.678'", "timestamp(3)", "datetime(3)"),
    Type("timestamp", "'infinity'", "timestamp", "datetime(6)"),
    Type("timestamp", "'294276-12-31 23:59:59'", "timestamp", "datetime(6)"),
    Type("timestamp(3)", "'2026-01-02 03:04:05.678'", "text", "varchar(30)"),
    Type("timestamptz", "'2026-01-02 03:04:05.678901+02'", "timestamptz", "datetime(6)"),
    Type("timestamptz", "'2026-01-02 01:04:05.678901+02'", "timestamp", "datetime(6)"),
    Type("timestamptz", "'infinity'", "timestamptz", "datetime(6)"),
    Type("timestamptz", "'2026-01-02 03:04:05+02'", "timestamptz", "timestamp(6) NULL"),
    Type("timestamptz", "'1900-01-01 00:00:00+00'", "timestamptz", "timestamp(6) NULL"),
    Type("interval", "'1 day 02:03:04.5'", "interval", "bigint"),
    Type("interval", "'1 day 02:03:04.5'", "text", "varchar(30)"),
    Type("interval", "'1 month'", "interval", "bigint"),
    Type("interval", "'300000 years'", "interval", "bigint"),
    Type("interval", "'infinity'", "interval", "bigint"),
    Type("bytea", "'\\x00ff0a09'", "bytea", "longblob"),
    Type("json", "'{\"a\": 1}'", "json", "json"),
    Type("jsonb", "'{\"b\": [1, null]}'", "jsonb", "json"),
    Type("uuid", "'5e045c13-0000-4000-8000-000000000001'", "uuid", "uuid"),
    Type("inet", "'10.0.0.1/8'", "inet", "varchar(50)"),
    Type("cidr", "'10.0.0.0/8'", "cidr", "varchar(50)"),
    Type("macaddr", "'08:00:2b:01:02:03'", "macaddr", "char(17)"),
    Type("bit(1)", "B'1'", "bit(1)", "bit(1)"),
    Type("bit(10)", "B'1000000101'", "bit(10)", "bit(10)"),
    Type("bit varying(10)", "B'101'", "bit varying(10)", "bit(10)"),
    Type("bit(10)", "B'1000000101'", "text", "varchar(10)"),
    Type("mood", "'so, so'", "mood", "enum('glad','so, so')"),
    Type("integer[]", "'{1,NULL,3}'", "integer[]", "json"),
    Type("text[]", '\'{"x\\"y","",NULL}\'', "text[]", "json"),
    Type("integer[]", "'{{1,2},{3,4}}'", "integer[]", "json"),
    Type("text[]", "'{{a,b},{c,d}}'", "text[]", "json"),
    Type("double precision[]", "'{NaN,1.5}'", "double precision[]", "json"),
    Type("numeric(12,2)[]", "'{1.50,NULL}'", "numeric(12,2)[]", "json"),
    Type("numeric[]", "'{NaN,1.50}'", "numeric[]", "json"),
    Type("date[]", "'{infinity,2026-02-28}'", "date[]", "json"),
    Type("int4range", "'[1,5)'", "int4range", "varchar(50)"),
    Type("point", "'(1.5,-2)'", "point", "point"),
    Type("vector(3)", "'[1.5,-0.1,1000.25]'", "vector(3)", "json"),
    Type("halfvec(3)", "'[1.5,-0.25,3]'", "halfvec(3)", "json"),
]

MARIADB = [
    Type("tinyint", "-128", "smallint", "tinyint"),
    Type("tinyint unsigned", "255", "smallint", "tinyint unsigned"),
    Type("boolean", "true", "boolean", "boolean"),
    Type("smallint unsigned", "65535", "integer", "smallint unsigned"),
    Type("mediumint unsigned", "16777215", "integer", "mediumint unsigned"),
    Type("int", "-2147483648", "integer", "int"),
    Type("int unsigned", "4294967295", "bigint", "int unsigned"),
    Type("bigint", "-9223372036854775808", "bigint", "bigint"),
    Type("bigint unsigned", "9223372036854775807", "numeric(20,0)", "bigint unsigned"),
    Type("bigint unsigned", "18446744073709551615", "numeric(20,0)", "bigint unsigned"),
    Type("decimal(12,2)", "-1234567890.12", "numeric(12,2)", "decimal(12,2)"),
    Type("decimal(40,20)", "12345678901234567890.12345678901234567890", "numeric(40,20)", "decimal(40,20)"),
    Type("float", "1.5", "real", "float"),
    Type("double", "-1e300", "double precision", "double"),
    Type("bit(1)", "b'1'", "bit(1)", "bit(1)"),
    Type("bit(10)", "b'1000000101'", "bit(10)", "bit(10)"),
    Type("char(5)", "'ab'", "char(5)", "char(5)"),
    Type("varchar(20)", "'naïve 漢字 🚪'", "varchar(20)", "varchar(20)"),
    Type("text", "'a\\tb\\\\c\\nd'", "text", "text"),
    Type("binary(4)", "x'00ff'", "bytea", "binary(4)"),
    Type("varbinary(9)", "x'00ff0a09'", "bytea", "varbinary(9)"),
    Type("longblob", "x'00ff'", "bytea", "longblob"),
    Type("date", "'2026-02-28'", "date", "date"),
    Type("date", "'1000-01-01'", "date", "date"),
    Type("date", "'9999-12-31'", "date", "date"),
    Type("date", "'0000-00-00'", "date", "date"),
    Type("time", "'03:04:05'", "time(6)", "time"),
    Type("time(6)", "'-838:59:59.000001'", "interval", "time(6)"),
    Type("time(3)", "'23:59:59.999'", "time(6)", "time(3)"),
    Type("datetime", "'1969-12-31 23:59:59'", "timestamp(0)", "datetime"),
    Type("datetime(6)", "'2026-01-02 03:04:05.678901'", "timestamp(6)", "datetime(6)"),
    Type("datetime", "'0000-00-00 00:00:00'", "timestamp(0)", "datetime"),
    Type("timestamp(6) NULL", "'2026-01-02 03:04:05.678901'", "timestamptz", "timestamp(6) NULL"),
    Type("year", "2026", "integer", "year"),
    Type("enum('glad','so, so')", "'so, so'", "text", "enum('glad','so, so')"),
    Type("set('a','b','c')", "'a,c'", "text", "set('a','b','c')"),
    Type("json", "'{\"a\": [1, null]}'", "jsonb", "json"),
    Type("uuid", "'5e045c13-0000-4000-8000-000000000001'", "uuid", "uuid"),
    Type("point", "ST_PointFromText('POINT(1.5 -2)')", "point", "point"),
]


class Target(Protocol):
    """A sink, and a way to look at a value in it."""

    sink: Sink

    def create(self, table: str, declared: str) -> str: ...

    def value(self, table: str) -> str | None: ...


class PostgresTarget:
    def __init__(self, dsn: str) -> None:
        self.sink = PostgresSink(RelationalSettings(dsn))
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._connection.execute("CREATE EXTENSION vector")
        self._connection.execute("CREATE TYPE mood AS ENUM ('glad', 'so, so')")
        self._connection.execute("SET TimeZone = 'UTC'; SET lc_monetary = 'C'")

    def create(self, table: str, declared: str) -> str:
        self._connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v {declared})")
        return f"public.{table}"

    def value(self, table: str) -> str | None:
        row = self._connection.execute(f"SELECT v::text FROM {table}").fetchone()
        assert row is not None
        return row[0]

    def close(self) -> None:
        self._connection.close()


class MysqlTarget:
    def __init__(self, url: str) -> None:
        self.sink = MysqlSink(RelationalSettings(url))
        self._database = url.rsplit("/", 1)[1]
        self._connection = mariadb_connect(url)

    def _execute(self, statement: str) -> Sequence[tuple]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()

    def create(self, table: str, declared: str) -> str:
        self._execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v {declared})")
        return f"{self._database}.{table}"

    def value(self, table: str) -> str | None:
        ((declared,),) = self._execute(
            f"SELECT data_type FROM information_schema.columns WHERE table_schema = '{self._database}' "
            f"AND table_name = '{table}' AND column_name = 'v'"
        )
        if "blob" in declared or "binary" in declared:
            ((value,),) = self._execute(f"SELECT CONCAT('0x', LOWER(HEX(v))) FROM {table}")
        elif declared == "bit":
            ((value,),) = self._execute(f"SELECT CONCAT('b''', BIN(v), '''') FROM {table}")
        elif declared == "point":
            ((value,),) = self._execute(f"SELECT ST_AsText(v) FROM {table}")
        else:
            ((value,),) = self._execute(f"SELECT CAST(v AS CHAR) FROM {table}")
        return value

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def targets(postgres_database: str, mariadb_database: str) -> Iterator[dict[str, Target]]:
    made = {"postgresql": PostgresTarget(postgres_database), "mysql": MysqlTarget(mariadb_database)}
    yield made
    for target in made.values():
        target.close()


class Written:
    """Single values, each into a table of one row."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._writer: SinkWriter = target.sink.writer()
        self._count = 0

    def write(self, declared: str, meaning: str | None, connector: str, value: object) -> str:
        """What is there afterwards, or why it was refused."""
        self._count += 1
        relation = f"v{self._count}"
        table = self._target.create(relation, declared)
        claim = build.claim(identity=FeedIdentity("c", "0-1", "f"), table=table)
        self._target.sink.claim(claim)
        semantics = {CONNECTOR: connector} | ({} if meaning is None else {"id": "int32", "v": meaning})
        change = Change(0, 0, Operation.UPSERT, {"id": 1}, {"id": 1, "v": value}, 0, 0, semantics)
        try:
            self._writer.apply(ChangeBatch(claim, {0: OffsetRange(0, 1)}, [change]))
        except SinkError as error:
            said = str(error).removeprefix(f"{table}, column v: ").removeprefix(f"{table}: ").split(" [topic")[0]
            return f"*{error.code}: {said.replace(relation, 't')}*"
        found = self._target.value(relation)
        return "NULL" if found is None else f"`{_shown(found)}`"

    def close(self) -> None:
        self._writer.close()


def _shown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("|", "\\|")


def _lines(
    types: Sequence[Type], plain: Sequence[Change], schema: Sequence[Change], targets: dict[str, Target]
) -> list[str]:
    """A line per type; what the snapshot and the log say differently is written twice."""
    writers = {name: Written(target) for name, target in targets.items()}
    lines = []
    for number, type_ in enumerate(types):
        cells = []
        for name, writer in writers.items():
            declared = getattr(type_, name)
            outcomes = []
            for changes in (schema, plain):
                values = [(change.row or {})[f"c{number}"] for change in changes]
                said = changes[0].semantics or {}
                meaning, connector = said.get(f"c{number}"), said[CONNECTOR]
                distinct = values[: len(set(map(repr, values)))]
                found = [writer.write(declared, meaning, connector, value) for value in distinct]
                if len(set(found)) > 1:
                    found = [f"{found[0]} from its snapshot, {found[1]} from the log"]
                outcomes.append(found[0])
            with_schema, without = outcomes
            cells += [f"`{declared}`", with_schema if with_schema == without else f"{with_schema}; without: {without}"]
        lines.append(f"| `{type_.declared}` | `{_shown(type_.literal)}` | {' | '.join(cells)} |\n")
    for writer in writers.values():
        writer.close()
    return lines


def _letters(type_: Type, meaning: str, connector: str, value: object) -> list[str | None]:
    """What both sinks write into their columns, or why they do not."""
    declared = type_.mysql.replace("boolean", "tinyint(1)")
    columns = [
        postgresql_text(type_.postgresql, meaning, connector),
        mysql_text(MysqlSinkColumn(declared, re.split(r"[( ]", declared)[0], None, None), meaning, connector),
    ]
    letters: list[str | None] = []
    for column in columns:
        try:
            letters.append(column.plain(value))
        except NotTextError as error:
            letters.append(str(error))
    return letters


def _compare_formats(types: Sequence[Type], json: Sequence[Change], avro: Sequence[Change]) -> None:
    for one, other in zip(json, avro, strict=True):
        assert one.semantics == other.semantics
        assert (one.key, one.operation, one.row is not None) == (other.key, other.operation, other.row is not None)
        if one.row is None:
            continue
        assert one.semantics is not None
        assert other.row is not None
        assert list(one.row) == list(other.row)
        for number, type_ in enumerate(types):
            column = f"c{number}"
            meaning, connector = one.semantics[column], one.semantics[CONNECTOR]
            told = [_letters(type_, meaning, connector, row[column]) for row in (one.row, other.row)]
            assert told[0] == told[1], f"{type_}: JSON {one.row[column]!r}, Avro {other.row[column]!r}"


HEAD = "| source type | value | in PostgreSQL | becomes | in MySQL/MariaDB | becomes |\n|---|---|---|---|---|---|\n"


def _compare_page(section: str, lines: Sequence[str], *, rewrite: bool) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(START.format(section))
    found, after = rest.split(END.format(section))
    now = HEAD + "".join(lines)
    if rewrite:
        PAGE.write_text(before + START.format(section) + now + END.format(section) + after, encoding="utf-8")
        return
    assert found.splitlines() == now.splitlines(), "docs/types.md says something else: pytest --rewrite-types, and look"


def test_types_of_postgresql(
    sources: Sources,
    schema_registry: EmbeddedRegistry,
    postgres_schema: tuple["psycopg.Connection[tuple]", str],
    targets: dict[str, Target],
    request: pytest.FixtureRequest,
) -> None:
    source, schema = postgres_schema
    source.execute("CREATE EXTENSION IF NOT EXISTS vector")
    source.execute("CREATE TYPE mood AS ENUM ('glad', 'so, so')")
    columns = ", ".join(f"c{n} {type_.declared}" for n, type_ in enumerate(POSTGRESQL))
    literals = ", ".join(type_.literal for type_ in POSTGRESQL)
    source.execute(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    source.execute(f"INSERT INTO t VALUES (1, {literals})")
    sources.capture_postgres("ps", schema, **WITH_SCHEMAS)
    sources.capture_postgres("pp", schema, **{"decimal.handling.mode": "string"})
    sources.capture_postgres("pa", schema, **schema_registry.converter(), **AVRO_NAMES)
    for name in ("ps", "pp"):
        sources.changes(f"{name}.{schema}.t", 1)
    sources.changes(f"pa.{schema}.t", 1, avro_decoder(schema_registry))
    source.execute(f"INSERT INTO t VALUES (2, {literals})")
    captured = {name: sources.changes(f"{name}.{schema}.t", 2) for name in ("ps", "pp")}
    _compare_formats(POSTGRESQL, captured["ps"], sources.changes(f"pa.{schema}.t", 2, avro_decoder(schema_registry)))
    lines = _lines(POSTGRESQL, captured["pp"], captured["ps"], targets)
    _compare_page("postgresql", lines, rewrite=request.config.getoption("--rewrite-types"))


def test_types_of_mariadb(
    sources: Sources,
    schema_registry: EmbeddedRegistry,
    mariadb_source: str,
    targets: dict[str, Target],
    request: pytest.FixtureRequest,
) -> None:
    database = mariadb_source.rsplit("/", 1)[1]
    columns = ", ".join(f"c{n} {type_.declared}" for n, type_ in enumerate(MARIADB))
    literals = ", ".join(type_.literal for type_ in MARIADB)
    insert = "SET STATEMENT sql_mode = 'NO_ENGINE_SUBSTITUTION' FOR INSERT INTO t VALUES"
    mariadb_execute(mariadb_source, f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    mariadb_execute(mariadb_source, f"{insert} (1, {literals})")
    sources.capture_mariadb("ms", database, **WITH_SCHEMAS)
    sources.capture_mariadb("mp", database, **{"decimal.handling.mode": "string"})
    sources.capture_mariadb("ma", database, **schema_registry.converter(), **AVRO_NAMES)
    for name in ("ms", "mp"):
        sources.changes(f"{name}.{database}.t", 1)
    sources.changes(f"ma.{database}.t", 1, avro_decoder(schema_registry))
    mariadb_execute(mariadb_source, f"{insert} (2, {literals})")
    captured = {name: sources.changes(f"{name}.{database}.t", 2) for name in ("ms", "mp")}
    _compare_formats(MARIADB, captured["ms"], sources.changes(f"ma.{database}.t", 2, avro_decoder(schema_registry)))
    lines = _lines(MARIADB, captured["mp"], captured["ms"], targets)
    _compare_page("mariadb", lines, rewrite=request.config.getoption("--rewrite-types"))


def avro_decoder(registry: EmbeddedRegistry) -> DebeziumAvroDecoder:
    return DebeziumAvroDecoder(SchemaRegistry(RegistrySpec(url=registry.url), OF_SOURCE).schema)


AVRO_NAMES = {"field.name.adjustment.mode": "avro", "schema.name.adjustment.mode": "avro"}
WITH_SCHEMAS = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "true",
    "value.converter.schemas.enable": "true",
}
