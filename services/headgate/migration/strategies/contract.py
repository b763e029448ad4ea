"""What every strategy offers the owner, and what strategies ask of a kind of database.

A strategy starts, watches, stops, cleans up and adopts a migration. Each call is one effect of the scheduler
(``headgate.migration.core.effects``): it is bounded in time, it may be run again by another owner after this one died
in the middle of it, and it first takes the migration over at the database (``Server.take_over``): sessions of an
earlier owner are ended there, and a term lower than the recorded one is refused. Nothing that a frozen owner
still does can land after its successor's first step.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from headgate.databases.address import Target
from headgate.databases.errors import DatabaseUnavailableError
from headgate.databases.key_ranges import Chunk
from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.row_rules import NO_RULES, Misfit, RowRules, UniqueKey
from headgate.records.migration import Artifact, MigrationRecorded

__all__ = [
    "Chunk",
    "CopyPlan",
    "DatabaseLoad",
    "DatabaseUnavailableError",
    "DescribedColumn",
    "DescribedTable",
    "LockUnavailableError",
    "Memory",
    "RefusedError",
    "Server",
    "Stored",
    "Strategy",
    "SupersededError",
    "force_refused",
    "not_found",
]


class RefusedError(Exception):
    """It cannot be done: what, where, and what to do. The table is as it was."""


class LockUnavailableError(Exception):
    """A client held the table for longer than the migration may make others wait; nothing was changed."""


class SupersededError(Exception):
    """A later owner has taken the migration over at the database."""


class DescribedColumn(msgspec.Struct, frozen=True):
    """One column: ``type`` as the server writes it. ``is_generated``: the server computes it, by ``expression``.

    ``number`` is PostgreSQL's number of the column in its table; MariaDB has none (0). ``is_enum``: its type has a name
    of its own at PostgreSQL, and is an enum. ``collation``: that of a text. At MariaDB its name begins with that of the
    character set; at PostgreSQL it is empty for the type's own. ``is_counting``: it is AUTO_INCREMENT at MariaDB.
    ``given``: the value, as an expression, that rows have in it if the column is added to them; None if that is not
    known, or another one for each row.
    """

    name: str
    type: str
    is_nullable: bool = True
    has_default: bool = False
    is_generated: bool = False
    number: int = 0
    is_enum: bool = False
    collation: str = ""
    is_counting: bool = False
    expression: str = ""
    given: str | None = None


class DescribedTable(msgspec.Struct, frozen=True):
    """A table as the server describes it.

    ``keys`` are its unique keys, the primary one first: name → columns; ``primary`` are that one's columns.
    ``weak_keys`` are unique keys by which no row is found: of parts of columns, of expressions, of some of the rows,
    or checked at the end of transactions only.
    ``definition`` is a text that is the same exactly when the tables are built the same. ``obstacles`` are reasons why
    the table cannot be copied. ``unordered`` names keys of types (citext, ltree) that are compared by operators outside
    of pg_catalog, which are not on the search path of Headgate's sessions.
    """

    schema: str
    name: str
    columns: tuple[DescribedColumn, ...]
    keys: dict[str, tuple[str, ...]]
    definition: str
    rows: int = 0
    obstacles: tuple[str, ...] = ()
    primary: tuple[str, ...] = ()
    unordered: frozenset[str] = frozenset()
    weak_keys: dict[str, tuple[str, ...]] = {}
    rules: RowRules = NO_RULES

    def column(self, name: str) -> DescribedColumn | None:
        """The column of that name."""
        return next((column for column in self.columns if column.name == name), None)


class CopyPlan(msgspec.Struct, frozen=True):
    """How one table is copied into another: everything that is found out before the copy begins.

    ``pairs`` are (column before, column after) in the order of the table; ``key`` are pairs too. ``loose`` are columns
    (after) whose values may differ, because the operator has allowed it.
    """

    before: DescribedTable
    after: DescribedTable
    shadow: str
    pairs: tuple[tuple[str, str], ...]
    key: tuple[tuple[str, str], ...]
    loose: tuple[str, ...] = ()


class DatabaseLoad(msgspec.Struct, frozen=True):
    """The load of a database: sessions at work, except the one that asks, and its slowest replica's lag.

    Infinite: a replica does not replicate, or cannot be asked.
    """

    threads_running: int
    lag_seconds: float = 0.0


class Memory(msgspec.Struct, frozen=True):
    """What the database itself remembers of a migration: written with the change where it can do both at once."""

    owner_rev: int
    attempt: int
    stage: Literal["begun", "paused", "copied", "level", "keyed", "returning", "changed", "stopped"]
    before: str = ""
    """Definition of the table before, which shows whether a statement has come into force."""
    after: str = ""
    identity: str = ""
    """Of the shadow: the server keeps it when the table is renamed."""


class Stored(msgspec.Struct, frozen=True):
    """Where a table is, as its server names the file, and how large it is with its indexes."""

    host: str
    file: str
    bytes: int


def force_refused(error: RefusedError) -> LockUnavailableError:
    """The sessions that hold a table cannot be known or ended. The table is as before, and the migration continues."""
    return LockUnavailableError(f"force-cutover: {error}")


def not_found(tried: str) -> RefusedError:
    """The error if what was found does not lead to the wanted table: nothing is guessed."""
    return RefusedError(f"no ALTER was found that makes the table the wanted one ({tried} does not): submit your own")


class Server(Protocol):
    """One database, for one migration at a time. Sessions are opened as needed; ``close`` lets go of them.

    Every method raises DatabaseUnavailableError, and SupersededError once a later owner has taken over.
    """

    dialect: Literal["mysql", "postgres"]

    logged: str
    """What examining a change has left in the server's binary log; empty if nothing."""

    def of(self, migration: str) -> "Server":
        """The same database, for another migration."""
        ...

    ended: list[str]
    """Sessions that the last forced cut-over has ended, by number and user."""

    def where(self, schema: str | None) -> str:
        """The identity of the database that a schema is in: the same whatever its address is spelled like."""
        ...

    def is_at(self, identity: str) -> bool:
        """Whether this is still the database of that identity (``where``), as far as this migration is concerned."""
        ...

    def forget(self) -> None:
        """The migration has ended and nothing of it is left."""
        ...

    def take_over(self, owner_rev: int) -> Memory | None:
        """End every session that an earlier owner has for this migration, and keep it out from now on."""
        ...

    def check_rights(self, statement: Statement, *, is_copied: bool) -> None:
        """RefusedError with every right that the user lacks; ``is_copied``: for strategy online. Changes nothing."""
        ...

    def look(self, statement: Statement) -> DescribedTable | None:
        """The statement's table as it is; None if there is none."""
        ...

    def rehearse(self, statement: Statement, table: DescribedTable | None) -> DescribedTable | None:
        """What the statement makes of an empty copy of the table, in our own schema. RefusedError by the server."""
        ...

    def change_towards(self, wanted: Statement, table: DescribedTable) -> str:
        """The ALTER TABLE that makes the table what this CREATE TABLE would; empty if it is that. RefusedError."""
        ...

    def run_direct(self, statement: Statement, memory: Memory, lock_seconds: float) -> None:
        """The statement as it is. RefusedError, LockUnavailableError: nothing was changed."""
        ...

    def is_running(self) -> bool:
        """Whether a session of an earlier owner is still at work for this migration."""
        ...

    def duplicates(self, plan: CopyPlan, key: UniqueKey) -> Misfit | None:
        """Rows that are equal under a unique key of the new form; None if there are none, or if that is not known."""
        ...

    def misfits(self, plan: CopyPlan, *, is_followed: bool) -> list[Misfit]:
        """Rows that the new form does not accept, each by itself. ``is_followed``: by strategy online."""
        ...

    def next_bound(self, plan: CopyPlan, above: tuple[Any, ...] | None, rows: int) -> tuple[Any, ...] | None:
        """Key of the last of the next ``rows`` rows; None at the end."""
        ...

    def load(self) -> DatabaseLoad:
        """How busy the database is, asked in this thread's session."""
        ...

    def is_instant(self, statement: Statement, table: DescribedTable) -> bool:
        """Whether the change of the table takes no time, however many rows it has. Raises RefusedError."""
        ...

    def stored(self, table: DescribedTable) -> Stored | None:
        """Where the table is, and how large; None if the user may not know."""
        ...

    def check_load(self, *, with_lag: bool) -> None:
        """Raises RefusedError if ``load`` cannot be determined here."""
        ...

    def watch_replicas(self, replicas: Mapping[str, Target]) -> None:
        """``load`` asks these for their lag. RefusedError where the database itself knows it."""
        ...

    def is_changed(self, memory: Memory, plan: CopyPlan) -> bool:
        """Whether the shadow is in the table's place: seen, not inferred."""
        ...

    def drop_row_triggers(self, table: DescribedTable) -> None:
        """Drop what strategy triggers of earlier versions has left on the table."""
        ...

    def let_go(self) -> None:
        """End this thread's session."""
        ...

    def drop(self, artifacts: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
        """Drop the artifacts; those that are left."""
        ...

    def close(self) -> None:
        """Let go of all sessions."""
        ...


class Strategy(Protocol):
    """One way to change a table. Its methods run one effect each, and raise what Server raises."""

    def examine(self, spec: MigrationSpec, reverted: MigrationRecorded | None) -> fx.Examined | fx.ExamineRefused:
        """Whether it can be done; nothing is changed."""
        ...

    def plan(self, spec: MigrationSpec) -> fx.Examined | fx.ExamineRefused:
        """What can be found out by reading alone: nothing is created anywhere, not even for a moment."""
        ...

    def start(self, effect: fx.StartMigration) -> Any:
        """Progressed, Refused or Completed."""
        ...

    def adopt(self, effect: fx.AdoptMigration) -> Any:
        """Progressed, NotThere, Completed or Broke."""
        ...

    def watch(self, effect: fx.WatchMigration) -> Any:
        """Progressed, Completed or Broke; returns at once."""
        ...

    def cut_over(self, effect: fx.CutOverMigration) -> Any:
        """Completed, CutOverFailed or Broke."""
        ...

    def stop(self, effect: fx.StopMigration) -> Any:
        """Stopped or Completed."""
        ...

    def clean_up(self, effect: fx.CleanUpMigration) -> Any:
        """CleanedUp."""
        ...
