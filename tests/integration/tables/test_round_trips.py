"""Every type, captured by a real connector and applied to tables that Headgate created: values are the source's."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import msgspec
import psycopg
import pytest

from fixtures.capture import Sources
from fixtures.services import mariadb_connect
from headgate.config.feed import FeedSpec
from headgate.databases.address import Target
from headgate.databases.catalogue import Product
from headgate.databases.mysql import catalogue as mysql
from headgate.databases.mysql.session import MysqlSession, open_session
from headgate.databases.postgresql import catalogue as postgresql
from headgate.databases.postgresql.session import PostgresSession, open_connection
from headgate.eventlog.connection import KafkaConnection
from headgate.formats.change import Change
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.control import SpanPlan
from headgate.sinks.contract import ChangeBatch, FeedIdentity, OffsetRange, Sink, SinkError
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from headgate.sources.event_schemas import event_schemas
from headgate.tables.catalogues import open_catalogue
from headgate.tables.from_events import definition_from
from headgate.tables.plan import needed_first, session_settings, target_tables
from headgate.tables.statement import CreateTable, Definition, RefusedTable, table_statement
from support import build
from support.connector_types import (
    ALTERED_MARIADB,
    ALTERED_POSTGRESQL,
    AS_TEXT,
    DOMAINS,
    ENUMS,
    MARIADB,
    POSTGRESQL,
    POSTGRESQL_ONLY,
    Type,
    columns,
)

# Two connectors are started, and each type has a table of its own at each sink.
pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(scaled_seconds(900))]

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
    "column.propagate.source.type": ".*",
}
"""As `headgate feed init` writes them, and the source's types beside the columns."""

OF_MARIADB: Final = {"bigint.unsigned.handling.mode": "precise", "enable.time.adjuster": "false"}
"""The same, of a MariaDB's connector."""

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


def described(sources: Sources, topic: str) -> Definition:
    """The table as a feed without a source database finds it described in its events."""
    spec = FeedSpec.model_validate(
        {
            "feed": "f",
            "source": {"topics": [topic]},
            "sink": {"type": "postgresql", "dsn": "dbname=x", "tables": "create"},
        }
    )
    plan = SpanPlan(span="copies.t", topic=topic, table="copies.t", start={0: 0})
    schema = event_schemas(KafkaConnection(sources.bootstrap), spec, [plan])(topic)
    assert schema is not None
    found = definition_from(schema, ("copies", "t"))
    assert found is not None
    return found


def created_as(definition: Definition, number: int) -> str:
    """The column's type in the statement of a PostgreSQL."""
    found = table_statement(one_column(definition, number, "copies"), Product.POSTGRESQL)
    if isinstance(found, RefusedTable):
        return "refused"
    lines = [line.strip(" ,") for line in found.statements[0].splitlines()]
    quoted = f'"c{number}" '
    kind = next((line.removeprefix(quoted) for line in lines if line.startswith(quoted)), "left out")
    return "mood" if kind.endswith('."mood"') else kind


def told_otherwise(types: Sequence[Type], catalogue: Definition, events: Definition) -> dict[str, str]:
    """Type → what it becomes at PostgreSQL by its events, where the catalogue says otherwise."""
    both = {
        type_.declared: (created_as(catalogue, number), created_as(events, number))
        for number, type_ in enumerate(types)
    }
    return {declared: events for declared, (catalogue, events) in both.items() if catalogue != events}


OTHERWISE_POSTGRESQL: Final = {
    "bit(1)": "bit",
    "mood": "text",
    "numeric(12,2)[]": "numeric[]",
    "numeric(5,-2)": "numeric",
    "short": "refused",
    "time(0)": "time without time zone",
    "time(3)": "time without time zone",
    "timestamp(0)": "timestamp without time zone",
    "timestamp(3)": "timestamp without time zone",
    "varchar(9)[]": "character varying[]",
}
OTHERWISE_OWN: Final = {"char(5)[]": "refused", "interval(3)": "interval", "shorts": "refused"}
OTHERWISE_MARIADB: Final = {"json": "text"}
"""Events do not tell all of a type. What they leave open is wider, or refused."""


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
    """All changes. A sink takes those before one that it refuses, and raises SinkError when that is the first."""
    claim = build.claim(identity=FeedIdentity("c", "0-1", "f"), table=table)
    given = list(changes)
    begin, end = 0, given[-1].offset + 1
    with closing(sink):
        sink.check([table])
        sink.claim(claim)
        with closing(sink.writer()) as writer:
            while begin < end:
                rest = [change for change in given if change.offset >= begin]
                begin = writer.apply(ChangeBatch(claim, {0: OffsetRange(begin, end)}, rest)).positions[0]


