"""Rows that lack a column that a feed's ``columns.include`` names: whether its values would be lost.

Such a row is from before the column was added, or the source has dropped or renamed the column since. Under another
name its values would not go to the sink. Where the feed names the source database, its catalogue shows which it is.
"""

from collections.abc import Callable, Collection
from typing import Final

from headgate.config.columns import ColumnOptions
from headgate.formats.change import LACKING, ChangeError, Row
from headgate.formats.expressions.declared import DeclaredTypes, SourceTypes
from headgate.records.name_lists import shown_names

__all__ = ["AtSink", "IncludedColumns"]

ROWS_MAX: Final = 256
"""Sets of columns that were accepted, of one table. Events of one schema have a few."""

_RENAMED: Final = (
    "If the source has renamed it, put the new name into columns.include (columns.rename keeps its name at the sink), "
    "or list the columns to leave out instead (columns.exclude), which takes older events too. If the source has "
    "dropped it, remove it from columns.include"
)
_OLDER: Final = ". If the event is from before the column was added, name the source's database (source.database)"


AtSink = Callable[[], Collection[str] | None]
"""The columns of the table at the sink that changes are written to; None where the sink has no columns of its own."""


class IncludedColumns:
    """Of one table. Not for more than one thread."""

    def __init__(self, columns: ColumnOptions, declared: DeclaredTypes | None, at_sink: AtSink | None) -> None:
        """``declared``: the source's catalogue, None where no source database is known.

        ``at_sink``: asked because one list may be for several tables, of which none has all of its columns.
        """
        self.names = tuple(filter(columns.goes, columns.include or ()))
        """Columns of the source that go to the sink as they come."""
        self._columns, self._named = columns, frozenset(columns.include or ())
        self._declared, self._at_sink = declared, at_sink
        self._types: SourceTypes | None = None
        self._accepted: set[tuple[str, ...]] = set()
        """The columns of rows that lack nothing which the sink has."""
        self._accounted: set[tuple[str, ...]] = set()
        """The columns of rows that ``_types`` accounts for."""

    def check(self, row: Row, semantics: dict[str, str] | None) -> None:
        """Raise ChangeError for a row that may have one of ``names`` under another name. It lacks some of them.

        Raises SourceTypesUnavailableError, and what ``at_sink`` raises.
        """
        there = tuple(row)
        if there in self._accepted:
            return
        if there in self._accounted and self._declared is not None and self._declared.known() is self._types:
            return
        others = sorted(row.keys() - self._named)
        absent = self._absent(row) if others else []
        if not absent:  # no value of the row is left out, or no column of the sink goes without one
            _remember(self._accepted, there)
        elif self._declared is not None:
            self._check_source(absent, others, self._declared)
            _remember(self._accounted, there)
        elif semantics is None or LACKING not in semantics:  # otherwise its writer may leave NULLs out
            raise _refused(absent, others, advice=f"{_RENAMED}{_OLDER}")

    def _absent(self, row: Row) -> list[str]:
        absent = [name for name in self.names if name not in row]
        present = None if self._at_sink is None else self._at_sink()
        if present is None:
            return absent
        folded = {name.casefold() for name in present}
        return [name for name in absent if self._columns.target(name).casefold() in folded]

    def _check_source(self, absent: Collection[str], others: Collection[str], declared: DeclaredTypes) -> None:
        known = declared.again()  # the table may have been altered since it was read
        if gone := [name for name in absent if name not in known.columns]:
            raise _refused(gone, others, " The source's table does not have it either.", _RENAMED)
        if strange := [name for name in others if name not in known.columns]:
            unread = f" The source's table did not have {shown_names(strange)} when it was last read."
            raise _refused(absent, strange, unread, _RENAMED)
        if known is not self._types:
            self._types = known
            self._accounted.clear()


def _remember(known: set[tuple[str, ...]], columns: tuple[str, ...]) -> None:
    if len(known) >= ROWS_MAX:
        known.clear()
    known.add(columns)


def _refused(absent: Collection[str], others: Collection[str], why: str = "", advice: str = "") -> ChangeError:
    return ChangeError(
        f"the event does not have column {shown_names(list(absent))}, which columns.include names, and has "
        f"{shown_names(list(others))}, which it does not name, so values may be left out under a new name."
        f"{why} {advice}"
    )
