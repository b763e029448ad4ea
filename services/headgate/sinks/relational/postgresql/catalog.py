"""What a sink table looks like, and whether Headgate can write to it: one look at PostgreSQL's catalog.

Names are exact (never folded to lower case): ``schema.table``, divided at the first dot unless it has quotes
(records/identifiers.py), or a bare table name found by the search path. All names of one table give the same
``Table.name``, which is what the fence is keyed by.
"""

from collections.abc import Sequence
from typing import Final

from headgate.records.identifiers import split_table
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.relational.postgresql.connection import PostgresSession, quoted
from headgate.sinks.relational.table import Table, check_generated, nearest, without_key

__all__ = ["VERSION", "check_database", "found_name", "load_table", "read_version"]

_TABLE: Final = """
SELECT c.oid, n.nspname, c.relname, c.relkind::text, row_security_active(c.oid),
       ARRAY(SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p
             WHERE NOT has_table_privilege(c.oid, p))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s) AND c.relkind = ANY ('{r,p,v,m,f}')
"""

# A domain is followed down to the type it is made of: that one decides how a value is written.
_COLUMNS: Final = """
WITH RECURSIVE base AS (
    SELECT a.attnum, a.attname, a.attidentity::text, a.attgenerated::text, t.typtype, t.typbasetype,
           t.typtypmod, format_type(a.atttypid, a.atttypmod) AS declared,
           COALESCE(NOT c.collisdeterministic, false) AS loose
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_collation c ON c.oid = a.attcollation
    WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT b.attnum, b.attname, b.attidentity, b.attgenerated, t.typtype, t.typbasetype,
           t.typtypmod, format_type(b.typbasetype, b.typtypmod), b.loose
    FROM base b JOIN pg_type t ON t.oid = b.typbasetype
    WHERE b.typtype = 'd'
)
SELECT attname, declared, attidentity, attgenerated, loose FROM base WHERE typtype <> 'd' ORDER BY attnum
"""

_FOUND: Final = """
SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
"""

_TABLES: Final = """
SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
"""

_KEYS: Final = """
SELECT i.indisprimary, i.indimmediate,
       ARRAY(SELECT a.attname::text FROM unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY k(num, pos)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.num ORDER BY k.pos)
FROM pg_index i WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid
"""

# Every alteration of a column or a key writes its row of the catalog anew, under another xmin; a table that has taken
# another's name has another oid. 0.14 ms, where a whole look takes 0.6 ms (20 columns, measured).
VERSION: Final = """
SELECT c.oid || ARRAY(SELECT a.xmin::text FROM pg_attribute a
                      WHERE a.attrelid = c.oid AND a.attnum > 0 ORDER BY a.attnum)::text
             || ARRAY(SELECT i.indexrelid || '.' || i.xmin::text FROM pg_index i
                      WHERE i.indrelid = c.oid AND i.indisunique ORDER BY i.indexrelid)::text
FROM pg_class c WHERE c.oid = to_regclass(%s)
"""


def _identifier(name: str) -> str:
    """The quoted name that a table name stands for."""
    return quoted(*(part for part in split_table(name) if part is not None))


def found_name(session: PostgresSession, name: str) -> str | None:
    """``Table.name`` of the table that ``name`` stands for now, None if there is none."""
    rows = session.execute(_FOUND, (_identifier(name),))
    return str(rows[0][0]) if rows else None


