"""The rows of a migration at MariaDB: ranges of the key, triggers, copying, comparing.

A chunk is one statement, INSERT IGNORE … SELECT … LOCK IN SHARE MODE: the rows are read and written in one transaction
under locks, so whatever a client changes it changes before (then the newer row is copied) or after (then the trigger
has the last word). The copy never waits for a row while it holds others: of a deadlock's two transactions the server
ends the cheaper one, which is the client's. A chunk that meets a locked row is undone, and tried again with fewer rows.
Keys are compared column by column, since MariaDB does not use an index for (a, b) > (x, y).
"""

import threading
from typing import Any, Final

from headgate.migration.strategies.contract import Chunk, Load, Plan, Table
from headgate.migration.strategies.mariadb_sessions import MariadbSessions, Session, quoted

__all__ = ["MariadbCopy"]

_TEXT_TYPES: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")

_SWALLOWED: Final = "1048, 1062, 1146, 1264, 1265, 1292, 1364, 1366, 1406, 1526, 4025"
"""What the shadow may refuse of a row: NOT NULL, duplicate, no such table, out of range, truncated, incorrect value, no
default, too long, no partition, a CHECK. Never a deadlock (1213): that has ended the client's transaction."""

TABLE_LOCK_SECONDS: Final = 5
"""The copy waits so long for a table that somebody alters or locks: it holds nothing then."""


class MariadbCopy:
    """Statements over a plan's rows; each thread has a session of its own."""

    def __init__(self, sessions: MariadbSessions) -> None:
        self._sessions = sessions
        self._local = threading.local()
        self._open: list[Any] = []

    def session(self, part: str) -> Session:
        """This thread's session; ``part`` names it the first time."""
        if not hasattr(self._local, "session"):
            # Kept, because a context manager that is forgotten closes what it manages.
            self._local.manager = self._sessions.part(part)
            session = self._local.manager.__enter__()
            session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            session.run(f"SET SESSION lock_wait_timeout = {TABLE_LOCK_SECONDS}, innodb_lock_wait_timeout = 0")
            self._local.session = session
            self._open.append(session)
        kept: Session = self._local.session
        return kept

    def let_go(self) -> None:
        """End this thread's session."""
        if hasattr(self._local, "session"):
            self._local.session.close()
            del self._local.session, self._local.manager

    def close(self) -> None:
        """End every session."""
        for session in self._open:
            session.close()
        self._open = []

    def next_bound(self, plan: Plan, above: tuple[Any, ...] | None, rows: int) -> tuple[Any, ...] | None:
        """See contract."""
        columns = [old for old, _ in plan.key]
        where, parameters = _above(columns, above)
        listed = ", ".join(map(quoted, columns))
        found = self.session("copy0").run(
            f"SELECT {listed} FROM {quoted(plan.before.schema, plan.before.name)} WHERE {where} "
            f"ORDER BY {listed} LIMIT 1 OFFSET {int(rows) - 1}",
            parameters,
        )
        return tuple(found[0]) if found else None

    def copy(self, plan: Plan, chunk: Chunk) -> int:
        """See contract."""
        schema = plan.before.schema
        where, parameters = _within([old for old, _ in plan.key], chunk)
        statement = (
            f"INSERT IGNORE INTO {quoted(schema, plan.shadow)} ({', '.join(quoted(new) for _, new in plan.pairs)}) "
            f"SELECT {', '.join(quoted(old) for old, _ in plan.pairs)} FROM {quoted(schema, plan.before.name)} "
            f"WHERE {where} LOCK IN SHARE MODE"
        )
        return self.session("copy0").count(statement, parameters)

    def load(self) -> Load:
        """See contract; a primary does not know how far its replicas are."""
        ((_, running),) = self.session("copy0").run("SHOW GLOBAL STATUS LIKE 'Threads_running'")
        return Load(int(running) - 1)

    def differing(self, plan: Plan, chunk: Chunk) -> int:
        """See contract: a consistent snapshot sees both tables at one moment, because triggers change them together."""
        session = self.session("copy0")
        session.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        try:
            return self._missing(session, plan, chunk, forward=True) + self._missing(
                session, plan, chunk, forward=False
            )
        finally:
            session.run("COMMIT")

    def _missing(self, session: Session, plan: Plan, chunk: Chunk, *, forward: bool) -> int:
        """Rows of the table without their equal in the shadow; backward, rows of the shadow that the table has not."""
        schema = plan.before.schema
        names = (plan.before.name, plan.shadow) if forward else (plan.shadow, plan.before.name)
        keys = plan.key if forward else tuple((new, old) for old, new in plan.key)
        on = " AND ".join(f"a.{quoted(mine)} = b.{quoted(theirs)}" for mine, theirs in keys)
        where, parameters = _within([mine for mine, _ in keys], chunk, prefix="a.")
        unequal = [f"b.{quoted(keys[0][1])} IS NULL"]
        if forward:
            unequal += [_unequal(plan, old, new) for old, new in plan.pairs if new not in plan.loose]
        ((rows,),) = session.run(
            f"SELECT COUNT(*) FROM {quoted(schema, names[0])} a LEFT JOIN {quoted(schema, names[1])} b ON {on} "
            f"WHERE {where} AND ({' OR '.join(unequal)})",
            parameters,
        )
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
        """Of the triggers for insert, update, delete."""
        return f"hg{mark}_i", f"hg{mark}_u", f"hg{mark}_d"

    def triggers(self, plan: Plan, mark: str) -> list[str]:
        """The statements that create them."""
        schema = plan.before.schema
        table, shadow = quoted(schema, plan.before.name), quoted(schema, plan.shadow)
        columns = ", ".join(quoted(new) for _, new in plan.pairs)
        values = ", ".join(f"NEW.{quoted(old)}" for old, _ in plan.pairs)
        put = f"REPLACE INTO {shadow} ({columns}) VALUES ({values});"
        same = " AND ".join(f"{shadow}.{quoted(new)} <=> OLD.{quoted(old)}" for old, new in plan.key)
        moved = " AND ".join(f"OLD.{quoted(old)} <=> NEW.{quoted(old)}" for old, _ in plan.key)
        take = f"DELETE FROM {shadow} WHERE {same};"
        handler = f"DECLARE CONTINUE HANDLER FOR {_SWALLOWED} BEGIN END;"
        bodies = {"INSERT": put, "UPDATE": f"IF NOT ({moved}) THEN {take} END IF; {put}", "DELETE": take}
        return [
            f"CREATE TRIGGER {quoted(schema, name)} AFTER {event} ON {table} FOR EACH ROW BEGIN {handler} {body} END"
            for name, (event, body) in zip(self.trigger_names(mark), bodies.items(), strict=True)
        ]


