"""Rows of a source's table, read by their keys once everything that was committed is visible (docs/adr/0110)."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol, runtime_checkable

from headgate.databases.key_ranges import Chunk

__all__ = [
    "COMMITS_SECONDS_MAX", "KeyForm", "LineReader", "RowReader", "RowSource", "RowSourceError", "Value",
    "forms_of_key", "same_form", "typed_bound",
]  # fmt: skip

COMMITS_SECONDS_MAX: Final = 15.0
"""For transactions that were committing, or may have been, when the table stopped. Nothing of it is applied until then,
and the client that asked for the copy waits 30 s by default."""

_INTEGER: Final = re.compile("-?[0-9]+")

Value = str | bytes | int | float | None
"""As a sink's writer takes it for a column of the same type."""


class RowSourceError(Exception):
    """The rows cannot be read; the message has the reason, and what to do."""


class KeyForm(StrEnum):
    """How a key's column is named by a text, so that every database finds the same row."""

    INTEGER = "integer"
    UUID = "uuid"
    TEXT = "text"


def same_form(form: KeyForm, text: str) -> str:
    """The one spelling of a key's value. Raises RowSourceError."""
    match form:
        case KeyForm.INTEGER:
            if _INTEGER.fullmatch(text) is None:
                raise RowSourceError(f"{text!r} is not an integer, as the key needs it")
            return str(int(text))
        case KeyForm.UUID:
            return text.lower()
        case KeyForm.TEXT:
            return text


def forms_of_key(
    table: str, key: Sequence[str], types: Mapping[str, str], forms: Mapping[str, KeyForm]
) -> tuple[KeyForm, ...]:
    """The form of each column of the key. ``types``: column → type; ``forms``: of each type that can name rows.

    Raises RowSourceError for a column of another type.
    """
    for column in key:
        if types.get(column) not in forms:
            named = ", ".join(sorted(set(forms.values())))
            raise RowSourceError(
                f"rows of {table} cannot be named by column {column}, which is of type {types.get(column)}: only "
                f"types of these forms are written the same way everywhere: {named}"
            )
    return tuple(forms[types[column]] for column in key)


def typed_bound(forms: Sequence[KeyForm], texts: Sequence[str] | None) -> tuple[int | str, ...] | None:
    """A bound of a range, given as texts, as databases compare it: a number with a text is compared as a DOUBLE."""
    if texts is None:
        return None
    return tuple(int(text) if form is KeyForm.INTEGER else text for form, text in zip(forms, texts, strict=True))


class RowReader(Protocol):
    """Rows of tables. Methods raise RowSourceError."""

    def rows(
        self, table: str, columns: Sequence[str], key: Sequence[str], keys: Sequence[Sequence[str]]
    ) -> Iterator[tuple[Value, ...]]:
        """The rows that have one of these keys, all as of one moment: the key's values as texts, then ``columns``."""
        ...

    def rows_within(
        self, table: str, columns: Sequence[str], key: Sequence[str], chunk: Chunk
    ) -> Iterator[tuple[Value, ...]]:
        """The rows of a range of the key, whose bounds are texts, in the key's order: as ``rows`` gives them."""
        ...


@runtime_checkable
class LineReader(Protocol):
    """A source that gives rows as texts of its own type's input, which another database of its kind reads again.

    ``sink_type``: of the sinks that read them.
    """

    sink_type: str

    def declared(self, table: str) -> Mapping[str, str]:
        """Column → its type in full, of those that the server does not compute, and whose values a line can have."""
        ...

    def lines_within(self, table: str, columns: Sequence[str], key: Sequence[str], chunk: Chunk) -> Iterator[bytes]:
        """The rows that ``rows_within`` gives, each a line of COPY's text format, with ``columns`` only."""
        ...


class RowSource(RowReader, Protocol):
    """One source database, read in a session that cannot write. Methods raise RowSourceError."""

    def check_server(self) -> None:
        """Raise RowSourceError unless rows can be copied from this server: it has all changes of the change log."""
        ...

    def why_not_captured(self, tables: Sequence[str]) -> list[str]:
        """Reasons why nothing can read changes of these tables, as far as the server shows them. All must exist."""
        ...

    def await_commits(self, is_over: Callable[[], bool]) -> None:
        """Until a SELECT sees every transaction that the change log may have had when this was called.

        Both databases log a commit before they show it. ``is_over``: asked now and then whether to give up.
        """
        ...

    def columns(self, table: str) -> dict[str, str]:
        """Column → bare type, of those that the server does not compute; empty if the table does not exist."""
        ...

    def logged(self, table: str) -> dict[str, str]:
        """The same of those whose values changes bring, so that a copy must bring them too: computed ones, or not."""
        ...

    def primary_key(self, table: str) -> tuple[str, ...]:
        """The columns of the table's primary key; empty if it has none."""
        ...

    def key_forms(self, table: str, key: Sequence[str]) -> tuple[KeyForm, ...]:
        """How the values of the key's columns are named."""
        ...

    def next_bound(
        self,
        table: str,
        key: Sequence[str],
        above: Sequence[str] | None,
        rows: int,
        last: Sequence[str] | None = None,
    ) -> tuple[str, ...] | None:
        """The key that ends a range of so many rows above a key, by the server's own order, and not above ``last``.

        None if fewer rows are left.
        """
        ...

    def last_key(self, table: str, key: Sequence[str]) -> tuple[str, ...] | None:
        """The last key of all rows, by the server's own order; None if the table is empty."""
        ...

    def has_rows(self, table: str) -> bool:
        """Whether the table has any row."""
        ...

    def rows_about(self, table: str) -> int | None:
        """How many rows the server believes the table to have; None if it does not know."""
        ...

    def equality(self, table: str, key: Sequence[str]) -> tuple[str | None, ...]:
        """By which rule each column of the key treats two texts as one; None where any difference counts."""
        ...
