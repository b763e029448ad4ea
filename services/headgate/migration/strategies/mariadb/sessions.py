"""Sessions of a migration at MariaDB or MySQL: each holds a user-level lock that says whose it is and what for.

The protocol has no application name. A lock named after the migration and the session's part does: a new owner asks the
server who holds it (``IS_USED_LOCK``), and ends that session. A session that does not get its lock is refused, so an
owner that was frozen cannot open new ones once its successor has them.
"""

import math
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import DictCursor, SSCursor

from headgate.migration.strategies.contract import (
    DatabaseUnavailableError,
    LockUnavailableError,
    RefusedError,
    SupersededError,
)

__all__ = ["MariadbSessions", "Session", "address_of", "quoted", "translated", "why_not_mariadb"]

CONNECT_SECONDS: Final = 10
READ_SECONDS: Final = 60
"""A statement of a chunk takes milliseconds; the long one, of strategy direct, has a session without this limit."""

END_POLL_SECONDS: Final = 0.02
"""Between two looks whether a session that was killed is gone."""

LEAVING_SECONDS: Final = 2
"""For a session that this process has just closed to be gone at the server, so that the next one can have its name."""

TASKS_MAX: Final = 64
"""Tasks of one copy that read and write at once."""

TASKS: Final = tuple(f"task{number}" for number in range(TASKS_MAX))

PARTS: Final = ("main", "lock", "rename", "mark", "copy", "keys", "tool", *TASKS)
"""Sessions that a new owner ends, ``tool`` is that of a program which it does not know. That of a direct statement
(``direct``) is left: the server goes on with it."""

PORT: Final = 3306
_LOST: Final = frozenset({1053, 1927, 2002, 2003, 2006, 2013, 2014, 2055, 1040, 1129, 4031, 0})
_LOCKED: Final = frozenset({1205, 1213, 3024, 1969})


def quoted(*names: str) -> str:
    """`a`.`b`."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def address_of(dsn: str) -> str:
    """The one spelling of mysql://user@host:port/database. Raises RefusedError; a password does not belong there."""
    try:
        parts = urlsplit(dsn)
        port = parts.port or PORT
    except ValueError as error:
        raise RefusedError(f"--database is no address: {error}") from error
    if not parts.hostname or not parts.username or not parts.path.strip("/"):
        raise RefusedError("--database: write mysql://user@host:port/database")
    if parts.password is not None:
        raise RefusedError("--database has a password in it, which would stand on the log: use --password-file")
    return f"mysql://{parts.username}@{parts.hostname.lower()}:{port}{parts.path.rstrip('/')}"


