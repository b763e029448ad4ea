"""Rows of a table of PostgreSQL that its new form does not accept: found by reading, before anything is copied.

A query has the rows as the copy would have them: converted, with the values of new columns, and with those that the
server computes. What cannot be known beforehand (a default that is another one for each row) is not judged here.
"""

from typing import Any, Final

from headgate.databases.postgresql import sql
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.migration.strategies.contract import CopyPlan, DescribedColumn
from headgate.migration.strategies.planning import new_checks, unchanged_columns, unknown_columns
from headgate.migration.strategies.postgresql.copy import casted, table_of
from headgate.migration.strategies.postgresql.sessions import PostgresSessions, translating
from headgate.migration.strategies.row_rules import KeyPart, Misfit, RowCheck, RowRules, UniqueKey

__all__ = ["PostgresNewForm", "read_given", "read_rules"]

# Collations are by part; those of types without one are left out. Whether NULLs are equal is known since version 15.
_UNIQUE: Final = """
SELECT c.relname, ARRAY(SELECT pg_get_indexdef(i.indexrelid, k, false) FROM generate_series(1, i.indnkeyatts) k
  ORDER BY k), ARRAY(SELECT coalesce(a.attname::text, '') FROM generate_series(0, i.indnkeyatts - 1) k
  LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k] AND a.attnum > 0 ORDER BY k),
  ARRAY(SELECT coalesce(quote_ident(n.nspname) || '.' || quote_ident(l.collname), '')
    FROM generate_series(0, i.indnkeyatts - 1) k LEFT JOIN pg_collation l ON l.oid = i.indcollation[k]
    LEFT JOIN pg_namespace n ON n.oid = l.collnamespace ORDER BY k),
  coalesce(pg_get_expr(i.indpred, i.indrelid), ''),
  coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false), i.indisvalid
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = %s AND i.indisunique ORDER BY NOT i.indisprimary, c.relname
"""

_CHECKS: Final = """
SELECT conname, pg_get_expr(conbin, conrelid), ARRAY(SELECT a.attname::text FROM unnest(conkey) k
  JOIN pg_attribute a ON a.attrelid = conrelid AND a.attnum = k ORDER BY 1), convalidated
FROM pg_constraint WHERE conrelid = %s AND contype = 'c' ORDER BY conname
"""

# What ADD COLUMN gives to the rows that exist is kept with the column, if it is one value for all of them.
_GIVEN: Final = """
SELECT a.attname, CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1] END,
  a.atthasmissing OR NOT (a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
"""

_DEFAULT: Final = 'pg_catalog."default"'
_TEXTS: Final = ("text", "character")
"""How the names of types begin whose own collation is the default."""


def read_rules(session: BoundedConnection, oid: int) -> RowRules:
    """What the table demands of its rows."""
    unique = [
        UniqueKey(
            str(name),
            tuple(map(KeyPart, expressions, columns, collations)),
            predicate,
            compares_nulls,
            is_valid,
        )
        for name, expressions, columns, collations, predicate, compares_nulls, is_valid in session.execute(
            _UNIQUE, (oid,)
        )
    ]
    checks = [
        RowCheck(str(name), text, tuple(columns), ok) for name, text, columns, ok in session.execute(_CHECKS, (oid,))
    ]
    return RowRules(tuple(unique), tuple(checks))


def read_given(session: BoundedConnection, oid: int) -> dict[str, str]:
    """Column → what existing rows have in it where it was added; those are left out of which it is not known."""
    return {
        str(name): "NULL" if value is None else sql.literal(str(value))
        for name, value, is_known in session.execute(_GIVEN, (oid,))
        if is_known
    }


