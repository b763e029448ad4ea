"""What an online change needs of PostgreSQL beside the copy itself: capture, marks, the feed's position, differences.

A mark is an update of one row to what it is: PostgreSQL logs that.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from headgate.databases.postgresql import catalogue, sql
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.databases.postgresql.key_ranges import BY_KEYS, IN_ORDER, among, listed, planned, within
from headgate.databases.postgresql.progress import feed_rows
from headgate.databases.postgresql.session import PostgresSession
from headgate.formats.change import BINARY, CONNECTOR, DECIMALS, Change
from headgate.migration.core.copy_steps import Position
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.contract import (
    Chunk,
    CopyPlan,
    DescribedColumn,
    DescribedTable,
    Memory,
    RefusedError,
)
from headgate.migration.strategies.fingerprint import FormChange, check_carried, check_form
from headgate.migration.strategies.online.lane import LastChange, Mark, Row, key_type, key_value
from headgate.migration.strategies.online.lane_plan import LanePlan, aside_name
from headgate.migration.strategies.online.range_work import position_of
from headgate.migration.strategies.postgresql.access import hide
from headgate.migration.strategies.postgresql.capture import check_capture
from headgate.migration.strategies.postgresql.copy import casted, casted_back, table_of
from headgate.migration.strategies.postgresql.fingerprint import CARRIED, FORMED, SEQUENCE_GRANT, needing_column
from headgate.migration.strategies.postgresql.server import PostgresServer, make_altered
from headgate.migration.strategies.postgresql.sessions import named, translating
from headgate.records.identifiers import show_identifier
from headgate.records.migration import Artifact
from headgate.sinks.relational.postgresql.values import column_text
from headgate.sources.origin import Origin

__all__ = ["PostgresLane", "built_as", "check_needed", "full_name", "identity", "is_empty", "renamed"]

ROW_BYTES_MIN: Final = 32
"""A row's header and line pointer take as much."""

SAMPLED_PAGES: Final = 64
"""Half a megabyte, read at once; long values are counted where they are pointed to from, and not read."""

# Whatever compares a row with others, expressions and parts of the table included: constraints, and bare indexes.
_KEYS: Final = """
SELECT true, conname, 'ALTER TABLE ' || %(table)s::text || ' ADD CONSTRAINT ' || quote_ident(conname) || ' ' ||
pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %(table)s::regclass AND contype = ANY (%(kinds)s)
UNION ALL SELECT false, c.relname, pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = %(table)s::regclass AND i.indisunique AND NOT i.indisprimary
AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = i.indexrelid AND contype IN ('u', 'x')) ORDER BY 1, 2
"""

# Locks are let go after the transaction has become visible. (Vacuum and its like hold a weaker one.)
_WRITERS: Final = """
SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND relation = %s::regclass AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""

_XIDS: Final = 2**32
"""Transactions' numbers as the log has them, and with it Debezium, start again after so many."""

_SAMPLED_PERCENT: Final = """
SELECT least(100.0, 100.0 * %s / greatest(pg_relation_size(oid) / current_setting('block_size')::int, 1))::float8
FROM pg_class WHERE oid = %s::regclass
"""

_IDENTITY: Final = "SELECT oid::bigint, relfilenode::bigint FROM pg_class WHERE oid = %s::regclass"


