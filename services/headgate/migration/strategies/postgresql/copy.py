"""The rows of a migration at PostgreSQL: ranges of the key, the trigger, copying, comparing.

A chunk is INSERT … SELECT … FOR KEY SHARE … ON CONFLICT DO NOTHING: a row that is being deleted is waited for, and a
row that the trigger has put there already is the newer one. The trigger's insert takes the place of a copied row (ON
CONFLICT DO UPDATE). What the shadow cannot hold is left out, so that no client's statement fails; the comparison finds
it. The copy never waits long for a row while it holds others (LOCK_MILLISECONDS): it would be a deadlock's other half.

A transaction under REPEATABLE READ that began before a row was copied does not see the copy, and its delete misses it:
the comparison finds that as well, and the migration fails instead of bringing the row back.
"""

import threading
from typing import Any, Final

from headgate.databases.postgresql import sql
from headgate.migration.strategies.contract import Chunk, Load, Plan, Table
from headgate.migration.strategies.postgresql.sessions import PostgresSessions, named, translating

__all__ = ["EMPTIED", "PostgresCopy", "casted", "listed", "table_of", "within"]

EMPTIED: Final = "e"
"""Behind the name of the trigger for rows: the one for TRUNCATE."""

LOCK_MILLISECONDS: Final = 100
"""The copy waits no longer for a row, as it holds others: well below ``deadlock_timeout`` (1 s by default), after which
the server would end one of the two, and as often as not the client."""

_LOAD: Final = """
SELECT (SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND backend_type = 'client backend'
AND pid <> pg_backend_pid()), (SELECT coalesce(max(extract(epoch FROM replay_lag)), 0) FROM pg_stat_replication)
"""


