"""From two forms of a table, as PostgreSQL's catalogue has them, to the ALTER that makes the one of the other.

The order of columns is not compared, because no ALTER changes it; and neither are indexes that stand for no constraint,
because no CREATE TABLE makes them.
"""

import re
from typing import Final

import msgspec

from headgate.databases.postgresql import catalogue, sql
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.databases.postgresql.session import PostgresSession
from headgate.migration.strategies.contract import RefusedError

__all__ = ["PostgresTableForm", "change", "read_form", "same"]

_CONSTRAINTS: Final = """
SELECT conname, pg_get_constraintdef(oid), contype::text FROM pg_constraint WHERE conrelid = %s::regclass
AND contype <> 'n' ORDER BY contype <> 'p', conname
"""

_KIND: Final = "SELECT oid, relkind::text, relpersistence::text, reloptions FROM pg_class WHERE oid = %s::regclass"

_SEQUENCE: Final = re.compile(r"nextval\('(?:[^'.]+\.)?([^'.]+)'::regclass\)")

_IDENTITIES: Final = {"a": "ALWAYS", "d": "BY DEFAULT"}


# Storage can be stated in CREATE TABLE since version 16, so it is not compared before. Columns that older versions do
# not have are read through JSON.
_DETAILS: Final = """
SELECT a.attname::text, concat_ws(' ', 'COMPRESSION ' || nullif(to_jsonb(a) ->> 'attcompression', ''),
  CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'STORAGE ' || a.attstorage::text END,
  (SELECT concat_ws(' ', 'START', seqstart, 'INCREMENT', seqincrement, 'FROM', seqmin, 'TO', seqmax, 'CACHE', seqcache,
     CASE WHEN seqcycle THEN 'CYCLE' END) FROM pg_depend d JOIN pg_sequence ON seqrelid = d.objid
   WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'i'
   AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum))
FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
"""


class Of(msgspec.Struct, frozen=True):
    """One column. ``details``: compression, storage, and the options of its identity."""

    type: str
    collation: str
    is_required: bool
    default: str
    identity: str
    generated: str
    details: str = ""


class PostgresTableForm(msgspec.Struct, frozen=True):
    """``rules`` are constraints: definition → name. ``kind``: what Headgate's ALTERs do not change."""

    columns: dict[str, Of]
    rules: dict[str, str]
    kind: str


def read_form(session: BoundedConnection, full: str) -> PostgresTableForm:
    """Of the table with that name. Raises RefusedError for what an ALTER is not found for."""
    ((oid, relkind, persistence, options),) = session.execute(_KIND, (full,)).fetchall()
    details = dict(session.execute(_DETAILS, (oid,)).fetchall())
    columns = {
        column.name: Of(
            column.type,
            column.collation or "",
            not column.is_nullable,
            column.generated or column.default or "",
            column.identity,
            column.generation,
            details[column.name],
        )
        for column in catalogue.read_form(PostgresSession(session).execute, oid).columns
    }
    rules = {}
    for name, definition, kind in session.execute(_CONSTRAINTS, (full,)).fetchall():
        if kind == "f":
            raise RefusedError("a table with foreign keys is not compared with a wanted one: submit the ALTER TABLE")
        rules[definition] = name
    return PostgresTableForm(columns, rules, f"{relkind} {persistence} {options or ''}".strip())


def change(before: PostgresTableForm, after: PostgresTableForm) -> list[sql.Composable]:
    """What follows ALTER TABLE and the name; empty if they are the same. Raises RefusedError."""
    if before.kind != after.kind:
        raise RefusedError(
            f"the table's storage (kind, persistence, options) is {before.kind!r}, wanted {after.kind!r}: submit the "
            "ALTER TABLE"
        )
    clauses: list[sql.Composable] = [
        sql.SQL("DROP CONSTRAINT {}").format(sql.Identifier(name))
        for definition, name in before.rules.items()
        if definition not in after.rules
    ]
    clauses += [
        sql.SQL("DROP COLUMN {}").format(sql.Identifier(name)) for name in before.columns if name not in after.columns
    ]
    for name, wanted in after.columns.items():
        now = before.columns.get(name)
        clauses += [_added(name, wanted)] if now is None else _altered(name, now, wanted)
    clauses += [
        sql.SQL("ADD CONSTRAINT {} {}").format(sql.Identifier(name), sql.SQL(definition))
        for definition, name in after.rules.items()
        if definition not in before.rules
    ]
    return clauses


