"""Tables of a source database, and which of them a pattern selects."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

import msgspec

from headgate.config.wording import did_you_mean, nearest
from headgate.records.identifiers import earlier_identifier, show_identifier
from headgate.records.name_lists import shown_names

__all__ = ["CapturedColumn", "NoTableError", "SourceTable", "chosen_tables"]


class NoTableError(Exception):
    """A pattern matches no table of the source."""


class CapturedColumn(msgspec.Struct, frozen=True):
    """A column: its name, and its type as the database writes it.

    ``is_computed``: the source computes it, and the log does not have it. ``is_built_in``: it does so by nothing but
    the database's own functions. ``is_geometry``: of a spatial type of MySQL and MariaDB.
    """

    name: str
    type: str
    is_computed: bool = False
    is_built_in: bool = False
    is_geometry: bool = False


class SourceTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that can be captured. ``schema`` is the database of a MySQL or MariaDB table."""

    schema: str
    table: str
    columns: tuple[CapturedColumn, ...] = ()
    key: tuple[str, ...] = ()
    """Columns of the primary key."""
    unique_index: str | None = None
    """A unique index over whole columns that are never NULL."""
    unique_columns: tuple[str, ...] = ()
    may_select: bool = True

    @property
    def row_key(self) -> tuple[str, ...]:
        """Columns that identify a row: of the primary key, or else of the unique index. Empty without both."""
        return self.key or self.unique_columns

    @property
    def shown_key(self) -> str:
        """The columns that identify a row, for people."""
        index = "" if self.key else f" of unique index {self.unique_index}"
        return f"key ({', '.join(self.row_key)}){index}"

    @property
    def is_view(self) -> bool:
        """Whether it only looks like a table, and has no changes of its own."""
        return False

    @property
    def name(self) -> str:
        """``schema.table``, with quotes only where a part contains a dot, a quote, or the signs of a slice."""
        return show_identifier((self.schema, self.table))

    def is_meant(self, pattern: str) -> bool:
        """Whether the pattern matches, which may also be written with the quotes that older versions asked for."""
        names = (self.name, earlier_identifier((self.schema, self.table)))
        return any(name == pattern or (not self.is_view and fnmatchcase(name, pattern)) for name in names)


T = TypeVar("T", bound=SourceTable)


def chosen_tables(tables: Sequence[T], patterns: Sequence[str]) -> list[T]:
    """Tables whose ``schema.table`` matches one of the patterns (``*``, ``?``, ``[…]``). Without patterns, all.

    A view is chosen by its own name only. Raises NoTableError for a pattern that matches nothing.
    """
    chosen = {table.name for table in tables if not patterns and not table.is_view}
    for pattern in patterns:
        found = {table.name for table in tables if table.is_meant(pattern)}
        if not found:
            raise NoTableError(_no_table_matches(pattern, tables))
        chosen |= found
    return [table for table in tables if table.name in chosen]


def _no_table_matches(pattern: str, tables: Sequence[SourceTable]) -> str:
    """The nearest names, or the first of those that exist."""
    names = sorted(table.name for table in tables)
    if not names:
        return f"no table matches {pattern!r}: the database has no tables that this user can see"
    known = did_you_mean(nearest(pattern, names), begins=True) or f"Tables are {shown_names(names)}"
    return f"no table matches {pattern!r}. {known}"
