"""Who holds a table, or waits for it: the sessions that a forced cut-over ends."""

from typing import Final

from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.migration.strategies.contract import LockUnavailableError

__all__ = ["end_holders"]

# Without the database, a table of another one that has the same number would count. Any role can take our name.
_HOLDERS: Final = """
SELECT l.pid, coalesce(a.usename, a.backend_type, '?'), coalesce(a.application_name, ''), bool_or(l.granted)
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.relation = %(table)s::regclass
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND l.pid IS DISTINCT FROM pg_backend_pid() AND (coalesce(a.application_name, '') <> current_setting('application_name')
OR a.usename IS DISTINCT FROM session_user)
GROUP BY 1, 2, 3 ORDER BY bool_or(l.granted), l.pid
"""


def end_holders(session: BoundedConnection, table: str) -> list[str]:
    """End them, the waiting ones first: ended after the one that they wait for, they would run in between.

    Returns what was ended. Raises LockUnavailableError for a prepared transaction, which has no session to end.
    """
    found = session.execute(_HOLDERS, {"table": table}).fetchall()
    if any(pid is None for pid, *_ in found):
        raise LockUnavailableError(
            f"force-cutover: a prepared transaction holds {table}, which no session can be ended for. See "
            "pg_prepared_xacts, and COMMIT PREPARED or ROLLBACK PREPARED it"
        )
    ended = []
    for pid, user, application, holds in found:
        session.execute("SELECT pg_terminate_backend(%s)", (pid,))
        name = f"{user}, {application}" if application else user
        ended.append(f"{pid} ({name}; {'held' if holds else 'waited for'} it)")
    return ended
