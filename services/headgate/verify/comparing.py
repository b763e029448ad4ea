"""Two tables compared row by row, in constant memory, whatever databases they are in.

Each side gives, in one snapshot, its rows in the order of the key, every value as the database's own text (so that
nothing is lost in a conversion); the two streams are merged. Source and target must be at
rest: with writes going on the two snapshots are of different moments.

What two databases write differently is compared by value (forms.py): numbers always, times, bits and JSON where the
databases are of different kinds. Where one has JSON and the other an array, they differ. A table without a key on
either side is compared as a multiset of rows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

import msgspec

from headgate.verify.forms import Form, Nature, form_of

ROWS_PER_FETCH: Final = 1_000
"""Rows a cursor holds at a time, per side."""

DIFFERENCES_KEPT_MAX: Final = 20
"""Differences kept with their keys, per table; all are counted."""

Key = tuple[str, ...]
Row = tuple[str | None, ...]


UNMATCHED_ROWS_MAX: Final = 100_000
"""Rows of a table without key that are kept until the end, because their texts differ and their values may not."""


class UncomparableError(Exception):
    """A table cannot be compared: it is missing on one side, lacks a key column there, or may not be read."""


class Difference(msgspec.Struct, frozen=True):
    """One row: ``kind`` is missing (not in the target), surplus (only there), or differs (in ``columns``).

    ``key`` is the whole row where the table has no key.
    """

    key: dict[str, str]
    kind: str
    columns: tuple[str, ...]


class TableCompared(msgspec.Struct, frozen=True):
    """One table's verdict. ``columns_missing`` stand in the source only, ``columns_surplus`` in the target only.

    ``keyless``: it was compared as a multiset of rows.
    """

    source: str
    target: str
    rows: int
    differences: int
    columns: tuple[str, ...]
    columns_missing: tuple[str, ...]
    columns_surplus: tuple[str, ...]
    examples: tuple[Difference, ...]
    keyless: bool = False


class Shape(msgspec.Struct, frozen=True):
    """A table's columns, in order, and its primary key."""

    columns: dict[str, Nature]
    key: tuple[str, ...]


class SideError(Exception):
    """A database cannot be read any further; the message names it and its user."""


class Side(Protocol):
    """One of two databases. ``kind`` is the same for databases that write values the same way.

    ``name``: which database it is, and as which user it is read. Methods raise UncomparableError where the user may not
    read a table, SideError where the database cannot be read at all.
    """

    kind: str
    name: str

    def shape(self, table: str) -> Shape | None:
        """Of ``schema.table``; None if it does not exist, or may not be seen."""
        ...

    def snapshot(self) -> AbstractContextManager[object]:
        """While it lasts, rows are of one moment."""
        ...

    def rows(self, table: str, key: Sequence[str], values: Sequence[str]) -> Iterator[Row]:
        """Key and values as text, ordered by the key's text byte by byte: on both sides alike, and as Python does.

        NULL in a key, which is the whole row of a table without one, is ordered as the empty text.
        """
        ...

    def close(self) -> None:
        """Let go. Idempotent."""
        ...


def compare_table(source: Side, target: Side, source_table: str, target_table: str) -> TableCompared:
    """Compare all rows and the columns both sides have, by the target's primary key.

    Tables are "schema.table". Raises UncomparableError, and what the databases raise.
    """
    ours, theirs = _shape(source, source_table, "source"), _shape(target, target_table, "target")
    own = _paired(ours.columns, theirs.columns, is_caseless=target.kind == "mysql")
    target_names = {name: column for column, name in own.items()}
    key = theirs.key or tuple(target_names.get(name, name) for name in ours.key)
    lacking = sorted(set(key) - own.keys())
    if lacking:
        raise UncomparableError(f"{source_table} lacks the target's key column {', '.join(lacking)}")
    values = tuple(column for column in own if column not in key)
    columns = (*key, *values)
    same_kind = source.kind == target.kind
    forms = [form_of(ours.columns[own[column]], theirs.columns[column], same_kind=same_kind) for column in columns]
    # Without a key the whole row is one.
    order, rest = (key, values) if key else (values, ())
    compared = _Compared(columns, forms)
    with source.snapshot(), target.snapshot():
        left = source.rows(source_table, [own[column] for column in order], [own[column] for column in rest])
        right = target.rows(target_table, order, rest)
        for found, here, there in _merged(left, right, len(order)):
            compared.add(found, here, there, is_keyless=not key)
    compared.end()
    return TableCompared(
        source=source_table,
        target=target_table,
        rows=compared.rows,
        differences=compared.differences,
        columns=columns,
        columns_missing=tuple(column for column in ours.columns if column not in target_names),
        columns_surplus=tuple(column for column in theirs.columns if column not in own),
        examples=tuple(compared.examples),
        keyless=not key,
    )


def _paired(ours: Iterable[str], theirs: Iterable[str], *, is_caseless: bool) -> dict[str, str]:
    """The target's name of each column that both sides have → the source's, in the target's order.

    ``is_caseless``: the target's columns are found whatever the case of their names, as the sink finds them.
    """
    exact = set(ours)
    folded = {name.lower(): name for name in exact} if is_caseless else {}
    found = {column: column if column in exact else folded.get(column.lower()) for column in theirs}
    return {column: name for column, name in found.items() if name is not None}


class _Compared:
    """What the rows merged so far come to."""

    def __init__(self, columns: Sequence[str], forms: Sequence[Form | None]) -> None:
        self.rows = self.differences = 0
        self.examples: list[Difference] = []
        self._columns = columns
        self._forms = forms
        self._unmatched: Counter[Row] = Counter()
        """Rows of a table without key, by value: how many more the source has than the target."""

    def add(self, found: Key, here: Row | None, there: Row | None, *, is_keyless: bool) -> None:
        """One key, and the rows that have it; None where a side has none."""
        self.rows += 1
        if here == there:
            return
        if is_keyless and len(self._unmatched) < UNMATCHED_ROWS_MAX:
            if here is not None:
                self._count(here, 1)
            if there is not None:
                self._count(there, -1)
            return
        differing = _differing(self._forms, here, there)
        if differing or here is None or there is None:
            self._note(_difference(self._columns, found, here, there, differing))

    def end(self) -> None:
        """All rows were added: those that no row of the other side is equal to are differences."""
        for row, more in self._unmatched.items():
            values = tuple("" if value is None else str(value) for value in row)
            here, there = (row, None) if more > 0 else (None, row)
            for _ in range(abs(more)):
                self._note(_difference(self._columns, values, here, there, ()))

    def _count(self, row: Row, by: int) -> None:
        value = tuple(
            part if part is None or form is None else form(part) for part, form in zip(row, self._forms, strict=True)
        )
        self._unmatched[value] += by
        if not self._unmatched[value]:
            del self._unmatched[value]

    def _note(self, difference: Difference) -> None:
        self.differences += 1
        if len(self.examples) < DIFFERENCES_KEPT_MAX:
            self.examples.append(difference)


def _shape(side: Side, table: str, role: str) -> Shape:
    shape = side.shape(table)
    if shape is None:
        raise UncomparableError(
            f"table {table} does not exist in the {role} ({side.name}), or this user may not see it. Create it, or "
            "grant SELECT on it and USAGE on its schema"
        )
    return shape


def _differing(forms: Sequence[Form | None], here: Row | None, there: Row | None) -> list[int]:
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
