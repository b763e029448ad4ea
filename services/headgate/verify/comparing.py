"""Two tables compared row by row, in constant memory, whatever databases they are in.

Each side gives, in one snapshot, its rows in the order of the key, every value as the database's own text (so that
1.50 is not 1.5 and no microsecond is lost in a conversion); the two streams are merged. Source and target must be at
rest: with writes going on the two snapshots are of different moments.

Two databases of different kinds write the same value differently (t and 1, 1.50 and 1.5): there, what both sides call
a number, an instant or JSON is brought to one form first. Where one has JSON and the other an array, they differ.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Final, Protocol

import msgspec

__all__ = ["Difference", "Nature", "Shape", "Side", "TableCompared", "UncomparableError", "compare_table"]

ROWS_PER_FETCH: Final = 1_000
"""Rows a cursor holds at a time, per side."""

DIFFERENCES_KEPT_MAX: Final = 20
"""Differences kept with their keys, per table; all are counted."""

Key = tuple[str, ...]
Row = tuple[str | None, ...]


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


class Nature(StrEnum):
    """What a column's text is, as far as different databases write it differently."""

    NUMBER = "number"
    INSTANT = "instant"
    JSON = "json"
    OTHER = "other"


class Shape(msgspec.Struct, frozen=True):
    """A table's columns, in order, and its primary key."""

    columns: dict[str, Nature]
    key: tuple[str, ...]


class Side(Protocol):
    """One of two databases. ``kind`` is the same for databases that write values the same way."""

    kind: str

    def shape(self, table: str) -> Shape | None:
        """Of ``schema.table``; None if it does not exist, or may not be seen."""
        ...

    def snapshot(self) -> AbstractContextManager[object]:
        """While it lasts, rows are of one moment."""
        ...

    def rows(self, table: str, key: Sequence[str], values: Sequence[str]) -> Iterator[Row]:
        """Key and values as text, ordered by the key's text byte by byte: on both sides alike, and as Python does."""
        ...

    def close(self) -> None:
        """Let go. Idempotent."""
        ...


def compare_table(source: Side, target: Side, source_table: str, target_table: str) -> TableCompared:
    """Compare all rows and the columns both sides have, by the target's primary key.

    Tables are "schema.table". Raises UncomparableError, and what the databases raise.
    """
    ours, theirs = _shape(source, source_table, "source"), _shape(target, target_table, "target")
    key = theirs.key or ours.key
    if not key:
        raise UncomparableError(f"{target_table} has no primary key in the target, nor {source_table} in the source")
    lacking = sorted(set(key) - set(ours.columns))
    if lacking:
        raise UncomparableError(f"{source_table} lacks the target's key column {', '.join(lacking)}")
    values = tuple(column for column in theirs.columns if column in ours.columns and column not in key)
    forms = [_form(ours, theirs, column) if source.kind != target.kind else None for column in (*key, *values)]
    rows = differences = 0
    examples: list[Difference] = []
    with source.snapshot(), target.snapshot():
        left = source.rows(source_table, key, values)
        right = target.rows(target_table, key, values)
        for found, here, there in _merged(left, right, len(key)):
            rows += 1
            if here == there:
                continue
            differing = _differing(forms, here, there)
            if not differing and here is not None and there is not None:
                continue
            differences += 1
            if len(examples) < DIFFERENCES_KEPT_MAX:
                examples.append(_difference((*key, *values), found, here, there, differing))
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


def _shape(side: Side, table: str, role: str) -> Shape:
    shape = side.shape(table)
    if shape is None:
        raise UncomparableError(f"table {table} does not exist in the {role}, or this user may not see it")
    return shape


def _form(ours: Shape, theirs: Shape, column: str) -> "Callable[[str], str] | None":
    """How the texts of a column are brought to one form; None if they are compared as they are."""
    nature = ours.columns[column]
    if nature is not theirs.columns[column]:
        return None
    return {Nature.NUMBER: _number, Nature.INSTANT: _instant, Nature.JSON: _json}.get(nature)


def _number(text: str) -> str:
    try:
        return str(Decimal(text).normalize())
    except InvalidOperation:
        return text


def _instant(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _json(text: str) -> str:
    try:
        return msgspec.json.encode(msgspec.json.decode(text), order="deterministic").decode()
    except msgspec.MsgspecError:
        return text


def _differing(forms: Sequence["Callable[[str], str] | None"], here: Row | None, there: Row | None) -> list[int]:
    """Places of the values that are not the same."""
    if here is None or there is None:
        return []
    return [
        place
        for place, (form, one, other) in enumerate(zip(forms, here, there, strict=True))
        if one != other and (form is None or one is None or other is None or form(one) != form(other))
    ]


def _merged(left: Iterator[Row], right: Iterator[Row], key_length: int) -> Iterator[tuple[Key, Row | None, Row | None]]:
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
    columns: Sequence[str], found: Key, here: Row | None, there: Row | None, differing: Sequence[int]
) -> Difference:
    named = dict(zip(columns, found, strict=False))
    if here is None or there is None:
        return Difference(named, "surplus" if here is None else "missing", ())
    return Difference(named, "differs", tuple(columns[place] for place in differing))
