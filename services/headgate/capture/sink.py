"""The sink of tables that are captured: whether it is the source itself, and how to create the tables it lacks."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Final

from headgate.capture.place import place_of
from headgate.capture.source import Capture, Postgres
from headgate.capture.tables import SourceTable
from headgate.databases.address import Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.kinds import kind_of
from headgate.databases.mysql.sql import quoted as mysql_quoted
from headgate.databases.postgresql.address import url_of
from headgate.databases.postgresql.sql import quoted as postgresql_quoted

__all__ = ["copying", "is_itself", "missing_tables"]

_FILE: Final = "tables.sql"
"""In the folder in which the commands are typed. Each of them asks for one password."""


def is_itself(source: Capture, to: Capture, source_target: Target, sink_target: Target) -> bool:
    """Whether a feed would write into the very tables whose changes it reads.

    A feed names its target tables like those of the source. So for a MySQL or MariaDB this is any database of the same
    server, for a PostgreSQL the same database.
    """
    if isinstance(source, Postgres) is not isinstance(to, Postgres):
        return False
    if source.facts.own_id is not None and to.facts.own_id is not None:
        return source.facts.own_id == to.facts.own_id
    servers = {
        kind_of(target.dsn, target.options).address(target.dsn, target.options).server
        for target in (source_target, sink_target)
    }
    return len(servers) == 1 and (not isinstance(source, Postgres) or source.facts.database == to.facts.database)


def missing_tables(source: Capture, to: Capture) -> list[SourceTable]:
    """Tables of the source that the sink lacks, as far as its user can see."""
    there = {(table.schema, table.table) for table in to.tables}
    return [table for table in source.tables if (table.schema, table.table) not in there]


def copying(source: Capture, to: Capture, source_target: Target, sink_target: Target) -> tuple[str, ...]:
    """Shell commands that create the missing tables at the sink. None between databases of different kinds."""
    missing = missing_tables(source, to)
    if isinstance(source, Postgres) is not isinstance(to, Postgres):
        return ()
    if isinstance(source, Postgres):
        known = {table.schema for table in to.tables} | {"public"}
        return tuple(_postgresql(missing, known, _url(source_target, "SOURCE"), _url(sink_target, "SINK")))
    return tuple(_mysql(missing, _login(source_target, "SOURCE"), _login(sink_target, "SINK")))


def _postgresql(missing: Sequence[SourceTable], known: set[str], source: str, sink: str) -> Iterator[str]:
    for schema in dict.fromkeys(table.schema for table in missing):
        if schema not in known:
            yield f"psql {sink} --command={quote(f'CREATE SCHEMA IF NOT EXISTS {postgresql_quoted(schema)}')}"
    tables = " ".join(f"--table={quote(postgresql_quoted(table.schema, table.table))}" for table in missing)
    leaving_out = "--no-owner --no-privileges --no-publications"
    yield f"pg_dump --schema-only {leaving_out} {tables} --file={_FILE} {source}"
    yield f"psql {sink} --file={_FILE}"


def _mysql(missing: Sequence[SourceTable], source: str, sink: str) -> Iterator[str]:
    named: defaultdict[str, list[str]] = defaultdict(list)
    for table in missing:
        named[table.schema].append(table.table)
    for schema, tables in named.items():
        listed = " ".join(map(quote, tables))
        yield f"mariadb-dump --no-data --single-transaction --skip-triggers {source} {quote(schema)} {listed} > {_FILE}"
        yield f"mariadb {sink} --execute={quote(f'CREATE DATABASE IF NOT EXISTS {mysql_quoted(schema)}')}"
        yield f"mariadb {sink} {quote(schema)} < {_FILE}"


def _url(target: Target, otherwise: str) -> str:
    """The address as psql takes it, or a word for one that does not name host, user and database."""
    try:
        return quote(url_of(target.dsn, target.options)[0])
    except DatabaseRefusedError:
        return otherwise


def _login(target: Target, otherwise: str) -> str:
    """Options of MariaDB's programs, or words for an address that does not name host, user and database."""
    try:
        place = place_of(target)
    except DatabaseRefusedError:
        return f"--host={otherwise} --password"
    return f"--host={quote(place.host)} --port={place.port} --user={quote(place.user)} --password"
