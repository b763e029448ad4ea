"""Rows of a source's table, read by their keys once everything that was committed is visible (docs/adr/0110)."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

__all__ = ["COMMITS_SECONDS_MAX", "KeyForm", "RowSource", "RowSourceError", "Value", "forms_of_key", "same_form"]

COMMITS_SECONDS_MAX: Final = 15.0
"""For transactions that were committing, or may have been, when the table stopped. Nothing of it is applied until
then, and whoever asked for the copy waits 30 s, unless told otherwise."""

_INTEGER: Final = re.compile("-?[0-9]+")

Value = str | bytes | int | float | None
"""As a sink's writer takes it for a column of the same type."""


class RowSourceError(Exception):
    """The rows cannot be read; the message says why, and what to do."""


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


class RowSource(Protocol):
    """One source database, read in a session that cannot write. Methods raise RowSourceError."""

    def await_commits(self, is_over: Callable[[], bool]) -> None:
        """Until a SELECT sees every transaction that the change log may have had when this was called.

        Both databases log a commit before they show it. ``is_over``: asked now and then whether to give up.
        """
        ...

    def columns(self, table: str) -> dict[str, str]:
        """Column → bare type, of those that the server does not compute; empty if the table does not exist."""
        ...

    def key_forms(self, table: str, key: Sequence[str]) -> tuple[KeyForm, ...]:
        """How the values of the key's columns are named."""
        ...

    def rows(
        self, table: str, columns: Sequence[str], key: Sequence[str], keys: Sequence[Sequence[str]]
    ) -> Iterator[tuple[Value, ...]]:
        """The rows that have one of these keys, all as of one moment: the key's values as texts, then ``columns``."""
        ...
