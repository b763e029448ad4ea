"""How far replicas of a MariaDB are behind: asked of the replicas themselves, because a primary does not know."""

import math
from typing import Final
from urllib.parse import urlsplit

from headgate.migration.strategies.contract import DatabaseUnavailableError, RefusedError
from headgate.migration.strategies.mariadb.sessions import MariadbSessions, Session

__all__ = ["MariadbReplicas"]

_BEHIND: Final = "Seconds_Behind_Master"


class MariadbReplicas:
    """Of one migration, as --replica gives their addresses; the password's file is the migration's."""

    def __init__(self, migration: str, addresses: tuple[str, ...], password_file: str | None) -> None:
        """Nothing is opened yet. Raises RefusedError for an address that is none."""
        self._sessions = {
            address: MariadbSessions(migration, _without_database(address), password_file) for address in addresses
        }
        self._open: dict[str, Session] = {}

    def check(self) -> None:
        """Raises RefusedError for a server that is no replica, or does not say how it is."""
        for address in self._sessions:
            try:
                self._behind(address)
            except (RefusedError, DatabaseUnavailableError) as error:
                raise RefusedError(f"--replica {address}: {error}") from error

    def lag_seconds(self) -> float:
        """Of the slowest; infinite if one does not replicate, or cannot be asked."""
        found = [0.0]
        for address in self._sessions:
            try:
                found.append(self._behind(address))
            except (RefusedError, DatabaseUnavailableError):
                if (kept := self._open.pop(address, None)) is not None:
                    kept.close()
                return math.inf
        return max(found)

    def _behind(self, address: str) -> float:
        session = self._open.get(address)
        if session is None:
            session = self._open[address] = self._sessions[address].open(read_seconds=5.0)
        rows = session.named_rows("SHOW ALL SLAVES STATUS")
        if not rows:
            raise RefusedError("it is no replica of any server")
        return max(math.inf if row[_BEHIND] is None else float(row[_BEHIND]) for row in rows)

    def close(self) -> None:
        """End all sessions."""
        for session in self._open.values():
            session.close()
        self._open = {}


def _without_database(address: str) -> str:
    """What a replica says of itself is said in any database."""
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise RefusedError(f"--replica {address} is no address: {error}") from error
    return f"{parts.scheme}://{parts.netloc}/information_schema"
