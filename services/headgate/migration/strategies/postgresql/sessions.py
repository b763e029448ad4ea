"""Sessions of a migration at PostgreSQL, named after it, so that a new owner can end those of its predecessor."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.migration.strategies.contract import (
    DatabaseUnavailableError,
    LockUnavailableError,
    RefusedError,
    SupersededError,
)

__all__ = ["PostgresSessions", "named", "translating"]

CONNECT_SECONDS: Final = 10

_LOCKED: Final = (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure)
_LOST: Final = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.QueryCanceled)


def named(schema: str | None, name: str) -> sql.Identifier:
    """The table as an identifier, with its schema if that is known."""
    return sql.Identifier(name) if schema is None else sql.Identifier(schema, name)


@contextmanager
def translating(doing: str) -> Iterator[None]:
    """A server's errors as a strategy's."""
    try:
        yield
    except _LOCKED as error:
        raise LockUnavailableError(f"{doing}: {_said(error)}") from error
    except _LOST as error:
        raise DatabaseUnavailableError(f"{doing}: {_said(error)}") from error
    except psycopg.Error as error:
        if error.sqlstate is None or error.sqlstate[:2] in ("08", "53", "57", "58"):
            raise DatabaseUnavailableError(f"{doing}: {_said(error)}") from error
        raise RefusedError(f"{doing}: {_said(error)} ({error.sqlstate})") from error


def _said(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error) or type(error).__name__).strip()


class PostgresSessions:
    """The sessions of one migration in this process."""

    def __init__(self, migration: str, dsn: str, password_file: str | None) -> None:
        """Nothing is opened yet. Raises RefusedError for an address that is none, or that has a password in it."""
        try:
            given = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as error:
            raise RefusedError(f"--database is no address of PostgreSQL: {str(error).strip()}") from error
        if given.get("password") is not None:
            raise RefusedError("--database has a password in it, which would stand on the log: use --password-file")
        if not given.get("host") or not given.get("dbname") or not given.get("user"):
            raise RefusedError("--database: write postgresql://user@host:port/database")
        port = given.pop("port", None) or 5432
        self.database = str(given["dbname"])
        base = f"postgresql://{given.pop('user')}@{given.pop('host')}:{port}/{given.pop('dbname')}"
        rest = "&".join(f"{name}={value}" for name, value in sorted(given.items()) if value is not None)
        self.address = f"{base}?{rest}" if rest else base
        self._password_file = password_file
        self._name = f"headgate migration {sha256(migration.encode()).hexdigest()[:16]}"
        self._main: Any = None

    @property
    def main(self) -> Any:
        """The session that proves that the migration is ours; see ``take_over``."""
        if self._main is None:
            raise SupersededError("the migration was not taken over")
        return self._main

    def take_over(self) -> None:
        """End the sessions of earlier owners, and hold the migration's advisory lock; at once if it is held already."""
        if self._main is not None:
            with suppress(DatabaseUnavailableError), translating("asking the main session"):
                self._main.execute("SELECT 1")
                return
            self._main.close()
            self._main = None
        session = self.open()
        with translating("taking over"):
            self._end_others(session)
            ((got,),) = session.execute(
                "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (self._name,)
            ).fetchall()
        if not got:
            session.close()
            raise DatabaseUnavailableError("an earlier owner's session does not end")
        self._main = session

    def end_others(self) -> None:
        """End every session of the migration but the main one."""
        with translating("ending sessions"):
            self._end_others(self.main)

    def _end_others(self, session: Any) -> None:
        session.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s AND pid <> "
            "pg_backend_pid()",
            (self._name,),
        )

    @contextmanager
    def part(self) -> Iterator[Any]:
        """A session for one part of the work; only while the migration is ours."""
        with translating("asking the main session"):
            self.main.execute("SELECT 1")
        session = self.open()
        try:
            yield session
        finally:
            session.close()

    @contextmanager
    def asking(self) -> Iterator[Any]:
        """A session that is nobody's: for questions, before and after the migration is ours."""
        session = self.open(name="headgate")
        try:
            yield session
        finally:
            session.close()

    def open(self, name: str | None = None) -> Any:
        """A session. Raises DatabaseUnavailableError, RefusedError."""
        try:
            password = None
            if self._password_file is not None:
                password = Path(self._password_file).read_text("utf-8").rstrip("\n")
        except OSError as error:
            raise RefusedError(f"--password-file {self._password_file}: {error.strerror}") from error
        more = {} if password is None else {"password": password}
        info = make_conninfo(self.address, application_name=name or self._name, connect_timeout=CONNECT_SECONDS, **more)
        with translating("no session"):
            session = psycopg.connect(info, autocommit=True)
            session.execute("SET TimeZone = 'UTC'; SET lock_timeout = '10s'; SET row_security = off")
        return session

    def close(self) -> None:
        """Let go of the migration's lock."""
        if self._main is not None:
            with suppress(psycopg.Error):
                self._main.close()
            self._main = None
