"""MariaDB or MySQL under a migration: describing, rehearsing, making a copy, and who owns the migration.

Whether a cut-over (swap.py) came into force is seen by the number that InnoDB gave the copy.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from headgate.databases.address import Target
from headgate.databases.mysql import catalogue
from headgate.databases.mysql.sql import quoted
from headgate.migration.statements.mariadb import keeps_rows
from headgate.migration.statements.reading import parse_statement
from headgate.migration.statements.reserved_schemas import why_reserved
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.contract import (
    CopyPlan,
    DatabaseLoad,
    DescribedColumn,
    DescribedTable,
    Memory,
    RefusedError,
    Stored,
    force_refused,
    not_found,
)
from headgate.migration.strategies.mariadb.copy import MariadbCopy
from headgate.migration.strategies.mariadb.desired import change, read_form, same
from headgate.migration.strategies.mariadb.holders import end_holders
from headgate.migration.strategies.mariadb.new_form import MariadbNewForm, given_value, read_rules
from headgate.migration.strategies.mariadb.place import remembers, server_id
from headgate.migration.strategies.mariadb.replicas import MariadbReplicas
from headgate.migration.strategies.mariadb.rights import check_rehearsal, check_rights
from headgate.migration.strategies.mariadb.sessions import MariadbSessions, Session, leave_log
from headgate.migration.strategies.owned_server import OwnedServer
from headgate.records.migration import Artifact

__all__ = ["MariadbServer"]

NAME_BYTES_MAX: Final = 64
SCHEMA: Final = "headgate"
"""Headgate's own database: what is remembered of a migration, and tables on which statements are tried."""

REHEARSALS: Final = r"`headgate\_rehearsal\_%`"
"""Databases, as GRANT names them, in which a new table is tried whose character set is not that of our own."""

_FOREIGN_KEY: Final = re.compile(r"^\s*(CONSTRAINT `(?:[^`]|``)+` FOREIGN KEY .*?),?$", re.MULTILINE)
_ITS_NAME: Final = re.compile(r"^CONSTRAINT `(?:[^`]|``)+` ")
_OF_FOREIGN_KEYS: Final = ("drop-foreign", "drop-constraint", "change-column", "rename-column")
"""Clauses whose outcome depends on the foreign keys that the table has."""

_PLAIN: Final = re.compile(r"^[A-Za-z0-9_$]+$")
"""Names that InnoDB's own tables write as they are, but for the dollar."""

DOLLAR: Final = "@0024"
"""What they write for it."""

