"""Writes rows without a change event: copied from the source, at a position of the log (docs/adr/0110)."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from headgate.formats.change import Row
from headgate.records.control import Positions
from headgate.sinks.contract import Applied, Claim, SinkError

__all__ = ["CopiedRows", "RowCopyingWriter", "RowsRefusedError"]


class RowsRefusedError(SinkError):
    """The sink does not take the copied rows. Nothing of them was written."""

    code = "rows_refused"


class CopiedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one table, as the source had them after everything below ``positions``.

    ``key``: the columns by which rows were chosen, which must be those by which the sink finds them. ``upserts`` are
    whole rows, ``deletes`` keys of rows that the source does not have. ``semantics``: as in Change.
    """

    claim: Claim
    positions: Positions
    key: tuple[str, ...]
    upserts: Sequence[Row]
    deletes: Sequence[Row]
    semantics: dict[str, str] | None = None


@runtime_checkable
class RowCopyingWriter(Protocol):
    """What a writer must be able to do so that rows can be copied to its sink."""

    def copy(self, rows: CopiedRows) -> Applied:
        """Make all rows visible in one step, under the claim, if the sink is at exactly ``positions``.

        The positions stay. Raises SinkError, and then nothing is visible; after SinkUnavailableError all or nothing is.
        """
        ...
