"""Describes a sink table, and checks whether Headgate can write to it, from PostgreSQL's catalogue.

Names are exact (never folded to lower case): ``schema.table`` as records/identifiers.py divides it, or a bare table
name, which is looked for in the schemas of the user's search path. All spellings of one table give the same
``RelationalTable.name``, which is what the fence is keyed by.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from headgate.databases.postgresql.catalogue import PostgresColumn, PostgresForm, read_form
from headgate.databases.postgresql.progress import PostgresProgressTables
from headgate.databases.postgresql.search_path import find_table
from headgate.databases.postgresql.sql import quoted
from headgate.records.identifiers import split_table, table_spelling
from headgate.records.slices import slice_of, with_slice
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkUnavailableError
from headgate.sinks.relational.postgresql.connection import PostgresSinkSession
from headgate.sinks.relational.postgresql.forms import keeps_keys
from headgate.sinks.relational.rights import RightsMissingError
from headgate.sinks.relational.table import (
    Equality,
    RelationalTable,
    check_generated,
    check_slice,
    nearest,
    without_key,
)

__all__ = ["VERSION", "PostgresSinkColumn", "check_database", "found_name", "load_table", "read_version"]

_TABLE: Final = """
SELECT c.relkind::text, row_security_active(c.oid), has_schema_privilege(c.relnamespace, 'USAGE'),
       ARRAY(SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p
             WHERE NOT has_table_privilege(c.oid, p))
FROM pg_class c WHERE c.oid = %s
"""

# Columns whose type is a date or a time, or has one in it: as an element, a bound, a field, or under a domain's name.
_HOLDING_TIMES: Final = """
WITH RECURSIVE part AS (
    SELECT a.attname, a.atttypid AS type FROM pg_attribute a
    WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
  UNION
    SELECT p.attname, inner_type.oid
    FROM part p JOIN pg_type t ON t.oid = p.type
    CROSS JOIN LATERAL (
        SELECT t.typbasetype WHERE t.typtype = 'd'
      UNION ALL
        SELECT t.typelem WHERE t.typcategory = 'A'
      UNION ALL
        SELECT r.rngsubtype FROM pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
      UNION ALL
        SELECT f.atttypid FROM pg_attribute f
        WHERE t.typtype = 'c' AND f.attrelid = t.typrelid AND f.attnum > 0 AND NOT f.attisdropped
    ) AS inner_type (oid)
)
SELECT DISTINCT attname FROM part JOIN pg_type t ON t.oid = part.type
WHERE t.typname IN ('date', 'time', 'timetz', 'timestamp', 'timestamptz')
  AND t.typnamespace = 'pg_catalog'::regnamespace
"""

_TABLES: Final = """
SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
"""

# The equality that the key's own index is ordered by: a type of an extension brings its own, in its own schema.
_EQUALITIES: Final = """
SELECT a.attname, n.nspname, o.oprname, format_type(c.opcintype, NULL)
FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey[0:i.indnkeyatts - 1], i.indclass[0:i.indnkeyatts - 1]) k(num, class)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.num
JOIN pg_opclass c ON c.oid = k.class JOIN pg_am m ON m.oid = c.opcmethod AND m.amname = 'btree'
JOIN pg_amop f ON f.amopfamily = c.opcfamily AND f.amopstrategy = 3
     AND f.amoplefttype = c.opcintype AND f.amoprighttype = c.opcintype
JOIN pg_operator o ON o.oid = f.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace
WHERE i.indrelid = %s AND i.indisprimary AND n.nspname <> 'pg_catalog'
"""

# PostgreSQL refuses INSERT … ON CONFLICT on a table with such rules: with any on UPDATE, even a disabled one, and with
# those on INSERT that fire in this session. Rules of partitions do not count, because rows are written to their parent.
_RULES: Final = """
SELECT rulename, CASE ev_type WHEN '2' THEN 'UPDATE' ELSE 'INSERT' END FROM pg_rewrite
WHERE ev_class = %s AND (ev_type = '2' OR ev_type = '3' AND ev_enabled::text = ANY (
    CASE current_setting('session_replication_role') WHEN 'replica' THEN ARRAY['A', 'R'] ELSE ARRAY['A', 'O'] END))
ORDER BY rulename
"""

# Every alteration of a column, a key, a trigger or a rule writes its row of the catalog again, under another xmin; a
# table that has taken another's name has another oid. 0.14 ms without triggers, where a whole look takes 0.6 ms (20
# columns, measured).
VERSION: Final = """
SELECT c.oid || ARRAY(SELECT a.xmin::text FROM pg_attribute a
                      WHERE a.attrelid = c.oid AND a.attnum > 0 ORDER BY a.attnum)::text
             || ARRAY(SELECT i.indexrelid || '.' || i.xmin::text FROM pg_index i
                      WHERE i.indrelid = c.oid AND i.indisunique ORDER BY i.indexrelid)::text
             || ARRAY(SELECT t.oid || '.' || t.xmin::text FROM pg_trigger t
                      WHERE t.tgrelid = c.oid AND NOT t.tgisinternal ORDER BY t.oid)::text
             || ARRAY(SELECT r.oid || '.' || r.xmin::text FROM pg_rewrite r
                      WHERE r.ev_class = c.oid ORDER BY r.oid)::text
