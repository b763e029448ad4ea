"""``source.snapshot`` of Debezium's events: whether a row comes from a snapshot, and is its last one.

While a connector copies whole tables, it does not read its database's log: what was changed since the snapshot began
is not in its topics, and it sends no heartbeats. An incremental snapshot runs beside the log's changes.
"""

from typing import Final

__all__ = ["IN_THE_STREAM", "LAST", "LAST_OF_TABLE"]

IN_THE_STREAM: Final = frozenset({None, False, "false", "incremental"})
"""Of what is not a row of a snapshot of the whole table."""

LAST: Final = "last"
"""Of the last row of a snapshot, also if the last table has no rows. The feed may not read the table it belongs to."""

LAST_OF_TABLE: Final = frozenset({LAST, "last_in_data_collection"})
"""Of a table's last row; but of the first table's, where that is its only row, it is "first"."""