def with_column(change: Change, number: int) -> Change:
    row = change.row or {}
    name = f"c{number}"
    return msgspec.structs.replace(change, row={"id": row["id"]} | ({name: row[name]} if name in row else {}))


class Wanted(msgspec.Struct, frozen=True):
    """A type's number, the expression that shows its values at the sink, and their texts at the source."""

    number: int
    type: Type
    shown: str
    texts: Texts
    read: Callable[[str], object]


def wanted(
    source: End, table: str, types: Sequence[Type], out: Sequence[str], shown: Sequence[str], *, alike: bool = False
) -> list[Wanted]:
    """``out``, ``shown``: how a value becomes a text at the source, and at the sink; {} is the column.

    ``alike``: the texts are the same, letter by letter.
    """
    return [
        Wanted(
            number,
            type_,
            there.format(f"c{number}"),
            source.texts(table, here.format(f"c{number}")),
            str if alike else type_.read,
        )
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
            if not same(column.read, text, there[id_])
        ]
    return found


def same(read: Callable[[str], object], text: str | None, there: str | None) -> bool:
    if text is None or there is None:
        return text is there
    return read(text) == read(there)


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
        for domain in DOMAINS:
            end.run(domain)
        for table, types in (("every", POSTGRESQL), ("own", POSTGRESQL_ONLY), ("altered", ALTERED_POSTGRESQL)):
            end.run(f"CREATE TABLE {table} (id bigint PRIMARY KEY, {columns(types)})")
            for row in rows_of(types, 1):
                end.run(f"INSERT INTO {table} {row}")
        sources.capture_postgres(schema, schema, **CONNECTOR, **{"interval.handling.mode": "string"})
        yield end, schema


def test_postgresql_to_both(
    sources: Sources, postgres_source: tuple[PostgresEnd, str], sinks: tuple[PostgresEnd, MariadbEnd]
) -> None:
    source, schema = postgres_source
    changes = captured(sources, f"{schema}.{schema}.every", f"{schema}.every", source, POSTGRESQL)
    definition = postgres_definition(source.dsn, schema, "every")
    by_events = described(sources, f"{schema}.{schema}.every")
    assert told_otherwise(POSTGRESQL, definition, by_events) == OTHERWISE_POSTGRESQL
    to_postgresql, to_mariadb = sinks
    table, same = f"{schema}.every", [AS_ITSELF] * len(POSTGRESQL)
    texts = wanted(source, table, POSTGRESQL, same, same, alike=True)
    wrong = differing(changes, definition, texts, to_postgresql)
    texts = wanted(source, table, POSTGRESQL, [type_.out for type_ in POSTGRESQL], [type_.get for type_ in POSTGRESQL])
    wrong += differing(changes, definition, texts, to_mariadb)
    assert wrong == []


def test_values_that_only_postgresql_has(
    sources: Sources, postgres_source: tuple[PostgresEnd, str], sinks: tuple[PostgresEnd, MariadbEnd]
) -> None:
    source, schema = postgres_source
    changes = captured(sources, f"{schema}.{schema}.own", f"{schema}.own", source, POSTGRESQL_ONLY)
    same = [AS_ITSELF] * len(POSTGRESQL_ONLY)
    texts = wanted(source, f"{schema}.own", POSTGRESQL_ONLY, same, same, alike=True)
    definition = postgres_definition(source.dsn, schema, "own")
    by_events = described(sources, f"{schema}.{schema}.own")
    assert told_otherwise(POSTGRESQL_ONLY, definition, by_events) == OTHERWISE_OWN
    assert differing(changes, definition, texts, sinks[0]) == []