FROM pg_class c WHERE c.oid = to_regclass(%s)
"""


def found_name(session: PostgresSinkSession, name: str) -> str | None:
    """``RelationalTable.name`` of the table that ``name`` stands for now, None if there is none."""
    found = find_table(session.execute, session.path, name)
    return None if found is None else table_spelling(found[1], found[2])


class PostgresSinkColumn(msgspec.Struct, frozen=True):
    """A writable column: ``declared`` as ``format_type`` prints its type, or the type that its domain is made of.

    ``holds_times``: the type is a date or a time, or has one in it.
    """

    declared: str
    holds_times: bool = False

    def __str__(self) -> str:
        return self.declared


def load_table(session: PostgresSinkSession, name: str, keyless: bool = False) -> RelationalTable[PostgresSinkColumn]:
    """The table, proven to exist, to have a key and to be writable by Headgate. SinkRefusedError contains what to do.

    With ``keyless`` it may be without key.
    """
    found = find_table(session.execute, session.path, name)
    if found is None:
        raise _not_there(session, name)
    oid, schema, relation = found
    identifier = quoted(schema, relation)
    ((kind, row_security, usable, missing),) = session.execute(_TABLE, (oid,)) or [(None, False, True, [])]
    if kind not in ("r", "p"):
        raise SinkRefusedError(
            f"{name} is not a table at the sink but a view or a foreign table. Name the table itself"
        )
    if missing or not usable:
        user, grants = _user(session), []
        if not usable:
            grants.append(f"GRANT USAGE ON SCHEMA {quoted(schema)} TO {user}")
        if missing:
            grants.append(f"GRANT {', '.join(missing)} ON {identifier} TO {user}")
        lacks = ", ".join([*missing, *([] if usable else [f"USAGE of schema {schema}"])])
        raise RightsMissingError(f"no right to {lacks} on table {name}", grants)
    if row_security:
        raise SinkRefusedError(
            f"row-level security hides rows of table {name} from the sink's user. Give the user BYPASSRLS"
        )
    version = read_version(session, identifier)  # before the columns: what is newer shows later
    form = read_form(session.execute, oid)
    holding_times = {str(column) for (column,) in session.execute(_HOLDING_TIMES, {"oid": oid})}
    columns = {
        column.name: PostgresSinkColumn(column.base, column.name in holding_times)
        for column in form.columns
        if column.generated is None
    }
    key, secondary = _keys(form, name, keyless=keyless)
    if key and (rules := session.execute(_RULES, (oid,))):
        raise _has_rules(name, identifier, {str(rule): str(event) for rule, event in rules})
    for column in form.columns:
        if column.identity == "a" and column.name not in key:
            raise SinkRefusedError(
                f"column {column.name} of table {name} is GENERATED ALWAYS AS IDENTITY outside the key, so it "
                f"cannot be updated. Run: ALTER TABLE {identifier} ALTER COLUMN {quoted(column.name)} SET GENERATED "
                "BY DEFAULT"
            )
    check_generated(name, key, form.generated)
    folding = tuple(
        column.name
        for column in form.columns
        if column.name in key and not (column.is_deterministic and (column.is_enum or keeps_keys(column.base)))
    )
    equalities = {
        str(column): Equality(f"OPERATOR({quoted(str(space))}.{operator})", str(kind))
        for column, space, operator, kind in session.execute(_EQUALITIES, (oid,))
    }
    spelling = with_slice(table_spelling(schema, relation), name)
    part = slice_of(spelling)
    described = next((column for column in form.columns if part is not None and column.name == part.column), None)
    integers = None if described is None else _INTEGERS.get(described.base)
    table = RelationalTable(
        spelling, schema, relation, identifier, columns, form.generated, key, folding, secondary, version,
        form.nullable_defaults, equalities, identifier if kind == "p" else f"ONLY {identifier}", part,
        part.number if part is not None and integers is not None else None,
        filled=form.filled,
    )  # fmt: skip
    check_slice(
        table,
        name,
        [key.columns for key in form.keys if key.is_valid],
        is_exact=described is not None and _is_exact_text(described),
        integers=integers,
    )
    return table


_INTEGERS: Final = {
    type_: range(-(1 << bits - 1), 1 << bits - 1) for type_, bits in (("smallint", 16), ("integer", 32), ("bigint", 64))
}


def _is_exact_text(column: PostgresColumn) -> bool:
    is_text = column.base == "text" or column.base.startswith("character varying")
    return is_text and column.is_deterministic and not column.is_enum


def _has_rules(name: str, identifier: str, rules: Mapping[str, str]) -> SinkRefusedError:
    named = ", ".join(f"{rule} on {event}" for rule, event in rules.items())
    drops = "; ".join(f"DROP RULE {quoted(rule)} ON {identifier}" for rule in rules)
    return SinkRefusedError(
        f"table {name} has rules ({named}), and PostgreSQL does not allow INSERT … ON CONFLICT, by which rows are "
        f"written, on a table with rules on INSERT or UPDATE. Drop them, and use a trigger in their place: {drops}"
    )


def _standby(database: str) -> SinkUnavailableError:
    return SinkUnavailableError(
        f"database {database} is a read-only standby. During a fail-over, the table continues once a primary "
        "answers. Otherwise point sink.dsn at the primary (several hosts: target_session_attrs=read-write)"
    )


def _not_there(session: PostgresSinkSession, name: str) -> SinkError:
    """The table does not exist: why, if its name is too long, or which one was perhaps meant.

    A standby may simply not have replayed its creation yet.
    """
    ((longest, standby, database),) = session.execute(
        "SELECT current_setting('max_identifier_length')::int, pg_is_in_recovery(), current_database()"
    )
    if standby:
        return _standby(str(database))
    for part in filter(None, split_table(name)):
        if len(part.encode(errors="surrogatepass")) > longest:
            return SinkRefusedError(
                f"table {name} does not exist at the sink. A name in PostgreSQL has at most {longest} bytes, and "
                f"{part!r} has {len(part.encode(errors='surrogatepass'))}. Name an existing table in sink.table"
            )
    near = nearest(name, (table_spelling(str(schema), str(table)) for schema, table in session.execute(_TABLES)))
    return SinkRefusedError(f"table {name} does not exist at the sink{near}. Create it first")


def _user(session: PostgresSinkSession) -> str:
    ((user,),) = session.execute("SELECT quote_ident(current_user)")
    return str(user)


def read_version(session: PostgresSinkSession, identifier: str) -> str | None:
    """What differs after any alteration of the table's columns or keys; None if the table does not exist."""
    rows = session.execute(VERSION, (identifier,))
    return str(rows[0][0]) if rows else None