class PostgresLane:
    """See lane.Lane; sessions are the server's."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        server.learns_form = True

    # --- before anything is touched ---

    def capture(self, table: DescribedTable) -> str:
        """See Lane."""
        with self.server.sessions.asking() as session, translating("asking how the table is captured"):
            return check_capture(session, table, _markable(session, named(table.schema, table.name)))

    def try_forms(self, statement: Statement, plan: LanePlan) -> None:
        """See Lane: columns are renamed and dropped in the catalogue alone, whatever the table has."""

    def form_change(self, statement: Statement, plan: CopyPlan) -> FormChange:
        """See Lane: it was learned when the resulting types were; the table may be another one by now."""
        table, tried = plan.before, self.server.tried
        if tried is None or (tried.statement, tried.definition) != (statement, table.definition):
            self.server.rehearse(statement, table)
            tried = self.server.tried
        assert tried is not None  # noqa: S101 - an ALTER of a table was just tried
        check_carried(tried.present, tried.empty, CARRIED, f"{table.schema}.{table.name}")
        check_form(tried.change, FORMED | {SEQUENCE_GRANT})
        with self.server.sessions.asking() as session, translating("asking what needs a column"):
            check_needed(session, plan, is_back=False)
        if unwritable := sorted(tried.unwritable - {new for _, new in plan.key}):
            raise RefusedError(
                f"table {table.schema}.{table.name}: column {', '.join(unwritable)} is GENERATED ALWAYS AS IDENTITY "
                "after the change, so no feed can update it in a copy. Use GENERATED BY DEFAULT, or strategy direct"
            )
        return tried.change

    def origins(self, table: DescribedTable) -> tuple[Origin, ...]:
        """See Lane."""
        return (Origin("postgresql", self.server.sessions.database, show_identifier((table.schema, table.name))),)

    def warning(self, table: DescribedTable) -> str:  # noqa: ARG002 - events have every value of a table that is not refused
        """See Lane."""
        return ""

    def sink_kind(self) -> str:
        """See Lane."""
        return "postgresql"

    # --- the copy ---

    def make(self, statement: Statement, plan: LanePlan, memory: Memory, lock_seconds: float) -> Memory:
        """See Lane."""
        schema, shadow = plan.plan.before.schema, named(plan.plan.before.schema, plan.plan.shadow)
        with self.server.sessions.part() as session, translating("making the copy"), session.transaction():
            session.execute(f"SET LOCAL lock_timeout = {int(lock_seconds * 1000)}")
            session.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(shadow))
            make_altered(session, statement, plan.plan.before, plan.plan.shadow)
            hide(session, shadow)
            for now, after in plan.renamed:
                session.execute(renamed(shadow, after, now))
            for name, kind in plan.dropped:
                session.execute(
                    sql.SQL("ALTER TABLE {} ADD COLUMN {} {}").format(shadow, sql.Identifier(name), sql.SQL(kind))
                )
            keys = _without_keys(session, schema, plan)
            planned = msgspec.json.encode(msgspec.structs.replace(plan, keys=keys)).decode()
            memory = msgspec.structs.replace(memory, before=planned)
            self.server.note_in(session, memory)
        return memory

    def is_made(self, plan: LanePlan, memory: Memory) -> bool:  # noqa: ARG002 - it is made in one transaction
        """See Lane."""
        return bool(self.artifacts(plan))

    def take(self, plan: LanePlan, memory: Memory, lock_seconds: float) -> Memory:
        """See Lane."""
        with self.server.sessions.part() as session, translating("taking the table before"), session.transaction():
            session.execute(f"SET LOCAL lock_timeout = {int(lock_seconds * 1000)}")
            self._hold(session, plan)
            self.server.note_in(session, memory)
        return memory

    def hold_form(self, plan: LanePlan) -> None:
        """See Lane: a cut-over that is broken off leaves nothing behind, so only the table before can have another."""
        if plan.is_back:
            with self.server.sessions.part() as session, translating("holding the form"), session.transaction():
                self._hold(session, plan)

    @staticmethod
    def _hold(session: BoundedConnection, plan: LanePlan) -> None:
        """No row is written: a column is added without a value."""
        schema, shadow = plan.plan.before.schema, named(plan.plan.before.schema, plan.plan.shadow)
        present = {column.name for column in _form(session, shadow).columns}
        for now, after in plan.renamed:
            if after in present and now not in present:
                session.execute(renamed(shadow, after, now))
        for name, kind in plan.dropped:
            if name not in present:
                added = sql.SQL("ALTER TABLE {} ADD COLUMN {} {}")
                session.execute(added.format(named(schema, plan.plan.shadow), sql.Identifier(name), sql.SQL(kind)))

    def mark(self, plan: LanePlan, row: Row | None = None) -> Mark | None:
        """See Lane."""
        held = plan.held
        keys = [old for old, _ in held.key]
        which = sql.SQL("TRUE") if row is None else _is_row(keys, row)
        with self.server.sessions.part() as session, translating("setting a mark"), session.transaction():
            found = _markable(session, table_of(held))
            marked = session.execute(
                sql.SQL(
                    "UPDATE {table} SET {column} = {column} WHERE ({keys}) = (SELECT {keys} FROM {table} WHERE {which} "
                    "LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) RETURNING txid_current(), {texts}"
                ).format(
                    table=table_of(held),
                    column=sql.Identifier(found[0]),
                    keys=listed(keys),
                    which=which,
                    texts=_texts(keys),
                )
            ).fetchone()
        if marked is None:
            return None
        return Mark(tuple(marked[1:]), LastChange((("u",),), txid=marked[0] % _XIDS))

    def rows(self, plan: LanePlan, count: int) -> list[Row]:
        """See Lane."""
        keys = [old for old, _ in plan.held.key]
        with translating("looking at some rows"):
            found = self.server.sessions.main.execute(
                sql.SQL("SELECT {} FROM {} LIMIT {}").format(_texts(keys), table_of(plan.held), sql.Literal(count))
            )
            return [tuple(row) for row in found.fetchall()]

    def has(self, plan: LanePlan, row: Row) -> bool:
        """See Lane."""
        held = plan.held
        with translating("looking for the mark"):
            found = self.server.sessions.main.execute(
                sql.SQL("SELECT 1 FROM {} WHERE {}").format(
                    named(held.before.schema, held.shadow), _is_row([new for _, new in held.key], row)
                )
            )
            return found.fetchone() is not None

    def is_copy_empty(self, plan: LanePlan) -> bool:
        """See Lane."""
        with translating("looking at the copy"):
            return is_empty(self.server.sessions.main, named(plan.held.before.schema, plan.held.shadow))

    def add_keys(self, plan: LanePlan, memory: Memory) -> Memory:
        """See Lane: all of them and the memory of it, in one transaction."""
        with self.server.sessions.part() as session, translating("adding unique keys"), session.transaction():
            for text in plan.keys:
                session.execute(text)
            self.server.note_in(session, memory)
        return memory

    def break_off(self) -> None:
        """See Lane."""
        self.server.sessions.end_others()

    def hidden(self, plan: LanePlan) -> Callable[[], bool]:
        """See Lane: PostgreSQL may hand a transaction to its log before others see it. No lock is taken."""
        left = self._writers(plan)

        def ask() -> bool:
            left.intersection_update(self._writers(plan))
            return bool(left)

        return ask

    def _writers(self, plan: LanePlan) -> set[str]:
        """Transactions that have written the table and have not ended, so far as others see."""
        with translating("asking who writes the table"):
            main = self.server.sessions.main
            return {row[0] for row in main.execute(_WRITERS, (full_name(plan.held.before, main),)).fetchall()}

    def built(self, plan: LanePlan) -> str:
        """See Lane."""
        with translating("looking at the table's storage"):
            found = identity(self.server.sessions.main, plan.held.before)
        return built_as(found)

    def built_of(self, table: DescribedTable) -> str:
        """See Lane."""
        with self.server.sessions.asking() as session, translating("looking at the table's storage"):
            return built_as(identity(session, table))

    def check_ours(self) -> None:
        """See Lane."""
        self.server.sessions.check_ours()

    def row_bytes(self, plan: LanePlan) -> int:
        """See Lane: rows of some pages."""
        held, main = plan.held, self.server.sessions.main
        sizes = [sql.SQL("coalesce(pg_column_size({}), 0)").format(sql.Identifier(old)) for old, _ in held.pairs]
        with translating("looking at the size of its rows"):
            ((share,),) = main.execute(_SAMPLED_PERCENT, (SAMPLED_PAGES, full_name(held.before, main))).fetchall()
            ((average,),) = main.execute(
                sql.SQL("SELECT avg({}) FROM {} TABLESAMPLE SYSTEM ({})").format(
                    sql.SQL(" + ").join(sizes), table_of(held), sql.Literal(share)
                )
            ).fetchall()
        return ROW_BYTES_MIN + int(average or 0)

    def position(self, plan: LanePlan, feed_id: str) -> Position | None:
        """See Lane."""
        with translating("asking for the feed's position"):
            return self.position_in(self.server.sessions.main, plan, feed_id)

    def position_in(self, session: BoundedConnection, plan: LanePlan, feed_id: str) -> Position | None:
        """The same, in a transaction of the caller's."""
        table = f"{plan.held.before.schema}.{plan.held.shadow}"
        return position_of(feed_id, feed_rows(PostgresSession(session).execute, feed_id, table))

    # --- comparing ---

    def differing(self, plan: LanePlan, chunk: Chunk) -> list[tuple[str, ...]]:
        """See Lane."""
        held = plan.held
        with translating("comparing a range"):
            return self._differing(
                self.server.rows.session(),
                plan,
                within([old for old, _ in held.key], chunk),
                within([new for _, new in held.key], chunk),
                IN_ORDER,
            )

    def key_of(self, plan: LanePlan, change: Change) -> Row:
        """See Lane."""
        told = change.semantics or {}
        return tuple(
            column_text(
                key_type(plan.held.before, old),
                told.get(old),
                told.get(CONNECTOR),
                told.get(BINARY),
                told.get(DECIMALS),
                in_key=True,
            ).written(key_value(change, old))
            for old, _ in plan.held.key
        )

    def still_differing(self, plan: LanePlan, keys: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """See Lane."""
        if not keys:
            return []
        with translating("comparing rows again"):
            return self.among(self.server.rows.session(), plan, keys)

    def among(self, session: BoundedConnection, plan: LanePlan, keys: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """The same, in a transaction of the caller's."""
        held = plan.held
        names = [sql.Identifier(new) for _, new in held.key]
        first, second = (
            among(table, names, keys) for table in (table_of(held), named(held.before.schema, held.shadow))
        )
        return self._differing(session, plan, first, second, BY_KEYS)

    def _differing(
        self,
        session: BoundedConnection,
        plan: LanePlan,
        first: sql.Composable,
        second: sql.Composable,
        settings: str,
    ) -> list[tuple[str, ...]]:
        """``first``, ``second``: conditions for rows of the table and of the copy; ``settings``: see ``planned``."""
        held = plan.held
        text = sql.SQL("{}::text AS {}")
        before = sql.SQL(", ").join(
            text.format(
                sql.Identifier(old) if plan.casts_copy else casted(held, sql.Identifier(old), new), sql.Identifier(new)
            )
            for old, new in held.pairs
        )
        after = sql.SQL(", ").join(
            text.format(casted_back(held, old, new) if plan.casts_copy else sql.Identifier(new), sql.Identifier(new))
            for old, new in held.pairs
        )
        keys = [new for _, new in held.key]
        unequal = [sql.SQL("a.{0} IS NULL OR b.{0} IS NULL").format(sql.Identifier(keys[0]))]
        unequal += [
            sql.SQL("a.{0} IS DISTINCT FROM b.{0}").format(sql.Identifier(new))
            for _, new in held.pairs
            if new not in keys
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
        with session.transaction(), planned(session.execute, settings):
            return [tuple(row) for row in session.execute(statement).fetchall()]

    # --- the end ---

    def settle(self, plan: LanePlan) -> None:
        """See Lane: the cut-over's transaction has left nothing."""

    def artifacts(self, plan: LanePlan) -> tuple[Artifact, ...]:
        """See Lane."""
        schema, main = plan.held.before.schema, self.server.sessions.main
        found = []
        for name in (plan.held.shadow, aside_name(plan.held.shadow)):
            with translating("looking for artifacts"):
                full = named(schema, name).as_string(main)
                ((is_there,),) = main.execute("SELECT to_regclass(%s) IS NOT NULL", (full,)).fetchall()
            if is_there:
                found.append(Artifact("table", f"{schema}.{name}"))
        return tuple(found)


def _without_keys(session: BoundedConnection, schema: str, plan: LanePlan) -> tuple[str, ...]:
    """Drop what compares a row of the copy with others, but the key that events have; the statements that add it again.

    That key is the primary one, or an index of our own.
    """
    table = named(schema, plan.plan.shadow)
    kinds = ["u", "x", *("p" if plan.is_rekeyed_late else "")]
    found = session.execute(_KEYS, {"table": table.as_string(session), "kinds": kinds}).fetchall()
    for is_constraint, name, _ in found:
        if is_constraint:
            session.execute(sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(table, sql.Identifier(name)))
        else:
            session.execute(sql.SQL("DROP INDEX {}").format(named(schema, name)))
    if plan.row_key:
        columns = listed([new for _, new in plan.held.key])
        unique = sql.SQL("CREATE UNIQUE INDEX {} ON {} ({})")
        session.execute(unique.format(sql.Identifier(plan.row_key), table, columns))
        # A publication of all tables has the copy, too: without an identity its rows could not be changed.
        session.execute(sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(table))
    return tuple(text for _, _, text in found)


def _form(session: BoundedConnection, table: sql.Identifier) -> catalogue.PostgresForm:
    ((oid,),) = session.execute("SELECT to_regclass(%s)::oid", (table.as_string(session),)).fetchall()
    return catalogue.read_form(PostgresSession(session).execute, oid)


def _markable(session: BoundedConnection, table: sql.Identifier) -> list[str]:
    """Columns that may be set to what they are."""
    return [c.name for c in _form(session, table).columns if c.generated is None and c.identity != "a"]


def _texts(keys: list[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(key)) for key in keys)


def _is_row(keys: list[str], row: Row) -> sql.Composed:
    return sql.SQL("({}) = ({})").format(listed(keys), sql.SQL(", ").join(map(sql.Literal, row)))


def is_empty(session: BoundedConnection, table: sql.Composable) -> bool:
    """Whether the table has no row, as this session sees it."""
    return session.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(table)).fetchone() is None


def check_needed(session: BoundedConnection, plan: CopyPlan, *, is_back: bool) -> None:
    """RefusedError: a column is dropped that the server would not drop, or changed under a condition on rows.

    The server's own ALTER refuses another type there. A copy's condition would have to be made for another name or
    type, and might not be valid. A list of columns is one of numbers, whatever their types. In a revert columns are
    known by their names: their numbers are those of another table.
    """
    table = plan.before
    if is_back:
        kept = {old for old, _ in plan.pairs} | {column.name for column in plan.after.columns}
        dropped = [column.name for column in table.columns if column.name not in kept]
    else:
        numbers = {column.number for column in plan.after.columns}
        dropped = [column.name for number, column in enumerate(table.columns, start=1) if number not in numbers]
    changed = [old for old, new in plan.pairs if old != new or _is_retyped(table.column(old), plan.after.column(new))]
    if found := needing_column(session, named(table.schema, table.name), dropped, changed):
        told = "; ".join(f"{what} needs column {column}" for column, what in found)
        raise RefusedError(f"table {table.schema}.{table.name}: {told}. Change that first")


def _is_retyped(before: DescribedColumn | None, after: DescribedColumn | None) -> bool:
    return before is not None and after is not None and (before.type, before.collation) != (after.type, after.collation)


def identity(session: BoundedConnection, table: DescribedTable) -> tuple[int, int] | None:
    """What distinguishes it from another table of that name, or from itself rebuilt: its number and its file's."""
    row = session.execute(_IDENTITY, (full_name(table, session),)).fetchone()
    return None if row is None else (int(row[0]), int(row[1]))


def built_as(found: tuple[int, int] | None) -> str:
    """An identity as ``Lane.built`` gives it."""
    return "" if found is None else f"{found[0]}/{found[1]}"


def full_name(table: DescribedTable, session: BoundedConnection) -> str:
    """As the server reads it."""
    return named(table.schema, table.name).as_string(session)


def renamed(table: sql.Composable, before: str, after: str) -> sql.Composed:
    """The statement that renames a column."""
    return sql.SQL("ALTER TABLE {} RENAME COLUMN {} TO {}").format(table, sql.Identifier(before), sql.Identifier(after))
