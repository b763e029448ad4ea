"""How far replicas of a MariaDB are behind: asked of the replicas themselves, because a primary does not know."""

import math
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from headgate.databases.address import Target
from headgate.databases.mysql.address import parse_address
from headgate.migration.strategies.contract import DatabaseUnavailableError, RefusedError
from headgate.migration.strategies.mariadb.sessions import MariadbSessions, Session
from headgate.migration.strategies.target import refusing

ANSWER_SECONDS: Final = 5.0
"""A replica that is silent for so long is asked what it does; a copy waits until then."""

_BEHIND: Final = "Seconds_Behind_Master"


class MariadbReplicas:
    """Of one migration: name, as --replica gives it, → the server."""

    def __init__(self, migration: str, replicas: Mapping[str, Target]) -> None:
        """Nothing is opened yet. Raises RefusedError for a server of another kind."""
        self._sessions = {
            name: MariadbSessions(migration, _without_database(target)) for name, target in replicas.items()
        }
        self._open: dict[str, Session] = {}

    def check(self) -> None:
        """Raises RefusedError for a server that is not a replica, or does not report its state."""
        for name in self._sessions:
            try:
                self._behind(name)
            except (RefusedError, DatabaseUnavailableError) as error:
                raise RefusedError(f"--replica {name}: {error}") from error

    def lag_seconds(self) -> float:
        """Of the slowest; infinite if one does not replicate, or cannot be asked."""
        found = [0.0]
        for name in self._sessions:
            try:
                found.append(self._behind(name))
            except (RefusedError, DatabaseUnavailableError):
                if (kept := self._open.pop(name, None)) is not None:
                    kept.close()
                return math.inf
        return max(found)

    def _behind(self, name: str) -> float:
        session = self._open.get(name)
        if session is None:
            session = self._open[name] = self._sessions[name].open(silence_seconds=ANSWER_SECONDS)
        rows = session.named_rows("SHOW ALL SLAVES STATUS")
        if not rows:
            raise RefusedError("it is not a replica of any server")
        return max(math.inf if row[_BEHIND] is None else float(row[_BEHIND]) for row in rows)

    def close(self) -> None:
        """End all sessions."""
        for session in self._open.values():
            session.close()
        self._open = {}


def _without_database(target: Target) -> Target:
    """What a replica reports of itself is the same in any database."""
    with refusing():
        return replace(
            target, dsn=str(replace(parse_address(target.dsn, target.options), database="information_schema"))
        )
