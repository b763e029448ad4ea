"""Tables of every type are created from a real catalogue at real sinks, and hold the extremes of the source's."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import psycopg
import pytest

from fixtures.services import mariadb_connect, mariadb_execute
from fixtures.spare_databases import SpareDatabases
from headgate.databases.catalogue import Product
from headgate.databases.mysql import catalogue as mysql
from headgate.databases.mysql.sql import quoted as mysql_quoted
from headgate.databases.postgresql.sql import literal
from headgate.databases.postgresql.sql import quoted as postgresql_quoted
from headgate.records.slices import Slice
from headgate.sinks.contract import Sink
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from headgate.tables.alteration import AlterationContext
from headgate.tables.fitting import plan_fitting
from headgate.tables.joining_slices import doubts, why_misfit
from headgate.tables.mapped import Mapped, Outcome
from headgate.tables.mysql_to_postgresql import to_postgresql as from_mysql
from headgate.tables.plan import Sink as SinkHas
from headgate.tables.plan import target_tables
from headgate.tables.postgresql_to_mysql import to_mysql
from headgate.tables.sliced import sliced_definition
from headgate.tables.statement import CreateTable, Definition, table_statement
from integration.tables.test_round_trips import mariadb_definition, postgres_definition
from support.every_type import AS_TEXT, ENUMS, MARIADB, POSTGRESQL, columns

pytestmark = pytest.mark.integration


def statement(definition: Definition, sink: Product) -> CreateTable:
    found = table_statement(definition, sink)
    assert isinstance(found, CreateTable), found
    return found


def plain(definition: Definition) -> Any:
    """What a created table has of its source: not where it is, nor how its values are made."""
    return [
        (column.name, column.type, column.is_nullable, column.default, column.collation, getattr(column, "charset", ""))
        for column in definition.form.columns
    ], [key.columns for key in definition.form.keys if key.is_primary]


@pytest.fixture
def sink_database(spare_databases: SpareDatabases) -> Iterator[str]:
    with spare_databases.database() as parameters:
        yield "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters)


@pytest.fixture
def source(postgres_database: str) -> Iterator["psycopg.Connection[tuple[Any, ...]]"]:
    """A PostgreSQL that has a table of every type, ``shop.everything``."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("SET TimeZone = 'UTC'; SET lc_monetary = 'C'; CREATE SCHEMA shop")
        for enum in ENUMS:
            connection.execute(enum.encode())
        connection.execute("CREATE DOMAIN short AS varchar(5) CHECK (VALUE <> 'x')")
        connection.execute(f"CREATE TABLE shop.everything (id bigint PRIMARY KEY, {columns(POSTGRESQL)})")
        yield connection


def run_at_postgresql(dsn: str, found: CreateTable) -> None:
    with psycopg.connect(dsn, autocommit=True) as sink:
        sink.execute(f"CREATE SCHEMA {postgresql_quoted(found.schema)}".encode())
        for each in found.statements:
            sink.execute(each.encode())
    check(PostgresSink(RelationalSettings(dsn)), found)


def run_at_mariadb(url: str, found: CreateTable) -> None:
    for each in found.statements:
        mariadb_execute(url, each)
    check(MysqlSink(RelationalSettings(url)), found)


def check(sink: Sink, found: CreateTable) -> None:
    """The sink takes the table for a feed's."""
    with closing(sink):
        sink.check([found.name])


def check_fits(source: Definition, made: Definition) -> None:
    """A table that was created for a source need not be altered for it, nor is the source refused as another one."""
    known = AlterationContext(sink=SinkHas(made.product))
    fitting = plan_fitting(source, made, known)
    assert (fitting.refusals, fitting.statements, fitting.columns) == ((), (), ())
    part = Slice("shop.t", "tenant", "7")
    source, made = sliced_definition(source, part), sliced_definition(made, part)
    assert (why_misfit(source, made, part, known), doubts(source, made, part, known)) == (None, None)


