"""Writes rows without a change event: copied from the source, at a position of the log (docs/adr/0110)."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Protocol, runtime_checkable

import msgspec

from headgate.formats.change import Row
from headgate.records.control import Positions
from headgate.sinks.contract import Applied, Claim, SinkError

__all__ = ["CopiedRows", "CopiedTexts", "CopyMark", "RowCopyingSink", "RowCopyingWriter", "RowsRefusedError"]


class RowsRefusedError(SinkError):
    """The sink does not take the copied rows. Nothing of them was written.

    ``is_between_rows``: because of another row of the table, such as one with the same value of a unique key.
    """

    code = "rows_refused"

    def __init__(self, text: str, *, is_between_rows: bool = False) -> None:
        super().__init__(text)
        self.is_between_rows = is_between_rows


class CopyMark(msgspec.Struct, frozen=True, kw_only=True):
    """How far a request to copy a whole table is: every row up to and including ``upto`` is copied, in the key's order.

    ``upto`` is the key as texts, null before the first range. ``end`` is the last key that is copied, which the table
    had at the beginning; null if it had none. ``rows`` and ``deleted`` count from the request's beginning.
    """

    request: str
    upto: tuple[str, ...] | None = None
    end: tuple[str, ...] | None = None
    rows: int = 0
    deleted: int = 0
    is_done: bool = False


_UNESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class CopiedTexts(msgspec.Struct, frozen=True, kw_only=True):
    """Rows as lines of COPY's text format, which LOAD DATA reads as well, in the order of their key.

    ``columns``: those of each line, the key's first. ``declared``: the source's types. ``blocks``: many lines each.
    """

    columns: tuple[str, ...]
    declared: tuple[str, ...]
    blocks: Sequence[bytes]
    count: int

    def lines(self) -> Iterator[bytes]:
        """Each line, without its end. A line's end within a value is escaped."""
        for block in self.blocks:
            yield from block[:-1].split(b"\n")

    def row(self, line: bytes) -> Row:
        """The values of a line."""
        return dict(zip(self.columns, map(_value_of, line.decode().split("\t")), strict=True))


def _value_of(field: str) -> str | None:
    if "\\" not in field:
        return field
    return None if field == "\\N" else _ESCAPE.sub(lambda found: _UNESCAPED.get(found[1], found[1]), field)


class CopiedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one table, as the source had them after everything below ``positions``.

    ``key``: the columns by which rows were chosen, which must be those by which the sink finds them. ``upserts`` are
    whole rows, ``deletes`` keys of rows that the source does not have. ``semantics``: as in Change. ``mark`` is stored
    in the same transaction. ``texts``: more rows, only where both ends are of one kind of database (LineReader).
    """

    claim: Claim
    positions: Positions
    key: tuple[str, ...]
    upserts: Sequence[Row]
    deletes: Sequence[Row]
    semantics: dict[str, str] | None = None
    mark: CopyMark | None = None
    texts: CopiedTexts | None = None


@runtime_checkable
class RowCopyingWriter(Protocol):
    """What a writer must be able to do so that rows can be copied to its sink."""

    def copy(self, rows: CopiedRows) -> Applied:
        """Make all rows visible in one step, under the claim, if the sink is at exactly ``positions``.

        The positions stay. Raises SinkError, and then nothing is visible; after SinkUnavailableError all or nothing is.
        """
        ...


@runtime_checkable
class RowCopyingSink(Protocol):
    """What a sink must be able to do so that a whole table can be copied to it."""

    def copied(self, claim: Claim, request: str) -> CopyMark:
        """How far the request is for the claim's table; the beginning if nothing is known. Raises SinkError."""
        ...
