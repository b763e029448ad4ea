"""PostgreSQL under a migration: describing, rehearsing, making a copy, and who owns the migration.

DDL is transactional here, so what a migration does and what the database remembers of it are one transaction:
``headgate.migration`` shows whether a cut-over whose answer was lost came into force.

Sessions carry the migration's id as their application name; a new owner ends those of its predecessor by it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

import msgspec

from headgate.databases.address import Target
from headgate.databases.postgresql import catalogue, sql
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.databases.postgresql.session import PostgresSession
from headgate.migration.statements.reserved_schemas import why_reserved
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.contract import (
    CopyPlan,
    DescribedColumn,
    DescribedTable,
    Memory,
    RefusedError,
    Stored,
    SupersededError,
    force_refused,
    not_found,
)
from headgate.migration.strategies.fingerprint import Facts, FormChange, change_between
from headgate.migration.strategies.owned_server import OwnedServer
from headgate.migration.strategies.postgresql import ownership
from headgate.migration.strategies.postgresql.copy import PostgresCopy
from headgate.migration.strategies.postgresql.desired import change, read_form, same
from headgate.migration.strategies.postgresql.fingerprint import (
    SEQUENCE_GRANT,
    check_numbers,
    facts_of,
    hanging_on,
    identities,
)
from headgate.migration.strategies.postgresql.holders import end_holders
from headgate.migration.strategies.postgresql.names import called_alike, names_of, sequence_positions, step_sequences
from headgate.migration.strategies.postgresql.new_form import PostgresNewForm, read_given, read_rules
from headgate.migration.strategies.postgresql.place import database_id
from headgate.migration.strategies.postgresql.rights import check_new_objects, check_rights, relations_of
from headgate.migration.strategies.postgresql.sessions import PostgresSessions, named, schema_of, translating
from headgate.records.migration import Artifact

__all__ = ["PostgresServer", "make_altered"]

NAME_BYTES_MAX: Final = 63
_OWNER: Final = "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = %s::regclass"
SESSIONS_SCHEMA: Final = "pg_catalog"
"""Where our sessions look for a table without a schema, if its user's search path has none."""

_CREATE_MEMORY: Final = """
CREATE TABLE IF NOT EXISTS headgate.migration (id text PRIMARY KEY, owner_rev bigint NOT NULL, attempt bigint NOT NULL,
stage text NOT NULL, before_text text NOT NULL, after_text text NOT NULL, shadow_identity text NOT NULL)
"""

_RULES: Final = """
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass
AND contype IN ('p', 'u', 'x')
ORDER BY oid
"""

_OBSTACLES: Final = """
SELECT 'foreign key ' || conname || ' would stay with the old table: use strategy direct' FROM pg_constraint
WHERE contype = 'f' AND (conrelid = %(oid)s OR confrelid = %(oid)s)
UNION ALL SELECT 'trigger ' || tgname || ' would stay with the old table: drop it first' FROM pg_trigger
WHERE tgrelid = %(oid)s AND NOT tgisinternal
UNION ALL SELECT DISTINCT 'view ' || ev_class::regclass || ' would still show the old table: drop it first'
FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid WHERE d.refobjid = %(oid)s AND d.classid = 'pg_rewrite'::regclass
AND r.ev_class <> %(oid)s
UNION ALL SELECT 'rule ' || rulename || ' would stay with the old table: use strategy direct' FROM pg_rewrite
WHERE ev_class = %(oid)s
UNION ALL SELECT 'security label of ' || provider || ' would stay with the old table: use strategy direct'
FROM pg_seclabel WHERE classoid = 'pg_class'::regclass AND objoid = %(oid)s
UNION ALL SELECT 'policy ' || polname || ' would stay with the old table: use strategy direct' FROM pg_policy
WHERE polrelid = %(oid)s
UNION ALL SELECT 'it is of type ' || reloftype::regtype || ', which a copy would not be: use strategy direct'
FROM pg_class WHERE oid = %(oid)s AND reloftype <> 0
UNION ALL SELECT 'statistics ' || stxname || ' belong to ' || pg_get_userbyid(stxowner) || ', and those of a copy '
  'would belong to the table''s owner: use strategy direct' FROM pg_statistic_ext JOIN pg_class c ON c.oid = stxrelid
WHERE stxrelid = %(oid)s AND stxowner <> relowner
UNION ALL SELECT DISTINCT 'rights on it were granted by ' || pg_get_userbyid(grantor) || ', and a copy''s would be '
  'granted by its owner: use strategy direct' FROM (SELECT relowner, relacl FROM pg_class WHERE oid = %(oid)s
  UNION ALL SELECT relowner, attacl FROM pg_class c JOIN pg_attribute ON attrelid = c.oid AND NOT attisdropped
  WHERE c.oid = %(oid)s UNION ALL SELECT s.relowner, s.relacl FROM pg_depend d JOIN pg_class s ON s.oid = d.objid
  WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'i'
  AND d.refobjid = %(oid)s AND s.relkind = 'S') given, aclexplode(relacl) WHERE grantor <> relowner
UNION ALL SELECT 'it is partitioned or inherits: use strategy direct' FROM pg_class
WHERE oid = %(oid)s AND (relkind <> 'r' OR relispartition OR EXISTS (SELECT FROM pg_inherits
WHERE inhparent = %(oid)s OR inhrelid = %(oid)s))
ORDER BY 1
"""