class PostgresNewForm:
    """Questions about the rows of a migration's table, in sessions that cannot write."""

    def __init__(self, sessions: PostgresSessions) -> None:
        self._sessions = sessions

    def duplicates(self, plan: CopyPlan, key: UniqueKey) -> Misfit | None:
        """See contract.Server."""
        unknown = unknown_columns(plan)
        if unknown and (not key.is_plain or not unknown.isdisjoint(key.columns)):
            return None
        parts = [_compared(part) for part in key.parts]
        present = (
            [] if key.compares_nulls else [sql.SQL("({}) IS NOT NULL").format(sql.SQL(p.expression)) for p in key.parts]
        )
        if key.predicate:
            present.append(sql.SQL("({})").format(sql.SQL(key.predicate)))
        groups = sql.SQL("FROM {} f WHERE {} GROUP BY {} HAVING count(*) > 1").format(
            _formed(plan), _all(present), sql.SQL(", ").join(parts)
        )
        count = sql.SQL("SELECT coalesce(sum(n), 0)::bigint FROM (SELECT count(*) AS n {}) found").format(groups)
        ((rows,),) = self._asked(count, "looking for duplicates")
        return Misfit(int(rows), "are equal", _duplicates_of(plan, key)) if rows else None

    def misfits(self, plan: CopyPlan, *, is_followed: bool) -> list[Misfit]:
        """See contract.Server. A value that its new type cannot have is an error of the server's."""
        del is_followed  # both ways refuse the same
        unknown, to_old = unknown_columns(plan), {new: old for old, new in plan.pairs}
        unchanged = unchanged_columns(plan)
        found: list[tuple[sql.Composable, str, sql.Composable | None]] = []
        for column in plan.after.columns:
            before = plan.before.column(to_old.get(column.name, ""))
            if column.is_nullable or column.name in unknown or (before is not None and not before.is_nullable):
                continue
            listing = None if before is None else _is_null(before.name)
            why = f"have NULL in column {column.name}, which is NOT NULL after the change"
            found.append((_is_null(column.name), why, listing))
        for check in new_checks(plan):
            if unknown.isdisjoint(check.columns):
                wrong = sql.SQL("({}) IS FALSE").format(sql.SQL(check.expression))
                listing = wrong if unchanged.issuperset(check.columns) else None
                found.append((wrong, f"do not meet constraint {check.name}", listing))
        casts = [sql.SQL("count({})").format(sql.Identifier(name)) for name in plan.loose]
        if not found and not casts:
            return []
        counts = [sql.SQL("count(*) FILTER (WHERE {})").format(wrong) for wrong, _, _ in found]
        (row,) = self._asked(
            sql.SQL("SELECT {} FROM {} f").format(sql.SQL(", ").join([*counts, *casts]), _formed(plan)),
            "converting the rows to the new form",
        )
        listed = sql.SQL("SELECT * FROM {} WHERE {}")
        return [
            Misfit(int(rows), why, "" if wrong is None else listed.format(table_of(plan), wrong).as_string())
            for rows, (_, why, wrong) in zip(row, found, strict=False)
            if rows
        ]

    def _asked(self, query: sql.Composed, doing: str) -> list[tuple[Any, ...]]:
        with self._sessions.asking() as session, translating(doing), session.transaction():
            session.execute("SET TRANSACTION READ ONLY")
            rows: list[tuple[Any, ...]] = session.execute(query).fetchall()
            return rows


def _is_null(name: str) -> sql.Composed:
    return sql.SQL("{} IS NULL").format(sql.Identifier(name))


def _all(conditions: list[sql.Composed]) -> sql.Composable:
    return sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("true")


def _compared(part: KeyPart) -> sql.Composable:
    """The part as its key compares it."""
    expression = sql.SQL("({})").format(sql.SQL(part.expression))
    return sql.SQL("{} COLLATE {}").format(expression, sql.SQL(part.collation)) if part.collation else expression


def _formed(plan: CopyPlan) -> sql.Composed:
    """The table's rows in the new form, as a subquery."""
    to_old = {new: old for old, new in plan.pairs}
    plain, computed = [], []
    for column in plan.after.columns:
        name = sql.Identifier(column.name)
        if column.name in to_old:
            value = casted(plan, sql.Identifier(to_old[column.name]), column.name)
            plain.append(sql.SQL("{} AS {}").format(_collated(value, column), name))
        elif column.expression:
            value = sql.SQL("({})::{}").format(sql.SQL(column.expression), sql.SQL(column.type))
            computed.append(sql.SQL("{} AS {}").format(_collated(value, column), name))
        else:
            value = sql.SQL("{}::{}").format(sql.SQL(column.given or "NULL"), sql.SQL(column.type))
            plain.append(sql.SQL("{} AS {}").format(_collated(value, column), name))
    rows = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(plain), table_of(plan))
    if not computed or unknown_columns(plan):
        return sql.SQL("({})").format(rows)
    return sql.SQL("(SELECT n.*, {} FROM ({}) n)").format(sql.SQL(", ").join(computed), rows)


def _collated(value: sql.Composable, column: DescribedColumn) -> sql.Composable:
    """The value with the new column's collation: a value that is not cast has that of its old column."""
    collation = column.collation or (_DEFAULT if column.type.startswith(_TEXTS) else "")
    return sql.SQL("({}) COLLATE {}").format(value, sql.SQL(collation)) if collation else value


def _duplicates_of(plan: CopyPlan, key: UniqueKey) -> str:
    """A statement that lists the values that several rows have; of columns that the table has, all of its rows."""
    to_old = {new: old for old, new in plan.pairs}
    if not key.is_plain or not all(column in to_old for column in key.columns):
        return ""
    values = []
    for part in key.parts:
        value = casted(plan, sql.Identifier(to_old[part.column]), part.column)
        values.append(sql.SQL("{} COLLATE {}").format(value, sql.SQL(part.collation)) if part.collation else value)
    present = [] if key.compares_nulls else [sql.SQL("{} IS NOT NULL").format(value) for value in values]
    places = ", ".join(str(number) for number in range(1, len(values) + 1))
    return (
        sql.SQL("SELECT {}, count(*) FROM {} WHERE {} GROUP BY {} HAVING count(*) > 1")
        .format(sql.SQL(", ").join(values), table_of(plan), _all(present), sql.SQL(places))
        .as_string()
    )
