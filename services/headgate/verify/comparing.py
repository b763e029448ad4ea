"""Two tables compared row by row, in constant memory, whatever databases they are in.

Each side gives its rows in the order of the key, every value as the database's own text (so that nothing is lost in a
conversion), and the two streams are merged. A table whose key both databases order alike is compared in ranges of it,
each in a snapshot of its own, and a range is only read if the checksums that the databases make of the same texts
differ. So a checksum never takes values for equal that are not. Every other table is read whole.

What two databases write differently is compared by value (forms.py): numbers always, times, bits and JSON where the
databases are of different kinds or one has a column of texts. Columns whose types have no texts in common, such as JSON
and an array, are not compared. A table without a key on either side is compared as a multiset of rows.

Rows that differ are read again while both sides change (settling.py). Without a ``Settling`` neither side may change,
and a row that differs once is different.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from headgate.databases.key_ranges import Chunk
from headgate.verify.columns import ComparedColumns, paired
from headgate.verify.contract import WHOLE, Key, KeyRange, KeySet, Part, Row, Side
from headgate.verify.merging import DigestDifference, finding_of, merged
from headgate.verify.settling import Settled, Settling

__all__ = ["RowDifference", "TableCompared", "compare_table"]

ROWS_PER_RANGE: Final = 5_000
"""Of a range of the key. A row that changes makes its range be read again, so ranges are small; each costs some
statements, so they are not smaller."""

CHECKSUMS_WASTED_MAX: Final = 3
"""After so many ranges in a row with values that were equal though their texts were not, no more are made: the two
databases write some column's values differently."""

ROWS_PER_STEP: Final = 1_000
"""Rows between two reports of how many were compared."""

KEYS_PER_LOOKUP: Final = 500
"""Of rows that are read again: a statement of some ten kilobytes."""

DIFFERENCES_KEPT_MAX: Final = 20
"""Differences kept with their keys, per table; all are counted."""

UNMATCHED_ROWS_MAX: Final = 100_000
"""Rows kept to be read again, or until the end because their texts differ and their values may not: some megabytes.
If ranges before have given so many, these are settled first; those of one range beyond that are not settled."""

TOO_MANY: Final = f"more than {UNMATCHED_ROWS_MAX} rows differ, and no more are read again"

Values = tuple[Any, ...]
"""A row of a table without a key, as values that are equal if its texts have the same meaning."""


class RowDifference(msgspec.Struct, frozen=True):
    """One row: ``kind`` is missing (not in the target), surplus (only there), or differs (in ``columns``).

    ``key`` is the whole row where the table has no key.
    """

    key: dict[str, str]
    kind: str
    columns: tuple[str, ...]


class TableCompared(msgspec.Struct, frozen=True):
    """One table's verdict. ``columns_missing`` exist in the source only, ``columns_surplus`` in the target only.

    ``columns_unlike`` are in both, with types whose texts cannot be compared, and have these types. ``keyless``: it was
    compared as a multiset of rows. ``unsettled``: rows that were different whenever they were read, and of which it is
    not known whether they are only on their way; ``unsettled_reason`` has the reason.
    """

    source: str
    target: str
    rows: int
    differences: int
    columns: tuple[str, ...]
    columns_missing: tuple[str, ...]
    columns_surplus: tuple[str, ...]
    columns_unlike: dict[str, str]
    examples: tuple[RowDifference, ...]
    keyless: bool = False
    unsettled: int = 0
    unsettled_examples: tuple[RowDifference, ...] = ()
    unsettled_reason: str = ""


def compare_table(
    source: Side,
    target: Side,
    source_table: str,
    target_table: str,
    *,
    settling: Settling | None = None,
    on_rows: Callable[[int], None] = lambda _rows: None,
    on_difference: Callable[[RowDifference], None] = lambda _difference: None,
) -> TableCompared:
    """Compare all rows and the columns both sides have, by the target's primary key.

    Tables are "schema.table". ``on_rows`` gets the number of rows that were compared, some thousand at a time, and may
    pause. ``on_difference`` gets every row that differs.
    Raises UncomparableError, SideError, and what ``settling`` raises.
    """
    columns = paired(source, target, source_table, target_table)
    tables = _Tables((source, source_table), (target, target_table), columns, on_rows)
    verdict = _Verdict(columns, on_difference)
    rows = (_compare_multiset if columns.is_keyless else _compare_by_key)(tables, verdict, settling)
    return TableCompared(
        source=source_table,
        target=target_table,
        rows=rows,
        differences=verdict.differences,
        columns=columns.all,
        columns_missing=columns.missing,
        columns_surplus=columns.surplus,
        columns_unlike=columns.unlike,
        examples=tuple(verdict.examples),
        keyless=columns.is_keyless,
        unsettled=verdict.unsettled,
        unsettled_examples=tuple(verdict.unsettled_examples),
        unsettled_reason=verdict.reason,
    )


