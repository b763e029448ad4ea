"""Groups reduced changes into sets of rows that one statement can merge: same columns, completeness and meaning."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from headgate.formats.change import ABSENT, Absent, Change, Row

Semantics = dict[str, str] | None


class UnwritableError(Exception):
    """A change whose row cannot be staged: which one, and if known which column."""

    def __init__(self, change: Change, column: str | None, reason: str) -> None:
        super().__init__(reason)
        self.change = change
        self.column = column
        self.reason = reason


class ColumnsMissingError(UnwritableError):
    """A change with columns that the target does not have. ``advice`` is what to do there, for people.

    ``columns``: each of them → how the event's schema describes its values, empty without one.
    """

    def __init__(self, change: Change, columns: dict[str, str], reason: str, advice: str) -> None:
        super().__init__(change, next(iter(columns)), reason)
        self.columns = columns
        self.advice = advice


class OrphanRowsError(Exception):
    """Partial updates of rows that the sink does not have."""


class Group(msgspec.Struct, frozen=True):
    """Upserts with the same columns. ``whole``: no column is absent, so the row may be inserted."""

    columns: tuple[str, ...]
    whole: bool
    semantics: Semantics
    changes: Sequence[Change]
    values: Sequence[Sequence[object]]
    types: Sequence[set[type]]

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.changes)


class StagedTexts(msgspec.Struct, frozen=True):
    """Whole rows that were staged without being taken apart."""

    columns: tuple[str, ...]
    rows: int
    whole: bool = True


class Merged(msgspec.Struct, frozen=True):
    """Rows written by one merge."""

    upserts: int
    updates: int
    deletes: int


def group_rows(upserts: Sequence[Change], key: Sequence[str]) -> list[Group]:
    """Upserts by columns, wholeness and meaning, in order of first appearance. One group, as a rule."""
    if not upserts:
        return []
    first = upserts[0]
    columns = tuple(first.row or ())
    rows = [change.row or {} for change in upserts]
    if (
        set(map(len, rows)) == {len(columns)}
        and set(key) <= set(columns)
        and len({id(c.semantics) for c in upserts}) == 1
    ):
        with suppress(KeyError):  # another column instead of one of these
            group = _group(columns, first.semantics, upserts, rows, whole=True)
            if not any(Absent in kinds for kinds in group.types):
                return [group]
    return _group_one_by_one(upserts)


def _group_one_by_one(upserts: Sequence[Change]) -> list[Group]:
    found: dict[tuple[object, ...], tuple[list[Change], list[Row]]] = {}
    for change in upserts:
        row = {**change.key, **(change.row or {})}
        present = tuple(column for column, value in row.items() if value is not ABSENT)
        meaning = None if change.semantics is None else frozenset(change.semantics.items())
        changes, rows = found.setdefault((present, len(present) == len(row), meaning), ([], []))
        changes.append(change)
        rows.append(row)
    return [
        _group(present, changes[0].semantics, changes, rows, whole=bool(whole))
        for (present, whole, _), (changes, rows) in found.items()
        if isinstance(present, tuple)
    ]


def _group(
    columns: tuple[str, ...], semantics: Semantics, changes: Sequence[Change], rows: Sequence[Row], *, whole: bool
) -> Group:
    values = [[row[column] for row in rows] for column in columns]
    return Group(columns, whole, semantics, changes, values, [set(map(type, column)) for column in values])


def group_keys(changes: Sequence[Change], key: Sequence[str]) -> Iterator[Group]:
    """Deletes, of nothing but their keys."""
    for semantics, same in _by_meaning(changes):
        yield _group(tuple(key), semantics, same, [change.key for change in same], whole=True)


def _by_meaning(changes: Sequence[Change]) -> Iterator[tuple[Semantics, list[Change]]]:
    """Deletes by what their keys mean: one group, unless the schema changed within the batch."""
    if len({id(change.semantics) for change in changes}) == 1:
        yield changes[0].semantics, list(changes)
        return
    found: dict[object, list[Change]] = {}
    for change in changes:
        meaning = None if change.semantics is None else frozenset(change.semantics.items())
        found.setdefault(meaning, []).append(change)
    for group in found.values():
        yield group[0].semantics, group