_CREATE_MEMORY: Final = """
CREATE TABLE IF NOT EXISTS headgate.migration (id varchar(200) PRIMARY KEY, owner_rev bigint NOT NULL,
attempt bigint NOT NULL, stage varchar(20) NOT NULL, before_text longtext NOT NULL, after_text longtext NOT NULL,
shadow_identity varchar(200) NOT NULL) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""


class MariadbServer(OwnedServer):
    """One migration's database; see contract.Server."""

    dialect: Literal["mysql", "postgres"] = "mysql"
    name_bytes_max = NAME_BYTES_MAX
    shadow_prefix = ""
    """The table's own name comes first: see swap.py."""

    def __init__(self, migration: str, target: Target, *, cluster_id: str, reads_only: bool = False) -> None:
        """Nothing is opened yet. Raises RefusedError."""
        super().__init__(migration, target, cluster_id=cluster_id)
        self.logged = ""
        self.sessions = MariadbSessions(self.migration, target, reads_only=reads_only)
        self.address = self.sessions.address
        self.rows = MariadbCopy(self.sessions)
        self.next_bound = self.rows.next_bound
        self.replicas: MariadbReplicas | None = None
        new_form = MariadbNewForm(self.sessions)
        self.duplicates, self.misfits = new_form.duplicates, new_form.misfits
        self.let_go = self.rows.let_go

    # --- whose it is ---

    def of(self, migration: str) -> "MariadbServer":
        """See contract."""
        return MariadbServer(migration, self.sessions.target, cluster_id=self._cluster_id)

    def _take_sessions(self, owner_rev: int) -> None:
        self.sessions.take_over(owner_rev)
        self.sessions.main.run(_CREATE_MEMORY)

    def _close_sessions(self) -> None:
        self.sessions.close()

    def _forget_sessions(self) -> None:
        self.sessions.forget()

    def _run(self, doing: str, statement: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        del doing  # a session's own errors contain the statement's
        return self.sessions.main.run(statement, parameters)

    def note(self, memory: Memory) -> None:
        """Remember; a later owner's memory is never overwritten."""
        self.sessions.main.run(
            "INSERT INTO headgate.migration VALUES (%s, %s, %s, %s, %s, %s, %s) ON DUPLICATE KEY UPDATE owner_rev = "
            "VALUES(owner_rev), attempt = VALUES(attempt), stage = VALUES(stage), before_text = VALUES(before_text), "
            "after_text = VALUES(after_text), shadow_identity = VALUES(shadow_identity)",
            (self.migration, *msgspec.structs.astuple(memory)),
        )

    # --- which database it is ---

    def where(self, schema: str | None) -> str:
        """See contract. Each schema has a queue of its own."""
        with self.sessions.asking() as session:
            return f"{server_id(session)}{schema or self.sessions.database}"

    def is_at(self, identity: str) -> bool:
        """See contract."""
        with self.sessions.asking() as session:
            return identity.startswith(server_id(session)) or remembers(session, self.migration)

    # --- describing ---

    def check_rights(self, statement: Statement, *, is_copied: bool) -> None:
        """See contract."""
        schema = self._schema_of(statement)
        with self.sessions.asking() as session, session.lent("asking for rights") as asked:
            check_rights(asked, statement, schema, SCHEMA, is_copied=is_copied)

    def look(self, statement: Statement) -> DescribedTable | None:
        """See contract."""
        schema = self._schema_of(statement)
        with self.sessions.asking() as session:
            if statement.action == "alter":
                self._check_engine(session, schema, statement.table)
            return self.described(session, schema, statement.table)

    def _schema_of(self, statement: Statement) -> str:
        """The schema that a statement means. Raises RefusedError for one that migrations do not change."""
        schema = statement.schema or self.sessions.database
        if why := why_reserved(self.dialect, schema):
            raise RefusedError(f"table {schema}.{statement.table}: {why}")
        return schema

    @staticmethod
    def _check_engine(session: Session, schema: str, name: str) -> None:
        """Raise RefusedError for a table whose engine keeps rows elsewhere: a comment could give it an address."""
        rows = session.run(
            "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s", (schema, name)
        )
        if rows and rows[0][0] is not None and not keeps_rows(rows[0][0]):
            raise RefusedError(
                f"table {schema}.{name}: its engine {rows[0][0]} does not keep the rows on this server. Run it yourself"
            )

    def described(self, session: Session, schema: str, name: str) -> DescribedTable | None:
        """The table of that name."""
        found = session.run(
            "SELECT table_schema, table_name, table_type, IFNULL(table_rows, 0), engine FROM "
            "information_schema.tables WHERE table_schema = %s AND table_name = %s",
            (schema, name),
        )
        if not found:
            return None
        (schema, name, kind, rows, engine) = found[0]
        form = catalogue.read_form(session.run, schema, name, is_mariadb=True)
        text = session.run(f"SHOW CREATE TABLE {quoted(schema, name)}")[0][1] if kind == "BASE TABLE" else kind
        return DescribedTable(
            schema=schema,
            name=name,
            columns=tuple(
                DescribedColumn(
                    c.name,
                    c.type,
                    c.is_nullable,
                    c.default is not None or c.is_identity,
                    c.generated is not None,
                    collation=c.collation or "",
                    is_counting=c.is_identity,
                    expression=c.generated or "",
                    given=given_value(c.default, is_nullable=c.is_nullable, is_counting=c.is_identity),
                )
                for c in form.columns
            ),
            keys={key.name: key.columns for key in form.keys if key.finds_rows},
            weak_keys={key.name: key.columns for key in form.keys if not key.finds_rows},
            definition=_definition(text),
            rows=int(rows),
            obstacles=(*self._obstacles(session, schema, name, kind, engine), *_elsewhere(text)),
            primary=form.primary.columns if form.primary is not None and form.primary.finds_rows else (),
            rules=read_rules(session, schema, name, tuple(c.name for c in form.columns)),
        )

    def _obstacles(self, session: Session, schema: str, name: str, kind: str, engine: str) -> list[str]:
        if kind != "BASE TABLE":
            return [f"it is a {kind.lower()}, not a table"]
        found = []
        if engine != "InnoDB":
            found.append(f"its engine is {engine}; only InnoDB tables are copied under load: use strategy direct")
        if not _PLAIN.match(name) or not _PLAIN.match(schema):
            found.append("its name has characters beyond A-Z a-z 0-9 _ $: use strategy direct")
        triggers = session.run(
            "SELECT trigger_name FROM information_schema.triggers WHERE event_object_schema = %s AND "
            "event_object_table = %s",
            (schema, name),
        )
        if triggers:
            names = ", ".join(sorted(row[0] for row in triggers))
            found.append(f"trigger {names} would stay with the old table: drop it first, create it again afterwards")
        foreign = session.run(
            "SELECT constraint_name FROM information_schema.referential_constraints WHERE (constraint_schema = %s AND "
            "table_name = %s) OR (unique_constraint_schema = %s AND referenced_table_name = %s)",
            (schema, name, schema, name),
        )
        if foreign:
            names = ", ".join(sorted(row[0] for row in foreign))
            found.append(f"foreign key {names} would stay with the old table: use strategy direct")
        return found

    def rehearse(self, statement: Statement, table: DescribedTable | None) -> DescribedTable | None:
        """See contract: the statement on an empty copy, which is dropped again."""
        if statement.action == "drop":
            return None
        schema = table.schema if table is not None else self._schema_of(statement)
        with self._tried(statement, table, schema) as (session, own, name):
            made = self.described(session, own, name)
            return None if made is None else replace(made, schema=schema, name=statement.table)

    def try_on_copy(self, statement: Statement, table: DescribedTable, run: Callable[[Session, str], None]) -> None:
        """Run something at an empty copy of the table, after the statement; ``run`` gets the copy's name, quoted."""
        with self._tried(statement, table, table.schema) as (session, own, name):
            run(session, quoted(own, name))

    @contextmanager
    def _tried(
        self, statement: Statement, table: DescribedTable | None, schema: str
    ) -> Iterator[tuple[Session, str, str]]:
        """The statement on an empty copy: the session, the copy's database and its name, while it exists."""
        with self.sessions.asking() as session, self._rehearsal(session, schema, statement) as (own, name):
            if statement.action == "alter" and table is not None:
                session.run(f"CREATE TABLE {quoted(own, name)} LIKE {quoted(schema, table.name)}")
                if statement.having(*_OF_FOREIGN_KEYS) is not None:
                    self._copy_foreign_keys(session, schema, table.name, quoted(own, name))
            session.run(statement.on(quoted(own, name)))
            yield session, own, name

    @contextmanager
    def _rehearsal(self, session: Session, schema: str, statement: Statement) -> Iterator[tuple[str, str]]:
        """A database, and the name of a table to be made there, which is dropped again; the log has neither if it can.

        A new table has the character set of its database: where that is another one than in ours, one like it is made.
        """
        name, own = f"rehearsal_{self.mark}", SCHEMA
        if not leave_log(session):
            self.logged = (
                f"the server's binary log has CREATE TABLE and DROP TABLE {own}.{name}, because the user may not keep "
                "them out of it: GRANT BINLOG ADMIN"
            )
        session.run(f"CREATE DATABASE IF NOT EXISTS {quoted(own)}")
        session.run("SET SESSION foreign_key_checks = 0")  # what the copy refers to is not beside it
        defaults = dict(
            session.run(
                "SELECT schema_name, CONCAT('CHARACTER SET ', default_character_set_name, ' COLLATE ', "
                "default_collation_name) FROM information_schema.schemata WHERE schema_name IN (%s, %s)",
                (schema, own),
            )
        )
        if statement.action == "create" and schema in defaults and defaults[schema] != defaults.get(own):
            own = f"{SCHEMA}_{name}"
            with session.lent("asking for rights") as asked:
                check_rehearsal(asked, statement.table, own, REHEARSALS)
            session.run(f"CREATE OR REPLACE DATABASE {quoted(own)} {defaults[schema]}")
        session.run(f"DROP TABLE IF EXISTS {quoted(own, name)}")
        try:
            yield own, name
        finally:
            session.run(f"DROP TABLE IF EXISTS {quoted(own, name)}")
            if own != SCHEMA:
                session.run(f"DROP DATABASE IF EXISTS {quoted(own)}")

    @staticmethod
    def _copy_foreign_keys(session: Session, schema: str, table: str, copy: str) -> None:
        """LIKE leaves them out."""
        text = session.run(f"SHOW CREATE TABLE {quoted(schema, table)}")[0][1]
        if found := _FOREIGN_KEY.findall(text):
            session.run(f"ALTER TABLE {copy} {', '.join(f'ADD {line}' for line in found)}")

    def change_towards(self, wanted: Statement, table: DescribedTable) -> str:
        """See contract: beside the table, where the schema's defaults are the same."""
        made = self.rehearse(wanted, None)
        if made is None:
            raise RefusedError("the wanted table was gone as soon as it was made: submit it again")
        now, then = read_form(table.definition), read_form(made.definition)
        words = change(now, then)
        found = f"ALTER TABLE {quoted(table.schema, table.name)} {words}"
        tried = self.rehearse(parse_statement(found, self.dialect), table) if words else table
        if tried is None or not same(read_form(tried.definition), then):
            raise not_found(found if words else "no change")
        return found if words else ""

    def is_instant(self, statement: Statement, table: DescribedTable) -> bool:
        """Whether the server does the statement, which asks for ALGORITHM=INSTANT, on an empty table of that form."""
        try:
            self.rehearse(statement, table)
        except RefusedError:
            return False
        return True

    def stored(self, table: DescribedTable) -> Stored | None:
        """See contract: InnoDB's file of a table of its own, which is the default."""
        with self.sessions.asking() as session:
            found = session.run(
                "SELECT data_length + index_length, @@datadir FROM information_schema.tables WHERE table_schema = %s "
                "AND table_name = %s",
                (table.schema, table.name),
            )
            at = self.sessions.at
            host = at.options.get("unix_socket") or at.host
        return Stored(host, f"{found[0][1]}{table.schema}/{table.name}.ibd", int(found[0][0] or 0)) if found else None

    def check_load(self, *, with_lag: bool) -> None:
        """See contract."""
        if with_lag and self.replicas is None:
            raise RefusedError("MariaDB's primary does not know the lag of its replicas: name them with --replica")
        if self.replicas is not None:
            self.replicas.check()

    def load(self) -> DatabaseLoad:
        """See contract."""
        load = self.rows.load()
        return load if self.replicas is None else replace(load, lag_seconds=self.replicas.lag_seconds())

    def watch_replicas(self, replicas: Mapping[str, Target]) -> None:
        """See contract."""
        self.replicas = MariadbReplicas(self.migration, replicas)

    # --- direct ---

    def run_direct(self, statement: Statement, memory: Memory, lock_seconds: float) -> None:
        """See contract. ``is_in_force`` shows the outcome: DDL is not part of a transaction here."""
        schema = self._schema_of(statement)
        self.note(memory)
        with self.sessions.part("direct") as session:
            session.wait_at_most(lock_seconds)
            session.run(statement.on(quoted(schema, statement.table)))

    def is_running(self) -> bool:
        """See contract."""
        return self.sessions.holder("direct") is not None

    def end_direct(self) -> None:
        """End the session of a direct statement: the server undoes what it has started."""
        self.sessions.end_part(self.sessions.main, "direct")

    def is_in_force(self, statement: Statement, memory: Memory) -> bool:
        """Whether a direct statement has come into force, by the table's definition."""
        table = self.look(statement)
        now = "" if table is None else table.definition
        return _is_as_tried(now, memory) and (now != memory.before or memory.stage == "changed")

    # --- copy ---

    def build(self, statement: Statement, plan: CopyPlan) -> None:
        """The copy, empty, in its new form."""
        main, schema = self.sessions.main, plan.before.schema
        main.run(f"CREATE TABLE {quoted(schema, plan.shadow)} LIKE {quoted(schema, plan.before.name)}")
        main.run(statement.on(quoted(schema, plan.shadow)))
        if counter := self.counter(schema, plan.before.name):
            main.run(f"ALTER TABLE {quoted(schema, plan.shadow)} AUTO_INCREMENT = {counter}")

    def counter(self, schema: str, name: str) -> int:
        """A table's next AUTO_INCREMENT; 0 if nothing in it counts."""
        ((counter,),) = self.sessions.main.run(
            "SELECT IFNULL(auto_increment, 0) FROM information_schema.tables WHERE table_schema = %s AND table_name = "
            "%s",
            (schema, name),
        )
        return int(counter)

    def identity(self, schema: str, name: str) -> str:
        """InnoDB's numbers of the table and its partitions: a rename keeps them, TRUNCATE and rewriting do not."""
        return self.identity_in(self.sessions.main, schema, name)

    @staticmethod
    def identity_in(session: Session, schema: str, name: str) -> str:
        """The same, asked in that session."""
        rows = session.run(
            "SELECT table_id FROM information_schema.innodb_sys_tables WHERE BINARY SUBSTRING_INDEX(name, '#', 1) = %s "
            "ORDER BY 1",
            (f"{schema}/{name}".replace("$", DOLLAR),),
        )
        return ",".join(str(row[0]) for row in rows)

    # --- cut-over ---

    def is_changed(self, memory: Memory, plan: CopyPlan) -> bool:
        """See contract."""
        return bool(memory.identity) and self.identity(plan.before.schema, plan.before.name) == memory.identity

    def end_holders(self, schema: str, table: str) -> None:
        """Forced: end exactly the sessions that hold the table or wait for it. LockUnavailableError: not known."""
        try:
            self.ended = end_holders(self.sessions.main, schema, table, self.sessions.numbers())
        except RefusedError as error:
            raise force_refused(error) from error

    # --- the end ---

    def drop_row_triggers(self, table: DescribedTable) -> None:
        """See contract."""
        for event in "diu":
            self.sessions.main.run(f"DROP TRIGGER IF EXISTS {quoted(table.schema, f'hg{self.mark}_{event}')}")

    def drop(self, artifacts: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
        """See contract."""
        for artifact in artifacts:
            self.sessions.main.run(f"DROP TABLE IF EXISTS {quoted(*artifact.name.split('.', 1))}")
        self.forget()
        return ()

    def close(self) -> None:
        """See contract."""
        self.rows.close()
        self.sessions.close()
        if self.replicas is not None:
            self.replicas.close()


def _elsewhere(text: str) -> list[str]:
    """Why a copy would not be where the table is; CREATE TABLE … LIKE leaves that out."""
    if " DIRECTORY='" not in text:
        return []
    return ["its file is in a DATA DIRECTORY, where a copy's would not be: use strategy direct"]


def _is_as_tried(now: str, memory: Memory) -> bool:
    """Whether the table is what the statement has made of an empty copy.

    The copy may not have had the foreign keys of before. Names that the server gives to foreign keys have the table's.
    """
    (lines, keys), (tried, added) = _without_foreign_keys(now), _without_foreign_keys(memory.after)
    _, before = _without_foreign_keys(memory.before)
    return lines == tried and keys in (added, before + added)


def _without_foreign_keys(definition: str) -> tuple[list[str], Counter[str]]:
    """The other lines of a definition, without commas, and its foreign keys without their names."""
    keys = Counter(_ITS_NAME.sub("", found) for found in _FOREIGN_KEY.findall(definition))
    return [line.removesuffix(",") for line in definition.split("\n") if not _FOREIGN_KEY.match(line)], keys


def _definition(text: str) -> str:
    """SHOW CREATE TABLE without the name of the table and its counter."""
    first, _, rest = text.partition("\n")
    return re.sub(r" AUTO_INCREMENT=\d+", "", f"{first.split(' ')[1]} ({rest}" if rest else text)
