"""Rows that are copied from a source have, at a sink of the same kind, the values that the source has."""

from collections.abc import Callable, Sequence

import psycopg
import pytest

from fixtures.services import mariadb_execute
from headgate.databases.address import Target
from headgate.databases.mysql.row_source import open_rows as open_mysql
from headgate.databases.postgresql.row_source import open_rows as open_postgresql
from headgate.databases.row_source import RowSource
from headgate.formats.change import CONNECTOR
from headgate.replication.row_copy import BITS_AS_TEXT
from headgate.sinks.contract import Sink
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from headgate.sinks.row_copying import CopiedRows, RowCopyingWriter
from support import build
from support.every_type import ENUMS, GEOMETRIES, MARIADB, POSTGRESQL, Type

pytestmark = pytest.mark.integration

FLOATS = Type("float", ("0.1", "16777216", "3.402823e38"))
"""MariaDB's own text of a float has six digits."""

Run = Callable[[str], object]


def fill(run: Run, types: Sequence[Type]) -> list[str]:
    """Table ``here`` with a column of each type and rows of its values, and ``there`` like it; the rows' keys."""
    run("CREATE TABLE here (id int PRIMARY KEY)")
    for number, each in enumerate(types):
        run(f"ALTER TABLE here ADD COLUMN c{number} {each.declared} NULL")
    run("CREATE TABLE there (LIKE here INCLUDING ALL)" if types is POSTGRESQL else "CREATE TABLE there LIKE here")
    rows = max(len(each.literals) for each in types)
    for row in range(rows):
        given = ", ".join(each.literals[row] if row < len(each.literals) else "NULL" for each in types)
        run(f"INSERT INTO here VALUES ({row}, {given})")
    return [str(row) for row in range(rows)]


def copy(rows: RowSource, sink: Sink, connector: str, schema: str, keys: Sequence[str]) -> None:
    table = f"{schema}.here"
    kinds = rows.columns(table)
    found = [
        dict(zip(kinds, row[1:], strict=True)) for row in rows.rows(table, list(kinds), ["id"], [[k] for k in keys])
    ]
    bits = [column for column, kind in kinds.items() if kind in BITS_AS_TEXT[connector]]
    claim = build.claim(table=f"{schema}.there")
    positions = sink.claim(claim)
    writer = sink.writer()
    assert isinstance(writer, RowCopyingWriter)
    semantics = {CONNECTOR: connector, **dict.fromkeys(bits, "string")}
    writer.copy(
        CopiedRows(claim=claim, positions=positions, key=("id",), upserts=found, deletes=[], semantics=semantics)
    )
    writer.close()


def test_every_type_of_postgresql(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        for statement in (*ENUMS, "CREATE DOMAIN short AS varchar(5) CHECK (VALUE <> 'x')"):
            connection.execute(statement.encode())
        keys = fill(lambda statement: connection.execute(statement.encode()), POSTGRESQL)
        with open_postgresql(Target(postgres_database)) as rows:
            copy(rows, PostgresSink(RelationalSettings(postgres_database)), "postgresql", "public", keys)
        shown = [
            connection.execute(f"SELECT t::text FROM {t} t ORDER BY id".encode()).fetchall() for t in ("here", "there")
        ]
    assert shown[0] == shown[1]
    assert len(shown[1]) == len(keys) > 1


def test_every_type_of_mariadb(mariadb_database: str) -> None:
    keys = fill(lambda statement: mariadb_execute(mariadb_database, statement), [*MARIADB, FLOATS, *GEOMETRIES])
    name = mariadb_database.rsplit("/", 1)[1]
    with open_mysql(Target(mariadb_database)) as rows:
        copy(rows, MysqlSink(RelationalSettings(mariadb_database)), "mysql", name, keys)
    for number, each in enumerate([*MARIADB, FLOATS, *GEOMETRIES]):
        shown = [
            mariadb_execute(mariadb_database, f"SELECT id, HEX(c{number}) FROM {t} ORDER BY id")
            for t in ("here", "there")
        ]
        assert shown[0] == shown[1], each.declared
    assert len(keys) > 1


def test_rows_are_copied_into_columns_that_mariadb_spells_in_another_case(mariadb_database: str) -> None:
    mariadb_execute(mariadb_database, "CREATE TABLE there (id int PRIMARY KEY, name varchar(9), qty int)")
    mariadb_execute(mariadb_database, "INSERT INTO there VALUES (1, 'former', 1)")
    claim = build.claim(table=f"{mariadb_database.rsplit('/', 1)[1]}.there")
    sink = MysqlSink(RelationalSettings(mariadb_database))
    positions = sink.claim(claim)
    writer = sink.writer()
    assert isinstance(writer, RowCopyingWriter)
    upserts: list[dict[str, object]] = [{"ID": "1", "Name": "a", "qty": "5"}, {"ID": "2", "Name": "b", "qty": "6"}]
    writer.copy(
        CopiedRows(
            claim=claim,
            positions=positions,
            key=("id",),
            upserts=upserts,
            deletes=[{"id": "3"}],
            semantics={CONNECTOR: "postgresql"},
        )
    )
    writer.close()
    assert mariadb_execute(mariadb_database, "SELECT * FROM there ORDER BY id") == [(1, "a", 5), (2, "b", 6)]
