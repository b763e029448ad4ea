"""Sessions at a PostgreSQL: how every one of them is opened, and what one can do."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from functools import partial
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from headgate.databases.address import Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.network_timeouts import CONNECT_SECONDS, TCP_OPTIONS
from headgate.databases.postgresql.address import address_of
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.databases.postgresql.errors import message
from headgate.databases.postgresql.search_path import pin_search_path
from headgate.databases.postgresql.sql import SQL, Composed
from headgate.databases.postgresql.unopened import unopened_postgresql

__all__ = ["Answer", "Parameters", "PostgresSession", "open_connection"]

Parameters = dict[str, object] | tuple[object, ...] | None
"""Of a statement: ``%(name)s`` or ``%s`` in it. Without any, ``%`` stands for itself."""

Answer = tuple[int, list[tuple[Any, ...]]]
"""Of one statement: how many rows it found, and its rows."""

_NETWORK: Final[dict[str, object]] = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": TCP_OPTIONS["TCP_KEEPIDLE"],
    "keepalives_interval": TCP_OPTIONS["TCP_KEEPINTVL"],
    "keepalives_count": TCP_OPTIONS["TCP_KEEPCNT"],
    "tcp_user_timeout": TCP_OPTIONS["TCP_USER_TIMEOUT"],
}
"""Limits for a network that was cut without notice. The address's own values win."""

_SESSION: Final = """
SET TimeZone = 'UTC';
SET client_encoding = 'UTF8';
SET default_transaction_isolation = 'read committed';
SET lock_timeout = '{lock_seconds}s';
SET statement_timeout = 0;
SET row_security = off;
SET DateStyle = 'ISO, YMD';
SET IntervalStyle = 'postgres';
SET array_nulls = on;
SET extra_float_digits = 3;
SET bytea_output = 'hex';
SET xmloption = 'content'
"""
# Read committed: the fence is a condition re-read after a lock wait. row_security off: a policy that would hide rows
# raises instead of filtering silently. The last ones: what a text means, and whether it has all of a value, must not
# depend on the settings of a database or a user. With fewer digits a float would be another one after it is copied,
# and a comparison of texts would not show it.


class PostgresSession:
    """One session, autocommit except in ``transaction``. ``connection`` is psycopg's, for what only it can do."""

    def __init__(self, connection: BoundedConnection) -> None:
        self.connection = connection
        self.path = connection.path
        self._prepared: set[str] = set()
        self._escaping = psycopg.pq.Escaping(connection.pgconn)

    def execute(self, statement: str | Composed, parameters: Parameters = None) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows. Raises psycopg.Error."""
        cursor = self.connection.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []

    def count(self, statement: str, parameters: Parameters = None) -> int:
        """Run a statement and return how many rows it found. Raises psycopg.Error."""
        return self.connection.execute(statement, parameters).rowcount

    def stream(self, statement: Composed, rows_per_fetch: int) -> Iterator[tuple[Any, ...]]:
        """The rows of a query by a cursor at the server, so many at a time; within a transaction."""
        with self.connection.cursor(name="headgate") as cursor:
            cursor.itersize = rows_per_fetch
            cursor.execute(statement)
            yield from cursor

    def copy(self, statement: str, lines: Iterable[bytes]) -> int:
        """Run a COPY FROM STDIN with ``lines``, each of them many lines; how many it wrote. Raises psycopg.Error."""
        with self.connection.cursor() as cursor:
            with cursor.copy(statement) as copy:
                for part in lines:
                    copy.write(part)
            return cursor.rowcount

    def copied(self, query: Composed) -> Iterator[bytes]:
        """The rows of a query as lines of COPY's text format. Raises psycopg.Error."""
        with self.connection.cursor() as cursor, cursor.copy(SQL("COPY ({}) TO STDOUT").format(query)) as copy:
            for line in copy:
                yield bytes(line)

    def transaction(self) -> AbstractContextManager[object]:
        """Commit all of what is run inside, or nothing."""
        return self.connection.transaction()

    def savepoint(self) -> AbstractContextManager[object]:
        """A part of a transaction that an exception undoes alone: psycopg makes one of a transaction within another."""
        return self.connection.transaction()

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open, also one that has failed."""
        return self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    # --- statements as text ---

    def literal(self, text: str) -> str:
        """A text in quotes, as a statement needs it. Raises UnicodeEncodeError."""
        return bytes(self._escaping.escape_literal(text.encode())).decode()

    def prepare(self, statements: Iterable[str]) -> None:
        """Prepare statements, once for the session, or until ``forget_prepared``."""
        for statement in statements:
            if statement not in self._prepared:
                with suppress(errors.DuplicatePreparedStatement):
                    self.execute(statement)
                self._prepared.add(statement)

    def forget_prepared(self) -> None:
        """One was missing: psycopg lets go of all that is prepared, ours with its own, after a ROLLBACK or a DROP."""
        self._prepared.clear()

    def run_as_one(self, statements: Sequence[str]) -> list[Answer]:
        """Run statements that are sent as one text. After an error nothing behind it was run."""
        cursor = self.connection.execute(";".join(statements).encode(), prepare=False)
        answers = []
        while True:
            answers.append((cursor.rowcount, cursor.fetchall() if cursor.description else []))
            if not cursor.nextset():
                return answers

    def cancel(self) -> None:
        """Make the session's statement end now, from another thread."""
        self.connection.cancel_safe()

    @property
    def closed(self) -> bool:
        """Whether the session is known to be over."""
        return self.connection.closed

    def close(self) -> None:
        """Close the session. Idempotent, never raises."""
        with suppress(psycopg.Error):
            self.connection.close()


