"""Which names of tables and slices stand for rows that another one stands for, too."""

from collections.abc import Iterable

from headgate.records.identifiers import namesake
from headgate.records.slices import slice_of, whole_table

__all__ = ["TakenTables", "overlapping"]


def overlapping(one: str, other: str) -> bool:
    """Whether two names, with tables in their one spelling, can stand for the same row.

    Each also stands for what older versions named like that.
    """
    return any(
        _share_rows(left, right)
        for left, right in ((one, other), (one, namesake(other)), (namesake(one), other))
        if left is not None and right is not None
    )


def _share_rows(one: str, other: str) -> bool:
    left, right = slice_of(one), slice_of(other)
    if left is None or right is None:
        return whole_table(one) == whole_table(other)
    return left.table == right.table and (
        left.column != right.column or left.value.casefold() == right.value.casefold()
    )


class TakenTables:
    """Tables of a sink that sources have taken, so that no two sources write the same row."""

    def __init__(self, taken: Iterable[tuple[str, str]] = ()) -> None:
        """``taken``: table → its source, in pairs."""
        self._sources: dict[str, dict[str | None, str]] = {}
        """Whole table → value in lower case (None: all rows) → source."""
        self._columns: dict[str, str] = {}
        for table, source in taken:
            self.take(table, source)

    def clash(self, table: str) -> str | None:
        """The source that writes rows of ``table`` already; None if no source does."""
        other = namesake(table)
        return self._clash(table) or (None if other is None else self._clash(other))

    def _clash(self, table: str) -> str | None:
        found, part = self._sources.get(whole_table(table)), slice_of(table)
        if not found:
            return None
        if part is None or None in found or self._columns[part.table] != part.column:
            return next(iter(found.values()))
        return found.get(part.value.casefold())

    def take(self, table: str, source: str) -> None:
        """``source`` writes ``table``, which clashes with no other."""
        part = slice_of(table)
        value = None if part is None else part.value.casefold()
        self._sources.setdefault(whole_table(table), {})[value] = source
        if part is not None:
            self._columns[part.table] = part.column