def test_postgresql_to_postgresql_is_exact(
    source: "psycopg.Connection[tuple[Any, ...]]", postgres_database: str, sink_database: str
) -> None:
    source.execute(
        "CREATE TABLE shop.\"Odd 'Names'\" (\"a b\" varchar(9) COLLATE \"C\" NOT NULL DEFAULT 'it''s \\', "
        "n int DEFAULT -1, at timestamptz DEFAULT '2026-01-02 03:04:05+00', is_new bool DEFAULT true, "
        "feels mood DEFAULT 'so, so', made timestamp DEFAULT now(), list int[] DEFAULT '{1,2}', "
        'PRIMARY KEY (n, "a b"))'
    )
    source.execute(
        "COMMENT ON TABLE shop.\"Odd 'Names'\" IS 'all'; COMMENT ON COLUMN shop.\"Odd 'Names'\".n IS 'it''s'"
    )
    with psycopg.connect(sink_database, autocommit=True) as sink:
        for enum in ENUMS:
            sink.execute(enum.encode())
    for table in ("everything", "Odd 'Names'"):
        wanted = postgres_definition(postgres_database, "shop", table)
        with psycopg.connect(sink_database, autocommit=True) as sink:
            sink.execute("DROP SCHEMA IF EXISTS shop CASCADE")
        run_at_postgresql(sink_database, statement(wanted, Product.POSTGRESQL))
        made = postgres_definition(sink_database, "shop", table)
        constant = msgspec.structs.replace(
            wanted,
            form=msgspec.structs.replace(
                wanted.form,
                columns=tuple(
                    msgspec.structs.replace(
                        column,
                        type=column.base if column.kind == "short" else column.type,
                        default=None if column.default == "now()" else column.default,
                    )
                    for column in wanted.form.columns
                ),
            ),
        )
        assert plain(made) == plain(constant)
        assert (made.comment, made.comments, made.enums) == (wanted.comment, wanted.comments, wanted.enums)
        check_fits(wanted, made)


def test_mariadb_to_mariadb_is_exact(mariadb_database: str) -> None:
    database = mariadb_database.rpartition("/")[2]
    mariadb_execute(
        mariadb_database,
        f"CREATE TABLE everything (id bigint PRIMARY KEY COMMENT 'it''s', {columns(MARIADB)}, word varchar(9) "
        "CHARACTER SET latin1 COLLATE latin1_german1_ci NOT NULL DEFAULT 'it''s', n int(5) zerofill DEFAULT 7, "
        "day date DEFAULT '2026-01-02') COMMENT 'all'",
    )
    wanted = mariadb_definition(mariadb_database, "everything")
    assert wanted.schema == database
    run_at_mariadb(mariadb_database, statement(msgspec.structs.replace(wanted, table="copy`d"), Product.MARIADB))
    made = mariadb_definition(mariadb_database, "copy`d")
    assert plain(made) == plain(wanted)
    assert (made.comment, made.comments) == (wanted.comment, wanted.comments)
    check_fits(wanted, made)


def _mapped(outcome: Outcome) -> Mapped:
    assert isinstance(outcome, Mapped)
    return outcome


def _shown(column: mysql.MysqlColumn) -> str:
    """A type without the width that MariaDB shows a number with, and with its collation."""
    if column.kind == "json":
        return "json"
    text = re.sub(r"int\(\d+\)", "int", column.type)
    return text if column.charset is None else f"{text} CHARACTER SET {column.charset} COLLATE {column.collation}"


def _bare(outcome: Outcome) -> str:
    return _mapped(outcome).type.sql.replace("tinyint(1)", "tinyint")


