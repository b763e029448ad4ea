"""What an online change needs of MariaDB beside the copy itself: capture, marks, the feed's position, differences.

DDL is not transactional here. So a cut-over that was broken off may have left the copy's columns with their final
names: ``hold_form`` gives them back the names that change events have.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from headgate.databases.mysql import catalogue
from headgate.databases.mysql.key_ranges import among, within
from headgate.databases.mysql.progress import feed_rows
from headgate.databases.mysql.sql import quoted
from headgate.formats.change import BINARY, CONNECTOR, DECIMALS, Change
from headgate.migration.core.copy_steps import Position
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.contract import (
    Chunk,
    CopyPlan,
    DatabaseUnavailableError,
    DescribedColumn,
    DescribedTable,
    Memory,
    RefusedError,
)
from headgate.migration.strategies.fingerprint import FormChange, change_between
from headgate.migration.strategies.mariadb.capture import check_capture
from headgate.migration.strategies.mariadb.converted import (
    CONVERTED,
    Side,
    convert,
    converted_plan,
    converted_side,
    make_room,
)
from headgate.migration.strategies.mariadb.copy import differing_rows
from headgate.migration.strategies.mariadb.fingerprint import facts_of
from headgate.migration.strategies.mariadb.mark import set_mark
from headgate.migration.strategies.mariadb.odd_dates import warn_of_dates
from headgate.migration.strategies.mariadb.server import MariadbServer
from headgate.migration.strategies.mariadb.sessions import Session
from headgate.migration.strategies.mariadb.swap import TableSwap
from headgate.migration.strategies.mariadb.text import TEXT_SETTINGS, kind_of, literal_of, literals
from headgate.migration.strategies.online.lane import Mark, Row, key_type, key_value
from headgate.migration.strategies.online.lane_plan import LanePlan, aside_name
from headgate.migration.strategies.online.range_work import position_of
from headgate.records.identifiers import show_identifier
from headgate.records.migration import Artifact
from headgate.sinks.relational.mysql.catalog import MysqlSinkColumn
from headgate.sinks.relational.mysql.values import column_text
from headgate.sources.origin import Origin

__all__ = ["MariadbLane", "to_final_form"]

ROW_BYTES_MIN: Final = 32
"""A row's header and its place in the page take about as much."""

SAMPLED_ROWS: Final = 200
"""At either end of the key: long values are read."""

SETTLE_SECONDS: Final = 2
"""Clients wait for no longer while an index of Headgate's is dropped from the table; the drop is retried."""

MARK_SECONDS: Final = 5
"""A mark takes a row that no client has locked; it waits only for a session that locks the table."""

_UNIQUE_KEY: Final = re.compile(r"^  UNIQUE KEY (`(?:[^`]|``)+`) (.*?),?$", re.MULTILINE)
_PRIMARY_KEY: Final = re.compile(r"^  PRIMARY KEY (.*?),?$", re.MULTILINE)
_COUNTING: Final = re.compile(r"^  (`(?:[^`]|``)+`) .*AUTO_INCREMENT", re.MULTILINE)
"""Lines of SHOW CREATE TABLE: a key's name and what follows it; a column that counts."""

_TEXTS: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})

_THERE_AND_BACK: Final = (
    "UPDATE headgate.migration SET after_text = CONCAT(after_text, '.') WHERE id = %s",
    "UPDATE headgate.migration SET after_text = LEFT(after_text, CHAR_LENGTH(after_text) - 1) WHERE id = %s",
)
"""Two changes that are logged, and leave the row as it is."""