# What of a table took work to make: its rows' file, its indexes' files, rules that its rows were checked against.
_WORK: Final = """
SELECT 'file', relfilenode::text FROM pg_class WHERE oid = %(table)s::regclass
UNION ALL SELECT 'index', c.relfilenode::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = %(table)s::regclass
UNION ALL SELECT 'rule', oid::text FROM pg_constraint
WHERE conrelid = %(table)s::regclass AND convalidated AND contype <> 'n'
UNION ALL SELECT 'not null', attnum::text FROM pg_attribute
WHERE attrelid = %(table)s::regclass AND attnum > 0 AND attnotnull AND NOT attisdropped AND NOT atthasmissing
"""


_LEFT_OUT: Final = """
WITH given (words, option) AS (
  SELECT 'SET (%%s = %%L)', unnest(reloptions) FROM pg_class WHERE oid = %(table)s::regclass
  UNION ALL SELECT 'SET (toast.%%s = %%L)', unnest(t.reloptions) FROM pg_class c
  JOIN pg_class t ON t.oid = c.reltoastrelid WHERE c.oid = %(table)s::regclass
  UNION ALL SELECT 'ALTER COLUMN ' || quote_ident(attname) || ' SET (%%s = %%L)', unnest(attoptions)
  FROM pg_attribute WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped)
SELECT format(words, split_part(option, '=', 1), substr(option, strpos(option, '=') + 1)) FROM given
UNION ALL SELECT format('ALTER COLUMN %%I SET STATISTICS %%s', attname, attstattarget) FROM pg_attribute
WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped AND coalesce(attstattarget, -1) >= 0
"""
"""What a copy LIKE the table lacks: storage parameters, statistics targets."""


_SEQUENCE_TYPES: Final = """
SELECT format('ALTER SEQUENCE %%s AS %%s', pg_get_serial_sequence(%(copy)s, a.attname), seqtypid::regtype)
FROM pg_depend d JOIN pg_sequence ON seqrelid = d.objid
JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'i'
AND d.refobjid = %(table)s::regclass
"""
"""An identity sequence of a copy LIKE the table is of bigint, whatever its column is."""


class Tried(msgspec.Struct, frozen=True):
    """What was learned by trying a statement on an empty copy of a table of that definition.

    ``empty`` and ``present``: facts of the copy before the statement, and of the table. ``unwritable``: columns that
    are GENERATED ALWAYS AS IDENTITY afterwards.
    """

    statement: Statement
    definition: str
    empty: Facts
    present: Facts
    change: FormChange
    unwritable: frozenset[str]


