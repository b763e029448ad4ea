"""What a comparison asks of a database: its rows as text, whole or in parts, in one snapshot at a time."""

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from headgate.databases.key_ranges import Chunk
from headgate.records.control import Positions
from headgate.records.slices import Slice
from headgate.verify.forms import Nature

__all__ = [
    "WHOLE",
    "Checksum",
    "ComparedShape",
    "Key",
    "KeyKind",
    "KeyRange",
    "KeySet",
    "Part",
    "Row",
    "Side",
    "SideError",
    "UncomparableError",
    "check_slice",
]  # fmt: skip

Key = tuple[str, ...]
Row = tuple[str | None, ...]


class UncomparableError(Exception):
    """A table cannot be compared: it is missing on one side, lacks a key column there, or may not be read."""


def check_slice(part: Slice, columns: Container[str]) -> None:
    """Raise UncomparableError where the table of a slice lacks the slice's column."""
    if part.column not in columns:
        raise UncomparableError(f"table {part.table} has no column {part.column}, by which the feed finds its rows")


class SideError(Exception):
    """A database cannot be read any further; the message names it and its user."""


class KeyKind(StrEnum):
    """What rows can be found by in a column of a key, with the help of its index."""

    INTEGER = "integer"
    """By value and by range: every database orders them alike."""
    UUID = "uuid"
    """By value, and by range where both databases are of one kind: MariaDB orders them by other bytes first."""
    TEXT = "text"
    """By value only: the order is the collation's. A collation may find more than what was asked for."""


class ComparedShape(msgspec.Struct, frozen=True):
    """A table's columns, in order, and its primary key. ``kinds``: of columns of other types nothing is listed.

    ``types``: column → bare type, as the database calls it.
    """

    columns: dict[str, Nature]
    key: tuple[str, ...]
    kinds: Mapping[str, KeyKind] = {}
    types: Mapping[str, str] = {}


class KeyRange(msgspec.Struct, frozen=True):
    """Rows in a range of ``columns``, which are the side's own names."""

    columns: tuple[str, ...]
    chunk: Chunk


class KeySet(msgspec.Struct, frozen=True):
    """Rows that have one of these keys, as texts; a side may give more.

    ``natives``: of each column of the key whether its index may be used. The others are compared as text, with NULL
    as the empty text, in a scan of the table.
    """

    keys: tuple[Key, ...]
    natives: tuple[bool, ...]


class Checksum(msgspec.Struct, frozen=True):
    """Of some rows, whatever their order: how many there are, and the sum of 60 bits of each row's SHA-256.

    A row is its values one behind the other, each with its length before it, or N for NULL. Equal checksums stand for
    equal texts: the chance that rows that differ have the same is below 1 in 10^18.
    """

    rows: int
    total: int


Part = KeyRange | KeySet | None
WHOLE: Part = None


class Side(Protocol):
    """One of two databases. ``kind`` is the same for databases that write values the same way.

    ``name``: which database it is, and as which user it is read. Methods raise UncomparableError where the user may not
    read a table, SideError where the database cannot be read at all.
    """

    kind: str
    name: str

    def shape(self, table: str) -> ComparedShape | None:
        """Of ``schema.table``; None if it does not exist, or may not be seen."""
        ...

    def snapshot(self) -> AbstractContextManager[object]:
        """While it lasts, rows are of one moment."""
        ...

    def rows(self, table: str, key: Sequence[str], values: Sequence[str], part: Part = WHOLE) -> Iterator[Row]:
        """Key and values as text, ordered by the key's text byte by byte: on both sides alike, and as Python does.

        NULL in a key, which is the whole row of a table without one, is ordered as the empty text.
        """
        ...

    def checksum(self, table: str, columns: Sequence[str], part: KeyRange) -> Checksum | None:
        """Of the rows' texts, exactly as ``rows`` gives them; None if the server cannot make one of these rows."""
        ...

    def next_bound(
        self, table: str, columns: Sequence[str], above: tuple[Any, ...] | None, rows: int
    ) -> tuple[Any, ...] | None:
        """The values of ``columns`` that end a range of so many rows above a key; None if fewer are left."""
        ...

    def applied(self, feed_id: str, table: str) -> Positions:
        """Partition → next offset: how far that feed has come in this table, as the sink's own rows have it."""
        ...

    def clock_ms(self) -> int:
        """The database's clock, ms since 1970: the one that its changes have their times from."""
        ...

    def why_log_unread(self) -> str:
        """Why no process reads the database's log, as a clause; empty if one does, or if that is not known."""
        ...

    def close(self) -> None:
        """Let go. Idempotent."""
        ...
