"""A source whose tables look as a feed's options make them: rows filtered, columns chosen and under the sink's names.

Masked columns are left out, because the source's database does not compute masks: they are not compared. Rows are
filtered here, where they are read, by the function that filters changes: the same SQL has
other results in another database. So a filtered table has no checksums, and every row of it is read.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from headgate.config.columns import ColumnOptions
from headgate.formats.change import ChangeError
from headgate.formats.expressions.filters import Keeps, filter_at_database, filtered_columns
from headgate.records.control import Positions
from headgate.verify.contract import WHOLE, Checksum, KeyRange, Part, Row, Shape, Side, UncomparableError

__all__ = ["ShapedSide"]


class ShapedSide:
    """See Side. Reads over ``side``, and names columns as the sink does. ``close`` closes nothing."""

    def __init__(self, side: Side, columns: ColumnOptions, where: str | None = None) -> None:
        self._side = side
        self._columns = columns
        self._where = where
        self._keeps: dict[str, Keeps] = {}
        self.kind = side.kind
        self.name = side.name

    def shape(self, table: str) -> Shape | None:
        """See Side."""
        found = self._side.shape(table)
        if found is None:
            return None
        if self._where is not None:
            self._keeps[table] = self._filter(self._where, found)
        columns = self._columns
        compared = [column for column in found.columns if columns.goes(column) and column not in columns.mask]
        return Shape(
            {columns.target(column): found.columns[column] for column in compared},
            tuple(map(columns.target, found.key)),
            {columns.target(column): found.kinds[column] for column in compared if column in found.kinds},
        )

    def snapshot(self) -> AbstractContextManager[object]:
        """See Side."""
        return self._side.snapshot()

    def rows(self, table: str, key: Sequence[str], values: Sequence[str], part: Part = WHOLE) -> Iterator[Row]:
        """See Side."""
        if self._where is None:
            return self._side.rows(table, self._own(key), self._own(values), self._part(part))
        compared = (*self._own(key), *self._own(values))
        others = tuple(name for name in filtered_columns(self._where) if name not in compared)
        rows = self._side.rows(table, self._own(key), (*self._own(values), *others), self._part(part))
        return self._kept(rows, self._keeps[table], (*compared, *others), len(compared))

    def _filter(self, where: str, found: Shape) -> Keeps:
        try:
            return filter_at_database(where, self.kind, found.types)
        except ChangeError as error:
            raise UncomparableError(str(error)) from error

    @staticmethod
    def _kept(rows: Iterator[Row], keeps: Keeps, columns: Sequence[str], compared: int) -> Iterator[Row]:
        """``compared``: so many of the ``columns`` that were read are not only for the filter."""
        for row in rows:
            try:
                if keeps(dict(zip(columns, row, strict=True))):
                    yield row[:compared]
            except ChangeError as error:
                raise UncomparableError(str(error)) from error

    def checksum(self, table: str, columns: Sequence[str], part: KeyRange) -> Checksum | None:
        """See Side."""
        if self._where is not None:
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

    def _own(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(self._columns.source, names))

    def _part(self, part: Part) -> Part:
        return self._range(part) if isinstance(part, KeyRange) else part

    def _range(self, part: KeyRange) -> KeyRange:
        return msgspec.structs.replace(part, columns=self._own(part.columns))
