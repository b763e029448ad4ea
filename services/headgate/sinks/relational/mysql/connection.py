"""Sessions at a MySQL or MariaDB sink: how they are opened, and how rows are sent over them.

Every session fixes what its statements rely on (strict mode, UTC, READ COMMITTED, utf8mb4), whatever the server's
defaults are. LOAD DATA LOCAL takes its rows from memory: the server names a file, as the protocol wants it, but no
file is ever opened.

There is no application name in this protocol. A session proves that it lives by holding a user-level lock of a name of
its own, its *token*; whoever finds the token in a row (see progress) asks the server who holds that lock.
"""

import re
import ssl
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, Self

import pymysql
from pymysql.constants import CLIENT, CR
from pymysql.converters import escape_string
from pymysql.cursors import SSCursor

from headgate.sinks.contract import Claim, SinkError, SinkRefusedError, SinkSilentError, SinkUnavailableError
from headgate.sinks.relational.mysql.address import parse_address
from headgate.sinks.relational.mysql.faults import UNAVAILABLE, errno, is_clients, message
from headgate.sinks.relational.mysql.wire import Wire
from headgate.sinks.relational.session import Parameters, RelationalSettings
from headgate.sinks.relational.silence import CONNECT_SECONDS

__all__ = ["MysqlSession", "connect", "quoted"]

WRITER_LOCK_SECONDS: Final = 30
"""When somebody else's session (an ALTER TABLE, say) holds a lock longer, the batch fails and the lane tries again."""

SQL_MODE: Final = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION"

_SETTINGS: Final = (
    f"SET SESSION sql_mode = '{SQL_MODE}', time_zone = '+00:00', innodb_lock_wait_timeout = {WRITER_LOCK_SECONDS}, "
    f"lock_wait_timeout = {WRITER_LOCK_SECONDS}, unique_checks = 1, sql_safe_updates = 0, sql_auto_is_null = 0, "
    "sql_notes = 0"
)
_ISOLATION: Final = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
# READ COMMITTED: the fence is a condition re-read after a lock wait, and gaps between rows need no lock. sql_notes: a
# rounded decimal is no warning, so that every warning is a value that was not taken as it is.

TLS_FILES: Final = ("ssl_ca", "ssl_cert", "ssl_key")
_LOGIN: Final = 1045
_TLS: Final = 2026


