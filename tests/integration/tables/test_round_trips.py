"""Every type, captured by a real connector and applied to tables that Headgate created: values are the source's."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import msgspec
import psycopg
import pytest

from fixtures.capture import Sources
from fixtures.services import mariadb_connect
from headgate.databases.address import Target
from headgate.databases.mysql import catalogue as mysql
from headgate.databases.mysql.session import MysqlSession, open_session
from headgate.databases.postgresql import catalogue as postgresql
from headgate.databases.postgresql.session import PostgresSession, open_connection
from headgate.formats.change import Change
from headgate.sinks.contract import ChangeBatch, FeedIdentity, OffsetRange, Sink, SinkError
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from headgate.tables.catalogues import open_catalogue
from headgate.tables.plan import needed_first, session_settings, target_tables
from headgate.tables.statement import Definition
from support import build
from support.every_type import AS_TEXT, ENUMS, MARIADB, POSTGRESQL, POSTGRESQL_ONLY, Type, columns

# Two connectors are started, and each type has a table of its own at each sink.
pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]

AS_ITSELF: Final = "{}::text"
POSTGRESQL_SETTINGS: Final = "SET TimeZone = 'UTC'; SET lc_monetary = 'C'; SET IntervalStyle = 'postgres'"
MARIADB_SETTINGS: Final = "SET time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES'"

CONNECTOR: Final = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "true",
    "value.converter.schemas.enable": "true",
    "value.converter.replace.null.with.default": "false",
    "decimal.handling.mode": "string",
}
"""As `headgate feed init` writes them."""

LOGGED: Final = 1_000
"""Ids of rows that come from the log are above it. Those of the snapshot are below."""

Texts = dict[int, str | None]
"""Id → a column's value as a text."""


class PostgresEnd:
    """A PostgreSQL, as a source or a sink."""

    def __init__(self, dsn: str) -> None:
        self.dsn, self.schema = dsn, "copies"
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._connection.execute(POSTGRESQL_SETTINGS.encode())

    def sink(self) -> Sink:
        return PostgresSink(RelationalSettings(self.dsn))

    def run(self, statement: str) -> None:
        self._connection.execute(statement.encode())

    def texts(self, table: str, expression: str) -> Texts:
        rows = self._connection.execute(f"SELECT id, {expression} FROM {table}".encode())
        return {int(number): text for number, text in rows}

    def close(self) -> None:
        self._connection.close()


