"""Schema levels: how services of two versions share a log, and when the newer form may be written (docs/adr/0008).

A record that a live process cannot read would end its role. So every process writes at the log's **level**, and drops
from a record what that level has no field for; a record that would lose something by it is not written
(LevelTooLowError). Every process announces up to which level it reads (``schema_version``). An owner raises the level,
by announcing it, when all processes on announce read more, and have done so for a while; it is never lowered. A process
learns the level by reading: a record of level 2 on the log means that level 2 may be written.

One that starts later and reads less meets a newer record, and ends with its exit code: it must be upgraded.
"""

from typing import Final

from headgate.eventlog.log import LEVEL_FIRST, SchemaLevel
from headgate.records.base import Key, Record
from headgate.records.control import Announced, OwnerAnnounced
from headgate.runtime.settings import ANNOUNCE

QUIET_LEASES: Final = 2.0
"""For so many leases all must have read more before the level is raised: a process that restarts is back by then."""


class Readership:
    """The processes on announce, and up to which level each reads: what an owner needs to raise the level.

    A process counts while its key exists, alive or not: keys of dead processes are deleted by their owners within
    minutes, and until then the owner waits for a process that is only being restarted. A log that never had an owner
    has no past to wait for: it starts at the level of the processes that are there.
    """

    def __init__(self, level: SchemaLevel, lease_seconds: float) -> None:
        self._level = level
        self._quiet_seconds = QUIET_LEASES * lease_seconds
        self._reads: dict[Key, int] = {}
        self._least: int | None = None
        self._had_owner = False
        self._least_since = float("-inf")

    def learn(self, key: Key, value: Record | None, now: float) -> None:
        """Apply what a record shows about a reader; records of other topics are ignored. ``now`` is monotonic."""
        if key.topic != ANNOUNCE.topic:
            return
        self._had_owner = self._had_owner or key.names_owner
        if value is None or (isinstance(value, OwnerAnnounced) and value.lease_seconds <= 0):
            self._reads.pop(key, None)
        elif isinstance(value, Announced):
            if self._reads.get(key) == value.schema_version:
                return
            self._reads[key] = value.schema_version
        least = min(self._reads.values(), default=None)
        if least != self._least:
            self._least, self._least_since = least, now

    def may_rise_to(self, now: float) -> int:
        """The level that may be announced, by all that is known; LEVEL_FIRST while that is too little.

        The owner counts by its own announcement, once it has one; before, by what this process reads.
        """
        if not self._had_owner:
            return min([self._level.reads, *self._reads.values()])
        if self._least is None or now - self._least_since < self._quiet_seconds:
            return LEVEL_FIRST
        return min(self._least, self._level.reads)
