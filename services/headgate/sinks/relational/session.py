"""A session at a database, as the engine uses it, and where that database is."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from headgate.config.sink_spec import SinkSpec
from headgate.databases.address import Target
from headgate.databases.connections import Use, named
from headgate.databases.errors import (
    DatabaseError,
    DatabaseRefusedError,
    DatabaseSilentError,
    DatabaseUnavailableError,
)
from headgate.sinks.contract import Claim, SinkError, SinkRefusedError, SinkSilentError, SinkUnavailableError

__all__ = ["OPTIONS", "Parameters", "RelationalSettings", "Session", "as_sink_errors", "settings_of"]

Parameters = dict[str, object] | tuple[object, ...] | None
"""Of a statement: ``%(name)s`` or ``%s`` in it, in every dialect. Without any, ``%`` stands for itself."""


class RelationalSettings(msgspec.Struct, frozen=True):
    """Where the sink is: ``dsn``, the dialect's address, or ``connection``, a named one.

    Password and connection are read again for each session.
    """

    dsn: str
    password_file: Path | None = None
    lock_wait_seconds: float = 10.0
    """How long a claim waits for sessions that are not ours to end, before it names them and gives up."""
    foreign_keys: bool = True
    """False: the sink's foreign keys are not checked for our rows (PostgreSQL: nor do its ordinary triggers fire)."""
    keyless: bool = False
    """True: a table may be without key; its rows are only added."""
    connection: str | None = None
    rounds: bool = False
    """True: the server may round values, or cut them off, which have more digits than their column keeps."""
    keeps_columns: bool = False
    """True: the sink keeps which columns its tables had when rows were written (sinks/known_columns.py)."""

    @property
    def target(self) -> Target:
        """The database itself. Raises DatabaseRefusedError."""
        if self.connection is None:
            return Target(self.dsn, self.password_file)
        return named(self.connection, Use.SINK, "sink.connection")[1]


_MEANING: Final[tuple[tuple[type[DatabaseError], type[SinkError]], ...]] = (
    (DatabaseSilentError, SinkSilentError),
    (DatabaseUnavailableError, SinkUnavailableError),
    (DatabaseRefusedError, SinkRefusedError),
)


@contextmanager
def as_sink_errors() -> Iterator[None]:
    """Raise a DatabaseError as the SinkError that means the same."""
    try:
        yield
    except DatabaseError as error:
        raise next(meant for kind, meant in _MEANING if isinstance(error, kind))(str(error)) from error


OPTIONS: Final = frozenset(
    {"connection", "password_file", "foreign_keys", "keyless", "rounding", "snapshot", "tables", "types", "unique_keys"}
)
"""Of a feed's sink, taken by every dialect."""


def settings_of(spec: SinkSpec, password_file: Path | None) -> RelationalSettings:
    """The settings that a feed's description means."""
    return RelationalSettings(
        dsn=spec.dsn or "",
        password_file=password_file,
        foreign_keys=spec.foreign_keys == "enforce",
        keyless=spec.keyless == "append",
        connection=spec.connection,
        rounds=spec.rounding == "allow",
        keeps_columns=spec.tables == "evolve",
    )


class Session(Protocol):
    """One session, autocommit but for ``transaction``. Every method may raise the dialect's own errors."""

    def execute(self, statement: str, parameters: Parameters = None) -> list[tuple[Any, ...]]:
        """Run a statement; its rows."""
        ...

    def count(self, statement: str, parameters: Parameters = None) -> int:
        """Run a statement; how many rows it found."""
        ...

    def transaction(self) -> AbstractContextManager[object]:
        """All or nothing."""
        ...

    def savepoint(self) -> AbstractContextManager[object]:
        """Part of a transaction, undone alone if an exception leaves it."""
        ...

    def mark(self, claim: Claim | None) -> None:
        """Work for ``claim`` from now on, where other claimants see that only by the session; None: for none."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it is known to be over."""
        ...

    def close(self) -> None:
        """Let go. Idempotent, never raises."""
        ...
