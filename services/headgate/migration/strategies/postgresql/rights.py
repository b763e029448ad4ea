"""Which rights a schema change's user lacks at PostgreSQL, with the statements that give them. Changes nothing.

Asked before anything is changed: the server itself checks most of these rights when a statement runs, and some of them
only in the cut-over, after all rows have been copied.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.databases.postgresql.replication_right import replication_grant
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.contract import DatabaseUnavailableError, RefusedError
from headgate.migration.strategies.postgresql.sessions import schema_of
from headgate.sinks.contract import SinkRefusedError, SinkUnavailableError
from headgate.sinks.relational.postgresql.catalog import check_database
from headgate.sinks.relational.postgresql.connection import PostgresSinkSession
from headgate.sinks.relational.rights import RightsMissingError

__all__ = ["check_new_objects", "check_rights", "relations_of"]

# CREATE … IF NOT EXISTS needs the right to create, also where the schema or the table exists.
_OF_DATABASE: Final = """
SELECT 'to create schemas in the database',
format('GRANT CREATE ON DATABASE %I TO %I', current_database(), current_user)
WHERE NOT has_database_privilege(current_database(), 'CREATE')
UNION ALL SELECT 'to create tables in schema headgate',
format('GRANT USAGE, CREATE ON SCHEMA headgate TO %I', current_user) FROM pg_namespace
WHERE nspname = 'headgate' AND NOT (has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE'))
UNION ALL SELECT 'to write headgate.' || relname,
format('GRANT SELECT, INSERT, UPDATE, DELETE ON headgate.%I TO %I', relname, current_user)
FROM pg_class c JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) wanted
ON NOT has_table_privilege(c.oid, wanted)
WHERE relnamespace = to_regnamespace('headgate') AND relname IN ('migration', 'migration_owner') AND relkind = 'r'
"""

_OF_SCHEMA: Final = """
SELECT format('to use schema %%s', nspname) || CASE WHEN %(creates)s THEN ' and to create there' ELSE '' END,
format('GRANT %%s ON SCHEMA %%I TO %%I', CASE WHEN %(creates)s THEN 'USAGE, CREATE' ELSE 'USAGE' END, nspname,
current_user) FROM pg_namespace WHERE nspname = %(schema)s AND NOT (has_schema_privilege(oid, 'USAGE')
AND (has_schema_privilege(oid, 'CREATE') OR NOT %(creates)s))
"""

_HIDDEN: Final = """
SELECT format('to use schema %%s', nspname), format('GRANT USAGE ON SCHEMA %%I TO %%I', nspname, current_user)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE relname = %(table)s AND relkind IN ('r', 'p') AND NOT has_schema_privilege(n.oid, 'USAGE') ORDER BY 1
"""
"""Schemas that the user may not use are not on its search path, so the table would not exist."""

_JOINED: Final = """CASE WHEN o.rolsuper THEN format('ALTER {kind} %%s OWNER TO %%I', {name}, current_user)
ELSE format('GRANT %%I TO %%I', o.rolname, current_user) END"""
"""What makes the user an owner of an object. No role should become a member of a superuser."""

_OWNED: Final = f"""
SELECT 'to alter the table, which belongs to ' || o.rolname,
{_JOINED.format(kind="TABLE", name="c.oid::regclass")}
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles o ON o.oid = c.relowner
WHERE nspname = %(schema)s AND relname = %(table)s AND relkind IN ('r', 'p') AND NOT pg_has_role(c.relowner, 'USAGE')
AND NOT (%(drops)s AND pg_has_role(n.nspowner, 'USAGE'))
"""

# The copy is given to the table's owner, and put into the publications that have the table.
_COPIED: Final = f"""
WITH it AS (SELECT c.oid, relowner, nspname, n.oid AS namespace, o.rolname FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles o ON o.oid = c.relowner
WHERE nspname = %(schema)s AND relname = %(table)s AND relkind IN ('r', 'p'))
SELECT 'to read its rows and to set marks', format('GRANT SELECT, UPDATE ON %%s TO %%I', oid::regclass, current_user)
FROM it WHERE pg_has_role(relowner, 'USAGE')
AND NOT (has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'UPDATE'))
UNION ALL SELECT 'for its owner ' || rolname || ' to create in schema ' || nspname || ', where it is given the copy',
format('GRANT CREATE ON SCHEMA %%I TO %%I', nspname, rolname)
FROM it WHERE rolname <> current_user AND NOT has_schema_privilege(relowner, namespace, 'CREATE')
UNION ALL SELECT 'to SET ROLE to its owner ' || rolname, format('GRANT %%I TO %%I WITH SET TRUE', rolname, current_user)
FROM it WHERE pg_has_role(relowner, 'USAGE') AND NOT pg_has_role(relowner, %(settable)s)
UNION ALL SELECT 'to alter publication ' || pubname || ', which has the table and belongs to ' || o.rolname,
{_JOINED.format(kind="PUBLICATION", name="quote_ident(pubname)")}
FROM it JOIN pg_publication_rel r ON r.prrelid = it.oid JOIN pg_publication p ON p.oid = r.prpubid
JOIN pg_roles o ON o.oid = p.pubowner WHERE NOT pg_has_role(p.pubowner, 'USAGE')
"""

_SETTABLE_SINCE: Final = 160_000
"""The first version in which a member of a role need not be able to SET ROLE to it."""

_RELATIONS: Final = "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = %s"

Lacking = tuple[str, str]
"""What the user may not do, and the statement that gives it the right."""


def check_rights(session: BoundedConnection, statement: Statement, *, is_copied: bool) -> None:
    """Raise RefusedError with all rights that the statement lacks; ``is_copied``: it is done by strategy online.

    A table that does not exist is not an error here. Raises PostgresError, DatabaseUnavailableError.
    """
    lacking = [*_rows(session, _OF_DATABASE), *_of_table(session, statement, is_copied=is_copied)]
    if is_copied:
        lacking += _of_sink(session)
    _refuse(session, statement, list(dict.fromkeys(lacking)))


def relations_of(session: BoundedConnection, schema: str) -> set[str]:
    """Names of a schema's tables, indexes and sequences."""
    return {name for (name,) in session.execute(_RELATIONS, (schema,)).fetchall()}