class _Tables:
    """The two tables, to be read whole or in part."""

    def __init__(
        self,
        source: tuple[Side, str],
        target: tuple[Side, str],
        columns: ComparedColumns,
        on_rows: Callable[[int], None],
    ) -> None:
        """``source``, ``target``: the side and the table's name there."""
        self.columns = columns
        self._source, self._source_table = source
        self._target, self._target_table = target
        self._on_rows = on_rows
        self._wasted = 0
        """Ranges in a row with values that differed as texts only."""

    def ranges(self) -> Iterator[Chunk | None]:
        """Ranges that cover every row of both sides; None is the whole table, if it has no ranges."""
        columns = self.columns.of_source(self.columns.ranged)
        if not columns:
            yield None
            return
        above: tuple[Any, ...] | None = None
        while True:
            upto = self._source.next_bound(self._source_table, columns, above, ROWS_PER_RANGE)
            yield Chunk(above, upto)
            if upto is None:
                return
            above = upto

    def equal_rows(self, chunk: Chunk | None) -> int | None:
        """How many rows a range has, if the checksums of both sides are equal; None if it must be read."""
        if chunk is None or self._wasted >= CHECKSUMS_WASTED_MAX or self.columns.has_other_texts:
            return None
        ours, theirs = self._parts(chunk)
        here = self._source.checksum(self._source_table, self.columns.of_source(self.columns.all), ours)
        there = here and self._target.checksum(self._target_table, self.columns.all, theirs)
        if here is None or here != there:
            return None
        self._wasted = 0
        self._on_rows(here.rows)
        return here.rows

    def was_read(self, *, is_spelled_otherwise: bool) -> None:
        """A range was read, and whether a row of it was equal by value though not as text."""
        self._wasted = self._wasted + 1 if is_spelled_otherwise else 0

    def _parts(self, chunk: Chunk) -> tuple[KeyRange, KeyRange]:
        ranged = self.columns.ranged
        return KeyRange(self.columns.of_source(ranged), chunk), KeyRange(ranged, chunk)

    def compared(self, chunk: Chunk | None) -> Iterator[tuple[Key, Row | None, Row | None]]:
        """Every key of a range, with the rows that have it: None where a side has none."""
        ours, theirs = (WHOLE, WHOLE) if chunk is None else self._parts(chunk)
        rows = 0
        for each in self._merged(ours, theirs):
            yield each
            rows += 1
            if rows == ROWS_PER_STEP:
                self._on_rows(rows)
                rows = 0
        self._on_rows(rows)

    def found(self, keys: Collection[Key]) -> Iterator[tuple[Key, Row | None, Row | None]]:
        """The same for some keys."""
        # NULL in a key reads as the empty text, and no index finds it by that.
        for natives, some in (
            (self.columns.natives, [key for key in keys if "" not in key]),
            (tuple(False for _ in self.columns.order), [key for key in keys if "" in key]),
        ):
            for start in range(0, len(some), KEYS_PER_LOOKUP):
                wanted = frozenset(some[start : start + KEYS_PER_LOOKUP])
                part = KeySet(tuple(sorted(wanted)), natives)
                yield from (each for each in self._merged(part, part) if each[0] in wanted)

    def _merged(self, ours: Part, theirs: Part) -> Iterator[tuple[Key, Row | None, Row | None]]:
        order, values = self.columns.order, self.columns.values
        with self._source.snapshot(), self._target.snapshot():
            left = self._source.rows(
                self._source_table, self.columns.of_source(order), self.columns.of_source(values), ours
            )
            right = self._target.rows(self._target_table, order, values, theirs)
            yield from merged(left, right, len(order))


class _Verdict:
    """What has been found to differ, or could not be settled."""

    def __init__(self, columns: ComparedColumns, on_difference: Callable[[RowDifference], None]) -> None:
        self._on_difference = on_difference
        self.differences = self.unsettled = 0
        self.examples: list[RowDifference] = []
        self.unsettled_examples: list[RowDifference] = []
        self.reason = ""
        self._columns = columns

    def add(self, key: Key, finding: DigestDifference) -> None:
        """A row that differs."""
        self.differences += 1
        difference = self._difference(key, finding)
        self._on_difference(difference)
        if len(self.examples) < DIFFERENCES_KEPT_MAX:
            self.examples.append(difference)

    def add_unsettled(self, key: Key, finding: DigestDifference, reason: str) -> None:
        """A row that could not be settled."""
        self.unsettled += 1
        self.reason = self.reason or reason
        if len(self.unsettled_examples) < DIFFERENCES_KEPT_MAX:
            self.unsettled_examples.append(self._difference(key, finding))

    def _difference(self, key: Key, finding: DigestDifference) -> RowDifference:
        columns = self._columns.all
        named = dict(zip(columns, key, strict=False))
        return RowDifference(named, finding.kind, tuple(columns[place] for place in finding.places))


