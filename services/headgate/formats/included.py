"""Rows that lack a column that a feed's ``columns.include`` names: whether its values would be lost.

Such a row is from before the column was added, or the source has dropped or renamed the column since. Under another
name its values would not go to the sink. Where the feed names the source database, its catalogue shows which it is.
"""

from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from typing import Final

from headgate.config.columns import ColumnOptions
from headgate.formats.change import LACKING, ChangeError, Row
from headgate.formats.expressions.declared import DeclaredTypes, SourceTypes
from headgate.records.name_lists import shown_names

__all__ = ["AtSink", "IncludedColumns"]

_RENAMED: Final = (
    "If the source has renamed it, put the new name into columns.include (columns.rename keeps its name at the sink), "
    "or list the columns to leave out instead (columns.exclude), which takes older events too. If the source has "
    "dropped it, remove it from columns.include"
)
_OLDER: Final = ". If the event is from before the column was added, name the source's database (source.database)"


AtSink = Callable[[], frozenset[str] | None]
"""The columns of the table at the sink that changes are written to, casefolded; None where the sink has no columns of
its own. Asked for each row, so the answer is remembered for a while (replication/sink_columns.py)."""


class IncludedColumns:
    """Of one table. Not for more than one thread."""

    def __init__(self, columns: ColumnOptions, declared: DeclaredTypes | None, at_sink: AtSink | None) -> None:
        """``declared``: the source's catalogue, None where no source database is known.

        ``at_sink``: asked because one list may be for several tables, of which none has all of its columns.
        """
        self.names = tuple(filter(columns.goes, columns.include or ()))
        """Columns of the source that go to the sink as they come."""
        self._named = frozenset(columns.include or ())
        self._targets = {name: columns.target(name).casefold() for name in self.names}
        self._declared, self._at_sink = declared, at_sink
        self._types: SourceTypes | None = None
        self._accounted: set[str] = set()
        """Columns that rows lacked and ``_types`` has, so those rows are from before they were added."""

    def check(self, row: Row, semantics: dict[str, str] | None, append_ms: int) -> None:
        """Raise ChangeError for a row that may have one of ``names`` under another name. It lacks some of them.

        Raises SourceTypesUnavailableError, and what ``at_sink`` raises.
        """
        if self._declared is None and semantics is not None and LACKING in semantics:
            return  # its writer may leave NULLs out
        others = row.keys() - self._named
        absent = self._absent(row) if others else []
        if not absent:  # no value of the row is left out, or no column of the sink goes without one
            return
        if self._declared is None:
            raise _refused(absent, others, advice=f"{_RENAMED}{_OLDER}")
        self._check_source(absent, others, append_ms, self._declared)

    def _absent(self, row: Row) -> list[str]:
        absent = [name for name in self.names if name not in row]
        present = None if self._at_sink is None else self._at_sink()
        return absent if present is None else [name for name in absent if self._targets[name] in present]

    def _check_source(
        self, absent: Collection[str], others: AbstractSet[str], append_ms: int, declared: DeclaredTypes
    ) -> None:
        known = declared.known()
        is_new = known is not self._types or not self._accounted.issuperset(absent)
        if is_new or not others <= known.columns.keys():
            known = declared.again()  # the table may have been altered since it was read
        if not known.columns.keys() >= {*absent, *others}:
            known = declared.since(append_ms)  # a row is never refused for what was so before it came
        if gone := [name for name in absent if name not in known.columns]:
            raise _refused(gone, others, " The source's table does not have it either.", _RENAMED)
        if strange := [name for name in others if name not in known.columns]:
            unread = f" The source's table did not have {shown_names(sorted(strange))} when it was last read."
            raise _refused(absent, strange, unread, _RENAMED)
        if known is not self._types:
            self._types = known
            self._accounted.clear()
        self._accounted.update(absent)


def _refused(absent: Collection[str], others: Collection[str], why: str = "", advice: str = "") -> ChangeError:
    return ChangeError(
        f"the event does not have column {shown_names(list(absent))}, which columns.include names, and has "
        f"{shown_names(sorted(others))}, which it does not name, so values may be left out under a new name."
        f"{why} {advice}"
    )