def _keys(form: PostgresForm, name: str, *, keyless: bool) -> tuple[tuple[str, ...], bool]:
    found, valid = form.row_key, [key for key in form.keys if key.is_valid]
    if found is None:
        if keyless:
            return (), bool(valid)
        raise without_key(name)
    if not found.is_immediate:
        raise SinkRefusedError(
            f"the primary key of table {name} is DEFERRABLE. Make it NOT DEFERRABLE, because Headgate merges rows by it"
        )
    return found.columns, len(valid) > 1


_DATABASE: Final = """
SELECT pg_is_in_recovery(), current_database(), quote_ident(current_database()), quote_ident(current_user),
       has_database_privilege(current_database(), 'TEMP'), has_database_privilege(current_database(), 'CREATE'),
       to_regnamespace('headgate') IS NOT NULL,
       CASE WHEN to_regnamespace('headgate') IS NULL THEN true ELSE has_schema_privilege('headgate', 'USAGE') END,
       CASE WHEN to_regnamespace('headgate') IS NULL THEN true ELSE has_schema_privilege('headgate', 'CREATE') END
"""


def check_database(session: PostgresSinkSession) -> None:
    """Check that progress and stage rows may be kept in this database; the error contains what to grant."""
    ((standby, name, database, user, temporary, may_create, exists, usable, extensible),) = session.execute(_DATABASE)
    if standby:
        raise _standby(str(name))
    lacks, grants = [], []
    if not temporary:
        lacks.append("to stage rows")
        grants.append(f"GRANT TEMPORARY ON DATABASE {database} TO {user}")
    tables = PostgresProgressTables(session).lacking_rights()
    if not exists and not may_create:
        lacks.append("to create schema headgate")
        grants.append(f"CREATE SCHEMA headgate AUTHORIZATION {user}")
    if not usable or (not extensible and not all(present for _, present, _ in tables)):
        lacks.append("to use schema headgate")
        grants.append(f"GRANT USAGE, CREATE ON SCHEMA headgate TO {user}")
    for table, _, missing in tables:
        if missing:
            lacks.append(f"to {', '.join(missing)} on headgate.{table}")
            grants.append(f"GRANT {', '.join(missing)} ON headgate.{table} TO {user}")
    if grants:
        raise RightsMissingError(f"no right {', '.join(lacks)}", grants)
