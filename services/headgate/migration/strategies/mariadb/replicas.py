"""How far replicas of a MariaDB are behind: asked of the replicas themselves, because a primary does not know."""

import math
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from headgate.databases.address import Target
from headgate.databases.mysql.address import parse_address
from headgate.migration.strategies.contract import DatabaseUnavailableError, RefusedError
from headgate.migration.strategies.mariadb.sessions import MariadbSessions, Session
from headgate.migration.strategies.target import REPLICA, refusing

ANSWER_SECONDS: Final = 5.0
"""A replica that is silent for so long is asked what it does; a copy waits until then."""

_BEHIND: Final = "Seconds_Behind_Master"


class MariadbReplicas:
    """Of one migration, as --replica gives their addresses; the password's file is the migration's."""

    def __init__(self, migration: str, addresses: tuple[str, ...], password_file: Path | None) -> None:
        """Nothing is opened yet. Raises RefusedError for an address that is none."""
        self._sessions = {
            address: MariadbSessions(migration, Target(_without_database(address), password_file, REPLICA))
            for address in addresses
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
            session = self._open[address] = self._sessions[address].open(silence_seconds=ANSWER_SECONDS)
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
    """What a replica reports of itself is the same in any database."""
    with refusing():
        return str(replace(parse_address(address, REPLICA), database="information_schema"))
