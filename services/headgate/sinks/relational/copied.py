"""Writes copied rows as upserts and deletes of a batch that moves no position."""

from typing import Any

from msgspec.structs import replace

from headgate.databases.faults import Fault
from headgate.formats.change import Change, Operation, Row
from headgate.formats.reducing import Reduced
from headgate.records.control import Positions
from headgate.sinks.contract import ChangeBatch, OffsetRange
from headgate.sinks.relational.dialect import Dialect
from headgate.sinks.relational.grouping import UnwritableError
from headgate.sinks.relational.keys import FoldedKeysError
from headgate.sinks.relational.table import RelationalTable
from headgate.sinks.row_copying import CopiedRows, RowsRefusedError

__all__ = ["check_key", "reduced_copy", "refused_rows", "unmoved", "unmoved_batch", "with_rows"]


def check_key(table: RelationalTable[Any], rows: CopiedRows) -> None:
    """Raise RowsRefusedError unless the rows were chosen by the columns that the sink finds rows by."""
    if not table.row_key or set(table.row_key) != set(rows.key):
        found_by = ", ".join(table.row_key) or "nothing, as it has no key"
        raise RowsRefusedError(
            f"table {table.name}: rows were named by {', '.join(rows.key)}, and the sink finds them by {found_by}"
        )


def unmoved_batch(rows: CopiedRows) -> ChangeBatch:
    """What asks the fence, and locks its rows, without moving a position."""
    return ChangeBatch(rows.claim, unmoved(rows.positions), [])


def unmoved(positions: Positions) -> dict[int, OffsetRange]:
    """Ranges that the fence takes only at exactly these positions, and that leave them there."""
    return {partition: OffsetRange(at, at) for partition, at in sorted(positions.items())}


def with_rows(rows: CopiedRows) -> CopiedRows:
    """The same, with texts as rows."""
    if rows.texts is None:
        return rows
    return replace(rows, upserts=[*rows.upserts, *map(rows.texts.row, rows.texts.lines())], texts=None)


def reduced_copy(rows: CopiedRows) -> Reduced:
    """The rows as changes, without texts. They have no place in the log: they are written at its position."""
    partition, offset = min(rows.positions.items())

    def change(operation: Operation, key: Row, row: Row | None) -> Change:
        return Change(partition, offset, operation, key, row, None, 0, rows.semantics)

    return Reduced(
        truncate=False,
        deletes=[change(Operation.DELETE, key, None) for key in rows.deletes],
        upserts=[change(Operation.UPSERT, {}, row) for row in rows.upserts],
    )


def refused_rows(dialect: Dialect[Any, Any, Any], table: RelationalTable[Any], error: Exception) -> RowsRefusedError:
    """Why the sink does not take the rows. No value is quoted."""
    column, reason = None, str(error)
    if isinstance(error, dialect.error):
        column, reason = dialect.words_of(error)
    elif isinstance(error, UnwritableError):
        column, reason = error.column, error.reason
    elif isinstance(error, FoldedKeysError):
        reason = dialect.folded.format(columns=", ".join(table.folding))
    where = table.name if column is None else f"{table.name}, column {column}"
    is_between_rows = isinstance(error, dialect.error) and dialect.fault_of(error) is Fault.BETWEEN_ROWS
    return RowsRefusedError(f"{where}: {reason}", is_between_rows=is_between_rows)