class PostgresServer(OwnedServer):
    """One migration's database; see contract.Server."""

    dialect: Literal["mysql", "postgres"] = "postgres"
    name_bytes_max = NAME_BYTES_MAX
    shadow_prefix = "_"
    logged = ""

    def __init__(self, migration: str, target: Target, *, cluster_id: str, reads_only: bool = False) -> None:
        """Nothing is opened yet. Raises RefusedError."""
        super().__init__(migration, target, cluster_id=cluster_id)
        self.sessions = PostgresSessions(self.migration, target, reads_only=reads_only)
        self.address = self.sessions.address
        self.learns_form = False
        """Whether ``rehearse`` also learns what the statement does to the table's facts and names."""
        self.tried: Tried | None = None
        self.rows = PostgresCopy(self.sessions)
        self.next_bound = self.rows.next_bound
        self.load = self.rows.load
        new_form = PostgresNewForm(self.sessions)
        self.duplicates, self.misfits = new_form.duplicates, new_form.misfits
        self.let_go = self.rows.let_go

    # --- whose it is ---

    def of(self, migration: str) -> "PostgresServer":
        """See contract."""
        return PostgresServer(migration, self.sessions.target, cluster_id=self._cluster_id)

    def _take_sessions(self, owner_rev: int) -> None:
        self.sessions.take_over(owner_rev)
        with translating("taking over"):
            ownership.create(self.sessions.main, _CREATE_MEMORY)

    def _close_sessions(self) -> None:
        self.sessions.close()

    def _forget_sessions(self) -> None:
        self.sessions.forget()

    def _run(self, doing: str, statement: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with translating(f"{doing} headgate.migration"):
            return PostgresSession(self.sessions.main).execute(statement, parameters)

    def note(self, memory: Memory) -> None:
        """Remember."""
        with translating("writing headgate.migration"):
            self.note_in(self.sessions.main, memory)

    def note_in(self, session: BoundedConnection, memory: Memory) -> None:
        """Remember, in a transaction of the caller's."""
        session.execute(
            "INSERT INTO headgate.migration VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET "
            "owner_rev = excluded.owner_rev, attempt = excluded.attempt, stage = excluded.stage, before_text = "
            "excluded.before_text, after_text = excluded.after_text, shadow_identity = excluded.shadow_identity",
            (
                self.migration,
                memory.owner_rev,
                memory.attempt,
                memory.stage,
                memory.before,
                memory.after,
                memory.identity,
            ),
        )

    # --- which database it is ---

    def where(self, schema: str | None) -> str:
        """See contract."""
        del schema  # all of a database's have one queue
        with self.sessions.asking() as session, translating("asking which database it is"):
            return database_id(session, self.address)

    def is_at(self, identity: str) -> bool:
        """See contract."""
        return self.where(None) == identity

    # --- describing ---

    def check_rights(self, statement: Statement, *, is_copied: bool) -> None:
        """See contract."""
        with self.sessions.asking() as session, translating("asking for rights"):
            check_rights(session, statement, is_copied=is_copied)

    def look(self, statement: Statement) -> DescribedTable | None:
        """See contract."""
        with self.sessions.asking() as session, translating("describing the table"):
            return self.described(session, self._schema_of(session, statement), statement.table)

    @staticmethod
    def _schema_of(session: BoundedConnection, statement: Statement) -> str | None:
        """The schema that a statement means. Raises RefusedError for one that migrations do not change."""
        schema = schema_of(session, statement.schema, statement.table)
        if why := why_reserved("postgres", schema or SESSIONS_SCHEMA):
            raise RefusedError(f"table {schema or SESSIONS_SCHEMA}.{statement.table}: {why}")
        return schema

    def described(self, session: BoundedConnection, schema: str | None, name: str) -> DescribedTable | None:
        """The table of that name, as this session sees it."""
        full = named(schema_of(session, schema, name), name).as_string(session)
        row = session.execute(
            "SELECT c.oid, n.nspname, c.relname, greatest(c.reltuples, 0)::bigint FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s) AND c.relkind IN ('r', 'p')",
            (full,),
        ).fetchone()
        if row is None:
            return None
        oid, schema, name, rows = row
        form, given = catalogue.read_form(PostgresSession(session).execute, oid), read_given(session, oid)
        obstacles = session.execute(_OBSTACLES, {"oid": oid}).fetchall()
        checks = session.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s UNION ALL "
            "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = %s ORDER BY 1",
            (oid, oid),
        ).fetchall()
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
                    c.number,
                    c.is_enum,
                    collation=c.collation or "",
                    expression=c.generated or "",
                    given=given.get(c.name),
                )
                for c in form.columns
            ),
            keys={key.name: key.columns for key in form.keys if key.finds_rows},
            weak_keys={key.name: key.columns for key in form.keys if not key.finds_rows},
            definition=_definition(form.columns, [text for (text,) in checks]),
            rows=rows,
            obstacles=(*(o[0] for o in obstacles), *map(_hanging, hanging_on(session, oid))),
            primary=() if form.primary is None else form.primary.columns,
            unordered=frozenset(key.name for key in form.keys if key.has_own_operators),
            rules=read_rules(session, oid),
        )

    def rehearse(self, statement: Statement, table: DescribedTable | None) -> DescribedTable | None:
        """See contract: in a transaction that is rolled back."""
        if statement.action == "drop":
            return None
        with self.rehearsal() as (session, schema):
            if statement.action == "alter" and table is not None:
                if self.learns_form:
                    self.tried = self._tried(session, statement, table, schema)
                else:
                    self._altered(session, statement, table, schema)
            else:
                session.execute(statement.on(named(schema, statement.table).as_string(session)))
            return self.described(session, schema, statement.table)

    @staticmethod
    def _altered(session: BoundedConnection, statement: Statement, table: DescribedTable, schema: str) -> None:
        """Alter an empty copy. What is new then is new beside the table, too, where the user may not be let create."""
        copy = named(schema, table.name)
        make_like(session, table, copy)
        present = relations_of(session, schema)
        alter(session, statement, table, copy)
        if relations_of(session, schema) - present:
            check_new_objects(session, statement, table.schema)

    def _tried(self, session: BoundedConnection, statement: Statement, table: DescribedTable, schema: str) -> "Tried":
        """Alter an empty copy whose objects are called as the table's: what that does to its facts and names."""
        copy, full = named(schema, table.name), named(table.schema, table.name)
        make_like(session, table, copy)
        names, empty = names_of(session, full), facts_of(session, copy)
        called_alike(session, schema, table.name, names)
        step_sequences(session, copy)
        positions = sequence_positions(session, copy)
        alter(session, statement, table, copy)
        made = change_between(empty, facts_of(session, copy))
        moved = sequence_positions(session, copy)
        restarted = tuple(column for column in sorted(positions) if moved.get(column) not in (None, positions[column]))
        ((oid,),) = session.execute("SELECT to_regclass(%s)::oid", (copy.as_string(session),)).fetchall()
        form = catalogue.read_form(PostgresSession(session).execute, oid)
        numbered, count = identities(empty), len(table.columns)
        stay = {c.number: c.name for c in form.columns if c.number <= count}
        check_numbers(session, table, copy, [table.columns[number - 1].number for number in stay])
        carried = {name for number, name in stay.items() if table.columns[number - 1].name in numbered}
        ((owner,),) = session.execute(_OWNER, (full.as_string(session),)).fetchall()
        change = msgspec.structs.replace(
            made,
            # Default privileges give the copy's sequences rights. Those of columns that stay are the table's own.
            removed=tuple(fact for fact in made.removed if fact.aspect != SEQUENCE_GRANT),
            # An owner has its rights as such, whatever else it was given.
            added=tuple(
                fact
                for fact in made.added
                if fact.aspect != SEQUENCE_GRANT or (fact.column not in carried and fact.subject != owner)
            ),
            knows_sequences=True,
            names=names_of(session, copy),
            names_before=names,
            restarted=restarted,
        )
        unwritable = frozenset(column.name for column in form.columns if column.identity == "a")
        return Tried(statement, table.definition, empty, facts_of(session, full), change, unwritable)

    @contextmanager
    def rehearsal(self) -> Iterator[tuple[BoundedConnection, str]]:
        """A session in a transaction that is rolled back, and an empty schema."""
        schema = f"_hg_rehearsal_{self.mark}"
        with (
            self.sessions.asking() as session,
            translating("the statement"),
            session.transaction(force_rollback=True),
        ):
            session.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
            yield session, schema

    def change_towards(self, wanted: Statement, table: DescribedTable) -> str:
        """See contract: in a schema of its own, so that constraints get the names that they have beside the table."""
        full = named(table.schema, table.name)
        with self.rehearsal() as (session, schema):
            empty = named(schema, table.name)
            session.execute(wanted.on(empty.as_string(session)))
            now, then = (read_form(session, name.as_string(session)) for name in (full, empty))
            if same(now, then):
                return ""
            words = sql.SQL(", ").join(change(now, then))
            session.execute(sql.SQL("DROP TABLE {}").format(empty))
            session.execute(sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(empty, full))
            for definition, name in read_form(session, empty.as_string(session)).rules.items():
                if name != (theirs := now.rules.get(definition, name)):
                    rename = sql.SQL("ALTER TABLE {} RENAME CONSTRAINT {} TO {}")
                    session.execute(rename.format(empty, sql.Identifier(name), sql.Identifier(theirs)))
            session.execute(sql.SQL("ALTER TABLE {} {}").format(empty, words))
            found = sql.SQL("ALTER TABLE {} {}").format(full, words).as_string(session)
            if not same(read_form(session, empty.as_string(session)), then):
                raise not_found(found)
            return str(found)

    def is_instant(self, statement: Statement, table: DescribedTable) -> bool:
        """Whether the statement changes the catalogue alone: it writes no row, builds no index and checks no rule."""
        with self.rehearsal() as (session, schema):
            copy = named(schema, table.name)
            session.execute(like(table, copy))
            full = copy.as_string(session)
            before = set(session.execute(_WORK, {"table": full}).fetchall())
            alter(session, statement, table, copy)
            return before.issuperset(session.execute(_WORK, {"table": full}).fetchall())

    def stored(self, table: DescribedTable) -> Stored | None:
        """See contract: PostgreSQL shows the server's folder only to users with the right to know it."""
        with self.sessions.asking() as session, translating("asking for the table's size"):
            full = (named(table.schema, table.name).as_string(session),)
            ((folder, path, size),) = session.execute(
                "SELECT (SELECT setting FROM pg_settings WHERE name = 'data_directory'), "
                "pg_relation_filepath(%s::regclass), pg_total_relation_size(%s::regclass)",
                full * 2,
            ).fetchall()
            host = session.info.host
        return None if folder is None else Stored(host, f"{folder}/{path}", int(size))

    def check_load(self, *, with_lag: bool) -> None:  # noqa: ARG002 - the same right shows both
        """See contract: without the right, other users' sessions and replicas are hidden, and none would be busy."""
        with self.sessions.asking() as session, translating("asking for rights"):
            ((may,),) = session.execute("SELECT pg_has_role('pg_read_all_stats', 'USAGE')").fetchall()
        if not may:
            raise RefusedError("limits of load and lag need the role pg_read_all_stats: GRANT it to the user")

    def watch_replicas(self, replicas: Mapping[str, Target]) -> None:
        """See contract."""
        raise RefusedError(
            f"--replica {next(iter(replicas))}: PostgreSQL's primary knows its replicas' lag: leave it out"
        )

    # --- direct ---

    def run_direct(self, statement: Statement, memory: Memory, lock_seconds: float) -> None:
        """See contract: the statement and the memory of it are one transaction."""
        with self.sessions.part() as session, translating("the statement"), session.transaction():
            session.execute(f"SET LOCAL lock_timeout = {int(lock_seconds * 1000)}")
            self.claim(session, memory)
            schema = self._schema_of(session, statement)
            session.execute(statement.on(named(schema, statement.table).as_string(session)))

    def claim(self, session: BoundedConnection, memory: Memory) -> None:
        """Within the transaction of the change: it is ours, and it is done. Raises SupersededError."""
        found = session.execute(
            "SELECT owner_rev FROM headgate.migration WHERE id = %s FOR UPDATE", (self.migration,)
        ).fetchone()
        if found is not None and found[0] > memory.owner_rev:
            raise SupersededError(f"owner {found[0]} has the migration")
        changed = Memory(memory.owner_rev, memory.attempt, "changed", memory.before, memory.after, memory.identity)
        self.note_in(session, changed)

    def is_running(self) -> bool:
        """See contract: a statement without its client is rolled back, so there is nothing to wait for."""
        return False

    def end_direct(self) -> None:
        """Sessions of this migration are ended by ``take_over`` and ``close``."""
        self.sessions.end_others()

    def is_in_force(self, _statement: Statement, memory: Memory) -> bool:
        """Whether a direct statement has come into force."""
        return memory.stage == "changed"

    # --- cut-over ---

    def is_changed(self, memory: Memory, _plan: CopyPlan) -> bool:
        """See contract."""
        return memory.stage == "changed"

    def end_holders(self, plan: CopyPlan) -> None:
        """Forced: end exactly the sessions that hold the table or wait for it. LockUnavailableError: one cannot be."""
        main = self.sessions.main
        try:
            with translating("ending who holds the table"):
                self.ended = end_holders(main, named(plan.before.schema, plan.before.name).as_string(main))
        except RefusedError as error:
            raise force_refused(error) from error

    # --- the end ---

    def drop_row_triggers(self, table: DescribedTable) -> None:
        """See contract: drops their function, and the triggers with it."""
        function = named(table.schema, f"hg{self.mark}")
        with translating("dropping triggers"):
            self.sessions.main.execute(sql.SQL("DROP FUNCTION IF EXISTS {}() CASCADE").format(function))

    def drop(self, artifacts: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
        """See contract."""
        for artifact in artifacts:
            schema, _, name = artifact.name.partition(".")
            with translating(f"dropping {artifact.name}"):
                self.sessions.main.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(named(schema, name)))
        self.forget()
        return ()

    def close(self) -> None:
        """See contract."""
        self.rows.close()
        self.sessions.close()


