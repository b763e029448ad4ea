"""Sessions at a MySQL or MariaDB server: how every one of them is opened, and what one can do.

LOAD DATA LOCAL takes its rows from memory: the server names a file, as the protocol demands, but no file is opened.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, Self, TypeVar

import pymysql
from pymysql.constants import CLIENT, CR
from pymysql.cursors import DictCursor, SSCursor

from headgate.databases.address import Target
from headgate.databases.errors import (
    DatabaseError,
    DatabaseRefusedError,
)
from headgate.databases.mysql.address import TLS_FILES, address_of, parse_address
from headgate.databases.mysql.errors import UNAVAILABLE, errno
from headgate.databases.mysql.unopened import unopened_mysql
from headgate.databases.mysql.wire import WatchedConnection
from headgate.databases.network_timeouts import CONNECT_SECONDS

__all__ = ["MysqlSession", "Parameters", "open_session"]

Parameters = dict[str, object] | tuple[object, ...] | None
"""Of a statement: ``%(name)s`` or ``%s`` in it. Without any, ``%`` stands for itself."""

_WHOLE: Final = "SET SESSION sql_select_limit = 18446744073709551615"
"""A server's own limit would cut the rows of every SELECT off, without an error."""

S = TypeVar("S", bound="MysqlSession")


class MysqlSession:
    """One session, autocommit except in ``transaction``."""

    def __init__(self, wire: WatchedConnection, number: int, version: str) -> None:
        """``number`` is the server's id of the session, ``version`` the server's."""
        self.wire = wire
        self.id = number
        self.version = version
        self.is_mariadb = "mariadb" in version.lower()

    def execute(self, statement: str, parameters: Parameters = None) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows. Raises pymysql.Error."""
        with self.wire.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())

    def count(self, statement: str, parameters: Parameters = None) -> int:
        """Run a statement; how many rows it found (whether or not it had to change them). Raises pymysql.Error."""
        with self.wire.cursor() as cursor:
            cursor.execute(statement, parameters)
            return int(cursor.rowcount)

    def named_rows(self, statement: str) -> list[dict[str, Any]]:
        """The rows of a statement whose columns differ from version to version, by the columns' names."""
        with self.wire.cursor(DictCursor) as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def stream(self, statement: str, parameters: Parameters = None) -> Iterator[tuple[Any, ...]]:
        """The rows of a statement one by one, as the server sends them: to be read to the end, or closed."""
        with self.wire.cursor(SSCursor) as cursor:
            cursor.execute(statement, parameters)
            yield from cursor

    def stream_or_close(self, statement: str, parameters: Parameters = None) -> Iterator[tuple[Any, ...]]:
        """The same, but the session is closed if the rows are not read to the end, instead of reading the rest."""
        cursor: Any = self.wire.cursor(SSCursor)
        is_over = False
        try:
            cursor.execute(statement, parameters)
            yield from cursor
            is_over = True
        finally:
            if is_over:
                cursor.close()
            else:
                cursor.connection = None  # closing the cursor would read the rest
                self.close()

    def load(self, statement: str, rows: Iterable[bytes]) -> tuple[int, int]:
        """Run a LOAD DATA LOCAL with ``rows`` for its file; how many rows it took, and how many warnings.

        Raises pymysql.Error.
        """
        self.wire.outgoing = rows
        try:
            with self.wire.cursor() as cursor:
                cursor.execute(statement)
                return int(cursor.rowcount), int(cursor.warning_count)
        finally:
            self.wire.outgoing = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all of what is run inside, or nothing. Any exception ends it: after a deadlock it is over anyway."""
        self.execute("START TRANSACTION")
        try:
            yield
        except BaseException:
            with suppress(pymysql.Error):
                self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of a transaction, undone alone if a pymysql.Error or another exception leaves it."""
        self.execute("SAVEPOINT part")
        try:
            yield
        except BaseException as error:
            try:
                self.execute("ROLLBACK TO SAVEPOINT part")
            except pymysql.Error as gone:
                # A deadlock has ended the whole transaction, or the session is lost: the first error shows it.
                raise (error if errno(error) in UNAVAILABLE else gone) from None
            raise
        self.execute("RELEASE SAVEPOINT part")

    @property
    def closed(self) -> bool:
        """Whether the session is known to be over."""
        return not self.wire.open

    def close(self) -> None:
        """Close the session. Idempotent, never raises."""
        if self.wire.open:
            with suppress(pymysql.Error, OSError):
                self.wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_session(
    target: Target,
    kind: type[S],
    *,
    settings: Sequence[str] = (),
    counts_found: bool = False,
    silence_seconds: float | None = None,
) -> S:
    """A new session of that class, once it has run ``settings``. Raises DatabaseError.

    ``counts_found``: UPDATE counts the rows that it finds, not those that it changes. ``silence_seconds``: without a
    byte from the server, before a second session asks what it is doing.
    """
    wire = _open(target, counts_found=counts_found)
    try:
        with wire.cursor() as cursor:
            cursor.execute("SELECT VERSION(), CONNECTION_ID()")
            ((version, number),) = cursor.fetchall()
            for setting in settings:
                cursor.execute(setting)
        wire.watch(partial(_is_at_work, target, int(number)), silence_seconds)
    except BaseException as error:
        with suppress(pymysql.Error, OSError):
            wire.close()
        if isinstance(error, pymysql.Error):
            raise unopened_mysql(error, target, address_of(target.dsn, target.options)) from error
        raise
    return kind(wire, int(number), str(version))


def _open(target: Target, *, counts_found: bool = False) -> WatchedConnection:
    address = parse_address(target.dsn, target.options)
    password = target.password(address_of(target.dsn, target.options))
    if password is None:
        password = address.password or ""
    options: dict[str, Any] = {name: value for name, value in address.options.items() if name != "bulk"}
    if "ssl_ca" in options:
        options |= {"ssl_verify_cert": True, "ssl_verify_identity": True}
    try:
        return WatchedConnection(
            host=address.host,
            port=address.port,
            user=address.user,
            password=password.encode(),  # of a text PyMySQL takes Latin-1, and quotes what it does not have
            database=address.database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            local_infile=address.bulk == "load",
            client_flag=CLIENT.FOUND_ROWS if counts_found else 0,
            program_name="headgate",
            init_command=_WHOLE,
            **options,
        )
    except pymysql.Error as error:
        raise unopened_mysql(error, target, address_of(target.dsn, target.options)) from error
    except (OSError, ValueError) as error:  # TLS files that are missing or not valid
        files = ", ".join(f"{name}={value}" for name, value in sorted(address.options.items()) if name in TLS_FILES)
        raise DatabaseRefusedError(
            f"{target.options.address} cannot be used: {error} ({files}). Correct the TLS files"
        ) from error


def _is_at_work(target: Target, number: int) -> bool:
    """Whether the server answers a new session, and the session of that number is doing something."""
    try:
        wire = _open(target)
        try:
            with wire.cursor() as cursor:
                cursor.execute("SELECT command FROM information_schema.processlist WHERE id = %s", (number,))
                return any(command != "Sleep" for (command,) in cursor.fetchall())
        finally:
            with suppress(pymysql.Error, OSError):
                wire.close()
    except pymysql.Error as error:
        return errno(error) < CR.CR_ERROR_FIRST and errno(error) > 0  # too many sessions, for example: it is there
    except DatabaseError as refused:
        return isinstance(refused, DatabaseRefusedError)
