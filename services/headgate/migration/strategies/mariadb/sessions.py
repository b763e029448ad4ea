"""Sessions of a migration at MariaDB or MySQL: each holds a user-level lock that names its migration and its purpose.

The protocol has no application name. A lock named after the session's part replaces it: a new owner asks the server
which session holds it (``IS_USED_LOCK``), and ends that session. Every user of a server may take any such lock, so the
names have a random word in them that only a row in Headgate's own table contains (ownership.py); the row also has the
last owner.
"""

import math
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from msgspec.structs import replace

from headgate.databases.address import Target
from headgate.databases.faults import Fault
from headgate.databases.mysql.address import address_of, parse_address
from headgate.databases.mysql.errors import MysqlError, errno, fault_of, message, without_values
from headgate.databases.mysql.session import MysqlSession, open_session
from headgate.migration.strategies.contract import (
    DatabaseUnavailableError,
    LockUnavailableError,
    RefusedError,
    SupersededError,
)
from headgate.migration.strategies.mariadb import ownership
from headgate.migration.strategies.mariadb.ownership import Taken
from headgate.migration.strategies.owned_sessions import OwnedSessions
from headgate.migration.strategies.target import password_refused, refusing

__all__ = ["UNKNOWN_SESSION", "MariadbSessions", "Session", "leave_log", "translated", "why_not_mariadb"]

CONNECT_SECONDS: Final = 10
END_POLL_SECONDS: Final = 0.02
"""Between two checks whether a killed session is gone."""

LEAVING_SECONDS: Final = 2
"""For a session that this process has just closed to be gone at the server, so that the next one can have its name."""

TASKS_MAX: Final = 64
"""Tasks of one copy that read and write at once."""

TASKS: Final = tuple(f"task{number}" for number in range(TASKS_MAX))

PARTS: Final = ("main", "lock", "rename", "mark", "copy", "keys", "tool", *TASKS)
"""Sessions that a new owner ends; ``tool`` is that of a program which it does not know. That of a direct statement
(``direct``) is left: the server continues it."""

STATEMENT_CHARACTERS_MAX: Final = 80
"""Of a statement, in an error: enough to find it in the code."""

_VALUES: Final = re.compile(r"\n| (?:VALUES|WHERE|SET)\b", re.IGNORECASE)
"""After these words a statement may have values of rows."""

UNKNOWN_SESSION: Final = "(error 1094)"
"""The end of a KILL's error if the session has ended by itself."""

_SETTINGS: Final = "SET SESSION time_zone = '+00:00', sql_notes = 0, wait_timeout = 86400"
_READ_ONLY: Final = "SET SESSION TRANSACTION READ ONLY"


def translated(error: MysqlError, doing: str) -> Exception:
    """What a server's error means to a strategy."""
    number = errno(error)
    text = f"{doing}: {without_values(number, message(error))}"
    match fault_of(error):
        case Fault.LOCK_WAIT | Fault.DEADLOCK | Fault.TIME_LIMIT:
            return LockUnavailableError(text)
        case Fault.LOST | Fault.ENDED:
            return DatabaseUnavailableError(text)
    return RefusedError(text if text.endswith(f"(error {number})") else f"{text} (error {number})")


@contextmanager
def _translating(statement: str) -> Iterator[None]:
    """Raise a server's errors as ``translated`` gives them, named by the statement's beginning, without any value."""
    try:
        yield
    except MysqlError as error:
        raise translated(error, _VALUES.split(statement.strip())[0][:STATEMENT_CHARACTERS_MAX]) from error


def why_not_mariadb(version: str) -> str | None:
    """The reason why a server of that version is not changed here; None for a MariaDB.

    MySQL has another name for InnoDB's catalogue of tables, by which a cut-over is seen, and has never been tried.
    """
    if "mariadb" in version.lower():
        return None
    return f"it is MySQL {version}; migrations know MariaDB and PostgreSQL only: use a tool made for MySQL"


