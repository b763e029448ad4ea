"""What rows of a lake have in a column that was added with a default at the source. A lake itself keeps no defaults."""

from collections.abc import Mapping

import pyarrow as pa

from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.known_columns import KnownColumns
from headgate.sinks.lake.copied_values import copied_reader_of
from headgate.sinks.relational.times import NotTextError

__all__ = ["first_value", "first_values"]


def first_values(table: str, columns: Mapping[str, pa.DataType], known: KnownColumns) -> dict[str, object]:
    """Column → what rows have in it whose changes are from before it was added, where that is not NULL."""
    return {
        name: first_value(table, name, columns[name], first) for name, first in known.first.items() if name in columns
    }


def first_value(table: str, column: str, type_: pa.DataType, first: str | None) -> object:
    """The value that ``first`` is the text of. Raises SinkRefusedError."""
    try:
        return None if first is None else copied_reader_of(type_, None, None)(first)
    except NotTextError as error:
        raise SinkRefusedError(
            f"{table}, column {column}: what older rows have in it cannot be written: {error}. Add the column yourself"
        ) from error
