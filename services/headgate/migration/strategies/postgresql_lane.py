"""What an online change needs of PostgreSQL beside the copy itself: capture, marks, the feed's position, the cut-over.

A *mark* is an update of one row that changes nothing: the server logs it, and the capturing connector sends it like any
change. The cut-over must know that all changes of the table are on the topic, while it holds the table and nothing more
can be written to it. It asks the server: a temporary replication slot of its own, made before the lock, lists what has
been written to the table since, in the log's order. The last of these has a place in the log (LSN), and Debezium's
event of the same change has the same one. When that event is on the topic, everything is, and the feed's position
behind it says that everything is in the copy. A mark written after the slot was made sees to it that there is a last.
"""

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import msgspec
from psycopg import sql

from headgate.migration.core.copy_steps import Position
from headgate.migration.strategies.contract import Chunk, LockUnavailableError, Memory, RefusedError, Table
from headgate.migration.strategies.lane_plan import LanePlan, aside_name
from headgate.migration.strategies.postgresql import PostgresServer, like
from headgate.migration.strategies.postgresql_copy import casted, listed, table_of, within
from headgate.migration.strategies.postgresql_sessions import named, translating
from headgate.migration.strategies.statement import Statement
from headgate.records.migration import Artifact

__all__ = ["FeedBehindError", "LastChange", "PostgresLane", "TopicTail"]

POLL_SECONDS: Final = 0.02
"""Clients wait while the cut-over waits: it looks often."""

HOT_KEYS_MAX: Final = 1_000
"""Rows that are compared while the table is locked; so many take some ten milliseconds."""

ROW_BYTES_MIN: Final = 32
"""A row's header and line pointer take as much."""

SAMPLED_PAGES: Final = 64
"""Half a megabyte, read at once; long values are counted where they are pointed to from, and not read."""

_OPERATIONS: Final = {"I": ("c",), "U": ("u", "c"), "D": ("d",)}
"""What pgoutput calls a change → what Debezium calls it. An update of the key is a delete, then a create."""

_PUBLICATION: Final = "SELECT pubname FROM pg_publication_tables WHERE schemaname = %s AND tablename = %s ORDER BY 1"

_PRIMARY: Final = """
SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k(number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s::regclass AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place
"""

_MARKABLE: Final = """
SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
AND attgenerated = '' AND attidentity <> 'a' ORDER BY attnum LIMIT 1
"""

# Locks are let go after the transaction has become visible. (Vacuum and its like hold a weaker one.)
_WRITERS: Final = """
SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND relation = %s::regclass AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""

_SAMPLED_PERCENT: Final = """
SELECT least(100.0, 100.0 * %s / greatest(pg_relation_size(oid) / current_setting('block_size')::int, 1))::float8
FROM pg_class WHERE oid = %s::regclass
"""

_IDENTITY: Final = "SELECT oid::bigint, relfilenode::bigint FROM pg_class WHERE oid = %s::regclass"


class FeedBehindError(Exception):
    """Clients would have had to wait for longer than they may, so nothing was locked. It passes by itself."""


class LastChange(msgspec.Struct, frozen=True):
    """The last change of a table in the server's log. ``operations``: what Debezium calls it."""

    lsn: int
    operations: tuple[str, ...]


class TopicTail(Protocol):
    """The end of the table's topic."""

    def find(self, change: LastChange, seconds: float) -> int | None:
        """The offset of that change's event; None if it has not come within the time."""
        ...


