"""Rows of a source's table that a feed's ``where`` keeps. To a copy the others do not exist."""

from collections.abc import Iterator, Sequence

from headgate.databases.key_ranges import Chunk
from headgate.databases.row_source import RowSource, RowSourceError, Value
from headgate.formats.change import ChangeError
from headgate.formats.expressions.filters import filter_at_database, filtered_columns

__all__ = ["FilteredRows"]


class FilteredRows:
    """See RowReader. Of one table: the filter is asked where rows are read, of the database's own texts."""

    def __init__(self, source: RowSource, where: str, database: str, table: str) -> None:
        """``database``: the source's kind. Raises RowSourceError."""
        self._source = source
        self._asked = filtered_columns(where)
        try:
            self._keeps = filter_at_database(where, database, source.columns(table))
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
            try:
                if self._keeps(dict(zip(self._asked, row[wanted:], strict=True))):
                    yield row[:wanted]
            except ChangeError as error:
                raise RowSourceError(str(error)) from error
