"""Rows of tables in ``mode: append``: one for each change, with where in the log it was."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

from headgate.formats.change import Change, Row

__all__ = ["OWN_COLUMNS", "appended_row"]

OWN_COLUMNS: Final[dict[str, pa.DataType]] = {
    "_operation": pa.string(),
    "_topic": pa.string(),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_committed_at": pa.timestamp("us", "UTC"),
}
"""Columns that Headgate writes beside those of the source's row. ``_operation`` is upsert or delete; ``_committed_at``
is when the source committed the change, NULL if its event does not have the time."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def appended_row(change: Change, topic: str) -> Row:
    """The change as one row: of a delete only its key."""
    moment = None if change.source_ms is None else (_EPOCH + timedelta(milliseconds=change.source_ms)).isoformat()
    own: Row = {
        "_operation": change.operation.value,
        "_topic": topic,
        "_partition": change.partition,
        "_offset": change.offset,
        "_committed_at": moment,
    }
    return change.key | (change.row or {}) | own
