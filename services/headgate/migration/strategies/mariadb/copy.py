"""The rows of a migration at MariaDB: bounds of ranges, the load, and how two tables are compared."""

import threading
from contextlib import AbstractContextManager
from typing import Any, Final

from headgate.databases.mysql.key_ranges import bound_query
from headgate.databases.mysql.sql import quoted
from headgate.migration.strategies.contract import CopyPlan, DatabaseLoad, DescribedColumn
from headgate.migration.strategies.mariadb.sessions import MariadbSessions, Session

__all__ = ["MariadbCopy", "differing_rows"]

_TEXT_TYPES: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")

TABLE_LOCK_SECONDS: Final = 5
"""The copy waits this long for a table that a client alters or locks: it holds nothing then."""


class MariadbCopy:
    """Statements over a plan's rows, in one session; threads use it one after the other."""

    def __init__(self, sessions: MariadbSessions) -> None:
        self._sessions = sessions
        self._opening = threading.Lock()
        self._session: Session | None = None
        self._manager: AbstractContextManager[Session] | None = None

    def session(self) -> Session:
        """Opened when it is first asked for, and again after it was lost."""
        with self._opening:
            if self._session is None or self._session.is_closed:
                # Kept, because a context manager that is forgotten closes what it manages.
                self._manager = self._sessions.part("copy")
                self._session = self._manager.__enter__()
                self._session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                self._session.run(f"SET SESSION lock_wait_timeout = {TABLE_LOCK_SECONDS}, innodb_lock_wait_timeout = 0")
            return self._session

    def let_go(self) -> None:
        """End the session."""
        with self._opening:
            if self._session is not None:
                self._session.close()
            self._session = self._manager = None

    def close(self) -> None:
        """The same."""
        self.let_go()

    def next_bound(self, plan: CopyPlan, above: tuple[Any, ...] | None, rows: int) -> tuple[Any, ...] | None:
        """See contract."""
        columns = [old for old, _ in plan.key]
        table = quoted(plan.before.schema, plan.before.name)
        found = self.session().run(*bound_query(table, columns, above, rows))
        return tuple(found[0]) if found else None

    def load(self) -> DatabaseLoad:
        """See contract; a primary does not know how far its replicas are."""
        ((_, running),) = self.session().run("SHOW GLOBAL STATUS LIKE 'Threads_running'")
        return DatabaseLoad(int(running) - 1)


def differing_rows(plan: CopyPlan, shadow: str, where: str, *, forward: bool, table: str | None = None) -> str:
    """FROM …: rows ``a`` of the table without their equal in the copy; backward, rows of the copy that the table lacks.

    ``where`` is a condition on ``a``; ``shadow``, ``table``: the copy and the table as they are named, quoted.
    """
    table = table or quoted(plan.before.schema, plan.before.name)
    first, second = (table, shadow) if forward else (shadow, table)
    keys = plan.key if forward else tuple((new, old) for old, new in plan.key)
    mine_of, theirs_of = (plan.before, plan.after) if forward else (plan.after, plan.before)
    on = " AND ".join(_is_key(mine_of.column(mine), theirs_of.column(theirs)) for mine, theirs in keys)
    unequal = [f"b.{quoted(keys[0][1])} IS NULL"]
    if forward:
        unequal += [_unequal(plan, old, new) for old, new in plan.pairs if new not in plan.loose]
    return f"FROM {first} a LEFT JOIN {second} b ON {on} WHERE {where} AND ({' OR '.join(unequal)})"


def _is_key(mine: DescribedColumn | None, theirs: DescribedColumn | None) -> str:
    """Whether a row of ``b`` has the key of one of ``a``. Texts are compared by the collation of ``b``.

    The server compares two collations of one character set only where one of them is binary, and uses the key of ``b``
    only with that one's own collation.
    """
    assert mine is not None  # noqa: S101 - a key's columns are in both tables
    assert theirs is not None  # noqa: S101 - the same
    first, second = f"a.{quoted(mine.name)}", f"b.{quoted(theirs.name)}"
    if mine.collation and theirs.collation and mine.collation != theirs.collation:
        charset = theirs.collation.split("_")[0]
        first = f"CONVERT({first} USING {charset}) COLLATE {theirs.collation}"
    return f"{first} = {second}"


def _unequal(plan: CopyPlan, old: str, new: str) -> str:
    first, second = f"a.{quoted(old)}", f"b.{quoted(new)}"
    before, after = plan.before.column(old), plan.after.column(new)
    kinds = [column.type.split("(")[0].lower() for column in (before, after) if column is not None]
    if all(kind in _TEXT_TYPES for kind in kinds):
        # Compare the characters themselves, not as a collation does; a change of the character set keeps them.
        first, second = (f"CONVERT({side} USING utf8mb4) COLLATE utf8mb4_bin" for side in (first, second))
    return f"NOT ({first} <=> {second})"