def check_new_objects(session: BoundedConnection, statement: Statement, schema: str) -> None:
    """Raise RefusedError unless the user may create the statement's new indexes and sequences beside the table."""
    _refuse(session, statement, _rows(session, _OF_SCHEMA, {"schema": schema, "creates": True}))


def _of_table(session: BoundedConnection, statement: Statement, *, is_copied: bool) -> Iterator[Lacking]:
    """Of the table and its schema."""
    schema = schema_of(session, statement.schema, statement.table)
    at = {"schema": schema, "table": statement.table, "drops": statement.action == "drop"}
    creates = is_copied or statement.action == "create"
    yield from _rows(session, _OF_SCHEMA, at | {"creates": creates})
    if statement.action != "create":
        owned = _rows(session, _OWNED, at)
        yield from owned
        if statement.schema is None and not _rows(session, _PRESENT, at):
            yield from _rows(session, _HIDDEN, at)
    if is_copied:
        settable = "SET" if session.info.server_version >= _SETTABLE_SINCE else "MEMBER"
        yield from _rows(session, _COPIED, at | {"settable": settable})
        if _rows(session, _PRESENT, at) and (grant := replication_grant(session)) is not None:
            yield "to open a replication slot for the cut-over", grant


_PRESENT: Final = """
SELECT 'table', relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE nspname = %(schema)s AND relname = %(table)s AND relkind IN ('r', 'p')
"""


def _of_sink(session: BoundedConnection) -> Iterator[Lacking]:
    """Of the feed into the copy, whose sink is the same connection: as the sink itself judges."""
    try:
        check_database(PostgresSinkSession(session))
    except RightsMissingError as error:
        yield from ((error.lacks.removeprefix("no right "), grant) for grant in error.grants)
    except SinkUnavailableError as error:
        raise DatabaseUnavailableError(str(error)) from error
    except SinkRefusedError as error:
        raise RefusedError(str(error)) from error


def _rows(session: BoundedConnection, query: str, parameters: Mapping[str, object] | None = None) -> list[Lacking]:
    return [(str(lacks), str(grant)) for lacks, grant in session.execute(query, parameters).fetchall()]


def _refuse(session: BoundedConnection, statement: Statement, lacking: list[Lacking]) -> None:
    if not lacking:
        return
    table = statement.table if statement.schema is None else f"{statement.schema}.{statement.table}"
    lacks, grants = (list(dict.fromkeys(part)) for part in zip(*lacking, strict=True))
    raise RefusedError(
        str(
            RightsMissingError(
                f"table {table}: database user {session.info.user} has no right {', '.join(lacks)}", grants
            )
        )
    )