def test_mariadb_to_both(sources: Sources, mariadb_source: str, sinks: tuple[PostgresEnd, MariadbEnd]) -> None:
    database = mariadb_source.rpartition("/")[2]
    with closing(MariadbEnd(mariadb_source)) as source:
        source.run(f"CREATE TABLE every (id bigint PRIMARY KEY, {columns(MARIADB)})")
        for row in rows_of(MARIADB, 1):
            source.run(f"INSERT INTO every {row}")
        sources.capture_mariadb(database, database, **CONNECTOR, **OF_MARIADB)
        changes = captured(sources, f"{database}.{database}.every", "every", source, MARIADB)
        definition = mariadb_definition(mariadb_source, "every")
        by_events = described(sources, f"{database}.{database}.every")
        assert told_otherwise(MARIADB, definition, by_events) == OTHERWISE_MARIADB
        own = [AS_TEXT if type_.out == AS_ITSELF else type_.out for type_ in MARIADB]
        shown = [AS_ITSELF if type_.get == AS_TEXT else type_.get for type_ in MARIADB]
        for_postgresql = wanted(source, "every", MARIADB, own, shown)
        for_mariadb = wanted(source, "every", MARIADB, own, own, alike=True)
    to_postgresql, to_mariadb = sinks
    wrong = differing(changes, definition, for_postgresql, to_postgresql)
    wrong += differing(changes, definition, for_mariadb, to_mariadb)
    assert wrong == []


def told(definition: Definition, number: int) -> bool:
    """Whether the connector's change of the column's values is told before the table exists."""
    found = table_statement(one_column(definition, number, "copies"), Product.POSTGRESQL)
    return isinstance(found, RefusedTable) or f"c{number}" not in found.columns or bool(found.altered)


def arriving(changes: Sequence[Change], definition: Definition, columns_wanted: list[Wanted], sink: End) -> list[str]:
    """Types that the connector changes no value of, as far as their tables are created without a choice."""
    return [
        column.type.declared
        for column in columns_wanted
        if isinstance(
            found := table_statement(one_column(definition, column.number, "copies"), Product.POSTGRESQL), CreateTable
        )
        and f"c{column.number}" in found.columns
        and not differing(changes, definition, [column], sink)
    ]


def test_what_the_connector_changes_at_postgresql_is_told(
    sources: Sources, postgres_source: tuple[PostgresEnd, str], sinks: tuple[PostgresEnd, MariadbEnd]
) -> None:
    source, schema = postgres_source
    types = ALTERED_POSTGRESQL
    changes = captured(sources, f"{schema}.{schema}.altered", f"{schema}.altered", source, types)
    definition = postgres_definition(source.dsn, schema, "altered")
    same = [AS_ITSELF] * len(types)
    texts = wanted(source, f"{schema}.altered", types, same, same, alike=True)
    assert [type_.declared for number, type_ in enumerate(types) if not told(definition, number)] == []
    assert arriving(changes, definition, texts, sinks[0]) == []


def test_what_the_connector_changes_at_mariadb_is_told(
    sources: Sources, mariadb_source: str, sinks: tuple[PostgresEnd, MariadbEnd]
) -> None:
    database, types = mariadb_source.rpartition("/")[2], ALTERED_MARIADB
    with closing(MariadbEnd(mariadb_source)) as source:
        source.run("SET sql_mode = ''")
        source.run(f"CREATE TABLE altered (id bigint PRIMARY KEY, {columns(types)})")
        for row in rows_of(types, 1):
            source.run(f"INSERT INTO altered {row}")
        sources.capture_mariadb(database, database, **CONNECTOR, **OF_MARIADB)
        changes = captured(sources, f"{database}.{database}.altered", "altered", source, types)
        definition = mariadb_definition(mariadb_source, "altered")
        texts = wanted(
            source, "altered", types, [AS_TEXT] * len(types), [type_.get.replace(AS_TEXT, AS_ITSELF) for type_ in types]
        )
    assert [type_.declared for number, type_ in enumerate(types) if not told(definition, number)] == []
    assert arriving(changes, definition, texts, sinks[0]) == []