def open_connection(
    target: Target, *, application_name: str, lock_seconds: int, reads_snapshots: bool = False
) -> BoundedConnection:
    """A new session, autocommit, with the settings that all our statements rely on. Raises DatabaseError.

    ``reads_snapshots``: each of its transactions sees one snapshot, and cannot change anything.
    """
    try:
        connection = _open(target, application_name)
        try:
            connection.execute(_SESSION.format(lock_seconds=lock_seconds).encode())
            number = connection.execute("SELECT pg_backend_pid()").fetchone()
            connection.is_at_work = partial(_is_at_work, target, number)
            if reads_snapshots:
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                connection.read_only = True
        except BaseException:
            connection.close()
            raise
    except psycopg.ProgrammingError as error:
        raise DatabaseRefusedError(f"{target.options.address} cannot be used: {message(error)}. Correct it") from error
    except psycopg.Error as error:
        raise unopened_postgresql(error, target, address_of(target.dsn, target.options)) from error
    return connection


def _open(target: Target, application_name: str) -> BoundedConnection:
    """A connection off its user's search path."""
    password = target.password(address_of(target.dsn, target.options))
    given = conninfo_to_dict(target.dsn)
    options: dict[str, object] = {name: value for name, value in _NETWORK.items() if name not in given}
    if password is not None:
        options["password"] = password
    connection = BoundedConnection.connect(
        target.dsn,
        autocommit=True,
        application_name=application_name,
        **options,  # type: ignore[arg-type]
    )
    try:
        connection.path = pin_search_path(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_at_work(target: Target, number: tuple[Any, ...] | None) -> bool:
    """Whether the server answers a new session, and the session of that number is doing something."""
    try:
        with closing(_open(target, "headgate")) as connection:
            # With track_activities off this is not known; then it counts as at work as long as it exists.
            found = connection.execute(
                "SELECT coalesce(state, '') LIKE 'idle%%' FROM pg_stat_activity WHERE pid = %s", number
            ).fetchone()
    except psycopg.Error as error:
        return "FATAL" in str(error)  # too many sessions, for example: the server is there
    except DatabaseRefusedError:
        return True  # the password file is gone, which shows nothing about the server
    return found is not None and not found[0]
