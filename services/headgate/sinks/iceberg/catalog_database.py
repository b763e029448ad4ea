"""The database that a SQL catalog is in, as SQLAlchemy uses it: a SQLite file, or PostgreSQL.

Sessions at PostgreSQL are those of every sink (databases/postgresql): the address and the password's file are checked
for each, they find out a server that has fallen silent, and they are off their user's search path. So the catalog's
tables are found once, and named with their schema from then on.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Final
from urllib.parse import quote

import msgspec
from sqlalchemy import Engine, create_engine, inspect
from sqlalchemy.pool import NullPool

from headgate.databases.address import Target
from headgate.databases.iceberg.address import CatalogLocation, place_of
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.databases.postgresql.errors import PostgresError
from headgate.databases.postgresql.search_path import find_table
from headgate.databases.postgresql.session import PostgresSession, open_connection
from headgate.databases.postgresql.sql import quoted
from headgate.sinks.contract import SinkRefusedError, SinkUnavailableError
from headgate.sinks.relational.postgresql.faults import sink_error
from headgate.sinks.relational.session import as_sink_errors

__all__ = ["CatalogDatabase", "open_database"]

LOCK_SECONDS: Final = 10
"""A commit locks one row, in SQLite the file, for milliseconds."""

_TABLES: Final = "iceberg_tables"
_RIGHTS: Final = {_TABLES: ("SELECT", "INSERT", "UPDATE"), "iceberg_namespace_properties": ("SELECT", "INSERT")}
"""What Headgate does with the tables of a catalog."""

_VIEWS: Final = "iceberg_type"
"""The column of ``iceberg_tables`` that catalogs of the newer version have."""

_ABOUT: Final = "SELECT pg_is_in_recovery(), current_database(), quote_ident(current_user)"
_LACKING: Final = """
SELECT r FROM unnest(%(rights)s::text[]) WITH ORDINALITY AS given (r, place)
WHERE NOT has_table_privilege(%(oid)s::oid, r) ORDER BY place
"""
_HAS_COLUMN: Final = """
SELECT count(*) FROM pg_attribute WHERE attrelid = %(oid)s::oid AND attname = %(name)s::text AND NOT attisdropped
"""


class CatalogDatabase(msgspec.Struct, frozen=True):
    """Where a catalog's tables are. ``version``: pyiceberg's name for their columns, v0 or v1. ``name``: for people."""

    name: str
    engine: Engine
    version: str


def open_database(find: Callable[[], Target], place: CatalogLocation) -> CatalogDatabase:
    """The database, once all that Headgate needs of it is there. Raises SinkError."""
    return _file(place) if place.dsn is None else _server(find)


# --- PostgreSQL ---


def _server(find: Callable[[], Target]) -> CatalogDatabase:
    connection = _connect(find)
    doing = "reading the catalog's database"
    with closing(PostgresSession(connection)) as session, _as_sink_errors(doing):
        ((is_standby, database, user),) = session.execute(_ABOUT)
        if is_standby:
            raise SinkUnavailableError(
                f"database {database} of the Iceberg catalog is a read-only standby. Name the primary in the address "
                "(several hosts: target_session_attrs=read-write)"
            )
        schema, version = _catalog_in(session, str(database), str(user))
    engine = create_engine(
        "postgresql+psycopg://",
        creator=partial(_in_transactions, find),
        poolclass=NullPool,  # a process may be forked at any time
        execution_options={"schema_translate_map": {None: schema}},
    )
    return CatalogDatabase(f"database {database}", engine, version)


def _catalog_in(session: PostgresSession, database: str, user: str) -> tuple[str, str]:
    """The schema that the catalog's tables are in, and their version. Raises SinkRefusedError."""
    lacking: list[str] = []
    schemas, version = [], "v0"
    for table, rights in _RIGHTS.items():
        found = find_table(session.execute, session.path, table)
        if found is None:
            raise SinkRefusedError(
                f"database {database} is not an Iceberg catalog: no schema on the search path of user {user} "
                f"({', '.join(session.path) or 'none'}) has a table {table}. Correct the address, create the catalog "
                f"with pyiceberg, or grant {user} USAGE on its schema"
            )
        oid, schema, name = found
        schemas.append(schema)
        missing = [str(right) for (right,) in session.execute(_LACKING, {"rights": list(rights), "oid": oid})]
        if missing:
            lacking.append(f"GRANT {', '.join(missing)} ON {quoted(schema, name)} TO {user}")
        if table == _TABLES and session.execute(_HAS_COLUMN, {"oid": oid, "name": _VIEWS}) == [(1,)]:
            version = "v1"
    if lacking:
        raise SinkRefusedError(
            f"user {user} lacks rights on the Iceberg catalog in database {database}. Run {'; '.join(lacking)}"
        )
    if len(set(schemas)) > 1:
        raise SinkRefusedError(
            f"database {database}: the tables of the Iceberg catalog are in different schemas, "
            f"{' and '.join(schemas)}. Set the search path of user {user} to one of them"
        )
    return schemas[0], version


def _connect(find: Callable[[], Target]) -> BoundedConnection:
    """A new session. Raises SinkError."""
    target = find()
    with as_sink_errors():
        database = place_of(target.dsn, target.options).dsn
        if database is None:
            raise SinkRefusedError(f"{target.options.address} names a file now, and named PostgreSQL before. Restart")
        at = msgspec.structs.replace(target, dsn=database)
        return open_connection(at, application_name="headgate", lock_seconds=LOCK_SECONDS)


def _in_transactions(find: Callable[[], Target]) -> BoundedConnection:
    connection = _connect(find)
    connection.autocommit = False
    return connection


@contextmanager
def _as_sink_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except PostgresError as error:
        raise sink_error(error, doing) from error


# --- SQLite ---


def _file(place: CatalogLocation) -> CatalogDatabase:
    file = place.file
    assert file is not None  # noqa: S101 - the caller has checked it
    if not file.is_file():
        raise SinkRefusedError(f"Iceberg catalog {file} does not exist. Correct sink.dsn, or create the catalog")
    uri = f"file:{quote(str(file))}?mode=rw"  # never creates the file
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(uri, uri=True, timeout=LOCK_SECONDS, check_same_thread=False),
        poolclass=NullPool,  # a process may be forked at any time
    )
    tables = inspect(engine)
    if not tables.has_table(_TABLES):
        raise SinkRefusedError(
            f"{file} is not an Iceberg catalog: it has no table {_TABLES}. Correct sink.dsn, or create the catalog "
            "with pyiceberg"
        )
    columns = {column["name"] for column in tables.get_columns(_TABLES)}
    return CatalogDatabase(str(file), engine, "v1" if _VIEWS in columns else "v0")
