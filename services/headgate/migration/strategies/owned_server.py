"""What a database remembers of a migration: read, taken over and forgotten alike at each kind of database."""

from abc import ABC, abstractmethod
from hashlib import sha256
from typing import Any, Final

import msgspec

from headgate.databases.address import Target
from headgate.migration.strategies.contract import Memory, SupersededError
from headgate.migration.strategies.target import id_in_database

__all__ = ["OwnedServer"]

_READ: Final = (
    "SELECT owner_rev, attempt, stage, before_text, after_text, shadow_identity FROM headgate.migration WHERE id = %s"
)
_TAKE: Final = "UPDATE headgate.migration SET owner_rev = %s WHERE id = %s"
_FORGET: Final = "DELETE FROM headgate.migration WHERE id = %s"


class OwnedServer(ABC):
    """One migration at a database, and its row in ``headgate.migration``; see contract.Server."""

    def __init__(self, migration: str, target: Target, *, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self.migration = id_in_database(cluster_id, migration)
        self.password_file = None if target.password_file is None else str(target.password_file)
        self.mark = sha256(self.migration.encode()).hexdigest()[:8]
        self.ended: list[str] = []
        """Sessions that the last forced cut-over has ended."""

    def take_over(self, owner_rev: int) -> Memory | None:
        """See contract."""
        self._take_sessions(owner_rev)
        rows = self._run("reading", _READ, (self.migration,))
        if not rows:
            return None
        memory = Memory(*rows[0])
        if memory.owner_rev > owner_rev:
            self._close_sessions()
            raise SupersededError(f"owner {memory.owner_rev} has the migration")
        self._run("writing", _TAKE, (owner_rev, self.migration))
        return msgspec.structs.replace(memory, owner_rev=owner_rev)

    def forget(self) -> None:
        """The migration has ended and nothing of it is left."""
        self._run("writing", _FORGET, (self.migration,))
        self._forget_sessions()

    @abstractmethod
    def _take_sessions(self, owner_rev: int) -> None:
        """Take over the sessions, and create ``headgate.migration`` if it is missing."""

    @abstractmethod
    def _close_sessions(self) -> None:
        """Close them: a later owner has the migration."""

    @abstractmethod
    def _forget_sessions(self) -> None:
        """Forget which owner the migration has."""

    @abstractmethod
    def _run(self, doing: str, statement: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """A statement on ``headgate.migration`` in the main session; its rows. ``doing``: what an error contains."""