def _definition(columns: Sequence[catalogue.PostgresColumn], checks: list[str]) -> str:
    """It is stored with a migration, and compared with later ones: it stays as earlier versions wrote it."""
    described = []
    for column in columns:
        expression = column.generated or column.default
        parts = (
            column.is_nullable,
            expression is not None or column.is_identity,
            column.generated is not None,
            expression,
            column.identity,
            column.collation_number,
        )
        described.append([column.name, column.type, *map(str, parts)])
    return json.dumps([described, checks])


def _hanging(found: str) -> str:
    return f"{found} would still refer to the old table. Use strategy direct"


def make_altered(
    session: BoundedConnection, statement: Statement, table: DescribedTable, name: str, schema: str | None = None
) -> None:
    """An empty copy of the table, as the statement makes it; in the table's schema, if none is given."""
    copy = named(schema or table.schema, name)
    make_like(session, table, copy)
    alter(session, statement, table, copy)


def make_like(session: BoundedConnection, table: DescribedTable, copy: sql.Identifier) -> None:
    """An empty copy of the table, with what CREATE TABLE … LIKE leaves out of its form."""
    session.execute(like(table, copy))
    full = named(table.schema, table.name).as_string()
    for (words,) in session.execute(_LEFT_OUT, {"table": full}):
        session.execute(sql.SQL("ALTER TABLE {} {}").format(copy, sql.SQL(words)))
    arguments = {"table": full, "copy": copy.as_string(session)}
    for (statement,) in session.execute(_SEQUENCE_TYPES, arguments).fetchall():
        session.execute(sql.SQL(statement))
    ((comment,),) = session.execute("SELECT obj_description(%s::regclass, 'pg_class')", (full,))
    if comment is not None:
        session.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(copy, sql.Literal(comment)))


def alter(session: BoundedConnection, statement: Statement, table: DescribedTable, empty: sql.Identifier) -> None:
    """Run the statement on a copy of its table: where it names the table's indexes, the copy's are meant.

    Names of indexes, and of the constraints that they stand for, are a schema's: the copy's have others.
    """
    copy = empty.as_string(session)
    theirs: dict[str, list[str]] = {}
    for index, definition in session.execute(_RULES, (copy,)).fetchall():
        theirs.setdefault(definition, []).append(index)
    rules = {
        index: sql.Identifier(theirs[definition].pop(0)).as_string(session)
        for index, definition in session.execute(
            _RULES, (named(table.schema, table.name).as_string(session),)
        ).fetchall()
        if theirs.get(definition)
    }
    session.execute(statement.on(copy, rules))


def like(table: DescribedTable, copy: sql.Identifier) -> sql.Composed:
    """CREATE TABLE for an empty copy."""
    return sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(copy, named(table.schema, table.name))