def translated(error: pymysql.Error, doing: str) -> Exception:
    """What a server's error means to a strategy."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = f"{doing}: {error.args[1] if len(error.args) > 1 else error}"
    if number in _LOCKED:
        return LockUnavailableError(text)
    if number in _LOST or number in (1317, 1028):
        return DatabaseUnavailableError(text)
    return RefusedError(f"{text} (error {number})")


def why_not_mariadb(version: str) -> str | None:
    """The reason why a server of that version is not changed here; None for a MariaDB.

    MySQL names InnoDB's catalogue of tables otherwise, by which a cut-over is seen, and has never been tried.
    """
    if "mariadb" in version.lower():
        return None
    return f"it is MySQL {version}; migrations know MariaDB and PostgreSQL only: use a tool made for MySQL"


class _Connection(Connection):
    """PyMySQL's, but for the machine's certificates, which it reads (20 ms) before each connection, and does not use.

    It checks a server by them only where one is named. A private part: PyMySQL is pinned to a minor version.
    """

    def _create_ssl_ctx(self, sslp: dict[str, Any]) -> ssl.SSLContext:
        if sslp:
            made: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]
            return made
        return _unchecked_tls()


@cache
def _unchecked_tls() -> ssl.SSLContext:
    """What PyMySQL makes where no certificate is named: encrypted if the server can, whoever it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Session:
    """One session, autocommit. Several threads may use it: one statement comes after the other."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    def run(self, statement: str, parameters: tuple[Any, ...] | None = None) -> list[tuple[Any, ...]]:
        """The rows of a statement. Raises what ``translated`` gives."""
        try:
            with self._lock, self.connection.cursor() as cursor:
                cursor.execute(statement, parameters)
                return list(cursor.fetchall())
        except pymysql.Error as error:
            raise translated(error, statement.strip().split("\n")[0][:80]) from error

    def named_rows(self, statement: str) -> list[dict[str, Any]]:
        """The rows of a statement whose columns differ from version to version."""
        try:
            with self._lock, self.connection.cursor(DictCursor) as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        except pymysql.Error as error:
            raise translated(error, statement) from error

    def count(self, statement: str, parameters: tuple[Any, ...] | None = None) -> int:
        """How many rows a statement has changed."""
        try:
            with self._lock, self.connection.cursor() as cursor:
                cursor.execute(statement, parameters)
                return int(cursor.rowcount)
        except pymysql.Error as error:
            raise translated(error, statement.strip().split("\n")[0][:80]) from error

    def stream(self, statement: str, parameters: tuple[Any, ...] | None = None) -> Iterator[tuple[Any, ...]]:
        """The rows one by one, as the server sends them; the session is closed if they are not read to the end."""
        cursor = self.connection.cursor(SSCursor)
        is_over = False
        try:
            cursor.execute(statement, parameters)
            yield from cursor
            is_over = True
        except pymysql.Error as error:
            raise translated(error, statement.strip().split("\n")[0][:80]) from error
        finally:
            if is_over:
                cursor.close()
            else:
                cursor.connection = None  # its end would read the rest
                self.close()

    def wait_at_most(self, seconds: float) -> None:
        """Locks of tables and rows are waited for so long."""
        whole = max(1, math.ceil(seconds))
        self.run(f"SET SESSION lock_wait_timeout = {whole}, innodb_lock_wait_timeout = {whole}")

    @property
    def number(self) -> int:
        """Its id at the server."""
        return int(self.connection.thread_id())

    @property
    def is_closed(self) -> bool:
        """Whether it is known to be over."""
        return not self.connection.open

    def close(self) -> None:
        """Let go. Idempotent."""
        with suppress(pymysql.Error, OSError):
            self.connection.close()


class MariadbSessions:
    """The sessions of one migration in this process."""

    def __init__(self, migration: str, dsn: str, password_file: str | None) -> None:
        """Nothing is opened yet. Raises RefusedError for an address that is none."""
        self.address = address_of(dsn)
        self.database = unquote(urlsplit(self.address).path.strip("/"))
        self._password_file = password_file
        self._prefix = f"hg.{sha256(migration.encode()).hexdigest()[:16]}"
        self._main: Session | None = None

    @property
    def main(self) -> Session:
        """The session that proves that the migration is ours; see ``take_over``."""
        if self._main is None:
            raise SupersededError("the migration was not taken over")
        return self._main

    def take_over(self) -> None:
        """End the sessions of earlier owners, and hold the migration's lock; at once if it is held already."""
        if self._main is not None:
            try:
                if self._main.run("SELECT IS_USED_LOCK(%s) = CONNECTION_ID()", (self.lock_name("main"),)) == [(1,)]:
                    return
            except DatabaseUnavailableError:
                pass
            self._main.close()
            self._main = None
        session = self.open(READ_SECONDS)
        for part in self._held(session):
            self.end_part(session, part)
        ((got,),) = session.run("SELECT GET_LOCK(%s, %s)", (self.lock_name("main"), CONNECT_SECONDS))
        if got != 1:
            session.close()
            raise DatabaseUnavailableError("an earlier owner's session does not end")
        self._main = session

    def _held(self, session: Session) -> list[str]:
        """Parts that somebody holds, in the order in which they are ended."""
        held = ", ".join(f"IS_USED_LOCK('{self.lock_name(part)}')" for part in PARTS)
        (numbers,) = session.run(f"SELECT {held}")
        return [part for part, number in zip(PARTS, numbers, strict=True) if number is not None]

    def end_part(self, session: Session, part: str) -> None:
        """End who holds that part's lock, and return when it is gone. Raises DatabaseUnavailableError."""
        deadline = time.monotonic() + CONNECT_SECONDS
        while self.end_holder(session, part):
            if time.monotonic() > deadline:
                raise DatabaseUnavailableError(f"an earlier session (part {part}) was killed, but does not end")
            time.sleep(END_POLL_SECONDS)

    def end_holder(self, session: Session, part: str) -> bool:
        """KILL who holds that part's lock; whether there was anybody."""
        ((holder,),) = session.run("SELECT IS_USED_LOCK(%s)", (self.lock_name(part),))
        if holder is None:
            return False
        with suppress(RefusedError):  # it has ended by itself
            session.run(f"KILL {int(holder)}")
        return True

    def holder(self, part: str) -> int | None:
        """The id of the session that holds a part's lock."""
        ((holder,),) = self.main.run("SELECT IS_USED_LOCK(%s)", (self.lock_name(part),))
        return None if holder is None else int(holder)

    def lock_name(self, part: str) -> str:
        """The user-level lock of a part."""
        return f"{self._prefix}.{part}"

    @contextmanager
    def part(self, name: str, *, read_seconds: float | None = READ_SECONDS) -> Iterator[Session]:
        """A session for one part of the work; only while the migration is ours. Raises SupersededError."""
        session = self.open(read_seconds)
        try:
            ((got,),) = session.run("SELECT GET_LOCK(%s, %s)", (self.lock_name(name), LEAVING_SECONDS))
            ((mine,),) = session.run("SELECT IS_USED_LOCK(%s) = %s", (self.lock_name("main"), self.main.number))
            if got != 1 or mine != 1:
                raise SupersededError(f"another owner has the migration (part {name})")
            yield session
        finally:
            session.close()

    def task(self) -> Session:
        """A session of a task elsewhere, which a new owner can end. Raises DatabaseUnavailableError, RefusedError."""
        session = self.open(READ_SECONDS)
        for number in range(TASKS_MAX):
            part = TASKS[(session.number + number) % TASKS_MAX]
            if session.run("SELECT GET_LOCK(%s, 0)", (self.lock_name(part),)) == [(1,)]:
                return session
        session.close()
        raise DatabaseUnavailableError(f"more than {TASKS_MAX} tasks copy at once")

    def open(self, read_seconds: float | None) -> Session:
        """A session without a lock. Raises DatabaseUnavailableError, RefusedError."""
        parts, password = urlsplit(self.address), self.password()
        try:
            connection = _Connection(
                host=parts.hostname,
                port=parts.port or PORT,
                user=unquote(parts.username or ""),
                password=password,
                database=self.database,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                read_timeout=read_seconds,
                program_name="headgate",
            )
        except pymysql.Error as error:
            raise translated(error, f"no session at {parts.hostname}:{parts.port}") from error
        session = Session(connection)
        ((version,),) = session.run("SELECT VERSION()")
        if (reason := why_not_mariadb(version)) is not None:
            session.close()
            raise RefusedError(f"{parts.hostname}:{parts.port}: {reason}")
        session.run("SET SESSION time_zone = '+00:00', sql_notes = 0, wait_timeout = 86400")
        return session

    def password(self) -> str:
        """As it stands in its file. Raises RefusedError."""
        try:
            return "" if self._password_file is None else Path(self._password_file).read_text("utf-8").rstrip("\n")
        except OSError as error:
            raise RefusedError(f"--password-file {self._password_file}: {error.strerror}") from error

    @contextmanager
    def asking(self) -> Iterator[Session]:
        """A session that holds nothing: for questions, before and after the migration is ours."""
        session = self.open(READ_SECONDS)
        try:
            session.wait_at_most(CONNECT_SECONDS)
            yield session
        finally:
            session.close()

    def close(self) -> None:
        """Let go of the migration's lock."""
        if self._main is not None:
            self._main.close()
            self._main = None