class Session:
    """One session, autocommit. Several threads may use it: one statement comes after the other."""

    def __init__(self, session: MysqlSession) -> None:
        self._session = session
        self._lock = threading.Lock()

    def run(self, statement: str, parameters: tuple[Any, ...] | None = None) -> list[tuple[Any, ...]]:
        """The rows of a statement. Raises what ``translated`` gives."""
        with self._lock, _translating(statement):
            return self._session.execute(statement, parameters)

    def named_rows(self, statement: str) -> list[dict[str, Any]]:
        """The rows of a statement whose columns differ from version to version."""
        with self._lock, _translating(statement):
            return self._session.named_rows(statement)

    def count(self, statement: str, parameters: tuple[Any, ...] | None = None) -> int:
        """How many rows a statement has changed."""
        with self._lock, _translating(statement):
            return self._session.count(statement, parameters)

    def stream(self, statement: str, parameters: tuple[Any, ...] | None = None) -> Iterator[tuple[Any, ...]]:
        """The rows one by one, as the server sends them; the session is closed if they are not read to the end."""
        with _translating(statement):
            yield from self._session.stream_or_close(statement, parameters)

    @contextmanager
    def lent(self, doing: str) -> Iterator[MysqlSession]:
        """The session itself, for questions that others ask, too. Errors are raised as ``translated`` gives them."""
        with self._lock, _translating(doing):
            yield self._session

    def wait_at_most(self, seconds: float) -> None:
        """Locks of tables and rows are waited for so long."""
        whole = max(1, math.ceil(seconds))
        self.run(f"SET SESSION lock_wait_timeout = {whole}, innodb_lock_wait_timeout = {whole}")

    @property
    def number(self) -> int:
        """Its id at the server."""
        return self._session.id

    @property
    def is_closed(self) -> bool:
        """Whether it is known to be over."""
        return self._session.closed

    def close(self) -> None:
        """Let go. Idempotent."""
        self._session.close()


def leave_log(session: Session) -> bool:
    """Keep what this session does out of the binary log; whether it is. This needs the right BINLOG ADMIN."""
    try:
        session.run("SET SESSION sql_log_bin = 0")
    except RefusedError:
        return session.run("SELECT @@log_bin") == [(0,)]
    return True


