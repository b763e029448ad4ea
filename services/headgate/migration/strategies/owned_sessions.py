"""The session that proves that a migration is this owner's: kept, checked and replaced alike at each database.

How ownership is taken differs: each database's ``sessions.py`` does that.
"""

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from headgate.migration.strategies.contract import DatabaseUnavailableError, SupersededError

__all__ = ["OwnedSessions"]


class Closable(Protocol):
    """A session of a database."""

    def close(self) -> None:
        """End it."""


S = TypeVar("S", bound=Closable)


class OwnedSessions(ABC, Generic[S]):
    """The main session of one migration in this process."""

    def __init__(self) -> None:
        self._main: S | None = None

    @abstractmethod
    def open(self) -> S:
        """A session of the migration. Raises DatabaseUnavailableError, RefusedError."""

    @abstractmethod
    def _take(self, session: S, owner_rev: int) -> None:
        """End the sessions of earlier owners, and write that the migration is ours. Raises SupersededError."""

    @abstractmethod
    def check_ours(self) -> None:
        """Raise DatabaseUnavailableError or SupersededError unless the main session lives and the migration is ours."""

    @property
    def main(self) -> S:
        """The session that proves that the migration is ours; see ``take_over``."""
        if self._main is None:
            raise SupersededError("the migration was not taken over")
        return self._main

    def take_over(self, owner_rev: int) -> None:
        """End the sessions of earlier owners, and write that the migration is ours; at once if it is.

        Raises SupersededError, DatabaseUnavailableError.
        """
        if self._main is not None:
            with suppress(DatabaseUnavailableError, SupersededError):
                self.check_ours()
                return
            self._main.close()
            self._main = None
        session = self.open()
        try:
            self._take(session, owner_rev)
        except BaseException:
            session.close()
            raise
        self._main = session
