"""The rows of a migration at PostgreSQL: bounds of ranges, the load, and how columns are cast."""

import threading
from typing import Any, Final

from headgate.databases.postgresql import sql
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.databases.postgresql.key_ranges import IN_ORDER, bound_query, planned
from headgate.migration.strategies.contract import CopyPlan, DatabaseLoad
from headgate.migration.strategies.postgresql.sessions import PostgresSessions, named, translating

__all__ = ["PostgresCopy", "casted", "table_of"]

LOCK_MILLISECONDS: Final = 100
"""Reads wait no longer for a table that a client alters: they are retried."""

_LOAD: Final = """
SELECT (SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND backend_type = 'client backend'
AND pid <> pg_backend_pid()), (SELECT coalesce(max(extract(epoch FROM replay_lag)), 0) FROM pg_stat_replication)
"""


class PostgresCopy:
    """Statements over a plan's rows; each thread has a session of its own."""

    def __init__(self, sessions: PostgresSessions) -> None:
        self._sessions = sessions
        self._local = threading.local()
        self._open: list[BoundedConnection] = []

    def session(self) -> BoundedConnection:
        """This thread's session."""
        kept = getattr(self._local, "session", None)
        if kept is None or kept.closed:
            kept = self._sessions.open()
            with translating("a session of the copy"):
                kept.execute(f"SET lock_timeout = {LOCK_MILLISECONDS}")
            self._local.session = kept
            self._open.append(kept)
        return kept

    def let_go(self) -> None:
        """End this thread's session."""
        kept = getattr(self._local, "session", None)
        if kept is not None:
            kept.close()
            del self._local.session

    def close(self) -> None:
        """End every session."""
        for session in self._open:
            session.close()
        self._open = []

    def next_bound(self, plan: CopyPlan, above: tuple[Any, ...] | None, rows: int) -> tuple[Any, ...] | None:
        """See contract."""
        columns = [old for old, _ in plan.key]
        with translating("looking for the next range"):
            session = self.session()
            with session.transaction(), planned(session.execute, IN_ORDER):
                found = session.execute(bound_query(table_of(plan), columns, above, rows)).fetchone()
        return None if found is None else tuple(found)

    def load(self) -> DatabaseLoad:
        """See contract; without a replica, or if all have caught up, the lag is 0."""
        with translating("asking for the load"):
            ((running, lag),) = self.session().execute(_LOAD).fetchall()
        return DatabaseLoad(int(running), float(lag))


def table_of(plan: CopyPlan) -> sql.Identifier:
    """The table that is copied."""
    return named(plan.before.schema, plan.before.name)


def casted(plan: CopyPlan, value: sql.Composable, new: str) -> sql.Composable:
    """The value as the new column's type, where that is another one."""
    old = next(name for name, theirs in plan.pairs if theirs == new)
    before, after = plan.before.column(old), plan.after.column(new)
    if before is None or after is None or before.type == after.type:
        return value
    return sql.SQL("{}::{}").format(value, sql.SQL(after.type))


def casted_back(plan: CopyPlan, old: str, new: str) -> sql.Composable:
    """The copy's value as the type of the table's column, where that is another one."""
    before, after = plan.before.column(old), plan.after.column(new)
    if before is None or after is None or before.type == after.type:
        return sql.Identifier(new)
    return sql.SQL("{}::{}").format(sql.Identifier(new), sql.SQL(before.type))
