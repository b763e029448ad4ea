"""Rows of a table of MariaDB that its new form does not accept: found by reading, before anything is copied.

A query has the rows as the copy would have them: texts by their new collations, narrower types as the server converts
to them, the values of new columns, and those that the server computes. Where no expression gives a value (an enum of
other words, a default that is another one for each row), nothing is judged here.
"""

import re
from typing import Final

from headgate.databases.mysql.sql import quoted
from headgate.migration.strategies.contract import CopyPlan, DescribedColumn
from headgate.migration.strategies.mariadb.sessions import MariadbSessions, Session
from headgate.migration.strategies.mariadb.text import kind_of
from headgate.migration.strategies.planning import new_checks, unchanged_columns
from headgate.migration.strategies.row_rules import KeyPart, Misfit, RowCheck, RowRules, UniqueKey

__all__ = ["MariadbNewForm", "given_value", "read_rules"]

_UNIQUE: Final = """
SELECT s.index_name, s.column_name, IFNULL(s.sub_part, 0), IFNULL(c.collation_name, '')
FROM information_schema.statistics s JOIN information_schema.columns c USING (table_schema, table_name, column_name)
WHERE s.table_schema = %s AND s.table_name = %s AND s.non_unique = 0
ORDER BY s.index_name <> 'PRIMARY', s.index_name, s.seq_in_index
"""

_CHECKS: Final = """
SELECT constraint_name, check_clause FROM information_schema.check_constraints
WHERE constraint_schema = %s AND table_name = %s ORDER BY 1, 2
"""

_LITERAL: Final = re.compile(r"^(?:'(?:[^'\\]|''|\\.)*'|-?[0-9]+(?:\.[0-9]+)?)$", re.DOTALL)
"""A default that is one value, as information_schema has it."""

_TEXT_BYTES: Final = {"tinytext": 2**8 - 1, "text": 2**16 - 1, "mediumtext": 2**24 - 1}
"""Texts whose size is limited in bytes, of which a character may have more after the change."""

_LABELLED: Final = frozenset({"enum", "set"})
_HOLDS_ALL: Final = "utf8mb4"
"""The character set that has every character of the others."""

_INTEGERS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
"""Type → its bits."""

_MOMENTS: Final = frozenset({"date", "datetime", "timestamp", "time"})


def read_rules(session: Session, schema: str, table: str, columns: tuple[str, ...]) -> RowRules:
    """What the table demands of its rows."""
    keys: dict[str, list[KeyPart]] = {}
    for name, column, prefix, collation in session.run(_UNIQUE, (schema, table)):
        keys.setdefault(str(name), []).append(KeyPart(quoted(column), str(column), str(collation), int(prefix)))
    checks = [
        RowCheck(str(name), text, tuple(column for column in columns if quoted(column) in text))
        for name, text in session.run(_CHECKS, (schema, table))
    ]
    return RowRules(tuple(UniqueKey(name, tuple(parts)) for name, parts in keys.items()), tuple(checks))


def given_value(default: str | None, *, is_nullable: bool, is_counting: bool) -> str | None:
    """See ``DescribedColumn.given``: by the default, as information_schema has it."""
    if is_counting:
        return None
    if default is None:
        return "NULL" if is_nullable else None
    return default if _LITERAL.match(default) else None


