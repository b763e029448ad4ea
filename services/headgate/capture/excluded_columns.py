"""Columns of a source's table that a new feed leaves out, because the sink's table cannot hold their values."""

from typing import Final

from headgate.capture.tables import SourceTable

__all__ = ["excluded_columns"]

_COMPUTED: Final = "computed by the source, not in its log"
_GEOMETRY: Final = "of a type that the sink does not have"


def excluded_columns(table: SourceTable, sink: str) -> dict[str, str]:
    """Column → why, as a comment. ``sink``: the kind of its database."""
    is_postgresql = sink == "postgresql"
    found = {
        column.name: _COMPUTED
        for column in table.columns
        if column.is_computed and not (is_postgresql and column.is_built_in)
    }
    return found | {column.name: _GEOMETRY for column in table.columns if column.is_geometry and is_postgresql}
