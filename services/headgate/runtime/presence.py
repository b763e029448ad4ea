"""Announces a process that could own shards, on announce, five times a lease. Deleted at its end.

Owners are heard by their own heartbeats. Without this record a process that owns nothing would be unknown, and could
not get a share (roster.py). It is only a hint: a heartbeat that is not acknowledged is logged and forgotten.
"""

import logging
from collections.abc import Callable, Sequence

from headgate.eventlog.log import Log, LogError
from headgate.eventlog.repeats import Repeats
from headgate.eventlog.sharding import ANNOUNCE, place
from headgate.records.base import Fact
from headgate.records.control import MemberAnnounced
from headgate.runtime.settings import HEARTBEATS_PER_LEASE, RoleSettings

_log = logging.getLogger(__name__)
_log.addFilter(Repeats())


class Presence:
    """One process's heartbeat; the driver calls ``beat`` every ``pause`` seconds, and ``leave`` at the end."""

    def __init__(
        self, log: Log, settings: RoleSettings, shards: Callable[[], Sequence[int]], wall_ms: Callable[[], int]
    ) -> None:
        """``settings`` are those of any role of the process; ``shards`` are those it owns or would take, ascending."""
        self._settings = settings
        self._shards = shards
        self._wall_ms = wall_ms
        self._key = settings.kind.member_key(settings.owner_id)
        self._writer = log.writer(self._key.text())

    @property
    def pause(self) -> float:
        """Seconds between heartbeats."""
        return self._settings.lease_seconds / HEARTBEATS_PER_LEASE

    def beat(self) -> bool:
        """Send one heartbeat. Return whether it was acknowledged before the next is due."""
        record = MemberAnnounced(
            shards=tuple(self._shards()),
            version=self._settings.version,
            schema_version=self._settings.schema_version,
            lease_seconds=self._settings.lease_seconds,
            announced_ms=self._wall_ms(),
        )
        return self._write(record)

    def leave(self) -> None:
        """Delete the key, so that no process waits for this one any more, and close the writer."""
        self._write(None)
        self._writer.close()

    def _write(self, record: MemberAnnounced | None) -> bool:
        fact = Fact(self._key, record)
        try:
            self._writer.write([place(fact, ANNOUNCE.number)], self.pause)
        except LogError as error:
            _log.warning("presence of %s not acknowledged: %s", self._settings.owner_id, error)
            return False
        return True