class MariadbLane:
    """See lane.Lane; sessions are the server's."""

    def __init__(self, server: MariadbServer) -> None:
        self.server = server

    # --- before anything is touched ---

    def capture(self, table: DescribedTable) -> str:
        """See Lane."""
        with self.server.sessions.asking() as session:
            check_capture(session, table)
        return ""

    def form_change(self, statement: Statement, plan: CopyPlan) -> FormChange:
        """See Lane: what the statement has made of an empty copy is known."""
        del statement
        if lost := [old for old, new in plan.key if plan.after.column(new) is None]:
            raise RefusedError(
                f"table {plan.before.schema}.{plan.before.name}: column {', '.join(lost)}, by which change events name "
                "rows, is dropped, and an indexed column cannot be dropped at once. Use two migrations: the new key "
                "first, then DROP COLUMN"
            )
        return change_between(facts_of(plan.before.definition), facts_of(plan.after.definition))

    def try_forms(self, statement: Statement, plan: LanePlan) -> None:
        """See Lane: an index of words, for example, keeps the server from it, and is only seen by trying."""
        before = plan.plan.before

        def both(session: Session, copy: str) -> None:
            for change in (*_to_held(plan, {column.name for column in plan.plan.after.columns}), *_to_final(plan)):
                _at_once(session, before, copy, change)

        if plan.renamed or plan.dropped:
            self.server.try_on_copy(statement, before, both)

    def origins(self, table: DescribedTable) -> tuple[Origin, ...]:
        """See Lane: Debezium has a connector for MariaDB; the one for MySQL reads it as well."""
        return tuple(Origin(kind, table.schema, show_identifier((table.name,))) for kind in ("mariadb", "mysql"))

    def warning(self, table: DescribedTable) -> str:
        """See Lane."""
        with self.server.sessions.asking() as session:
            return warn_of_dates(session, table)

    def sink_kind(self) -> str:
        """See Lane."""
        with self.server.sessions.asking() as session:
            ((loads,),) = session.run("SELECT @@local_infile")
        if not loads and self.server.sessions.at.bulk == "load":
            raise RefusedError(
                "the server refuses LOAD DATA LOCAL, by which the feed into the copy writes. Set local_infile = ON, or "
                "add the option bulk=insert to the connection's address"
            )
        return "mysql"

    # --- the copy ---

    def make(self, statement: Statement, plan: LanePlan, memory: Memory, lock_seconds: float) -> Memory:
        """See Lane. The database remembers the copy's number once the copy is complete."""
        server, schema = self.server, plan.plan.before.schema
        main = server.sessions.main
        main.wait_at_most(lock_seconds)
        main.run(f"DROP TABLE IF EXISTS {quoted(schema, plan.plan.shadow)}")
        self.swap(plan, lock_seconds).drop_sentry()
        server.note(memory)
        server.build(statement, plan.plan)
        self.hold_form(plan)
        if plan.renamed or plan.dropped:
            # The cut-over's path, tried while the copy is empty: it must take no time later.
            to_final_form(main, plan)
            self.hold_form(plan)
        planned = msgspec.json.encode(replace(plan, keys=self._without_keys(plan))).decode()
        whole = replace(memory, before=planned, identity=server.identity(schema, plan.plan.shadow))
        server.note(whole)
        return whole

    def take(self, plan: LanePlan, memory: Memory, lock_seconds: float) -> Memory:
        """See Lane."""
        self.server.sessions.main.wait_at_most(lock_seconds)
        self.server.note(memory)
        self.swap(plan, lock_seconds).drop_sentry()
        self.hold_form(plan)
        whole = replace(memory, identity=self.server.identity(plan.plan.before.schema, plan.plan.shadow))
        self.server.note(whole)
        return whole

    def _without_keys(self, plan: LanePlan) -> tuple[str, ...]:
        """Drop the copy's unique keys but the one that events have; the statement that adds them again.

        A column that counts must have a key: its unique key becomes a plain one for the time being.
        """
        main, shadow = self.server.sessions.main, quoted(plan.plan.before.schema, plan.plan.shadow)
        text = main.run(f"SHOW CREATE TABLE {shadow}")[0][1]
        keys: dict[str, str] = dict(_UNIQUE_KEY.findall(text))
        primary = _PRIMARY_KEY.search(text) if plan.is_rekeyed_late else None
        counting = _COUNTING.findall(text)
        plain = {name: rest for name, rest in keys.items() if any(rest.startswith(f"({column}") for column in counting)}
        drops = [f"DROP INDEX {name}" for name in keys]
        adds = [f"ADD UNIQUE INDEX {name} {rest}" for name, rest in keys.items()]
        if primary is not None:
            drops.append("DROP PRIMARY KEY")
            adds.append(f"ADD PRIMARY KEY {primary[1]}")
            if any(primary[1].startswith(f"({column}") for column in counting):
                plain[quoted(f"{plan.row_key}_counting")] = primary[1]
        drops += [f"ADD INDEX {name} {rest}" for name, rest in plain.items()]
        if plan.row_key:
            columns = ", ".join(quoted(new) for _, new in plan.held.key)
            main.run(
                f"ALTER TABLE {shadow} {', '.join([*drops, f'ADD UNIQUE INDEX {quoted(plan.row_key)} ({columns})'])}"
            )
        elif drops:
            main.run(f"ALTER TABLE {shadow} {', '.join(drops)}")
        gone = [f"DROP INDEX {name}" for name in plain]
        return (f"ALTER TABLE {shadow} {', '.join([*gone, *adds])}",) if adds else ()

    def add_keys(self, plan: LanePlan, memory: Memory) -> Memory:
        """See Lane: one ALTER, which comes into force whole or not at all."""
        schema, shadow = plan.plan.before.schema, plan.plan.shadow
        with self.server.sessions.part("keys") as session:
            form = catalogue.read_form(session.run, schema, shadow, is_mariadb=True)
            wanted = {*plan.plan.after.keys, *plan.plan.after.weak_keys}
            if not wanted <= {key.name for key in form.keys}:
                for text in plan.keys:
                    session.run(text)
        known = replace(memory, identity=self.server.identity(schema, shadow))
        self.server.note(known)
        return known

    def break_off(self) -> None:
        """See Lane."""
        with suppress(DatabaseUnavailableError):
            self.server.sessions.end_holder(self.server.sessions.main, "keys")

    def is_made(self, plan: LanePlan, memory: Memory) -> bool:
        """See Lane."""
        number = self.server.identity(plan.plan.before.schema, plan.plan.shadow)
        return bool(memory.identity) and number == memory.identity

    def hold_form(self, plan: LanePlan) -> None:
        """See Lane. A column is added without its values: no session reads them."""
        main, shadow = self.server.sessions.main, quoted(plan.plan.before.schema, plan.plan.shadow)
        for change in _to_held(plan, columns_of(main, plan)):
            _at_once(main, plan.plan.before, shadow, change)

    def swap(self, plan: LanePlan, seconds: float) -> TableSwap:
        """How the copy takes the table's place: the sentry has the name that the table before gets."""
        before = plan.plan.before
        return TableSwap(self.server.sessions, before.schema, before.name, aside_name(plan.plan.shadow), seconds)

    def mark(self, plan: LanePlan, row: Row | None = None) -> Mark | None:
        """See Lane."""
        with self.server.sessions.part("mark") as session:
            prepare(session, MARK_SECONDS)
            return set_mark(session, plan.held.before, [old for old, _ in plan.held.key], row)

    def rows(self, plan: LanePlan, count: int) -> list[Row]:
        """See Lane."""
        before = plan.held.before
        keys = literals(before, [old for old, _ in plan.held.key])
        with self.server.sessions.part("mark") as session:
            prepare(session, MARK_SECONDS)
            found = session.run(f"SELECT {keys} FROM {quoted(before.schema, before.name)} LIMIT {count}")
        return [tuple(map(str, row)) for row in found]

    def has(self, plan: LanePlan, row: Row) -> bool:
        """See Lane."""
        shadow = quoted(plan.held.before.schema, plan.held.shadow)
        where = among([new for _, new in plan.held.key], [row])
        return bool(self.server.sessions.main.run(f"SELECT 1 FROM {shadow} WHERE {where}"))

    def is_copy_empty(self, plan: LanePlan) -> bool:
        """See Lane."""
        shadow = quoted(plan.held.before.schema, plan.held.shadow)
        return not self.server.sessions.main.run(f"SELECT 1 FROM {shadow} LIMIT 1")

    def hidden(self, plan: LanePlan) -> Callable[[], bool]:  # noqa: ARG002 - the log is the server's
        """See Lane: a transaction is in the log before it is committed in InnoDB.

        Transactions are committed in the order in which they are in the log. So Headgate logs and commits one of its
        own: when that is done, all before it are visible. Prepared ones (XA) are logged before they are decided; those
        that exist now are waited for.
        """
        with self.server.sessions.asking() as session:
            session.run("START TRANSACTION")
            for change in _THERE_AND_BACK:
                session.run(change, (self.server.migration,))
            session.run("COMMIT")
            ((logged,),) = session.run("SELECT @@last_gtid")
        if not logged:
            raise RefusedError("the server does not log the database headgate (binlog_do_db, binlog_ignore_db): log it")
        left = self._prepared()

        def ask() -> bool:
            left.intersection_update(self._prepared() if left else ())
            return bool(left)

        return ask

    def _prepared(self) -> set[tuple[Any, ...]]:
        return set(self.server.sessions.main.run("XA RECOVER"))

    def built(self, plan: LanePlan) -> str:
        """See Lane."""
        return self.server.identity(plan.held.before.schema, plan.held.before.name)

    def built_of(self, table: DescribedTable) -> str:
        """See Lane."""
        with self.server.sessions.asking() as session:
            return self.server.identity_in(session, table.schema, table.name)

    def check_ours(self) -> None:
        """See Lane."""
        self.server.sessions.check_ours()

    def row_bytes(self, plan: LanePlan) -> int:
        """See Lane: its first rows, and its last."""
        held = plan.held
        names = [old for old, _ in held.pairs]
        sizes = " + ".join(f"IFNULL(LENGTH({quoted(name)}), 0)" for name in names)
        table = quoted(held.before.schema, held.before.name)
        found = [
            self.server.rows.session().run(
                f"SELECT AVG({sizes}) FROM (SELECT {', '.join(map(quoted, names))} FROM {table} ORDER BY "
                f"{', '.join(f'{quoted(old)} {way}' for old, _ in held.key)} LIMIT {SAMPLED_ROWS}) sampled"
            )[0][0]
            for way in ("ASC", "DESC")
        ]
        return ROW_BYTES_MIN + max(int(size or 0) for size in found)

    def position(self, plan: LanePlan, feed_id: str) -> Position | None:
        """See Lane."""
        table = f"{plan.held.before.schema}.{plan.held.shadow}"
        return position_of(feed_id, feed_rows(self.server.sessions.main.run, feed_id, table))

    # --- comparing ---

    def differing(self, plan: LanePlan, chunk: Chunk) -> list[tuple[str, ...]]:
        """See Lane."""
        first = within([old for old, _ in plan.held.key], chunk, "a.")
        second = within([new for _, new in plan.held.key], chunk, "a.")
        return self._differing(plan, first, second)

    def key_of(self, plan: LanePlan, change: Change) -> Row:
        """See Lane."""
        told = change.semantics or {}
        found = []
        for old, _ in plan.held.key:
            declared = key_type(plan.held.before, old)
            kind = kind_of(DescribedColumn(old, declared))
            column = MysqlSinkColumn(declared, kind, None, None)
            text = column_text(
                column, told.get(old), told.get(CONNECTOR), told.get(BINARY), told.get(DECIMALS), in_key=True
            )
            found.append(literal_of(kind, text.written(key_value(change, old))))
        return tuple(found)

    def still_differing(self, plan: LanePlan, keys: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """See Lane."""
        if not keys:
            return []
        first = among([old for old, _ in plan.held.key], keys, "a.")
        second = among([new for _, new in plan.held.key], keys, "a.")
        return self._differing(plan, (first, None), (second, None))

    def _differing(self, plan: LanePlan, first: tuple[str, Any], second: tuple[str, Any]) -> list[tuple[str, ...]]:
        session, held, side = self.server.rows.session(), plan.held, converted_side(plan)
        if side is not Side.NEITHER:
            make_room(session, held, side)
            found = set(differing_keys(session, held, first, forward=True, converts=side))
            return sorted(found | set(differing_keys(session, held, second, forward=False)))
        session.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        try:
            return sorted(
                set(differing_keys(session, held, first, forward=True))
                | set(differing_keys(session, held, second, forward=False))
            )
        finally:
            session.run("COMMIT")

    # --- the end ---

    def settle(self, plan: LanePlan) -> None:
        """See Lane. The index goes when the copy has the table's name: it could not be added again under the lock."""
        if not plan.row_key:
            return
        before, main = plan.plan.before, self.server.sessions.main
        form = catalogue.read_form(main.run, before.schema, before.name, is_mariadb=True)
        if any(key.name == plan.row_key for key in form.keys):
            main.wait_at_most(SETTLE_SECONDS)
            main.run(
                f"ALTER TABLE {quoted(before.schema, before.name)} DROP INDEX {quoted(plan.row_key)}, ALGORITHM=NOCOPY"
            )

    def artifacts(self, plan: LanePlan) -> tuple[Artifact, ...]:
        """See Lane."""
        schema = plan.held.before.schema
        rows = self.server.sessions.main.run(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND table_name IN (%s, %s)",
            (schema, plan.held.shadow, aside_name(plan.held.shadow)),
        )
        return tuple(Artifact("table", f"{schema}.{row[0]}") for row in sorted(rows))


def prepare(session: Session, lock_seconds: float) -> None:
    """For marks: nothing is committed by itself, and values are what they are."""
    session.wait_at_most(lock_seconds)
    session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    session.run(TEXT_SETTINGS)
    session.run("SET SESSION autocommit = 0")


def columns_of(session: Session, plan: LanePlan) -> set[str]:
    """What the copy's columns are called now."""
    form = catalogue.read_form(session.run, plan.plan.before.schema, plan.plan.shadow, is_mariadb=True)
    return {column.name for column in form.columns}


def to_final_form(session: Session, plan: LanePlan) -> None:
    """What the change drops goes, and what it renames is renamed: from the held form alone, and at once."""
    shadow = quoted(plan.plan.before.schema, plan.plan.shadow)
    for change in _to_final(plan):
        _at_once(session, plan.plan.before, shadow, change)


def _to_held(plan: LanePlan, present: set[str]) -> list[str]:
    """What leads a copy with these columns to the form in which it is filled: the names and columns of the table."""
    renamed = [(now, after) for now, after in plan.renamed if after in present and now not in present]
    held = present - {after for _, after in renamed} | {now for now, _ in renamed}
    found = [f"RENAME COLUMN {quoted(after)} TO {quoted(now)}" for now, after in renamed]
    for name, kind in plan.dropped:
        if name not in held:
            charset = " CHARACTER SET utf8mb4" if kind_of(DescribedColumn(name, kind)) in _TEXTS else ""
            found.append(f"ADD COLUMN {quoted(name)} {kind}{charset} NULL")
    return found


def _to_final(plan: LanePlan) -> list[str]:
    """What leads from there to the form that the statement makes."""
    drops = [f"DROP COLUMN {quoted(name)}" for name, _ in plan.dropped]
    return drops + [f"RENAME COLUMN {quoted(now)} TO {quoted(after)}" for now, after in plan.renamed]


def differing_keys(
    session: Session,
    held: CopyPlan,
    where: tuple[str, Any],
    *,
    forward: bool,
    shadow: str | None = None,
    converts: Side = Side.NEITHER,
) -> list[tuple[str, ...]]:
    """Keys, as literals, of rows of the table without their equal in the copy, or backward (see ``differing_rows``).

    ``converts``: values of that side are compared as the server converts them (converted.py).
    """
    table, named = None, shadow or quoted(held.before.schema, held.shadow)
    if converts is not Side.NEITHER and forward:
        is_table = converts is Side.TABLE
        convert(session, held, where, quoted(held.before.schema, held.before.name) if is_table else named)
        held = converted_plan(held, converts)
        table, named, where = (CONVERTED, named, ("TRUE", None)) if is_table else (None, CONVERTED, where)
    keys = literals(held.before if forward else held.after, [pair[0 if forward else 1] for pair in held.key], "a")
    rows = session.run(f"SELECT {keys} {differing_rows(held, named, where[0], forward=forward, table=table)}", where[1])
    return [tuple(map(str, row)) for row in rows]


def _at_once(session: Session, table: DescribedTable, copy: str, change: str) -> None:
    try:
        session.run(f"ALTER TABLE {copy} {change}, ALGORITHM=INSTANT")
    except RefusedError as error:
        raise RefusedError(
            f"table {table.schema}.{table.name}: the copy's columns cannot be renamed or dropped at once: {error}. "
            "Use strategy pt-osc"
        ) from error
