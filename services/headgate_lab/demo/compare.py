"""Source and target compared row by row, every column, exactly.

Both sides are read in the order of the key, by server-side cursors, as the text PostgreSQL itself gives each value (so
that 1.50 is not 1.5, and a microsecond is not lost in a conversion), and merged. Both must be at rest.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from psycopg import Connection
from psycopg.sql import SQL, Identifier

from headgate_lab.demo.schema import VERSION, ShopTable

ROWS_PER_FETCH: Final = 1_000
DIFFERENCES_SHOWN_MAX: Final = 20
"""Kept with their details; all are counted."""

VALUE_CHARACTERS_SHOWN: Final = 60

Values = tuple[str | None, ...]


class MismatchedRow(msgspec.Struct, frozen=True):
    """A row that is not the same on both sides: missing in the target, surplus there, or with other values."""

    table: str
    key: Values
    detail: str


class Comparison(msgspec.Struct, frozen=True):
    """One table compared: ``rows`` distinct keys on either side."""

    table: str
    rows: int
    differences: int
    shown: tuple[MismatchedRow, ...]


def compare(source: Connection, target: Connection, table: ShopTable) -> Comparison:
    """Compare all rows of a table, in one snapshot per side. The connections must not be in a transaction."""
    rows = differences = 0
    shown: list[MismatchedRow] = []
    with source.transaction(), target.transaction():
        for key, left, right in _merge(_rows(source, table), _rows(target, table), len(table.key)):
            rows += 1
            if left == right:
                continue
            differences += 1
            if len(shown) < DIFFERENCES_SHOWN_MAX:
                shown.append(MismatchedRow(table.full_name, key, _explain(table, left, right)))
    return Comparison(table.full_name, rows, differences, tuple(shown))


def _columns(table: ShopTable) -> list[str]:
    others = [column.name for column in table.columns if column.name not in table.key]
    return [*table.key, *others, VERSION]


def _rows(connection: Connection, table: ShopTable) -> Iterator[Values]:
    """Order by the key as text, byte by byte: the order of Python's strings, whatever the database's collation."""
    query = SQL("SELECT {columns} FROM {table} ORDER BY {order}").format(
        columns=SQL(", ").join(SQL("{}::text").format(Identifier(column)) for column in _columns(table)),
        table=table.identifier,
        order=SQL(", ").join(SQL('{}::text COLLATE "C"').format(Identifier(column)) for column in table.key),
    )
    connection.execute("SET LOCAL TimeZone TO 'UTC'")
    connection.execute("SET LOCAL extra_float_digits TO 3")
    with connection.cursor(f"compare_{table.name}") as cursor:
        cursor.itersize = ROWS_PER_FETCH
        cursor.execute(query)
        yield from cursor


def _merge(
    source: Iterator[Values], target: Iterator[Values], key_columns: int
) -> Iterator[tuple[Values, Values | None, Values | None]]:
    left, right = next(source, None), next(target, None)
    while left is not None or right is not None:
        left_key = None if left is None else left[:key_columns]
        right_key = None if right is None else right[:key_columns]
        if left_key == right_key:
            yield left_key or (), left, right
            left, right = next(source, None), next(target, None)
        elif left_key is not None and (right_key is None or _order(left_key) < _order(right_key)):
            yield left_key, left, None
            left = next(source, None)
        else:
            yield right_key or (), None, right
            right = next(target, None)


def _order(key: Values) -> tuple[str, ...]:
    return tuple(part or "" for part in key)


def _explain(table: ShopTable, left: Values | None, right: Values | None) -> str:
    if right is None:
        return "missing in the target"
    if left is None:
        return "not in the source"
    pairs = zip(_columns(table), left, right, strict=True)
    return "; ".join(f"{name}: {_short(a)} in the source, {_short(b)} in the target" for name, a, b in pairs if a != b)


def _short(value: str | None) -> str:
    if value is None:
        return "NULL"
    if len(value) <= VALUE_CHARACTERS_SHOWN:
        return repr(value)
    return f"{value[:VALUE_CHARACTERS_SHOWN]!r}… ({len(value)} characters)"