def test_postgresql_to_mariadb_holds_every_value(
    source: "psycopg.Connection[tuple[Any, ...]]", postgres_database: str, mariadb_database: str
) -> None:
    database = mariadb_database.rpartition("/")[2]
    wanted = msgspec.structs.replace(postgres_definition(postgres_database, "shop", "everything"), schema=database)
    run_at_mariadb(mariadb_database, statement(wanted, Product.MARIADB))
    made = mariadb_definition(mariadb_database, "everything")
    assert {column.name: _shown(column) for column in made.form.columns} == {
        column.name: _bare(to_mysql(column, wanted.enums.get(column.name), Product.MARIADB))
        for column in wanted.form.columns
    }
    assert made.form.primary is not None
    check_fits(wanted, made)
    with closing(mariadb_connect(mariadb_database)) as sink, sink.cursor() as cursor:
        cursor.execute("SET sql_mode = 'STRICT_ALL_TABLES', time_zone = '+00:00'")
        for number, type_ in enumerate(POSTGRESQL):
            for literal in type_.literals:
                column = mysql_quoted(f"c{number}")
                value = type_.out.format(f"CAST({literal} AS {type_.declared})")
                ((sent,),) = source.execute(f"SELECT {value}".encode()).fetchall()
                cursor.execute(f"INSERT INTO everything (id, {column}) VALUES (1, {type_.put})", (sent,))
                cursor.execute(f"SELECT {type_.get.format(column)} FROM everything")
                ((found,),) = cursor.fetchall()
                assert type_.read(found) == type_.read(sent), type_.declared
                cursor.execute("DELETE FROM everything")


def test_mariadb_to_postgresql_holds_every_value(mariadb_database: str, sink_database: str) -> None:
    mariadb_execute(mariadb_database, f"CREATE TABLE everything (id bigint PRIMARY KEY, {columns(MARIADB)})")
    wanted = msgspec.structs.replace(mariadb_definition(mariadb_database, "everything"), schema="shop")
    run_at_postgresql(sink_database, statement(wanted, Product.POSTGRESQL))
    made = postgres_definition(sink_database, "shop", "everything")
    assert {column.name: column.type for column in made.form.columns} == {
        column.name: _mapped(from_mysql(column)).type.sql for column in wanted.form.columns
    }
    check_fits(wanted, made)
    with (
        closing(mariadb_connect(mariadb_database)) as source,
        source.cursor() as cursor,
        psycopg.connect(sink_database, autocommit=True) as sink,
    ):
        cursor.execute("SET time_zone = '+00:00'")
        sink.execute("SET IntervalStyle = 'postgres'")
        for number, type_ in enumerate(MARIADB):
            for literal in type_.literals:
                cursor.execute(f"INSERT INTO everything (id, c{number}) VALUES (1, {literal})")
                out = type_.out if type_.out != "{}::text" else AS_TEXT
                get = type_.get if type_.get != AS_TEXT else "{}::text"
                cursor.execute(f"SELECT {out.format(f'c{number}')} FROM everything")
                ((sent,),) = cursor.fetchall()
                declared = made.form.columns[number + 1].type
                put = type_.put if type_.put != "%s" else f"%s::{declared}"
                sink.execute(f"INSERT INTO shop.everything (id, c{number}) VALUES (1, {put})".encode(), (sent,))
                ((found,),) = sink.execute(
                    f"SELECT {get.format(f'c{number}')} FROM shop.everything".encode()
                ).fetchall()
                assert type_.read(found) == type_.read(sent), type_.declared
                cursor.execute("DELETE FROM everything")
                sink.execute("DELETE FROM shop.everything")


def unique_columns(definition: Definition) -> set[tuple[str, ...]]:
    return {key.columns for key in definition.form.keys if not key.is_primary}


