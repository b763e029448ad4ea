"""Rows of tables in ``mode: append``: one for each change, with where in the log it was."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

from headgate.formats.change import Change, Row

__all__ = ["FORMER_COLUMNS", "OWN_COLUMNS", "READ", "appended_row", "copied_row"]

OWN_COLUMNS: Final[dict[str, pa.DataType]] = {
    "_operation": pa.string(),
    "_topic": pa.string(),
    "_topic_partition": pa.int32(),
    "_offset": pa.int64(),
    "_committed_at": pa.timestamp("us", "UTC"),
}
"""Columns that Headgate writes beside those of the source's row, with names that neither format has for its own:
Spark reads no Iceberg table with a column ``_partition``. ``_operation`` is upsert, delete or READ;
``_committed_at`` is when the source committed the change, NULL if its event does not have the time."""

FORMER_COLUMNS: Final = {"_topic_partition": "_partition"}
"""Own column → its name in tables that were created for earlier versions of Headgate."""

READ: Final = "read"
"""The operation of a row that was copied from the source, as a connector's snapshot reads rows (``op: r``)."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def appended_row(change: Change, topic: str) -> Row:
    """The change as one row: of a delete only its key."""
    moment = None if change.source_ms is None else (_EPOCH + timedelta(milliseconds=change.source_ms)).isoformat()
    own: Row = {
        "_operation": change.operation.value,
        "_topic": topic,
        "_topic_partition": change.partition,
        "_offset": change.offset,
        "_committed_at": moment,
    }
    return change.key | (change.row or {}) | own


def copied_row(topic: str, partition: int, offset: int) -> Row:
    """Headgate's own columns of a copied row, which has all changes before ``offset``; those from there on follow it.

    When the source committed it is not known.
    """
    return {
        "_operation": READ,
        "_topic": topic,
        "_topic_partition": partition,
        "_offset": offset,
        "_committed_at": None,
    }