class MariadbNewForm:
    """Questions about the rows of a migration's table. They lock nothing."""

    def __init__(self, sessions: MariadbSessions) -> None:
        self._sessions = sessions

    def duplicates(self, plan: CopyPlan, key: UniqueKey) -> Misfit | None:
        """See contract.Server."""
        if not _known(plan).issuperset(key.columns):
            return None
        formed = _formed(plan)
        parts = [f"LEFT({part.expression}, {part.prefix})" if part.prefix else part.expression for part in key.parts]
        present = " AND ".join(f"{part.expression} IS NOT NULL" for part in key.parts)
        groups = f"FROM {formed} f WHERE {present} GROUP BY {', '.join(parts)} HAVING COUNT(*) > 1"
        with self._sessions.asking() as session:
            ((rows,),) = session.run(f"SELECT IFNULL(SUM(n), 0) FROM (SELECT COUNT(*) AS n {groups}) found")
        return Misfit(int(rows), "are equal", _duplicates_of(plan, key)) if rows else None

    def misfits(self, plan: CopyPlan, *, is_followed: bool) -> list[Misfit]:
        """See contract.Server."""
        table, to_old = quoted(plan.before.schema, plan.before.name), {new: old for old, new in plan.pairs}
        found: list[tuple[str, str, str]] = []
        for column in plan.after.columns:
            before = plan.before.column(to_old.get(column.name, ""))
            if before is None:
                continue
            names = ", ".join(quoted(name) for name in dict.fromkeys([*(old for old, _ in plan.key), before.name]))
            for wrong, why in _wrong(before, column, is_followed=is_followed):
                found.append((wrong, f"{why} (column {before.name})", f"SELECT {names} FROM {table} WHERE {wrong}"))
        with self._sessions.asking() as session:
            return [
                *_counted(session, table, found),
                *_counted(session, f"{_formed(plan)} f", _broken_checks(plan, table)),
            ]


def _counted(session: Session, rows: str, found: list[tuple[str, str, str]]) -> list[Misfit]:
    """How many of the rows meet each condition: (condition, why it matters, statement that lists them)."""
    if not found:
        return []
    counts = ", ".join(f"COUNT(IF({wrong}, 1, NULL))" for wrong, _, _ in found)
    (row,) = session.run(f"SELECT {counts} FROM {rows}")
    return [Misfit(int(n), why, listing) for n, (_, why, listing) in zip(row, found, strict=True) if n]


def _wrong(before: DescribedColumn, after: DescribedColumn, *, is_followed: bool) -> list[tuple[str, str]]:
    """Conditions under which a value of the column is not accepted by the new one, and why."""
    name, found = quoted(before.name), []
    if _charset(after) not in ("", _charset(before)) and before.collation and kind_of(after) not in _LABELLED:
        found += _texts(name, after)
    if is_followed and kind_of(before) == kind_of(after) == "enum":
        found.append((f"{name} + 0 = 0", "have the error value of an enum, which no INSERT can write"))
    if after.is_counting and not before.is_counting:
        told = (
            "have 0 or NULL, for which the server's own ALTER makes a number, in a column that becomes AUTO_INCREMENT"
        )
        found.append((f"IFNULL({name}, 0) = 0", told))
    return found


def _texts(name: str, after: DescribedColumn) -> list[tuple[str, str]]:
    charset, found = _charset(after), []
    converted = f"CONVERT({name} USING {charset})"
    if charset != _HOLDS_ALL:
        same = f"CONVERT({converted} USING utf8mb4) COLLATE utf8mb4_bin = CONVERT({name} USING utf8mb4)"
        found.append((f"NOT ({same})", f"have characters that are not in character set {charset}"))
    if (limit := _TEXT_BYTES.get(kind_of(after))) is not None:
        found.append((f"LENGTH({converted}) > {limit}", f"have texts of more than {limit} bytes in {charset}"))
    return found


def _broken_checks(plan: CopyPlan, table: str) -> list[tuple[str, str, str]]:
    known, unchanged, found = _known(plan), unchanged_columns(plan), []
    for check in new_checks(plan):
        if not known.issuperset(check.columns):
            continue
        wrong = f"({check.expression}) IS FALSE"
        listing = f"SELECT * FROM {table} WHERE {wrong}" if unchanged.issuperset(check.columns) else ""
        found.append((wrong, f"do not meet constraint {check.name}", listing))
    return found