class MariadbEnd:
    """A database of a MariaDB, as a source or a sink."""

    def __init__(self, url: str) -> None:
        self.dsn, self.schema = url, url.rpartition("/")[2]
        self._connection = mariadb_connect(url)
        self.run(MARIADB_SETTINGS)

    def sink(self) -> Sink:
        return MysqlSink(RelationalSettings(self.dsn))

    def run(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def texts(self, table: str, expression: str) -> Texts:
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT id, {expression} FROM {table}")
            return {int(number): text for number, text in cursor.fetchall()}

    def close(self) -> None:
        self._connection.close()


End = PostgresEnd | MariadbEnd


@pytest.fixture
def sinks(postgres_database: str, mariadb_database: str) -> Iterator[tuple[PostgresEnd, MariadbEnd]]:
    with closing(PostgresEnd(postgres_database)) as one, closing(MariadbEnd(mariadb_database)) as other:
        yield one, other


def rows_of(types: Sequence[Type], first: int) -> Iterator[str]:
    """Rows with NULL everywhere, then with each column's values in turn."""
    names = ", ".join(f"c{number}" for number in range(len(types)))
    yield f"(id, {names}) VALUES ({first}, {', '.join(['NULL'] * len(types))})"
    for place in range(max(len(type_.literals) for type_ in types)):
        values = ", ".join(type_.literals[min(place, len(type_.literals) - 1)] for type_ in types)
        yield f"(id, {names}) VALUES ({first + place + 1}, {values})"


def captured(sources: Sources, topic: str, table: str, source: End, types: Sequence[Type]) -> list[Change]:
    """Changes of the table's rows, from a snapshot and from the log. The connector has been started."""
    sources.changes(topic, len(list(rows_of(types, 1))))
    for row in rows_of(types, LOGGED + 1):
        source.run(f"INSERT INTO {table} {row}")
    return sources.changes(topic, 2 * len(list(rows_of(types, 1))))


def one_column(definition: Definition, number: int, schema: str) -> Definition:
    """The table with its key and one other column, at a sink."""
    kept = tuple(column for column in definition.form.columns if column.name in ("id", f"c{number}"))
    form = msgspec.structs.replace(definition.form, columns=kept)
    return msgspec.structs.replace(definition, schema=schema, table=f"t{number}", form=form)


def create(definition: Definition, end: End) -> str:
    """The table at the sink, by the statements that a feed runs; its name."""
    with open_catalogue(Target(end.dsn)) as catalogue:
        there = catalogue.sink()
    planned = target_tables([definition], there, {})
    assert not planned.refused, planned.refused
    for statement in (*session_settings(there.product), *needed_first(planned.created, there)):
        end.run(statement)
    (table,) = planned.created
    for statement in table.statements:
        end.run(statement)
    return table.name


def apply(sink: Sink, table: str, changes: Iterable[Change]) -> None:
    claim = build.claim(identity=FeedIdentity("c", "0-1", "f"), table=table)
    given = list(changes)
    with closing(sink):
        sink.check([table])
        sink.claim(claim)
        with closing(sink.writer()) as writer:
            writer.apply(ChangeBatch(claim, {0: OffsetRange(0, given[-1].offset + 1)}, given))


def with_column(change: Change, number: int) -> Change:
    row = change.row or {}
    return msgspec.structs.replace(change, row={"id": row["id"], f"c{number}": row[f"c{number}"]})


class Wanted(msgspec.Struct, frozen=True):
    """A type's number, the expression that shows its values at the sink, and their texts at the source."""

    number: int
    type: Type
    shown: str
    texts: Texts


def wanted(source: End, table: str, types: Sequence[Type], out: Sequence[str], shown: Sequence[str]) -> list[Wanted]:
    """``out``, ``shown``: how a value becomes a text at the source, and at the sink; {} is the column."""
    return [
        Wanted(number, type_, there.format(f"c{number}"), source.texts(table, here.format(f"c{number}")))
        for number, (type_, here, there) in enumerate(zip(types, out, shown, strict=True))
    ]


def differing(changes: Sequence[Change], definition: Definition, columns_wanted: list[Wanted], sink: End) -> list[str]:
    """Each value that is not the source's, and each type that cannot be written."""
    found: list[str] = []
    for column in columns_wanted:
        number, declared = column.number, column.type.declared
        table = create(one_column(definition, number, sink.schema), sink)
        try:
            apply(sink.sink(), table, (with_column(change, number) for change in changes))
        except SinkError as error:
            found.append(f"{declared}: {error}")
            continue
        there = sink.texts(table, column.shown)
        assert there.keys() == column.texts.keys()
        found += [
            f"{declared}, row {id_}: {text!r} became {there[id_]!r}"
            for id_, text in column.texts.items()
            if not _same(column.type, text, there[id_])
        ]
    return found


def _same(type_: Type, text: str | None, there: str | None) -> bool:
    if text is None or there is None:
        return text is there
    return type_.read(text) == type_.read(there)


def postgres_definition(dsn: str, schema: str, table: str) -> postgresql.PostgresDefinition:
    with closing(PostgresSession(open_connection(Target(dsn), application_name="test", lock_seconds=5))) as session:
        found = postgresql.read_definition(session, schema, table)
    assert found is not None
    return found


def mariadb_definition(url: str, table: str) -> mysql.MysqlDefinition:
    with closing(open_session(Target(url), MysqlSession)) as session:
        found = mysql.read_definition(session, url.rpartition("/")[2], table)
    assert found is not None
    return found


@pytest.fixture
def postgres_source(
    sources: Sources, postgres_schema: tuple["psycopg.Connection[tuple[Any, ...]]", str]
) -> Iterator[tuple[PostgresEnd, str]]:
    """A source with both tables of types, captured, and its schema."""
    _, schema = postgres_schema
    with closing(PostgresEnd(sources.postgres.dsn())) as end:
        end.run(f"SET search_path = {schema}")
        for enum in ENUMS:
            end.run(enum)
        end.run("CREATE DOMAIN short AS varchar(5) CHECK (VALUE <> 'x')")
        for table, types in (("every", POSTGRESQL), ("own", POSTGRESQL_ONLY)):
            end.run(f"CREATE TABLE {table} (id bigint PRIMARY KEY, {columns(types)})")
            for row in rows_of(types, 1):
                end.run(f"INSERT INTO {table} {row}")
        sources.capture_postgres("rp", schema, **CONNECTOR, **{"interval.handling.mode": "string"})
        yield end, schema


def test_postgresql_to_both(
    sources: Sources, postgres_source: tuple[PostgresEnd, str], sinks: tuple[PostgresEnd, MariadbEnd]
) -> None:
    source, schema = postgres_source
    changes = captured(sources, f"rp.{schema}.every", f"{schema}.every", source, POSTGRESQL)
    definition = postgres_definition(source.dsn, schema, "every")
    to_postgresql, to_mariadb = sinks
    table, same = f"{schema}.every", [AS_ITSELF] * len(POSTGRESQL)
    texts = wanted(source, table, POSTGRESQL, same, same)
    wrong = differing(changes, definition, texts, to_postgresql)
    texts = wanted(source, table, POSTGRESQL, [type_.out for type_ in POSTGRESQL], [type_.get for type_ in POSTGRESQL])
    wrong += differing(changes, definition, texts, to_mariadb)
    assert wrong == []


def test_values_that_only_postgresql_has(
    sources: Sources, postgres_source: tuple[PostgresEnd, str], sinks: tuple[PostgresEnd, MariadbEnd]
) -> None:
    source, schema = postgres_source
    changes = captured(sources, f"rp.{schema}.own", f"{schema}.own", source, POSTGRESQL_ONLY)
    same = [AS_ITSELF] * len(POSTGRESQL_ONLY)
    texts = wanted(source, f"{schema}.own", POSTGRESQL_ONLY, same, same)
    definition = postgres_definition(source.dsn, schema, "own")
    assert differing(changes, definition, texts, sinks[0]) == []


def test_mariadb_to_both(sources: Sources, mariadb_source: str, sinks: tuple[PostgresEnd, MariadbEnd]) -> None:
    database = mariadb_source.rpartition("/")[2]
    with closing(MariadbEnd(mariadb_source)) as source:
        source.run(f"CREATE TABLE every (id bigint PRIMARY KEY, {columns(MARIADB)})")
        for row in rows_of(MARIADB, 1):
            source.run(f"INSERT INTO every {row}")
        sources.capture_mariadb("rm", database, **CONNECTOR, **{"bigint.unsigned.handling.mode": "precise"})
        changes = captured(sources, f"rm.{database}.every", "every", source, MARIADB)
        definition = mariadb_definition(mariadb_source, "every")
        own = [AS_TEXT if type_.out == AS_ITSELF else type_.out for type_ in MARIADB]
        shown = [AS_ITSELF if type_.get == AS_TEXT else type_.get for type_ in MARIADB]
        for_postgresql = wanted(source, "every", MARIADB, own, shown)
        for_mariadb = wanted(source, "every", MARIADB, own, own)
    to_postgresql, to_mariadb = sinks
    wrong = differing(changes, definition, for_postgresql, to_postgresql)
    wrong += differing(changes, definition, for_mariadb, to_mariadb)
    assert wrong == []