# --- a table with a key ---

_Findings = dict[Key, tuple[DigestDifference, ...]]
"""Several of a key where a side has no unique index on it."""


def _compare_by_key(tables: _Tables, verdict: _Verdict, settling: Settling | None) -> int:
    """How many rows were compared."""
    rows = 0
    found: _Findings = {}
    for chunk in tables.ranges():
        if (equal := tables.equal_rows(chunk)) is not None:
            rows += equal
            continue
        is_spelled_otherwise = False
        for key, here, there in tables.compared(chunk):
            rows += 1
            finding = finding_of(tables.columns, here, there)
            if finding is None:
                is_spelled_otherwise = is_spelled_otherwise or here != there
                continue
            if settling is None:
                verdict.add(key, finding)
            elif len(found) < UNMATCHED_ROWS_MAX or key in found:
                found[key] = (*found.get(key, ()), finding)
            else:
                verdict.add_unsettled(key, finding, TOO_MANY)
        tables.was_read(is_spelled_otherwise=is_spelled_otherwise)
        if settling is not None and len(found) + ROWS_PER_RANGE > UNMATCHED_ROWS_MAX:
            _settle(found, tables, verdict, settling)
            found = {}
    if settling is not None:
        _settle(found, tables, verdict, settling)
    return rows


def _settle(found: _Findings, tables: _Tables, verdict: _Verdict, settling: Settling) -> None:
    def read(keys: Collection[Key]) -> _Findings:
        still: _Findings = {}
        for key, here, there in tables.found(keys):
            if (finding := finding_of(tables.columns, here, there)) is not None:
                still[key] = (*still.get(key, ()), finding)
        return still

    settled = settling.settle(found, read)
    for key, findings in settled.differing.items():
        for finding in findings:
            verdict.add(key, finding)
    for key, findings in settled.unsettled.items():
        for finding in findings:
            verdict.add_unsettled(key, finding, settled.reason)


# --- a table without one ---


def _compare_multiset(tables: _Tables, verdict: _Verdict, settling: Settling | None) -> int:
    """How many rows were compared."""
    rows, unmatched = _unmatched(tables, verdict, is_settled=settling is not None)

    def read(values: Collection[Values]) -> Mapping[Values, int]:
        again: Counter[Values] = Counter()
        for _, here, there in tables.compared(None):
            if here != there:
                _count(again, tables.columns, here, there, values)
        return again

    settled = Settled(dict(unmatched), {}, "") if settling is None else settling.settle(unmatched, read)
    for values, more in settled.differing.items():
        for _ in range(abs(more)):
            verdict.add(_texts(values), _lonely(more))
    for values, more in settled.unsettled.items():
        for _ in range(abs(more)):
            verdict.add_unsettled(_texts(values), _lonely(more), settled.reason)
    return rows


def _unmatched(tables: _Tables, verdict: _Verdict, *, is_settled: bool) -> tuple[int, Counter[Values]]:
    """How many rows there are, and those that have no equal, as far as they are kept."""
    unmatched: Counter[Values] = Counter()
    rows = 0
    for key, here, there in tables.compared(None):
        rows += 1
        if here == there:
            continue
        if len(unmatched) < UNMATCHED_ROWS_MAX:
            _count(unmatched, tables.columns, here, there)
        elif (finding := finding_of(tables.columns, here, there)) is None:
            continue
        elif is_settled:
            verdict.add_unsettled(key, finding, TOO_MANY)
        else:
            verdict.add(key, finding)
    return rows, unmatched


def _count(
    unmatched: Counter[Values],
    columns: ComparedColumns,
    here: Row | None,
    there: Row | None,
    among: Collection[Values] | None = None,
) -> None:
    """By value, how many more the source has than the target; only of ``among``, if it is given."""
    for row, by in ((here, 1), (there, -1)):
        if row is None:
            continue
        value = tuple(
            part if part is None or forms is None else forms[by < 0](part)
            for part, forms in zip(row, columns.forms, strict=True)
        )
        if among is not None and value not in among:
            continue
        unmatched[value] += by
        if not unmatched[value]:
            del unmatched[value]


def _texts(values: Values) -> Key:
    return tuple("" if value is None else str(value) for value in values)


def _lonely(more: int) -> DigestDifference:
    return DigestDifference("missing" if more > 0 else "surplus", (), b"")
