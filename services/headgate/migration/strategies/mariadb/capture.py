"""Whether a table of MariaDB can be changed by strategy online: its changes are logged whole.

Whether a connector reads the log is not asked here: a mark shows it, once the migration runs.
"""

from typing import Final

from headgate.migration.strategies.contract import DescribedTable, RefusedError
from headgate.migration.strategies.mariadb.mark import markable
from headgate.migration.strategies.mariadb.sessions import Session

__all__ = ["check_capture"]

VERSION_MIN: Final = (10, 6)
"""Knows SKIP LOCKED; RENAME COLUMN and columns that are added and dropped at once are older."""

_IN_FORCE: Final = "SELECT VERSION(), @@log_bin, @@global.binlog_format, @@global.binlog_row_image"


def check_capture(session: Session, table: DescribedTable) -> None:
    """Raise RefusedError unless it can. Rights are checked before (rights.py)."""
    where = f"table {table.schema}.{table.name}"
    ((version, is_logged, form, image),) = session.run(_IN_FORCE)
    if tuple(int(part) for part in str(version).split("-")[0].split(".")[:2]) < VERSION_MIN:
        least = ".".join(map(str, VERSION_MIN))
        raise RefusedError(f"{where}: strategy online needs MariaDB {least} or later, this is {version}")
    if not is_logged or str(form).upper() != "ROW" or str(image).upper() != "FULL":
        raise RefusedError(
            f"{where}: changes are followed by the server's log, which must have whole rows (log_bin is "
            f"{'ON' if is_logged else 'OFF'}, binlog_format {form}, binlog_row_image {image}): set log_bin, "
            "binlog_format=ROW, binlog_row_image=FULL, or use strategy pt-osc"
        )
    if not markable(table):
        raise RefusedError(f"{where} has no column beside its key that can be updated: use strategy pt-osc")