def same(before: PostgresTableForm, after: PostgresTableForm) -> bool:
    """Whether they are the same, but for the names of constraints and sequences."""
    plain = [{name: _plain(of) for name, of in form.columns.items()} for form in (before, after)]
    return (plain[0], set(before.rules), before.kind) == (plain[1], set(after.rules), after.kind)


def _plain(column: Of) -> Of:
    """A sequence has its table's name and schema in its own."""
    return msgspec.structs.replace(column, default=_SEQUENCE.sub(r"nextval('\1')", column.default))


def _added(name: str, wanted: Of) -> sql.Composable:
    if "nextval(" in wanted.default:
        raise RefusedError(
            f"column {name} is to get its values from a sequence that is not there: write GENERATED BY DEFAULT AS "
            "IDENTITY instead of serial, or submit the ALTER TABLE"
        )
    parts = [sql.SQL("ADD COLUMN {} {}").format(sql.Identifier(name), sql.SQL(wanted.type))]
    if wanted.collation:
        parts.append(sql.SQL("COLLATE {}").format(sql.SQL(wanted.collation)))
    if wanted.generated:
        parts.append(sql.SQL("GENERATED ALWAYS AS ({}) STORED").format(sql.SQL(wanted.default)))
    elif wanted.default:
        parts.append(sql.SQL("DEFAULT {}").format(sql.SQL(wanted.default)))
    if wanted.identity:
        parts.append(sql.SQL("GENERATED {} AS IDENTITY").format(sql.SQL(_IDENTITIES[wanted.identity])))
    if wanted.is_required:
        parts.append(sql.Composed([sql.SQL("NOT NULL")]))
    return sql.SQL(" ").join(parts)


def _altered(name: str, now: Of, wanted: Of) -> list[sql.Composable]:
    if (now.generated, now.default if now.generated else "") != (
        wanted.generated,
        wanted.default if wanted.generated else "",
    ):
        raise RefusedError(f"column {name} is computed otherwise, or not any more: submit the ALTER TABLE")
    if (now.type, now.identity) == (wanted.type, wanted.identity) and now.details != wanted.details:
        raise RefusedError(
            f"column {name}: compression, storage or the options of its identity are {now.details!r}, wanted "
            f"{wanted.details!r}: submit the ALTER TABLE"
        )
    words: list[sql.Composable] = []
    if (now.type, now.collation) != (wanted.type, wanted.collation):
        collation = f" COLLATE {wanted.collation}" if wanted.collation else ""
        words.append(sql.SQL("TYPE {}").format(sql.SQL(wanted.type + collation)))
    if not wanted.generated and _plain(now).default != _plain(wanted).default:
        default = sql.SQL("SET DEFAULT {}").format(sql.SQL(wanted.default))
        words.append(default if wanted.default else sql.SQL("DROP DEFAULT"))
    if now.identity != wanted.identity and now.identity:
        kind = sql.SQL(_IDENTITIES.get(wanted.identity, ""))
        words.append(sql.SQL("SET GENERATED {}").format(kind) if wanted.identity else sql.SQL("DROP IDENTITY"))
    if now.is_required != wanted.is_required:
        words.append(sql.SQL("SET NOT NULL" if wanted.is_required else "DROP NOT NULL"))
    if not now.identity and wanted.identity:
        words.append(sql.SQL("ADD GENERATED {} AS IDENTITY").format(sql.SQL(_IDENTITIES[wanted.identity])))
    return [sql.SQL("ALTER COLUMN {} {}").format(sql.Identifier(name), word) for word in words]
