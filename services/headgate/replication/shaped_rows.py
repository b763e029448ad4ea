"""Rows of a source's table as a feed copies them: those that all conditions keep, with the columns it computes.

To a copy the other rows do not exist. Columns are chosen, renamed and masked where rows are written.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from headgate.databases.key_ranges import Chunk
from headgate.databases.row_source import RowSource, RowSourceError, Value
from headgate.formats.change import ChangeError, Row
from headgate.formats.expressions.computed import SENT_FORMS, computed_at_database, needed_columns
from headgate.formats.expressions.filters import Keeps, filter_at_database, filtered_columns

__all__ = ["ShapedRows"]

Given = Mapping[str, str]


class ShapedRows:
    """See RowReader. Of one table: expressions are asked where rows are read, of the database's own texts.

    Behind the columns of a row are its computed ones.
    """

    def __init__(self, source: RowSource, database: str, table: str, wheres: Sequence[str], computed: Given) -> None:
        """``database``: the source's kind. ``computed``: name at the sink → expression. Raises RowSourceError."""
        self._source = source
        asked = itertools.chain(*map(filtered_columns, wheres), needed_columns(computed))
        self._asked = tuple(dict.fromkeys(asked))
        types = source.logged(table)
        try:
            self._conditions: list[Keeps] = [filter_at_database(where, database, types) for where in wheres]
            self._computed: tuple[Callable[[Row], Any], ...] = tuple(
                computed_at_database(computed, database, types, SENT_FORMS).values()
            )
        except ChangeError as error:
            raise RowSourceError(str(error)) from error

    def rows(
        self, table: str, columns: Sequence[str], key: Sequence[str], keys: Sequence[Sequence[str]]
    ) -> Iterator[tuple[Value, ...]]:
        """See RowReader."""
        return self._kept(self._source.rows(table, (*columns, *self._asked), key, keys))

    def rows_within(
        self, table: str, columns: Sequence[str], key: Sequence[str], chunk: Chunk
    ) -> Iterator[tuple[Value, ...]]:
        """See RowReader."""
        return self._kept(self._source.rows_within(table, (*columns, *self._asked), key, chunk))

    def _kept(self, rows: Iterator[tuple[Value, ...]]) -> Iterator[tuple[Value, ...]]:
        asked = len(self._asked)
        for row in rows:
            wanted = len(row) - asked
            needed: Row = dict(zip(self._asked, row[wanted:], strict=True))
            try:
                if all(keeps(needed) for keeps in self._conditions):
                    yield (*row[:wanted], *[compute(needed) for compute in self._computed])
            except ChangeError as error:
                raise RowSourceError(str(error)) from error
