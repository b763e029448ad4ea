"""A source whose tables look as a feed's options make them: rows filtered, columns chosen, computed and renamed.

Masked columns are left out, because the source's database does not compute masks: they are not compared. Rows are
filtered and columns computed here, where rows are read, by the functions that do it for changes: the same SQL has other
results in another database. So such a table has no checksums, and every row of it is read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec

from headgate.config.columns import ColumnOptions
from headgate.config.expressions import ExpressionError, Kind
from headgate.formats.change import ChangeError
from headgate.formats.change import Row as Values
from headgate.formats.expressions.computed import TEXT_FORMS, check_computed, computed_at_database, needed_columns
from headgate.formats.expressions.filters import Keeps, filter_at_database, filtered_columns
from headgate.formats.expressions.values import read_of_database
from headgate.records.control import Positions
from headgate.records.name_lists import shown_names
from headgate.verify.contract import WHOLE, Checksum, ComparedShape, KeyRange, Part, Row, Side, UncomparableError
from headgate.verify.forms import Nature

__all__ = ["ShapedSide"]

_NATURES: Final[Mapping[Kind, Nature]] = {
    **dict.fromkeys((Kind.BOOLEAN, Kind.INTEGER, Kind.NUMERIC), Nature.NUMBER),
    **dict.fromkeys((Kind.TIMESTAMP, Kind.TIMESTAMPTZ), Nature.INSTANT),
}
"""What a computed column's text is. Others are Nature.OTHER."""

_Compute = Callable[[Values], object]


class _Shaping(msgspec.Struct, frozen=True):
    """Of one table: ``asked`` are the source's columns that expressions need."""

    asked: tuple[str, ...]
    keeps: Keeps | None
    computed: Mapping[str, _Compute]


_AS_IT_IS: Final = _Shaping((), None, {})


class ShapedSide:
    """See Side. Reads over ``side``, and names columns as the sink does. ``close`` closes nothing."""

    def __init__(
        self, side: Side, columns: ColumnOptions, where: str | None = None, *, target: ComparedShape | None = None
    ) -> None:
        """``target``: the table that this one is compared with."""
        self._side = side
        self._target = target
        self._columns = columns
        self._where = where
        self._shapings: dict[str, _Shaping] = {}
        self.kind = side.kind
        self.name = side.name

    def shape(self, table: str) -> ComparedShape | None:
        """See Side."""
        found = self._side.shape(table)
        if found is None:
            return None
        columns = self._columns
        self._check_included(table, found)
        # Without a key, rows are found by all their columns, and the source's database computes none.
        computed = columns.set if found.key else {}
        self._shapings[table] = self._shaping(found, computed)
        compared = [column for column in found.columns if columns.goes(column) and column not in columns.mask]
        return ComparedShape(
            {columns.target(column): found.columns[column] for column in compared} | self._natures(found, computed),
            tuple(map(columns.target, found.key)),
            {columns.target(column): found.kinds[column] for column in compared if column in found.kinds},
            {columns.target(column): found.types[column] for column in compared if column in found.types},
        )

    def _check_included(self, table: str, found: ComparedShape) -> None:
        """Raise UncomparableError where the sink has a column that is to come from one that the source lacks."""
        columns = self._columns
        there = () if self._target is None else self._target.columns
        gone = [name for name in columns.include or () if name not in found.columns and columns.target(name) in there]
        if gone:
            raise UncomparableError(
                f"columns.include names {shown_names(gone)}, which the source's table {table} does not have, and the "
                "target has. Put its new name into columns.include, or remove it if the source has dropped it"
            )

    def snapshot(self) -> AbstractContextManager[object]:
        """See Side."""
        return self._side.snapshot()

    def rows(self, table: str, key: Sequence[str], values: Sequence[str], part: Part = WHOLE) -> Iterator[Row]:
        """See Side."""
        shaping = self._shapings.get(table, _AS_IT_IS)
        if shaping.keeps is None and not shaping.computed.keys() & {*key, *values}:
            return self._side.rows(table, self._own(key), self._own(values), self._part(part))
        if found := [name for name in key if name in shaping.computed]:
            raise UncomparableError(f"column {found[0]} of the target's key is computed (columns.set)")
        plain = self._own(name for name in values if name not in shaping.computed)
        read = dict.fromkeys((*self._own(key), *plain, *shaping.asked))
        rows = self._side.rows(table, self._own(key), tuple(read)[len(key) :], self._part(part))
        return self._shaped(rows, tuple(read), shaping, (*key, *values))

    def _shaping(self, found: ComparedShape, computed: Mapping[str, str]) -> _Shaping:
        where = self._where
        asked = (*(() if where is None else filtered_columns(where)), *needed_columns(computed))
        try:
            return _Shaping(
                tuple(dict.fromkeys(asked)),
                None if where is None else filter_at_database(where, self.kind, found.types),
                computed_at_database(computed, self.kind, found.types, TEXT_FORMS),
            )
        except ChangeError as error:
            raise UncomparableError(str(error)) from error

    def _natures(self, found: ComparedShape, computed: Mapping[str, str]) -> dict[str, Nature]:
        kinds = {name: read_of_database(name, self.kind, type_)[0] for name, type_ in found.types.items()}
        try:
            return {name: _NATURES.get(check_computed(text, kinds), Nature.OTHER) for name, text in computed.items()}
        except ExpressionError as error:
            raise UncomparableError(str(error)) from error

    def _shaped(
        self, rows: Iterator[Row], columns: Sequence[str], shaping: _Shaping, names: Sequence[str]
    ) -> Iterator[Row]:
        """``columns`` were read, and ``names``, which are the sink's, are wanted."""
        own = {name: self._columns.source(name) for name in names if name not in shaping.computed}
        for row in rows:
            values: Values = dict(zip(columns, row, strict=True))
            try:
                if shaping.keeps is None or shaping.keeps(values):
                    yield tuple(
                        values[own[name]] if name in own else shaping.computed[name](values)  # type: ignore[misc]
                        for name in names
                    )
            except ChangeError as error:
                raise UncomparableError(str(error)) from error

    def checksum(self, table: str, columns: Sequence[str], part: KeyRange) -> Checksum | None:
        """See Side."""
        if self._where is not None or self._shapings.get(table, _AS_IT_IS).computed.keys() & set(columns):
            return None
        return self._side.checksum(table, self._own(columns), self._range(part))

    def next_bound(
        self, table: str, columns: Sequence[str], above: tuple[Any, ...] | None, rows: int
    ) -> tuple[Any, ...] | None:
        """See Side."""
        return self._side.next_bound(table, self._own(columns), above, rows)

    def applied(self, feed_id: str, table: str) -> Positions:
        """See Side."""
        return self._side.applied(feed_id, table)

    def clock_ms(self) -> int:
        """See Side."""
        return self._side.clock_ms()

    def why_log_unread(self) -> str:
        """See Side."""
        return self._side.why_log_unread()

    def close(self) -> None:
        """See Side. The side is its owner's."""

    def _own(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self._columns.source, names))

    def _part(self, part: Part) -> Part:
        return self._range(part) if isinstance(part, KeyRange) else part

    def _range(self, part: KeyRange) -> KeyRange:
        return msgspec.structs.replace(part, columns=self._own(part.columns))
