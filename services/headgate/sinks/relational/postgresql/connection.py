"""Sessions at a PostgreSQL sink: how they are opened and labelled.

A session that holds locks says in its application name for which feed, table and epoch: ``headgate <feed> <table>
<epoch>``. PostgreSQL keeps 63 bytes of it, so long names are shortened (with a digest), the epoch never.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, closing, suppress
from functools import partial
from typing import Any, Final
from zlib import crc32

import msgspec
import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict

from headgate.records.control import Epoch
from headgate.records.names import encode_part
from headgate.records.spans import overlap, table_of
from headgate.sinks.contract import Claim, SinkRefusedError, SinkSilentError, SinkUnavailableError
from headgate.sinks.relational.postgresql.bounded_connection import BoundedConnection
from headgate.sinks.relational.postgresql.faults import message
from headgate.sinks.relational.postgresql.search_path import pin_search_path
from headgate.sinks.relational.session import Parameters, RelationalSettings
from headgate.sinks.relational.silence import CONNECT_SECONDS, TCP_OPTIONS

__all__ = ["Label", "PostgresSession", "connect", "quoted"]

WRITER_LOCK_SECONDS: Final = 3
"""When somebody else's session (an ALTER TABLE, say) holds a lock longer, the batch fails, and the table leaves the
lane whose other tables would wait with it; it tries again with back-off."""

_NETWORK: Final[dict[str, object]] = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": TCP_OPTIONS["TCP_KEEPIDLE"],
    "keepalives_interval": TCP_OPTIONS["TCP_KEEPINTVL"],
    "keepalives_count": TCP_OPTIONS["TCP_KEEPCNT"],
    "tcp_user_timeout": TCP_OPTIONS["TCP_USER_TIMEOUT"],
}
"""Limits for a network that was cut without a word. The dsn's own values win."""

_LOGIN_REFUSED: Final = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not support SSL",
    "certificate verify failed",
    "is not permitted to log in",
    "does not exist",
    "permission denied for database",
)
"""What the server (in English) and libpq say when an address, a password, a right to log in or a certificate is not
taken. Neither gives an SQLSTATE for it. In another language it counts as a server that does not answer: tried again
sooner, with the server's own words in `why`."""

_LABEL_BYTES: Final = 63
_LABEL_WORD: Final = "headgate"

_SESSION: Final = f"""
SET TimeZone = 'UTC';
SET client_encoding = 'UTF8';
SET default_transaction_isolation = 'read committed';
SET lock_timeout = '{WRITER_LOCK_SECONDS}s';
SET statement_timeout = 0;
SET row_security = off;
SET DateStyle = 'ISO, YMD';
SET IntervalStyle = 'postgres';
SET array_nulls = on
"""
# Read committed: the fence is a condition re-read after a lock wait. row_security off: a policy that would hide rows
# raises instead of filtering in silence. DateStyle, IntervalStyle, array_nulls: what a text means must not depend on
# the settings of a database or a user.


class Label(msgspec.Struct, frozen=True):
    """Whose session it is: what the application name says, and back.

    ``part`` is a span's partitions as its name has them, empty for a whole table, or where there was no room.
    """

    feed: str
    table: str
    epoch: Epoch
    part: str = ""

    @classmethod
    def of(cls, claim: Claim) -> "Label":
        """The label of a claim, its names shortened so that everything fits."""
        room = (_LABEL_BYTES - len(_LABEL_WORD) - len(str(claim.epoch)) - 3) // 2
        feed, table = _short(claim.identity.feed, room), _short(claim.table, room)
        span = claim.table if claim.span is None else claim.span
        part = span.removeprefix(table_of(span)).removeprefix("~")
        fits = len(feed) + len(table) + 1 + len(part) <= 2 * room
        return cls(feed, table, claim.epoch, part if fits else "")

    def may_meet(self, other: "Label") -> bool:
        """Whether the two, of one table, may have a partition in common."""
        return not self.part or not other.part or overlap(f"t~{self.part}", f"t~{other.part}")

    @classmethod
    def parse(cls, application_name: str) -> "Label | None":
        """The label in an application name; None if it is none of ours."""
        match application_name.split(" "):
            case [word, feed, table, epoch] if word == _LABEL_WORD:
                owner_rev, _, n = epoch.partition(".")
                if owner_rev.isdecimal() and n.isdecimal():
                    whole = table_of(table)
                    part = table.removeprefix(whole).removeprefix("~")
                    return cls(feed, whole, Epoch(int(owner_rev), int(n)), part)
        return None

    def __str__(self) -> str:
        span = f"{self.table}~{self.part}" if self.part else self.table
        return f"{_LABEL_WORD} {self.feed} {span} {self.epoch}"


def _short(name: str, room: int) -> str:
    text = encode_part(name)
    return text if len(text) <= room else f"{text[: room - 9]}+{crc32(text.encode()):08x}"