class PostgresCopy:
    """Statements over a plan's rows; each thread has a session of its own."""

    def __init__(self, sessions: PostgresSessions, mark: str) -> None:
        self._sessions = sessions
        self._mark = mark
        self._local = threading.local()
        self._open: list[Any] = []

    def session(self) -> Any:
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

    def next_bound(self, plan: Plan, above: tuple[Any, ...] | None, rows: int) -> tuple[Any, ...] | None:
        """See contract."""
        columns = [old for old, _ in plan.key]
        names = listed(columns)
        with translating("looking for the next range"):
            found = (
                self.session()
                .execute(
                    sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT 1 OFFSET {}").format(
                        names, table_of(plan), within(columns, Chunk(above, None)), names, sql.Literal(rows - 1)
                    )
                )
                .fetchone()
            )
        return None if found is None else tuple(found)

    def copy(self, plan: Plan, chunk: Chunk) -> int:
        """See contract."""
        statement = sql.SQL(
            "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {} WHERE {} FOR KEY SHARE ON CONFLICT DO "
            "NOTHING"
        ).format(
            named(plan.before.schema, plan.shadow),
            listed([new for _, new in plan.pairs]),
            sql.SQL(", ").join(casted(plan, sql.Identifier(old), new) for old, new in plan.pairs),
            table_of(plan),
            within([old for old, _ in plan.key], chunk),
        )
        with translating("copying a range"):
            return int(self.session().execute(statement).rowcount)

    def load(self) -> Load:
        """See contract; a replica that has caught up, or is none, has no lag."""
        with translating("asking for the load"):
            row = self.session().execute(_LOAD).fetchone()
        return Load(int(row[0]), float(row[1]))

    def differing(self, plan: Plan, chunk: Chunk) -> int:
        """See contract: one statement sees one snapshot."""
        first = sql.SQL(", ").join(
            sql.SQL("{}::text AS {}").format(casted(plan, sql.Identifier(old), new), sql.Identifier(new))
            for old, new in plan.pairs
        )
        second = sql.SQL(", ").join(
            sql.SQL("{}::text AS {}").format(sql.Identifier(new), sql.Identifier(new)) for _, new in plan.pairs
        )
        unequal = [sql.SQL("a.{0} IS NULL OR b.{0} IS NULL").format(sql.Identifier(plan.key[0][1]))]
        unequal += [
            sql.SQL("a.{0} IS DISTINCT FROM b.{0}").format(sql.Identifier(new))
            for _, new in plan.pairs
            if new not in plan.loose and new not in {name for _, name in plan.key}
        ]
        statement = sql.SQL(
            "SELECT count(*) FROM (SELECT {} FROM {} WHERE {}) a FULL JOIN (SELECT {} FROM {} WHERE {}) b ON {} "
            "WHERE {}"
        )
        on = sql.SQL(" AND ").join(sql.SQL("a.{0} = b.{0}").format(sql.Identifier(new)) for _, new in plan.key)
        with translating("comparing a range"):
            ((rows,),) = (
                self.session()
                .execute(
                    statement.format(
                        first,
                        table_of(plan),
                        within([old for old, _ in plan.key], chunk),
                        second,
                        named(plan.before.schema, plan.shadow),
                        within([new for _, new in plan.key], chunk),
                        on,
                        sql.SQL(" OR ").join(unequal),
                    )
                )
                .fetchall()
            )
        return int(rows)

    def duplicates(self, table: Table, columns: tuple[str, ...]) -> bool:
        """See contract."""
        present = sql.SQL(" AND ").join(sql.SQL("{} IS NOT NULL").format(sql.Identifier(name)) for name in columns)
        statement = sql.SQL("SELECT 1 FROM {} WHERE {} GROUP BY {} HAVING count(*) > 1 LIMIT 1").format(
            named(table.schema, table.name), present, listed(list(columns))
        )
        with self._sessions.asking() as session, translating("looking for duplicates"):
            return session.execute(statement).fetchone() is not None

    def triggers(self, plan: Plan) -> list[sql.Composable]:
        """The function, and its triggers: for rows, and for all of them at once."""
        shadow, function = named(plan.before.schema, plan.shadow), named(plan.before.schema, f"hg{self._mark}")
        new_row = sql.SQL(", ").join(casted(plan, sql.SQL("NEW.{}").format(sql.Identifier(old)), new)
                                     for old, new in plan.pairs)  # fmt: skip
        update = sql.SQL("{0} = excluded.{0}")
        updates = sql.SQL(", ").join(update.format(sql.Identifier(new)) for _, new in plan.pairs)
        old_keys = ((casted(plan, sql.SQL("OLD.{}").format(sql.Identifier(old)), new), new) for old, new in plan.key)
        gone = sql.SQL(" AND ").join(sql.SQL("{} = {}").format(sql.Identifier(new), value) for value, new in old_keys)
        moved = sql.SQL(" OR ").join(
            sql.SQL("OLD.{0} IS DISTINCT FROM NEW.{0}").format(sql.Identifier(old)) for old, _ in plan.key
        )
        keys = listed([new for _, new in plan.key])
        body = sql.SQL(
            # Its names mean what they mean here, whatever the search path of whoever writes to the table is.
            "CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
            "SET search_path FROM CURRENT AS $hg$ BEGIN "
            "IF TG_OP = 'TRUNCATE' THEN TRUNCATE {shadow}; RETURN NULL; END IF; "
            "IF TG_OP = 'DELETE' THEN DELETE FROM {shadow} WHERE {gone}; RETURN NULL; END IF; "
            "IF TG_OP = 'UPDATE' THEN IF {moved} THEN DELETE FROM {shadow} WHERE {gone}; END IF; END IF; "
            "INSERT INTO {shadow} ({columns}) OVERRIDING SYSTEM VALUE VALUES ({new_row}) ON CONFLICT ({keys}) DO "
            "UPDATE SET {updates}; RETURN NULL; "
            "EXCEPTION WHEN data_exception OR integrity_constraint_violation OR undefined_table THEN RETURN NULL; "
            "END $hg$"
        ).format(
            function=function,
            shadow=shadow,
            gone=gone,
            moved=moved,
            columns=listed([new for _, new in plan.pairs]),
            new_row=new_row,
            keys=keys,
            updates=updates,
        )
        trigger = sql.SQL(
            "CREATE TRIGGER {} AFTER INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW EXECUTE FUNCTION {}()"
        ).format(sql.Identifier(f"hg{self._mark}"), table_of(plan), function)
        emptied = sql.SQL("CREATE TRIGGER {} AFTER TRUNCATE ON {} EXECUTE FUNCTION {}()").format(
            sql.Identifier(f"hg{self._mark}{EMPTIED}"), table_of(plan), function
        )
        # Else they do not fire for whoever applies changes (session_replication_role = replica): subscriptions, and
        # our own sink with foreign_keys: ignore.
        always = [
            sql.SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(table_of(plan), sql.Identifier(name))
            for name in (f"hg{self._mark}", f"hg{self._mark}{EMPTIED}")
        ]
        return [body, trigger, emptied, *always]


def table_of(plan: Plan) -> sql.Identifier:
    """The table that is copied."""
    return named(plan.before.schema, plan.before.name)


def listed(columns: list[str]) -> sql.Composed:
    """Names with commas between."""
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def casted(plan: Plan, value: sql.Composable, new: str) -> sql.Composable:
    """The value as the new column's type, where that is another one."""
    old = next(name for name, theirs in plan.pairs if theirs == new)
    before, after = plan.before.column(old), plan.after.column(new)
    if before is None or after is None or before.type == after.type:
        return value
    return sql.SQL("{}::{}").format(value, sql.SQL(after.type))


def casted_back(plan: Plan, old: str, new: str) -> sql.Composable:
    """The copy's value as the type of the table's column, where that is another one; as it is, where it may differ."""
    before, after = plan.before.column(old), plan.after.column(new)
    if before is None or after is None or before.type == after.type or new in plan.loose:
        return sql.Identifier(new)
    return sql.SQL("{}::{}").format(sql.Identifier(new), sql.SQL(before.type))


def within(columns: list[str], chunk: Chunk) -> sql.Composable:
    """The condition that a row is in the range, by these columns."""
    row = sql.SQL("({})").format(listed(columns))
    conditions: list[sql.Composable] = []
    for sign, bound in ((">", chunk.above), ("<=", chunk.upto)):
        if bound is not None:
            values = sql.SQL(", ").join(map(sql.Literal, bound))
            conditions.append(sql.SQL("{} {} ({})").format(row, sql.SQL(sign), values))
    return sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("TRUE")