class MariadbSessions(OwnedSessions[Session]):
    """The sessions of one migration in this process."""

    def __init__(self, migration: str, target: Target, *, reads_only: bool = False) -> None:
        """Nothing is opened yet. Raises RefusedError for an address that is not valid.

        ``reads_only``: the server refuses everything that would change anything.
        """
        super().__init__()
        self.reads_only = reads_only
        with refusing():
            self.at = parse_address(target.dsn, target.options)
        if self.at.database is None:
            raise RefusedError(f"{target.options.address}: write mysql://user@host:port/database")
        if self.at.password is not None:
            raise password_refused(target.options)
        self.address, self.database = str(self.at), self.at.database
        self.target = replace(target, dsn=self.address)
        self._migration = migration
        self._taken: Taken | None = None

    def _take(self, session: Session, owner_rev: int) -> None:
        """Between statements no row is locked, so an owner that is frozen in the middle blocks no other."""
        ownership.create(session)
        seen = ownership.find(session, self._migration)
        if seen.owner_rev > owner_rev:
            raise SupersededError(f"owner {seen.owner_rev} has the migration")
        self._taken = seen
        self._end_held(session)
        self._taken = ownership.take(session, seen, owner_rev)
        self._end_held(session)
        ((got,),) = session.run("SELECT GET_LOCK(%s, %s)", (self.lock_name("main"), CONNECT_SECONDS))
        if got != 1:
            raise self._held_by_others(session, "main")
        if not ownership.is_taken(session, self._taken, session.number, self.lock_name("main")):
            raise SupersededError("another owner has the migration")

    def check_ours(self) -> None:
        """Raise DatabaseUnavailableError or SupersededError unless the main session lives and the migration is ours."""
        if not self._is_ours(self.main):
            raise SupersededError("another owner has the migration")

    def _is_ours(self, session: Session) -> bool:
        main = self.lock_name("main")
        return self._taken is not None and ownership.is_taken(session, self._taken, self.main.number, main)

    def forget(self) -> None:
        """The migration has ended and nothing of it is left."""
        ownership.forget(self.main, self._migration)

    def _end_held(self, session: Session) -> None:
        """End the sessions that hold a part's lock, the main one first: without it no new one is let in."""
        held = ", ".join(f"IS_USED_LOCK('{self.lock_name(part)}')" for part in PARTS)
        (numbers,) = session.run(f"SELECT {held}")
        for part, number in zip(PARTS, numbers, strict=True):
            if number is not None:
                self.end_part(session, part)

    def numbers(self) -> frozenset[int]:
        """Ids of all sessions of this migration that hold a part's lock."""
        held = ", ".join(f"IS_USED_LOCK('{self.lock_name(part)}')" for part in PARTS)
        (numbers,) = self.main.run(f"SELECT {held}")
        return frozenset(int(number) for number in numbers if number is not None)

    def end_part(self, session: Session, part: str) -> None:
        """End the session that holds that part's lock, and return when it is gone. Raises DatabaseUnavailableError."""
        deadline = time.monotonic() + CONNECT_SECONDS
        while self.end_holder(session, part):
            if time.monotonic() > deadline:
                raise self._held_by_others(session, part)
            time.sleep(END_POLL_SECONDS)

    def end_holder(self, session: Session, part: str) -> bool:
        """KILL the session that holds that part's lock; whether there was one. DatabaseUnavailableError: denied."""
        holder = self._holder(session, part)
        if holder is None:
            return False
        try:
            session.run(f"KILL {holder}")
        except RefusedError as error:
            if not str(error).endswith(UNKNOWN_SESSION):
                raise self._held_by_others(session, part) from error
        return True

    def _held_by_others(self, session: Session, part: str) -> DatabaseUnavailableError:
        """Who holds a part's lock, as far as this user may see it, and what to do."""
        holder = self._holder(session, part)
        if holder is None:
            return DatabaseUnavailableError(f"the lock of this migration's part {part} was held until just now")
        who = session.run("SELECT user, host FROM information_schema.processlist WHERE id = %s", (holder,))
        by = f"user {who[0][0]} from {who[0][1]}" if who else "another user"
        return DatabaseUnavailableError(
            f"session {holder} ({by}) holds the lock of this migration's part {part} and does not end: KILL {holder}. "
            "If it is an earlier owner's under another user, GRANT CONNECTION ADMIN to the migrations' user"
        )

    def holder(self, part: str) -> int | None:
        """The id of the session that holds a part's lock."""
        return self._holder(self.main, part)

    def _holder(self, session: Session, part: str) -> int | None:
        ((holder,),) = session.run("SELECT IS_USED_LOCK(%s)", (self.lock_name(part),))
        return None if holder is None else int(holder)

    def lock_name(self, part: str) -> str:
        """The user-level lock of a part."""
        if self._taken is None:
            raise SupersededError("the migration was not taken over")
        return f"hg.{self._taken.word}.{part}"

    @contextmanager
    def part(self, name: str) -> Iterator[Session]:
        """A session for one part of the work; only while the migration is ours. Raises SupersededError."""
        session = self.open()
        try:
            ((got,),) = session.run("SELECT GET_LOCK(%s, %s)", (self.lock_name(name), LEAVING_SECONDS))
            if not self._is_ours(session):
                raise SupersededError(f"another owner has the migration (part {name})")
            if got != 1:
                raise self._held_by_others(session, name)
            yield session
        finally:
            session.close()

    def task(self) -> Session:
        """A session of a task elsewhere, which a new owner can end. Raises DatabaseUnavailableError, RefusedError."""
        session = self.open()
        if self._taken is None:
            self._taken = ownership.find(session, self._migration)
        for number in range(TASKS_MAX):
            part = TASKS[(session.number + number) % TASKS_MAX]
            if session.run("SELECT GET_LOCK(%s, 0)", (self.lock_name(part),)) == [(1,)]:
                return session
        session.close()
        raise DatabaseUnavailableError(f"more than {TASKS_MAX} tasks copy at once")

    def open(self, silence_seconds: float | None = None) -> Session:
        """A session without a lock. Raises DatabaseUnavailableError, RefusedError."""
        settings = (_SETTINGS, _READ_ONLY) if self.reads_only else (_SETTINGS,)
        with refusing():
            session = open_session(self.target, MysqlSession, settings=settings, silence_seconds=silence_seconds)
        if not session.is_mariadb:
            session.close()
            raise RefusedError(f"{self.at.host}:{self.at.port}: {why_not_mariadb(session.version)}")
        return Session(session)

    def password(self) -> str:
        """What the password's file contains now, for a program that connects itself. Raises RefusedError."""
        with refusing():
            return self.target.password(address_of(self.address, self.target.options)) or ""

    @contextmanager
    def asking(self) -> Iterator[Session]:
        """A session that holds nothing: for questions, before and after the migration is ours."""
        session = self.open()
        try:
            session.wait_at_most(CONNECT_SECONDS)
            yield session
        finally:
            session.close()

    def close(self) -> None:
        """End the main session."""
        if self._main is not None:
            self._main.close()
            self._main = None