class PostgresSession:
    """See Session. ``connection`` is psycopg's, for what only it can do."""

    def __init__(self, connection: BoundedConnection, path: Sequence[str] = ()) -> None:
        """``path``: the schemas in which tables without a schema are found, in order."""
        self.connection = connection
        self.path = list(path)
        self._label: Label | None = None
        self._is_labelled = True
        """Whether the label is known: a transaction that is undone takes it back."""
        self._prepared: set[str] = set()
        self._escaping = psycopg.pq.Escaping(connection.pgconn)

    def execute(self, statement: str, parameters: Parameters = None) -> list[tuple[Any, ...]]:
        """See Session."""
        cursor = self.connection.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []

    def count(self, statement: str, parameters: Parameters = None) -> int:
        """See Session."""
        return self.connection.execute(statement, parameters).rowcount

    def copy(self, statement: str, lines: Iterable[bytes]) -> None:
        """Run a COPY FROM STDIN with ``lines``, each of them many lines."""
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            for part in lines:
                copy.write(part)

    def transaction(self) -> AbstractContextManager[object]:
        """See Session."""
        return self.connection.transaction()

    def savepoint(self) -> AbstractContextManager[object]:
        """See Session: psycopg makes one of a transaction within another."""
        return self.connection.transaction()

    def mark(self, claim: Claim | None) -> None:
        """See Session. Whoever is blocked by a session finds its label in pg_stat_activity."""
        label = None if claim is None else Label.of(claim)
        if label == self._label and self._is_labelled:
            return
        if label is None:
            self.execute("RESET application_name")
        else:
            self.execute("SELECT set_config('application_name', %s, false)", (str(label),))
        self._label, self._is_labelled = label, True

    # --- a transaction as one text ---

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

    def begin_with(self, claim: Claim, statements: Sequence[str]) -> list[tuple[int, list[tuple[Any, ...]]]]:
        """Begin a transaction labelled for ``claim`` and run ``statements`` in it, all sent at once.

        Of each how many rows it found, and its rows. After an error nothing behind it was run, and ``undo`` is due.
        """
        label, sent = Label.of(claim), ["BEGIN", *statements]
        if label != self._label or not self._is_labelled:
            sent.insert(0, f"SELECT set_config('application_name', {self.literal(str(label))}, false)")
        self._label, self._is_labelled = label, False
        cursor = self.connection.execute(";".join(sent).encode(), prepare=False)
        answers = []
        while True:
            answers.append((cursor.rowcount, cursor.fetchall() if cursor.description else []))
            if not cursor.nextset():
                self._is_labelled = True
                return answers[-len(statements) :]

    def undo(self) -> None:
        """Roll the transaction back, if there is one still."""
        self._is_labelled = False
        if not self.closed and self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self.execute("ROLLBACK")

    @property
    def closed(self) -> bool:
        """See Session."""
        return self.connection.closed

    def close(self) -> None:
        """See Session."""
        with suppress(psycopg.Error):
            self.connection.close()


def quoted(*names: str) -> str:
    """An identifier in double quotes, or one within another."""
    return sql.Identifier(*names).as_string()


def connect(settings: RelationalSettings) -> PostgresSession:
    """A new session, autocommit, set up as everything here expects it. Raises SinkError."""
    try:
        connection, path = _open(settings)
        try:
            connection.execute(_SESSION)
            number = connection.execute("SELECT pg_backend_pid()").fetchone()
            connection.is_at_work = partial(_is_at_work, settings, number)
            if not settings.foreign_keys:
                connection.execute("SET session_replication_role = replica")
        except BaseException:
            connection.close()
            raise
    except errors.InsufficientPrivilege as error:
        raise SinkRefusedError(
            "sink.foreign_keys: ignore needs a right that the sink's user has not: GRANT SET ON PARAMETER "
            f"session_replication_role TO it (PostgreSQL 15 and later; before, a superuser) [{message(error)}]"
        ) from error
    except psycopg.ProgrammingError as error:
        raise SinkRefusedError(f"sink.dsn cannot be used: {message(error)}") from error
    except psycopg.Error as error:
        text = f"cannot open a session at the sink: {message(error)}"
        if any(words in text for words in _LOGIN_REFUSED):
            raise SinkRefusedError(
                f"{text}: correct sink.dsn or the password file, or allow the user to log in"
            ) from error
        raise (SinkUnavailableError if "FATAL" in text else SinkSilentError)(text) from error
    return PostgresSession(connection, path)


def _open(settings: RelationalSettings) -> tuple[BoundedConnection, tuple[str, ...]]:
    """A connection, and the schemas that its user's search path has."""
    options: dict[str, object] = {**_NETWORK, "application_name": _LABEL_WORD}
    with suppress(psycopg.ProgrammingError):  # said by connect() itself, in its own words
        options = {name: value for name, value in options.items() if name not in conninfo_to_dict(settings.dsn)}
    password = settings.password()
    if password is not None:
        options["password"] = password
    connection = BoundedConnection.connect(settings.dsn, autocommit=True, **options)  # type: ignore[arg-type]
    try:
        return connection, pin_search_path(connection)
    except BaseException:
        connection.close()
        raise


def _is_at_work(settings: RelationalSettings, number: tuple[Any, ...] | None) -> bool:
    """Whether the server answers a new session, and the session of that number is doing something."""
    try:
        with closing(_open(settings)[0]) as connection:
            # Where track_activities is off nobody can say; then it is at work as long as it is there.
            found = connection.execute(
                "SELECT coalesce(state, '') LIKE 'idle%%' FROM pg_stat_activity WHERE pid = %s", number
            ).fetchone()
    except psycopg.Error as error:
        return "FATAL" in str(error)  # too many sessions, say: it is there
    except SinkRefusedError:
        return True  # the password file is gone, which says nothing about the server
    return found is not None and not found[0]
