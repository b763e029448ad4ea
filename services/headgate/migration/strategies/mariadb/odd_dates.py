"""Dates that a table of MariaDB's may hold and that no event has: a row that gets one ends a change by ``online``.

Debezium sends a zero date, and one with a zero in it, as NULL or as 1970-01-01, and years below 100 as 1970 to 2069
(docs/types.md). The copy gets what the event has, and the comparison under the lock finds the difference.
"""

from typing import Final

from headgate.migration.strategies.contract import DescribedTable
from headgate.migration.strategies.mariadb.sessions import Session
from headgate.migration.strategies.mariadb.text import kind_of

_KINDS: Final = frozenset({"date", "datetime", "timestamp"})
_REFUSING: Final = frozenset({"NO_ZERO_DATE", "NO_ZERO_IN_DATE"})
"""Modes of a server by which its clients cannot write such dates, if one of ``_STRICT`` is set too."""

_STRICT: Final = frozenset({"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"})


def warn_of_dates(session: Session, table: DescribedTable) -> str:
    """What to expect of the table's dates; empty if it has none, or if the server lets no zero dates in."""
    names = [column.name for column in table.columns if kind_of(column) in _KINDS]
    ((mode,),) = session.run("SELECT @@GLOBAL.sql_mode")
    modes = set(str(mode).split(","))
    if not names or (modes >= _REFUSING and modes & _STRICT):
        return ""
    return (
        f"a row that gets a zero date ('0000-00-00') in {', '.join(names)} while the change runs ends it, because the "
        "connector sends another date"
    )