def test_the_longest_names_and_unique_keys_are_created(
    source: "psycopg.Connection[tuple[Any, ...]]", postgres_database: str, sink_database: str, mariadb_database: str
) -> None:
    longest = "ä" * 31 + "x"  # 63 bytes
    source.execute(f'CREATE TABLE shop."{longest}" (id int PRIMARY KEY, "{longest}" varchar(9) UNIQUE)'.encode())
    wanted = postgres_definition(postgres_database, "shop", longest)
    made = table_statement(wanted, Product.POSTGRESQL, unique_keys=True)
    assert isinstance(made, CreateTable)
    run_at_postgresql(sink_database, made)
    assert unique_columns(postgres_definition(sink_database, "shop", longest)) == {(longest,)}

    database = mariadb_database.rpartition("/")[2]
    made = table_statement(msgspec.structs.replace(wanted, schema=database), Product.MARIADB, unique_keys=True)
    assert isinstance(made, CreateTable)
    run_at_mariadb(mariadb_database, made)
    assert unique_columns(mariadb_definition(mariadb_database, longest)) == {(longest,)}

    longest = "ä" * 64
    mariadb_execute(mariadb_database, f"CREATE TABLE `{longest}` (id int PRIMARY KEY, `{longest}` int UNIQUE)")
    wanted_there = mariadb_definition(mariadb_database, longest)
    mariadb_execute(mariadb_database, f"DROP TABLE `{longest}`")
    made = table_statement(wanted_there, Product.MARIADB, unique_keys=True)
    assert isinstance(made, CreateTable)
    run_at_mariadb(mariadb_database, made)
    assert unique_columns(mariadb_definition(mariadb_database, longest)) == {(longest,)}


ODD: Final = "a'b\"c`d\\e; :x -- \\! touch it"
"""A name that is quoted right, or ends a quotation."""

MODES: Final = ("", "NO_BACKSLASH_ESCAPES,ANSI_QUOTES")


@pytest.mark.skipif(None in map(shutil.which, ("psql", "mariadb")), reason="psql or mariadb is not installed")
def test_the_databases_own_programs_run_the_file_and_nothing_else(
    source: "psycopg.Connection[tuple[Any, ...]]",
    postgres_database: str,
    sink_database: str,
    mariadb_database: str,
    tmp_path: Path,
) -> None:
    """Programs read commands of their own from lines, so a name or a comment could start one."""
    text = "line\n\\! touch it\n'; \\! touch it\ndelimiter //\n-- \\! touch it\n"
    left_out = postgresql_quoted("g\n\\! touch it")
    table, column, said = postgresql_quoted("shop", ODD), postgresql_quoted(ODD), literal(text)
    source.execute(
        "CREATE FUNCTION shop.own(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1'; "
        f"CREATE TABLE {table} ({column} varchar(700) DEFAULT {said}, id int PRIMARY KEY, "
        f"{left_out} int GENERATED ALWAYS AS (shop.own(id)) STORED); "
        f"COMMENT ON TABLE {table} IS {said}; COMMENT ON COLUMN {table}.{column} IS {said}".encode()
    )
    wanted = postgres_definition(postgres_database, "shop", ODD)
    file = tmp_path / "tables.sql"

    file.write_text(target_tables([wanted], SinkHas(Product.POSTGRESQL), {}).text, encoding="utf-8")
    psql = ["psql", sink_database, "--set=ON_ERROR_STOP=1", "--single-transaction", f"--file={file}"]
    subprocess.run(psql, check=True, capture_output=True, cwd=tmp_path)
    made = postgres_definition(sink_database, "shop", ODD)
    assert (made.comment, made.comments, made.form.columns[0].default) == (
        text, {ODD: text}, wanted.form.columns[0].default
    )  # fmt: skip

    parts = urlsplit(mariadb_database)
    at = msgspec.structs.replace(wanted, schema=parts.path.strip("/"))
    file.write_text(target_tables([at], SinkHas(Product.MARIADB), {}).text, encoding="utf-8")
    mariadb = ["mariadb", f"--host={parts.hostname}", f"--port={parts.port}", f"--user={parts.username}"]
    mariadb += [f"--password={parts.password}", "--default-character-set=utf8mb4"]
    for mode in MODES:
        starting = [f"--init-command=SET SESSION sql_mode = '{mode}'"]
        subprocess.run([*mariadb, *starting], input=file.read_bytes(), check=True, capture_output=True, cwd=tmp_path)
        found = mariadb_definition(mariadb_database, ODD)
        assert (found.comment, found.comments) == (text, {ODD: text})
        mariadb_execute(mariadb_database, f"DROP TABLE {mysql_quoted(at.schema, ODD)}")
    assert [found.name for found in tmp_path.iterdir()] == ["tables.sql"]