def load_table(session: PostgresSession, name: str, keyless: bool = False) -> Table[str]:
    """The table, proven to exist, to have a key and to be writable by us. SinkRefusedError says what to do.

    With ``keyless`` it may be without key.
    """
    version = read_version(session, _identifier(name))  # before the rest: what is newer than it shows later
    found = session.execute(_TABLE, (_identifier(name),))
    if not found:
        near = nearest(name, session.execute(_TABLES))
        raise SinkRefusedError(f"table {name} does not exist at the sink{near}: create it first")
    ((oid, schema, relation, kind, row_security, missing),) = found
    if kind not in ("r", "p"):
        raise SinkRefusedError(
            f"{name} is not a table at the sink but a view or a foreign table: name the table itself"
        )
    if missing:
        raise SinkRefusedError(f"no right to {', '.join(missing)} on table {name}: {_grant(session, missing, name)}")
    if row_security:
        raise SinkRefusedError(
            f"row-level security would hide rows of table {name} from the sink's user: give it BYPASSRLS"
        )
    described = session.execute(_COLUMNS, {"oid": oid})
    generated = frozenset(str(column) for column, _, _, computed, _ in described if computed)
    columns = {str(column): str(kind) for column, kind, _, computed, _ in described if not computed}
    key, secondary = _keys(session, oid, name, keyless=keyless)
    for column, _, identity, _, _ in described:
        if identity == "a" and column not in key:
            raise SinkRefusedError(
                f"column {column} of table {name} is GENERATED ALWAYS AS IDENTITY outside the key, so not updatable: "
                f"ALTER TABLE {name} ALTER COLUMN {column} SET GENERATED BY DEFAULT"
            )
    check_generated(name, key, generated)
    folding = tuple(
        str(column)
        for column, kind, _, _, loose in described
        if column in key and (loose or str(kind).rpartition(".")[2] == "citext")
    )
    return Table(
        f"{schema}.{relation}", schema, relation, quoted(schema, relation), columns, generated, key, folding, secondary,
        version,
    )  # fmt: skip


def read_version(session: PostgresSession, identifier: str) -> str | None:
    """What differs after any alteration of the table's columns or keys; None if there is no such table."""
    rows = session.execute(VERSION, (identifier,))
    return str(rows[0][0]) if rows else None


def _keys(session: PostgresSession, oid: object, name: str, *, keyless: bool) -> tuple[tuple[str, ...], bool]:
    indexes = session.execute(_KEYS, (oid,))
    primary = [(immediate, columns) for is_primary, immediate, columns in indexes if is_primary]
    if not primary:
        if keyless:
            return (), bool(indexes)
        raise without_key(name)
    immediate, columns = primary[0]
    if not immediate:
        raise SinkRefusedError(
            f"the primary key of table {name} is DEFERRABLE: make it NOT DEFERRABLE, rows are merged by it"
        )
    return tuple(columns), len(indexes) > 1


def _grant(session: PostgresSession, missing: Sequence[str], name: str) -> str:
    ((user,),) = session.execute("SELECT quote_ident(current_user)")
    return f"GRANT {', '.join(missing)} ON {_identifier(name)} TO {user}"


def check_database(session: PostgresSession) -> None:
    """Whether we may keep progress and stage rows in this database; SinkRefusedError says what to grant."""
    ((standby, database, user, temporary, creatable, usable),) = session.execute(
        """
        SELECT pg_is_in_recovery(), current_database(), quote_ident(current_user),
               has_database_privilege(current_database(), 'TEMP'),
               to_regnamespace('headgate') IS NOT NULL OR has_database_privilege(current_database(), 'CREATE'),
               CASE WHEN to_regnamespace('headgate') IS NULL THEN true
                    WHEN NOT has_schema_privilege('headgate', 'USAGE') THEN false
                    WHEN to_regclass('headgate.progress') IS NULL THEN has_schema_privilege('headgate', 'CREATE')
                    ELSE has_table_privilege('headgate.progress', 'SELECT')
                     AND has_table_privilege('headgate.progress', 'INSERT')
                     AND has_table_privilege('headgate.progress', 'UPDATE')
                     AND has_table_privilege('headgate.progress', 'DELETE') END
        """
    )
    if standby:
        raise SinkRefusedError(f"database {database} is a read-only standby: give the primary's address")
    if not temporary:
        raise SinkRefusedError(f"no right to stage rows: GRANT TEMPORARY ON DATABASE {database} TO {user}")
    if not creatable:
        raise SinkRefusedError(
            f"no right to create schema headgate: GRANT CREATE ON DATABASE {database} TO {user}, "
            f"or as an administrator CREATE SCHEMA headgate AUTHORIZATION {user}"
        )
    if not usable:
        raise SinkRefusedError(
            "schema headgate belongs to somebody else: "
            f"GRANT ALL ON SCHEMA headgate, ALL ON headgate.progress TO {user}"
        )
