"""Two PostgreSQL tables compared row by row, in constant memory.

Each side gives, in one snapshot, its rows in the order of the key, every value as PostgreSQL's own text (so that 1.50
is not 1.5 and no microsecond is lost in a conversion); the two streams are merged. Source and target must be at rest:
with writes going on the two snapshots are of different moments.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import psycopg
from psycopg.sql import SQL, Composed, Identifier

__all__ = ["Difference", "TableCompared", "UncomparableError", "compare_table"]

ROWS_PER_FETCH: Final = 1_000
"""Rows a cursor holds at a time, per side."""

DIFFERENCES_KEPT_MAX: Final = 20
"""Differences kept with their keys, per table; all are counted."""

Key = tuple[str, ...]


class UncomparableError(Exception):
    """A table cannot be compared: it is missing on one side, or has no key there."""


class Difference(msgspec.Struct, frozen=True):
    """One row: ``kind`` is missing (not in the target), surplus (only there), or differs (in ``columns``)."""

    key: dict[str, str]
    kind: str
    columns: tuple[str, ...]


class TableCompared(msgspec.Struct, frozen=True):
    """One table's verdict. ``columns_missing`` stand in the source only, ``columns_surplus`` in the target only."""

    source: str
    target: str
    rows: int
    differences: int
    columns: tuple[str, ...]
    columns_missing: tuple[str, ...]
    columns_surplus: tuple[str, ...]
    examples: tuple[Difference, ...]


class _Shape(msgspec.Struct, frozen=True):
    table: Identifier
    columns: tuple[str, ...]
    key: tuple[str, ...]


_COLUMNS: Final = """
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""

_KEY: Final = """
SELECT a.attname FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = to_regclass(%s) AND i.indisprimary ORDER BY k.place
"""


def compare_table(
    source: psycopg.Connection[Any], target: psycopg.Connection[Any], source_table: str, target_table: str
) -> TableCompared:
    """Compare all rows and the columns both sides have, by the target's primary key.

    Tables are "schema.table". The connections must not be in a transaction. Raises UncomparableError, psycopg.Error.
    """
    ours, theirs = _shape(source, source_table, "source"), _shape(target, target_table, "target")
    key = theirs.key or ours.key
    if not key:
        raise UncomparableError(f"{target_table} has no primary key in the target, nor {source_table} in the source")
    lacking = sorted(set(key) - set(ours.columns))
    if lacking:
        raise UncomparableError(f"{source_table} lacks the target's key column {', '.join(lacking)}")
    values = tuple(column for column in theirs.columns if column in ours.columns and column not in key)
    rows = differences = 0
    examples: list[Difference] = []
    with source.transaction(), target.transaction():
        left = _rows(source, ours.table, key, values)
        right = _rows(target, theirs.table, key, values)
        for found, here, there in _merged(left, right, len(key)):
            rows += 1
            if here == there:
                continue
            differences += 1
            if len(examples) < DIFFERENCES_KEPT_MAX:
                examples.append(_difference(key, values, found, here, there))
    return TableCompared(
        source=source_table,
        target=target_table,
        rows=rows,
        differences=differences,
        columns=(*key, *values),
        columns_missing=tuple(column for column in ours.columns if column not in theirs.columns),
        columns_surplus=tuple(column for column in theirs.columns if column not in ours.columns),
        examples=tuple(examples),
    )


def _shape(connection: psycopg.Connection[Any], table: str, side: str) -> _Shape:
    schema, _, name = table.rpartition(".")
    identifier = Identifier(schema, name) if schema else Identifier(name)
    quoted = identifier.as_string(connection)
    columns = tuple(row[0] for row in connection.execute(_COLUMNS, (quoted,)))
    if not columns:
        raise UncomparableError(f"table {table} does not exist in the {side}, or this user may not see it")
    return _Shape(identifier, columns, tuple(row[0] for row in connection.execute(_KEY, (quoted,))))


def _rows(
    connection: psycopg.Connection[Any], table: Identifier, key: Sequence[str], values: Sequence[str]
) -> Iterator[tuple[str | None, ...]]:
    """Rows as text, ordered by the key's text byte by byte: the same order on both sides, and Python's."""
    for setting in ("SET LOCAL TimeZone TO 'UTC'", "SET LOCAL DateStyle TO 'ISO'", "SET LOCAL extra_float_digits TO 3"):
        connection.execute(setting)
    query = SQL("SELECT {columns} FROM {table} ORDER BY {order}").format(
        columns=SQL(", ").join(_text(column) for column in (*key, *values)),
        table=table,
        order=SQL(", ").join(_text(column) + SQL(' COLLATE "C"') for column in key),
    )
    with connection.cursor(name="headgate_verify") as cursor:
        cursor.itersize = ROWS_PER_FETCH
        cursor.execute(query)
        yield from cursor


def _text(column: str) -> Composed:
    return SQL("{}::text").format(Identifier(column))


def _merged(
    left: Iterator[tuple[str | None, ...]], right: Iterator[tuple[str | None, ...]], key_length: int
) -> Iterator[tuple[Key, tuple[str | None, ...] | None, tuple[str | None, ...] | None]]:
    """(key, row here, row there) for every key on either side; both sides come in the order of the key."""
    here, there = next(left, None), next(right, None)
    while here is not None or there is not None:
        keys = [tuple(part or "" for part in row[:key_length]) for row in (here, there) if row is not None]
        key = min(keys)
        in_here, in_there = here is not None and keys[0] == key, there is not None and keys[-1] == key
        yield key, here if in_here else None, there if in_there else None
        here = next(left, None) if in_here else here
        there = next(right, None) if in_there else there


def _difference(
    key: Sequence[str],
    values: Sequence[str],
    found: Key,
    here: tuple[str | None, ...] | None,
    there: tuple[str | None, ...] | None,
) -> Difference:
    named = dict(zip(key, found, strict=True))
    if here is None or there is None:
        return Difference(named, "surplus" if here is None else "missing", ())
    pairs = zip(values, here[len(key) :], there[len(key) :], strict=True)
    return Difference(named, "differs", tuple(name for name, one, other in pairs if one != other))