def _unequal(plan: Plan, old: str, new: str) -> str:
    first, second = f"a.{quoted(old)}", f"b.{quoted(new)}"
    before, after = plan.before.column(old), plan.after.column(new)
    kinds = [column.type.split("(")[0].lower() for column in (before, after) if column is not None]
    if all(kind in _TEXT_TYPES for kind in kinds):
        # As the characters are, not as a collation sees them; a changed character set leaves them what they are.
        first, second = (f"CONVERT({side} USING utf8mb4) COLLATE utf8mb4_bin" for side in (first, second))
    return f"NOT ({first} <=> {second})"


def _above(columns: list[str], bound: tuple[Any, ...] | None, prefix: str = "") -> tuple[str, tuple[Any, ...]]:
    return _beyond(columns, bound, ">", ">", prefix)


def _within(columns: list[str], chunk: Chunk, prefix: str = "") -> tuple[str, tuple[Any, ...]]:
    above, first = _beyond(columns, chunk.above, ">", ">", prefix)
    upto, second = _beyond(columns, chunk.upto, "<", "<=", prefix)
    return f"{above} AND {upto}", first + second


def _beyond(
    columns: list[str], bound: tuple[Any, ...] | None, strict: str, last: str, prefix: str
) -> tuple[str, tuple[Any, ...]]:
    """(a, b) > (x, y) as (a > x OR (a = x AND b > y)), behind a condition on a alone that an index can use."""
    if bound is None:
        return "TRUE", ()
    names = [prefix + quoted(column) for column in columns]
    cases, parameters = [], []
    for index, name in enumerate(names):
        is_last = index == len(names) - 1
        equal = [f"{before} = %s" for before in names[:index]]
        cases.append(" AND ".join([*equal, f"{name} {last if is_last else strict} %s"]))
        parameters += [*bound[:index], bound[index]]
    if len(names) == 1:
        return cases[0], tuple(parameters)
    return f"{names[0]} {strict}= %s AND ({' OR '.join(cases)})", (bound[0], *parameters)
