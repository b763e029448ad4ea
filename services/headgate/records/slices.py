"""Slices: the rows of a sink's table that come from one of several source tables, and the one grammar of their names.

    public.orders              the whole table, which one source writes
    public.orders@tenant=7     its rows whose column ``tenant`` is ``7``

Several sources can be written to one table if a *discriminator*, a column of the target's key, has another value for
each. To everything that reads or writes rows a slice is a table of its own: without the discriminator's column, and
with the other columns of the key as its key. Its name shows which rows it has, so owners, agents, the fence and the
command line need no other fact about it. A table that is really called like that is written in double quotes
(identifiers.py).

Two slices of one table share no row if they have the same column, and values that differ in more than upper and lower
case. A whole table shares rows with each of its slices.
"""

import re
from typing import Final

import msgspec

__all__ = [
    "INTEGER_DIGITS_MAX", "VALUE_CHARACTERS_MAX", "Slice", "slice_of", "whole_table", "why_no_column", "why_no_value",
    "with_slice",
]  # fmt: skip

VALUE_CHARACTERS_MAX: Final = 64
"""Of a discriminator's value. The longest names of schemas and databases have as many."""

_COLUMN: Final = r"[A-Za-z_][A-Za-z0-9_]{0,62}"
_VALUE: Final = rf"[A-Za-z0-9_.-]{{1,{VALUE_CHARACTERS_MAX}}}"
INTEGER_DIGITS_MAX: Final = 15
"""Of a discriminator that is an integer. MySQL and MariaDB compare integers with texts as floating-point numbers, which
are exact for as many."""

_INTEGER: Final = re.compile(rf"0|-?[1-9][0-9]{{0,{INTEGER_DIGITS_MAX - 1}}}")
_NAME: Final = re.compile(rf"(?P<table>.+)@(?P<column>{_COLUMN})=(?P<value>{_VALUE})", re.DOTALL)
_COLUMN_ALONE: Final = re.compile(_COLUMN)
_VALUE_ALONE: Final = re.compile(_VALUE)


class Slice(msgspec.Struct, frozen=True):
    """The rows of ``table`` whose ``column`` is ``value``."""

    table: str
    column: str
    value: str

    @property
    def text(self) -> str:
        """The slice's name."""
        return f"{self.table}@{self.column}={self.value}"

    @property
    def number(self) -> int | None:
        """The value as a column of integers has it; None if it is not an integer in its one spelling."""
        return int(self.value) if _INTEGER.fullmatch(self.value) else None


def why_no_column(text: str) -> str | None:
    """Why ``text`` cannot name a discriminator's column, None if it can."""
    if _COLUMN_ALONE.fullmatch(text):
        return None
    return (
        f"{text!r} cannot name the column. Use up to 63 letters of ASCII, digits and _, and no digit at the beginning"
    )


def why_no_value(text: str) -> str | None:
    """Why ``text`` cannot be a discriminator's value, None if it can.

    Every database compares these letters alike, whatever its encoding is.
    """
    if _VALUE_ALONE.fullmatch(text):
        return None
    return (
        f"{text!r} cannot be its value. Use 1 to {VALUE_CHARACTERS_MAX} letters of ASCII, digits, and the signs . _ -"
    )


def slice_of(name: str) -> Slice | None:
    """The slice that a table's name stands for; None for a whole table."""
    if "@" not in name:  # most names, and owners have hundreds of thousands of them
        return None
    found = _NAME.fullmatch(name)
    return None if found is None else Slice(found["table"], found["column"], found["value"])


def whole_table(name: str) -> str:
    """The table that a name stands for, or that it is a slice of."""
    found = slice_of(name)
    return name if found is None else found.table


def with_slice(table: str, name: str) -> str:
    """``table``, which is another spelling of the whole table of ``name``, with the slice that ``name`` stands for."""
    found = slice_of(name)
    return table if found is None else msgspec.structs.replace(found, table=table).text
