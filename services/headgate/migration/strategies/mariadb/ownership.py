"""Which owner a migration has at its MariaDB: a row that only users with a right on our own table can read and write.

User-level locks are open to every user of a server (ADR 0099). The row contains the last owner, and the word that is in
the names of its sessions' locks.
"""

from secrets import token_hex
from typing import Any, Final, Protocol

import msgspec

from headgate.migration.strategies.contract import DatabaseUnavailableError

__all__ = ["Taken", "create", "find", "forget", "is_taken", "take"]

WORD_BYTES: Final = 16
"""Too many to guess, and names of locks are 64 characters at most."""

_CREATE: Final = (
    "CREATE DATABASE IF NOT EXISTS headgate",
    """
CREATE TABLE IF NOT EXISTS headgate.migration_owner (id varchar(200) PRIMARY KEY, owner_rev bigint NOT NULL,
taken bigint NOT NULL, word varchar(40) NOT NULL) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
""",
)
_ADD: Final = "INSERT IGNORE INTO headgate.migration_owner VALUES (%s, -1, 0, %s)"
_FIND: Final = "SELECT owner_rev, taken, word FROM headgate.migration_owner WHERE id = %s"
_TAKE: Final = "UPDATE headgate.migration_owner SET owner_rev = %s, taken = taken + 1 WHERE id = %s AND taken = %s"
_IS_TAKEN: Final = (
    "SELECT IS_USED_LOCK(%s) = %s AND EXISTS (SELECT 1 FROM headgate.migration_owner WHERE id = %s AND taken = %s)"
)
_FORGET: Final = "DELETE FROM headgate.migration_owner WHERE id = %s"


class Statements(Protocol):
    """A session; see sessions.Session."""

    def run(self, statement: str, parameters: tuple[Any, ...] | None = None) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        ...

    def count(self, statement: str, parameters: tuple[Any, ...] | None = None) -> int:
        """How many rows a statement has changed."""
        ...


class Taken(msgspec.Struct, frozen=True):
    """The row's content: the last owner, the number of its taking over, and the word in the names of locks."""

    migration: str
    owner_rev: int
    number: int
    word: str


def create(session: Statements) -> None:
    """Create what is missing."""
    for statement in _CREATE:
        session.run(statement)


def find(session: Statements, migration: str) -> Taken:
    """The migration's row, which is made if it is missing."""
    session.run(_ADD, (migration, token_hex(WORD_BYTES)))
    ((owner_rev, number, word),) = session.run(_FIND, (migration,))
    return Taken(migration, int(owner_rev), int(number), str(word))


def take(session: Statements, seen: Taken, owner_rev: int) -> Taken:
    """Write the row. Of two owners that do so at once, the other one gets DatabaseUnavailableError."""
    if session.count(_TAKE, (owner_rev, seen.migration, seen.number)) != 1:
        raise DatabaseUnavailableError("another owner takes the migration over at this moment")
    return msgspec.structs.replace(seen, owner_rev=owner_rev, number=seen.number + 1)


def is_taken(session: Statements, taken: Taken, main: int, lock: str) -> bool:
    """Whether that taking over is the last one, and its main session lives."""
    return session.run(_IS_TAKEN, (lock, main, taken.migration, taken.number)) == [(1,)]


def forget(session: Statements, migration: str) -> None:
    """Delete the row: nothing of the migration is left."""
    session.run(_FORGET, (migration,))
