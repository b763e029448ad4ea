"""Rows that are copied into another kind of database have the source's values, or are refused."""

from collections.abc import Sequence
from contextlib import closing
from typing import Final

import pytest

from headgate.databases.address import Target
from headgate.databases.key_ranges import Chunk
from headgate.databases.row_source import RowSource
from headgate.databases.row_sources import open_row_source
from headgate.formats.change import CONNECTOR, DECIMALS
from headgate.replication.row_copy import BITS_AS_TEXT
from headgate.sinks.contract import FeedIdentity, SinkError
from headgate.sinks.row_copying import CopiedRows, RowCopyingWriter
from headgate.tables.paired_tables import is_taken
from headgate.tables.statement import Definition
from integration.tables.test_round_trips import (
    End,
    MariadbEnd,
    PostgresEnd,
    create,
    mariadb_definition,
    one_column,
    postgres_definition,
    rows_of,
    same,
)
from support import build
from support.connector_types import AS_TEXT, DOMAINS, ENUMS, MARIADB, NOT_COPIED, POSTGRESQL, Type, columns

pytestmark = pytest.mark.integration

AS_ITSELF: Final = "{}::text"


class Copy:
    """One column's values, copied from a table with all types into a table of a sink that has this one."""

    def __init__(self, source: End, rows: RowSource, table: str, definition: Definition, sink: End) -> None:
        self.source, self.rows, self.table, self.sink = source, rows, table, sink
        self._definition = definition

    def kinds(self, number: int) -> tuple[str, str, str]:
        """The sink's table, and the column's type at both ends."""
        name = f"c{number}"
        made = create(one_column(self._definition, number, self.sink.schema), self.sink)
        with open_row_source(Target(self.sink.dsn)) as target:
            return made, self.rows.columns(self.table)[name], target.columns(made)[name]

    def run(self, number: int, made: str, kind: str, connector: str) -> None:
        """Raises SinkError."""
        name = f"c{number}"
        read = self.rows.rows_within(self.table, ["id", name], ["id"], Chunk(None, None))
        upserts: list[dict[str, object]] = [dict(zip(("id", name), row[1:], strict=True)) for row in read]
        bits = {name: "string"} if kind in BITS_AS_TEXT[connector] else {}
        claim = build.claim(identity=FeedIdentity("c", "0-1", "f"), table=made)
        with closing(self.sink.sink()) as sink, closing(sink.writer()) as writer:
            positions = sink.claim(claim)
            assert isinstance(writer, RowCopyingWriter)
            writer.copy(
                CopiedRows(
                    claim=claim,
                    positions=positions,
                    key=("id",),
                    upserts=upserts,
                    deletes=[],
                    semantics={CONNECTOR: connector, DECIMALS: "string", **bits},
                )
            )


def differing(copy: Copy, types: Sequence[Type], connector: str, out: str, get: str) -> tuple[list[str], set[str]]:
    """Values that are not the source's, and types that are not copied. ``out``, ``get``: how plain values are shown."""
    found, refused = [], set()
    for number, type_ in enumerate(types):
        made, kind, other = copy.kinds(number)
        if not is_taken(kind, other):
            refused.add(type_.declared)
            continue
        name, plain = f"c{number}", {AS_TEXT, AS_ITSELF}
        try:
            copy.run(number, made, kind, connector)
        except SinkError as error:
            found.append(f"{type_.declared}, {kind} to {other}: {error}")
            continue
        here = copy.source.texts(copy.table, (out if type_.out in plain else type_.out).format(name))
        there = copy.sink.texts(made, (get if type_.get in plain else type_.get).format(name))
        assert there.keys() == here.keys()
        found += [
            f"{type_.declared}, {kind} to {other}: {text!r} became {there[id_]!r}"
            for id_, text in here.items()
            if not same(type_.read, text, there[id_])
        ]
    return found, refused


def fill(source: End, types: list[Type]) -> None:
    source.run(f"CREATE TABLE every (id bigint PRIMARY KEY, {columns(types)})")
    for row in rows_of(types, 1):
        source.run(f"INSERT INTO every {row}")


def test_every_type_of_postgresql_into_a_mariadb(postgres_database: str, mariadb_database: str) -> None:
    with closing(PostgresEnd(postgres_database)) as source, closing(MariadbEnd(mariadb_database)) as sink:
        for each in (*ENUMS, *DOMAINS):
            source.run(each)
        fill(source, POSTGRESQL)
        definition = postgres_definition(source.dsn, "public", "every")
        with open_row_source(Target(source.dsn)) as rows:
            copy = Copy(source, rows, "public.every", definition, sink)
            found, refused = differing(copy, POSTGRESQL, "postgresql", AS_ITSELF, AS_TEXT)
    assert found == []
    assert refused == NOT_COPIED


def test_every_type_of_a_mariadb_into_postgresql(postgres_database: str, mariadb_database: str) -> None:
    with closing(PostgresEnd(postgres_database)) as sink, closing(MariadbEnd(mariadb_database)) as source:
        sink.run(f"CREATE SCHEMA {sink.schema}")
        fill(source, MARIADB)
        definition = mariadb_definition(source.dsn, "every")
        with open_row_source(Target(source.dsn)) as rows:
            copy = Copy(source, rows, f"{source.schema}.every", definition, sink)
            found, refused = differing(copy, MARIADB, "mysql", AS_TEXT, AS_ITSELF)
    assert found == []
    assert refused == set()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("numeric(12,2)", "'NaN'"),
        ("real", "'NaN'"),
        ("double precision", "'-Infinity'"),
        ("date", "'infinity'"),
        ("date", "'4713-01-01 BC'"),
        ("timestamp", "'infinity'"),
        ("timestamp", "'4713-01-01 00:00:00 BC'"),
        ("timestamp", "'10000-01-01 00:00:00'"),
        ("timestamptz", "'-infinity'"),
        ("timestamptz", "'4713-01-01 00:00:00+00 BC'"),
    ],
)
def test_what_only_a_postgresql_has_is_refused(
    postgres_database: str, mariadb_database: str, kind: str, value: str
) -> None:
    with closing(PostgresEnd(postgres_database)) as source, closing(MariadbEnd(mariadb_database)) as sink:
        source.run(f"CREATE TABLE every (id bigint PRIMARY KEY, c0 {kind})")
        source.run(f"INSERT INTO every VALUES (1, {value})")
        definition = postgres_definition(source.dsn, "public", "every")
        with open_row_source(Target(source.dsn)) as rows:
            copy = Copy(source, rows, "public.every", definition, sink)
            made, there, _ = copy.kinds(0)
            with pytest.raises(SinkError):
                copy.run(0, made, there, "postgresql")
        assert sink.texts(made, "c0") == {}