def _formed(plan: CopyPlan) -> str:
    """The table's rows in the new form, as a subquery, with the columns whose values are known."""
    known, columns = _known(plan), plan.after.columns
    values = {column.name: _value(plan, column) for column in columns if not column.expression}
    plain = ", ".join(f"{value} AS {quoted(name)}" for name, value in values.items() if value is not None)
    rows = f"(SELECT {plain} FROM {quoted(plan.before.schema, plan.before.name)})"
    for column in columns:
        if column.expression and column.name in known:  # it may name those that are computed before it
            value = _as_text(f"({column.expression})", column)
            rows = f"(SELECT n.*, {value} AS {quoted(column.name)} FROM {rows} n)"
    return rows


def _known(plan: CopyPlan) -> frozenset[str]:
    """Columns whose values an expression gives. Those that the server computes need all the others."""
    plain = {column.name: _value(plan, column) for column in plan.after.columns if not column.expression}
    known = {name for name, value in plain.items() if value is not None}
    computed = {column.name for column in plan.after.columns if column.expression and len(known) == len(plain)}
    return frozenset(known | computed)


def _value(plan: CopyPlan, after: DescribedColumn) -> str | None:
    """An expression, over the table, for the value of a column that is not computed; None if there is none."""
    old = next((old for old, new in plan.pairs if new == after.name), None)
    if old is None:
        return None if after.given is None else _as_text(after.given, after)
    before = plan.before.column(old)
    return None if before is None else _converted(before, after, is_loose=after.name in plan.loose)


def _converted(before: DescribedColumn, after: DescribedColumn, *, is_loose: bool) -> str | None:
    """The value as the new type has it; None if no expression gives that."""
    name = quoted(before.name)
    is_same = before.type == after.type or not is_loose
    if after.collation and is_same:
        return name if before.collation == after.collation else _as_text(name, after)
    if after.collation:
        length = re.match(r"^(?:var)?char\((\d+)\)", after.type)
        return None if length is None else _as_text(f"LEFT({name}, {length[1]})", after)
    return name if is_same else _narrowed(name, after)


def _narrowed(name: str, after: DescribedColumn) -> str | None:
    """The value as a narrower type that is not a text has it, where the session's mode is not strict."""
    kind, is_unsigned = kind_of(after), "unsigned" in after.type
    if (bits := _INTEGERS.get(kind)) is not None:
        first, last = (0, 2**bits - 1) if is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return f"GREATEST({first}, LEAST({last}, CAST({name} AS DECIMAL(65, 0))))"
    if kind == "decimal":
        cast = f"CAST({name} AS {after.type.split(')')[0]}))"
        return f"GREATEST(0, {cast})" if is_unsigned else cast
    return f"CAST({name} AS {after.type.replace('timestamp', 'datetime')})" if kind in _MOMENTS else None


def _as_text(value: str, column: DescribedColumn) -> str:
    """The value by the column's own collation, if that is a text."""
    if not column.collation:
        return value
    return f"CONVERT({value} USING {_charset(column)}) COLLATE {column.collation}"


def _charset(column: DescribedColumn) -> str:
    return column.collation.split("_")[0]


def _duplicates_of(plan: CopyPlan, key: UniqueKey) -> str:
    """A statement that lists the values that several rows have; of columns that the table has, all of its rows."""
    values = []
    for part in key.parts:
        column = plan.after.column(part.column)
        if column is None or not any(new == part.column for _, new in plan.pairs):
            return ""
        value = _value(plan, column) or ""
        values.append(f"LEFT({value}, {part.prefix})" if part.prefix else value)
    present = " AND ".join(f"{value} IS NOT NULL" for value in values)
    table = quoted(plan.before.schema, plan.before.name)
    listed = ", ".join(f"{value} AS {quoted(part.column)}" for value, part in zip(values, key.parts, strict=True))
    places = ", ".join(str(number) for number in range(1, len(values) + 1))
    return f"SELECT {listed}, COUNT(*) FROM {table} WHERE {present} GROUP BY {places} HAVING COUNT(*) > 1"
