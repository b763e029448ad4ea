"""The rows of a migration at MariaDB: ranges of the key, triggers, copying, comparing.

A chunk is one statement, INSERT IGNORE … SELECT … LOCK IN SHARE MODE: the rows are read and written in one transaction
under locks, so whatever a client changes it changes before (then the newer row is copied) or after (then the trigger
has the last word). The copy never waits for a row while it holds others: of a deadlock's two transactions the server
ends the cheaper one, which is the client's. A chunk that meets a locked row is undone, and tried again with fewer rows.
Keys are compared column by column, since MariaDB does not use an index for (a, b) > (x, y).
"""

import threading
from contextlib import AbstractContextManager
from typing import Any, Final

from headgate.databases.mysql.sql import quoted
from headgate.migration.strategies.contract import Chunk, Load, Plan, Table
from headgate.migration.strategies.mariadb.sessions import MariadbSessions, Session
from headgate.migration.strategies.mariadb.text import beyond, within

__all__ = ["MariadbCopy", "differing_rows"]

_TEXT_TYPES: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")

_SWALLOWED: Final = "1048, 1062, 1146, 1264, 1265, 1292, 1364, 1366, 1406, 1526, 4025"
"""What the shadow may refuse of a row: NOT NULL, duplicate, no such table, out of range, truncated, incorrect value, no
default, too long, no partition, a CHECK. Never a deadlock (1213): that has ended the client's transaction."""

TABLE_LOCK_SECONDS: Final = 5
"""The copy waits so long for a table that somebody alters or locks: it holds nothing then."""


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

    def next_bound(self, plan: Plan, above: tuple[Any, ...] | None, rows: int) -> tuple[Any, ...] | None:
        """See contract."""
        columns = [old for old, _ in plan.key]
        where, parameters = beyond(columns, above, ">", ">")
        listed = ", ".join(map(quoted, columns))
        found = self.session().run(
            f"SELECT {listed} FROM {quoted(plan.before.schema, plan.before.name)} WHERE {where} "
            f"ORDER BY {listed} LIMIT 1 OFFSET {int(rows) - 1}",
            parameters,
        )
        return tuple(found[0]) if found else None

    def copy(self, plan: Plan, chunk: Chunk) -> int:
        """See contract."""
        schema = plan.before.schema
        where, parameters = within([old for old, _ in plan.key], chunk)
        statement = (
            f"INSERT IGNORE INTO {quoted(schema, plan.shadow)} ({', '.join(quoted(new) for _, new in plan.pairs)}) "
            f"SELECT {', '.join(quoted(old) for old, _ in plan.pairs)} FROM {quoted(schema, plan.before.name)} "
            f"WHERE {where} LOCK IN SHARE MODE"
        )
        return self.session().count(statement, parameters)

    def load(self) -> Load:
        """See contract; a primary does not know how far its replicas are."""
        ((_, running),) = self.session().run("SHOW GLOBAL STATUS LIKE 'Threads_running'")
        return Load(int(running) - 1)

    def differing(self, plan: Plan, chunk: Chunk) -> int:
        """See contract: a consistent snapshot sees both tables at one moment, because triggers change them together."""
        session = self.session()
        session.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        try:
            return self._missing(session, plan, chunk, forward=True) + self._missing(
                session, plan, chunk, forward=False
            )
        finally:
            session.run("COMMIT")

    def _missing(self, session: Session, plan: Plan, chunk: Chunk, *, forward: bool) -> int:
        keys = [pair[0 if forward else 1] for pair in plan.key]
        where, parameters = within(keys, chunk, prefix="a.")
        shadow = quoted(plan.before.schema, plan.shadow)
        ((rows,),) = session.run(f"SELECT COUNT(*) {differing_rows(plan, shadow, where, forward=forward)}", parameters)
        return int(rows)

    def duplicates(self, table: Table, columns: tuple[str, ...]) -> bool:
        """See contract."""
        listed = ", ".join(map(quoted, columns))
        present = " AND ".join(f"{quoted(column)} IS NOT NULL" for column in columns)
        with self._sessions.asking() as session:
            return bool(
                session.run(
                    f"SELECT 1 FROM {quoted(table.schema, table.name)} WHERE {present} GROUP BY {listed} "
                    "HAVING COUNT(*) > 1 LIMIT 1"
                )
            )

    @staticmethod
    def trigger_names(mark: str) -> tuple[str, str, str]:
        """Names of the triggers for delete, update and insert, in the order in which they are created."""
        return f"hg{mark}_d", f"hg{mark}_u", f"hg{mark}_i"

    def triggers(self, plan: Plan, mark: str) -> list[str]:
        """The statements that create them, one after the other, while clients write.

        A row must not enter the shadow before the triggers that change and remove it exist. Otherwise the shadow keeps
        a row that a client deletes in between, or its old version, which the copy takes for the newer one.
        """
        schema = plan.before.schema
        table, shadow = quoted(schema, plan.before.name), quoted(schema, plan.shadow)
        columns = ", ".join(quoted(new) for _, new in plan.pairs)
        values = ", ".join(f"NEW.{quoted(old)}" for old, _ in plan.pairs)
        put = f"REPLACE INTO {shadow} ({columns}) VALUES ({values});"
        same = " AND ".join(f"{shadow}.{quoted(new)} <=> OLD.{quoted(old)}" for old, new in plan.key)
        moved = " AND ".join(f"OLD.{quoted(old)} <=> NEW.{quoted(old)}" for old, _ in plan.key)
        take = f"DELETE FROM {shadow} WHERE {same};"
        handler = f"DECLARE CONTINUE HANDLER FOR {_SWALLOWED} BEGIN END;"
        bodies = {"DELETE": take, "UPDATE": f"IF NOT ({moved}) THEN {take} END IF; {put}", "INSERT": put}
        return [
            f"CREATE TRIGGER {quoted(schema, name)} AFTER {event} ON {table} FOR EACH ROW BEGIN {handler} {body} END"
            for name, (event, body) in zip(self.trigger_names(mark), bodies.items(), strict=True)
        ]


def differing_rows(plan: Plan, shadow: str, where: str, *, forward: bool) -> str:
    """FROM …: rows ``a`` of the table without their equal in the copy; backward, rows of the copy that it has not.

    ``where`` is a condition on ``a``; ``shadow``: the copy as it is named, quoted.
    """
    table = quoted(plan.before.schema, plan.before.name)
    first, second = (table, shadow) if forward else (shadow, table)
    keys = plan.key if forward else tuple((new, old) for old, new in plan.key)
    on = " AND ".join(f"a.{quoted(mine)} = b.{quoted(theirs)}" for mine, theirs in keys)
    unequal = [f"b.{quoted(keys[0][1])} IS NULL"]
    if forward:
        unequal += [_unequal(plan, old, new) for old, new in plan.pairs if new not in plan.loose]
    return f"FROM {first} a LEFT JOIN {second} b ON {on} WHERE {where} AND ({' OR '.join(unequal)})"


def _unequal(plan: Plan, old: str, new: str) -> str:
    first, second = f"a.{quoted(old)}", f"b.{quoted(new)}"
    before, after = plan.before.column(old), plan.after.column(new)
    kinds = [column.type.split("(")[0].lower() for column in (before, after) if column is not None]
    if all(kind in _TEXT_TYPES for kind in kinds):
        # As the characters are, not as a collation sees them; a changed character set leaves them what they are.
        first, second = (f"CONVERT({side} USING utf8mb4) COLLATE utf8mb4_bin" for side in (first, second))
    return f"NOT ({first} <=> {second})"
