"""Sessions of a migration at PostgreSQL, named after it, so that a new owner can end those of its predecessor.

A row in Headgate's own table names the migration's owner (ownership.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, Final

from msgspec.structs import replace

from headgate.databases.address import Target
from headgate.databases.faults import Fault
from headgate.databases.postgresql import sql
from headgate.databases.postgresql.address import address_of, url_of
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.databases.postgresql.errors import PostgresError, fault_of, without_values
from headgate.databases.postgresql.search_path import find_table
from headgate.databases.postgresql.session import open_connection
from headgate.migration.strategies.contract import (
    DatabaseUnavailableError,
    LockUnavailableError,
    RefusedError,
    SupersededError,
)
from headgate.migration.strategies.owned_sessions import OwnedSessions
from headgate.migration.strategies.postgresql import ownership
from headgate.migration.strategies.target import password_refused, refusing
from headgate.records.identifiers import show_identifier

__all__ = ["PostgresSessions", "named", "schema_of", "translating"]

LOCK_SECONDS: Final = 10
"""For statements whose step does not set its own limit."""

QUALIFY: Final = (
    ". Headgate's sessions have only pg_catalog on their search path: write the schema before names of types, "
    "functions, collations and tables"
)


def named(schema: str | None, name: str) -> sql.Identifier:
    """The table as an identifier, with its schema if that is known."""
    return sql.Identifier(name) if schema is None else sql.Identifier(schema, name)


def schema_of(session: BoundedConnection, schema: str | None, name: str) -> str | None:
    """The schema that a statement means: the one that it names, else by its user's search path, as the server would.

    That is the schema of the first table of that name, or, for a table to be created, the first one on the path.
    """
    if schema is not None:
        return schema

    def rows(query: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        return session.execute(query, parameters).fetchall()

    found = find_table(rows, session.path, show_identifier((name,)))
    return found[1] if found is not None else next(iter(session.path), None)


@contextmanager
def translating(doing: str) -> Iterator[None]:
    """A server's errors as a strategy's."""
    try:
        yield
    except PostgresError as error:
        match fault_of(error):
            case Fault.LOCK_WAIT | Fault.DEADLOCK:
                raise LockUnavailableError(f"{doing}: {_said(error)}") from error
            case Fault.LOST | Fault.ENDED:
                raise DatabaseUnavailableError(f"{doing}: {_said(error)}") from error
            case fault:
                raise _refused(doing, error, fault) from error


def _refused(doing: str, error: PostgresError, fault: Fault) -> RefusedError:
    said = _said(error)
    state = "" if error.sqlstate is None or error.sqlstate in said else f" ({error.sqlstate})"
    hint = QUALIFY if fault in (Fault.TABLE_MISSING, Fault.NAME_MISSING) else ""
    return RefusedError(f"{doing}: {said}{state}{hint}")


def _said(error: PostgresError) -> str:
    """The server's message, less the values of rows: a migration's errors are records on a topic."""
    column = error.diag.column_name
    return without_values(error) if column is None else f"{without_values(error)}, column {column}"


class PostgresSessions(OwnedSessions[BoundedConnection]):
    """The sessions of one migration in this process."""

    def __init__(self, migration: str, target: Target, *, reads_only: bool = False) -> None:
        """Nothing is opened yet. Raises RefusedError for an address that is not valid, or that has a password in it.

        ``reads_only``: the server refuses everything that would change anything.
        """
        super().__init__()
        self.reads_only = reads_only
        with refusing():
            if address_of(target.dsn, target.options).has_password:
                raise password_refused(target.options)
            self.address, self.database = url_of(target.dsn, target.options)
        self.target = replace(target, dsn=self.address)
        self._migration = migration
        self._name = f"headgate migration {sha256(migration.encode()).hexdigest()[:16]}"
        self._taken = 0

    def _take(self, session: BoundedConnection, owner_rev: int) -> None:
        with translating("taking over"):
            self._taken = ownership.take(session, self._name, self._migration, owner_rev)

    def check_ours(self) -> None:
        """Raise DatabaseUnavailableError or SupersededError unless the main session lives and the migration is ours."""
        with translating("asking the main session"):
            if not ownership.is_taken(self.main, self._migration, self._taken):
                raise SupersededError("another owner has the migration")

    def forget(self) -> None:
        """The migration has ended and nothing of it is left."""
        with translating("writing headgate.migration_owner"):
            ownership.forget(self.main, self._migration)

    def end_others(self) -> None:
        """End every session of the migration but the main one."""
        with translating("ending sessions"):
            ownership.end_sessions(self.main, self._name)

    @contextmanager
    def part(self) -> Iterator[BoundedConnection]:
        """A session for one part of the work; only while the migration is ours.

        It is opened before that is asked: a later owner either ends it, or has ended the main session by then.
        """
        session = self.open()
        try:
            self.check_ours()
            yield session
        finally:
            session.close()

    @contextmanager
    def asking(self) -> Iterator[BoundedConnection]:
        """A session of no migration: for questions, before and after the migration is ours."""
        session = self.open(name="headgate")
        try:
            yield session
        finally:
            session.close()

    def open(self, name: str | None = None) -> BoundedConnection:
        """A session. Raises DatabaseUnavailableError, RefusedError."""
        with refusing():
            session = open_connection(self.target, application_name=name or self._name, lock_seconds=LOCK_SECONDS)
        if self.reads_only:
            with translating("opening a session"):
                session.execute("SET default_transaction_read_only = on")
        return session

    def close(self) -> None:
        """End the main session."""
        if self._main is not None:
            with suppress(PostgresError):
                self._main.close()
            self._main = None
