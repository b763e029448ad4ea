"""How long nothing became visible in a table because of a fault, by the audit's own clock in the target.

The log shows a take-over; this module shows what a reader of the table notices: the longest gap between two changes of
a table that lies at least partly between the fault and its end. It includes the new holder's way from claim to first
batch.
"""

from collections.abc import Iterable
from typing import Final

from psycopg import Connection

_LONGEST: Final = """
SELECT extract(epoch FROM max(at - before))::float8
FROM (SELECT at, lag(at) OVER (ORDER BY id) AS before FROM audit.entries
      WHERE "table" = %(table)s AND operation IN ('INSERT', 'UPDATE', 'DELETE')) AS gaps
WHERE at > to_timestamp(%(begin)s) AND before < to_timestamp(%(end)s)
"""


def longest_pauses(target: Connection, tables: Iterable[str], begin: float, end: float) -> dict[str, float]:
    """Table → longest pause in seconds that overlaps ``begin`` to ``end`` (seconds since 1970).

    A table in which nothing was ever changed afterwards has none.
    """
    pauses: dict[str, float] = {}
    for table in sorted(tables):
        row = target.execute(_LONGEST, {"table": table, "begin": begin, "end": end}).fetchone()
        if row is not None and row[0] is not None:
            pauses[table] = row[0]
    return pauses