class MysqlSession:
    """One session, autocommit but for ``transaction``."""

    def __init__(self, wire: Wire, *, number: int, is_mariadb: bool, loads: bool) -> None:
        self._wire = wire
        self.id = number
        self.is_mariadb = is_mariadb
        self.loads = loads
        self.token: str | None = None

    def execute(self, statement: str, parameters: Parameters = None) -> list[tuple[Any, ...]]:
        """Run a statement; its rows. ``%`` stands for itself unless there are parameters."""
        with self._wire.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())

    def count(self, statement: str, parameters: Parameters = None) -> int:
        """Run a statement; how many rows it found (whether or not it had to change them)."""
        with self._wire.cursor() as cursor:
            cursor.execute(statement, parameters)
            return int(cursor.rowcount)

    def stream(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a statement one by one, as the server sends them: to be read to the end, or closed."""
        with self._wire.cursor(SSCursor) as cursor:
            cursor.execute(statement)
            yield from cursor

    def load(self, statement: str, rows: Iterable[bytes]) -> int:
        """Run a LOAD DATA LOCAL with ``rows`` for its file; the number of warnings."""
        self._wire.outgoing = rows
        try:
            with self._wire.cursor() as cursor:
                cursor.execute(statement)
                return int(cursor.warning_count)
        finally:
            self._wire.outgoing = None

    @staticmethod
    def literal(text: str) -> str:
        """A text as a literal, for the mode of our sessions (backslashes escape)."""
        return f"'{escape_string(text)}'"

    def prove_life(self) -> str:
        """Hold the session's token from now on; what it is."""
        if self.token is None:
            token = f"headgate {uuid.uuid4().hex}"
            ((held,),) = self.execute("SELECT GET_LOCK(%s, 0)", (token,))
            if held != 1:
                raise SinkUnavailableError("the sink gave no user-level lock (GET_LOCK) to a new session")
            self.token = token
        return self.token

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. Whatever goes wrong inside ends it: after a deadlock it is over anyway."""
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
        """Part of a transaction, undone alone if a pymysql.Error or another exception leaves it."""
        self.execute("SAVEPOINT part")
        try:
            yield
        except BaseException as error:
            try:
                self.execute("ROLLBACK TO SAVEPOINT part")
            except pymysql.Error as gone:
                # A deadlock has ended the whole transaction, or the session is lost: what went wrong first says so.
                raise (error if errno(error) in UNAVAILABLE else gone) from None
            raise
        self.execute("RELEASE SAVEPOINT part")

    def mark(self, claim: Claim | None) -> None:
        """See Session. The rows that it locks say it themselves (see progress)."""

    @property
    def closed(self) -> bool:
        """Whether the session is known to be over."""
        return not self._wire.open

    def close(self) -> None:
        """Let go, saying goodbye if the server still listens. Idempotent."""
        if self._wire.open:
            with suppress(pymysql.Error, OSError):
                self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(settings: RelationalSettings) -> MysqlSession:
    """A new session, set up as everything here expects it. Raises SinkError."""
    wire = _open(settings)
    try:
        return _set_up(wire, settings)
    except BaseException as error:
        with suppress(pymysql.Error, OSError):
            wire.close()
        if isinstance(error, pymysql.Error):
            raise _unopened(error) from error
        raise


def _open(settings: RelationalSettings) -> Wire:
    address = parse_address(settings.dsn)
    password = settings.password()
    options: dict[str, Any] = {name: value for name, value in address.options.items() if name != "bulk"}
    if "ssl_ca" in options:
        options |= {"ssl_verify_cert": True, "ssl_verify_identity": True}
    try:
        return Wire(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password or "" if password is None else password,
            database=address.database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            local_infile=address.bulk == "load",
            client_flag=CLIENT.FOUND_ROWS,
            program_name="headgate",
            **options,
        )
    except pymysql.Error as error:
        raise _unopened(error) from error
    except (OSError, ValueError) as error:  # TLS files that are missing or are none
        files = ", ".join(f"{name}={value}" for name, value in sorted(address.options.items()) if name in TLS_FILES)
        raise SinkRefusedError(f"sink.dsn cannot be used: {error} ({files})") from error


def _is_at_work(settings: RelationalSettings, number: int) -> bool:
    """Whether the server answers a new session, and the session of that number is doing something."""
    try:
        wire = _open(settings)
        try:
            with wire.cursor() as cursor:
                cursor.execute("SELECT command FROM information_schema.processlist WHERE id = %s", (number,))
                return any(command != "Sleep" for (command,) in cursor.fetchall())
        finally:
            with suppress(pymysql.Error, OSError):
                wire.close()
    except pymysql.Error as error:
        return errno(error) < CR.CR_ERROR_FIRST and errno(error) > 0  # too many sessions, say: it is there
    except SinkError as refused:
        return isinstance(refused, SinkRefusedError)


def _set_up(wire: Wire, settings: RelationalSettings) -> MysqlSession:
    with wire.cursor() as cursor:
        cursor.execute("SELECT VERSION(), CONNECTION_ID()")
        ((version, number),) = cursor.fetchall()
        cursor.execute(_SETTINGS)
        cursor.execute(_ISOLATION)
        # The server cannot leave out triggers in a session: by @headgate they can tell ours (docs/configuration.md).
        cursor.execute(f"SET SESSION foreign_key_checks = {int(settings.foreign_keys)}, @headgate = 1")
    loads = parse_address(settings.dsn).bulk == "load"
    wire.watch(partial(_is_at_work, settings, int(number)))
    return MysqlSession(wire, number=int(number), is_mariadb="mariadb" in str(version).lower(), loads=loads)


def _unopened(error: pymysql.Error) -> SinkError:
    text = f"cannot open a session at the sink: {message(error)}"
    number = errno(error)
    if number == _LOGIN:
        return SinkRefusedError(f"{text}: is it the right user in sink.dsn and password in sink.password_file?")
    if number == _TLS or isinstance(getattr(error, "original_exception", None), ssl.SSLCertVerificationError):
        return SinkRefusedError(f"{text}: the ssl_… options of sink.dsn do not fit the server")
    if number in UNAVAILABLE or number == 0:
        return (SinkSilentError if is_clients(number) else SinkUnavailableError)(text)
    return SinkRefusedError(f"{text} (error {number})")


_TICK: Final = re.compile("`")


def quoted(*names: str) -> str:
    """An identifier, or one within another: `a`.`b`."""
    return ".".join(f"`{_TICK.sub('``', name)}`" for name in names)