class PostgresLane:
    """One migration's table and its copy at ``server``; sessions are the server's."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server

    # --- before anything is touched ---

    def primary(self, table: Table) -> tuple[str, ...]:
        """Columns of the primary key; empty if there is none."""
        with self.server.sessions.asking() as session, translating("describing the primary key"):
            return tuple(row[0] for row in session.execute(_PRIMARY, (_full(table, session),)).fetchall())

    def capture(self, table: Table) -> str:
        """A publication that has the table. Raises RefusedError if its changes cannot be followed to the end."""
        where = f"table {table.schema}.{table.name}"
        with self.server.sessions.asking() as session, translating("asking how the table is captured"):
            published = session.execute(_PUBLICATION, (table.schema, table.name)).fetchone()
            ((may,),) = session.execute(
                "SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"
            ).fetchall()
            markable = session.execute(_MARKABLE, (_full(table, session),)).fetchone()
        if published is None:
            raise RefusedError(
                f"{where} is in no publication, so no connector captures its changes: capture it with Debezium "
                "(plugin.name=pgoutput), or use strategy triggers"
            )
        if not may:
            raise RefusedError(
                f"{where}: strategy online opens a temporary replication slot for the cut-over, and its user may not: "
                "ALTER ROLE … REPLICATION, or use strategy triggers"
            )
        if markable is None:
            raise RefusedError(f"{where} has no column that can be updated, so no mark can be set: use triggers")
        return str(published[0])

    # --- the copy ---

    def make(self, statement: Statement, plan: LanePlan, memory: Memory, lock_seconds: float) -> None:
        """The copy, empty, with columns called as the table's; what an earlier attempt has left is dropped first."""
        schema, shadow = plan.plan.before.schema, named(plan.plan.before.schema, plan.plan.shadow)
        with self.server.sessions.part() as session, translating("making the copy"), session.transaction():
            session.execute(f"SET LOCAL lock_timeout = {int(lock_seconds * 1000)}")
            session.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(shadow))
            session.execute(like(plan.plan.before, plan.plan.shadow))
            session.execute(statement.on(named(schema, plan.plan.shadow).as_string(session)))
            for now, after in plan.renamed:
                session.execute(_renamed(shadow, after, now))
            for name, kind in plan.dropped:
                session.execute(
                    sql.SQL("ALTER TABLE {} ADD COLUMN {} {}").format(shadow, sql.Identifier(name), sql.SQL(kind))
                )
            self.server.note_in(session, memory)

    def mark(self, plan: LanePlan) -> tuple[str, ...] | None:
        """Update a row of the table to what it is; its key as text, None if there was no row to be had."""
        held = plan.held
        keys = [old for old, _ in held.key]
        with self.server.sessions.part() as session, translating("setting a mark"), session.transaction():
            found = session.execute(_MARKABLE, (_full(held.before, session),)).fetchone()
            row = session.execute(
                sql.SQL(
                    "UPDATE {table} SET {column} = {column} WHERE ({keys}) = (SELECT {keys} FROM {table} LIMIT 1 FOR "
                    "NO KEY UPDATE SKIP LOCKED) RETURNING {texts}"
                ).format(
                    table=table_of(held),
                    column=sql.Identifier(found[0]),
                    keys=listed(keys),
                    texts=sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(key)) for key in keys),
                )
            ).fetchone()
        return None if row is None else tuple(row)

    def has(self, plan: LanePlan, key: tuple[str, ...]) -> bool:
        """Whether the copy has the row."""
        held = plan.held
        condition = sql.SQL("({}) = ({})").format(
            listed([new for _, new in held.key]), sql.SQL(", ").join(map(sql.Literal, key))
        )
        with translating("looking for the mark"):
            found = self.server.sessions.main.execute(
                sql.SQL("SELECT 1 FROM {} WHERE {}").format(named(held.before.schema, held.shadow), condition)
            )
            return found.fetchone() is not None

    def writers(self, plan: LanePlan) -> set[str]:
        """Transactions that have written the table and have not ended, so far as others see; no lock is taken."""
        with translating("asking who writes the table"):
            main = self.server.sessions.main
            return {row[0] for row in main.execute(_WRITERS, (_full(plan.held.before, main),)).fetchall()}

    def built(self, plan: LanePlan) -> str:
        """Which table this is and where it stores its rows: TRUNCATE and rewriting make another of it."""
        with translating("looking at the table's storage"):
            main = self.server.sessions.main
            found = main.execute(_IDENTITY, (_full(plan.held.before, main),)).fetchone()
        return "" if found is None else f"{found[0]}/{found[1]}"

    def check_ours(self) -> None:
        """Raises DatabaseUnavailableError where another owner has ended this one's session."""
        with translating("asking the main session"):
            self.server.sessions.main.execute("SELECT 1")

    def row_bytes(self, plan: LanePlan) -> int:
        """Of an average row, as rows of some pages tell: statistics may be old, or there may be none yet."""
        held, main = plan.held, self.server.sessions.main
        sizes = [sql.SQL("coalesce(pg_column_size({}), 0)").format(sql.Identifier(old)) for old, _ in held.pairs]
        with translating("looking at the size of its rows"):
            share = main.execute(_SAMPLED_PERCENT, (SAMPLED_PAGES, _full(held.before, main))).fetchone()
            row = main.execute(
                sql.SQL("SELECT avg({}) FROM {} TABLESAMPLE SYSTEM ({})").format(
                    sql.SQL(" + ").join(sizes), table_of(held), sql.Literal(share[0])
                )
            ).fetchone()
        return ROW_BYTES_MIN + int(row[0] or 0)

    def position(self, plan: LanePlan, feed_id: str) -> Position | None:
        """Where the feed stands, as its sink has it."""
        with translating("asking for the feed's position"):
            return self._position(self.server.sessions.main, plan, feed_id)

    def _position(self, session: Any, plan: LanePlan, feed_id: str) -> Position | None:
        ((is_there,),) = session.execute("SELECT to_regclass('headgate.progress') IS NOT NULL").fetchall()
        if not is_there:
            return None
        row = session.execute(
            "SELECT feed_id, next_offset, closed FROM headgate.progress WHERE feed_id = %s AND table_name = %s",
            (feed_id, f"{plan.held.before.schema}.{plan.held.shadow}"),
        ).fetchone()
        return None if row is None else Position(*row)

    # --- comparing ---

    def differing(self, plan: LanePlan, chunk: Chunk) -> list[tuple[str, ...]]:
        """Keys, as text, of rows of the range that differ, or that only one of the two tables has."""
        held = plan.held
        with translating("comparing a range"):
            return self._differing(
                self.server.rows.session(),
                plan,
                within([old for old, _ in held.key], chunk),
                within([new for _, new in held.key], chunk),
            )

    def still_differing(self, plan: LanePlan, keys: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Those of ``keys`` whose rows differ now."""
        if not keys:
            return []
        with translating("comparing rows again"):
            return self._among(self.server.rows.session(), plan, keys)

    def _among(self, session: Any, plan: LanePlan, keys: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        names = listed([new for _, new in plan.held.key])
        rows = sql.SQL(", ").join(sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, key))) for key in keys)
        condition = sql.SQL("({}) IN ({})").format(names, rows)
        return self._differing(session, plan, condition, condition)

    def _differing(
        self, session: Any, plan: LanePlan, first: sql.Composable, second: sql.Composable
    ) -> list[tuple[str, ...]]:
        held = plan.held
        text = sql.SQL("{}::text AS {}")
        before = sql.SQL(", ").join(
            text.format(casted(held, sql.Identifier(old), new), sql.Identifier(new)) for old, new in held.pairs
        )
        after = sql.SQL(", ").join(text.format(sql.Identifier(new), sql.Identifier(new)) for _, new in held.pairs)
        keys = [new for _, new in held.key]
        unequal = [sql.SQL("a.{0} IS NULL OR b.{0} IS NULL").format(sql.Identifier(keys[0]))]
        unequal += [
            sql.SQL("a.{0} IS DISTINCT FROM b.{0}").format(sql.Identifier(new))
            for _, new in held.pairs
            if new not in held.loose and new not in keys
        ]
        statement = sql.SQL(
            "SELECT {} FROM (SELECT {} FROM {} WHERE {}) a FULL JOIN (SELECT {} FROM {} WHERE {}) b ON {} WHERE {}"
        ).format(
            sql.SQL(", ").join(sql.SQL("coalesce(a.{0}, b.{0})").format(sql.Identifier(key)) for key in keys),
            before,
            table_of(held),
            first,
            after,
            named(held.before.schema, held.shadow),
            second,
            sql.SQL(" AND ").join(sql.SQL("a.{0} = b.{0}").format(sql.Identifier(key)) for key in keys),
            sql.SQL(" OR ").join(unequal),
        )
        return [tuple(row) for row in session.execute(statement).fetchall()]

    # --- the cut-over ---

    def cut_over(
        self,
        plan: LanePlan,
        memory: Memory,
        lock_seconds: float,
        *,
        feed_id: str,
        built: str,
        hot: list[tuple[str, ...]],
        tail: TopicTail,
        is_forced: bool,
    ) -> None:
        """Put the copy in the table's place, once all that was written to the table is in it.

        ``hot``: rows that were never seen equal while both changed; they are compared here, where nothing changes.
        Raises FeedBehindError (nothing was locked), LockUnavailableError (everything is as before, it can be tried
        again), RefusedError (the tables differ).
        """
        held, after = plan.held, plan.plan
        schema, name = held.before.schema, held.before.name
        table, shadow = table_of(held), named(schema, held.shadow)
        with self._slot(plan) as slot:
            self.mark(plan)
            before = self._caught_up(slot, plan, feed_id, tail, lock_seconds)
            if is_forced:
                self.server.end_holders(after)
            with self.server.sessions.part() as session, translating("the cut-over"), session.transaction():
                session.execute(f"SET LOCAL lock_timeout = {int(lock_seconds * 1000)}")
                session.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table))
                deadline = time.monotonic() + lock_seconds
                self._check_same(session, plan, built)
                reached = self._drained(slot, session, plan, tail, deadline, before=before)
                self._seal(session, plan, feed_id, reached, deadline)
                if differing := self._among(session, plan, hot) if hot else []:
                    raise RefusedError(
                        f"the copy differs in {len(differing)} rows while nothing changes (key {differing[0]}): the "
                        "table is untouched"
                    )
                self.server.claim(session, memory)
                for column, _ in plan.dropped:
                    session.execute(sql.SQL("ALTER TABLE {} DROP COLUMN {}").format(shadow, sql.Identifier(column)))
                for now, then in plan.renamed:
                    session.execute(_renamed(shadow, now, then))
                for text in self.server.handed_over(session, after):
                    session.execute(text)
                rename = sql.SQL("ALTER TABLE {} RENAME TO {}")
                session.execute(rename.format(table, sql.Identifier(aside_name(held.shadow))))
                session.execute(rename.format(shadow, sql.Identifier(name)))

    def _check_same(self, session: Any, plan: LanePlan, built: str) -> None:
        found = session.execute(_IDENTITY, (_full(plan.held.before, session),)).fetchone()
        now = self.server.described(session, plan.held.before.schema, plan.held.before.name)
        if found is None or f"{found[0]}/{found[1]}" != built or now is None:
            raise RefusedError("the table was truncated or built anew since it was copied: submit the change again")
        if now.definition != plan.held.before.definition:
            raise RefusedError("the table's definition has changed since it was copied: submit the change again")

    @contextmanager
    def _slot(self, plan: LanePlan) -> Iterator["_Slot"]:
        """A replication slot that ends with its session."""
        with self.server.sessions.part() as session:
            name = f"headgate_{self.server.mark}"
            with translating("opening a temporary replication slot"):
                (oid, _) = session.execute(_IDENTITY, (_full(plan.held.before, session),)).fetchone()
                session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', true)", (name,))
            yield _Slot(session, name, plan.publication, int(oid))

    def _caught_up(self, slot: "_Slot", plan: LanePlan, feed_id: str, tail: TopicTail, seconds: float) -> int | None:
        """Wait, while nobody is held up, until the mark is in the copy; the offset behind it, None without a mark.

        Raises FeedBehindError: under the lock it would be waited for as long, and in vain.
        """
        deadline = time.monotonic() + seconds
        self._flush()
        last = slot.last_change()
        if last is None:
            return None
        offset = tail.find(last, seconds)
        while offset is not None and time.monotonic() < deadline:
            if self._is_in_copy(self.server.sessions.main, plan, feed_id, offset + 1):
                return offset + 1
            time.sleep(POLL_SECONDS)
        where = "the topic" if offset is None else "the copy"
        raise FeedBehindError(
            f"a change takes more than {seconds:g} s (--cutover-threshold) to {where}: the table was not locked"
        )

    def _drained(
        self,
        slot: "_Slot",
        session: Any,
        plan: LanePlan,
        tail: TopicTail,
        deadline: float,
        *,
        before: int | None,
    ) -> int | None:
        """The first offset behind the table's last change; None if the table is empty, and was when it was marked.

        ``before`` is the offset behind the last change that was found before the lock.
        """
        self._flush()
        last = slot.last_change()
        if last is None and before is not None:
            return before
        if last is None:
            if session.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(table_of(plan.held))).fetchone() is None:
                return None
            raise LockUnavailableError("clients held every row of the table, so that no mark could be set")
        offset = tail.find(last, max(0.0, deadline - time.monotonic()))
        if offset is None:
            raise LockUnavailableError(
                "the table's last change has not come to the topic while the table was locked: is the connector behind?"
            )
        return offset + 1

    def _flush(self) -> None:
        """What is not on the disk is not decoded: a commit that waits for the disk takes all before it along."""
        main = self.server.sessions.main
        with translating("waiting for the disk"), main.transaction():
            main.execute("SET LOCAL synchronous_commit = 'local'")
            main.execute("UPDATE headgate.migration SET stage = stage WHERE id = %s", (self.server.migration,))

    def _seal(self, session: Any, plan: LanePlan, feed_id: str, reached: int | None, deadline: float) -> None:
        """Close the feed's position, once all up to ``reached`` is in the copy: it writes nothing there any more."""
        while not self._is_in_copy(session, plan, feed_id, reached):
            if time.monotonic() >= deadline:
                raise LockUnavailableError("the feed into the copy has not caught up while the table was locked")
            time.sleep(POLL_SECONDS)
        session.execute(
            "UPDATE headgate.progress SET closed = true, updated_at = clock_timestamp() WHERE feed_id = %s AND "
            "table_name = %s",
            (feed_id, f"{plan.held.before.schema}.{plan.held.shadow}"),
        )

    def _is_in_copy(self, session: Any, plan: LanePlan, feed_id: str, reached: int | None) -> bool:
        if reached is None:
            shadow = named(plan.held.before.schema, plan.held.shadow)
            return session.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(shadow)).fetchone() is None
        seen = self._position(session, plan, feed_id)
        return seen is not None and seen.next_offset >= reached

    # --- the end ---

    def artifacts(self, plan: LanePlan) -> tuple[Artifact, ...]:
        """What of the migration stands at the database now."""
        schema, main = plan.held.before.schema, self.server.sessions.main
        found = []
        for name in (plan.held.shadow, aside_name(plan.held.shadow)):
            with translating("looking for artifacts"):
                full = named(schema, name).as_string(main)
                ((is_there,),) = main.execute("SELECT to_regclass(%s) IS NOT NULL", (full,)).fetchall()
            if is_there:
                found.append(Artifact("table", f"{schema}.{name}"))
        return tuple(found)


class _Slot:
    """What has been written to one table since the slot was opened."""

    def __init__(self, session: Any, name: str, publication: str, oid: int) -> None:
        self._session = session
        self._oid = oid
        self._statement = (
            "SELECT lsn - '0/0'::pg_lsn, data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', "
            "'1', 'publication_names', %s)"
        )
        self._arguments = (name, sql.Identifier(publication).as_string(session))

    def last_change(self) -> LastChange | None:
        """The last one since this was asked before, in the order of commits; None if there is none."""
        with translating("reading the table's last changes"):
            rows = self._session.execute(self._statement, self._arguments).fetchall()
        last = None
        for lsn, data in rows:
            kind = chr(data[0])
            if kind in _OPERATIONS and struct.unpack_from(">I", data, 1)[0] == self._oid:
                last = LastChange(int(lsn), _OPERATIONS[kind])
        return last


def _full(table: Table, session: Any) -> str:
    return named(table.schema, table.name).as_string(session)


def _renamed(table: sql.Composable, before: str, after: str) -> sql.Composed:
    return sql.SQL("ALTER TABLE {} RENAME COLUMN {} TO {}").format(table, sql.Identifier(before), sql.Identifier(after))
