"""The identity of a role, the topics it reads and writes, and its metrics."""

from typing import Final

import msgspec

from headgate.eventlog.log import Partition, Placed
from headgate.records.base import Fact, Key
from headgate.records.control import OwnerAnnounced
from headgate.runtime.kind import OwnerKind
from headgate.runtime.machine import Now

ANNOUNCE: Final = Partition("announce", 0)
"""The one partition that every role of every shard reads."""

HEARTBEATS_PER_LEASE: Final = 5
"""An owner announces itself so often within its lease: four in a row may be late before any standby campaigns."""


class RoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a role, and its kind.

    ``owner_id`` names this process, for people; ``transactional_id`` is that of the role and shard, the same in every
    process that may own it: the broker's fencing of it is the election. Leases are in seconds.
    """

    kind: OwnerKind
    shard: int
    owner_id: str
    transactional_id: str
    version: str
    schema_version: int
    lease_seconds: float
    holder_lease_seconds: float
    """For holders that the owner watches and that have not announced theirs."""

    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that the role reads: announce/0 and its shard's partition of every other topic, sorted."""
        return tuple(sorted((ANNOUNCE, *(Partition(topic, self.shard) for topic in self.kind.topics))))

    def partition_of(self, topic: str) -> Partition:
        """Where facts of a topic go."""
        return ANNOUNCE if topic == ANNOUNCE.topic else Partition(topic, self.shard)

    def place(self, fact: Fact) -> Placed:
        """The fact with its partition."""
        return Placed(self.partition_of(fact.key.topic), fact)

    def is_mine(self, key: Key) -> bool:
        """Whether only this shard's owner writes the key. On announce/0 the owners of all shards meet."""
        if key.topic == ANNOUNCE.topic:
            return bool(key == self.owner_key)
        return key.by_owner

    @property
    def owner_key(self) -> Key:
        """The key under which the shard's owner announces itself."""
        key: Key = self.kind.owner_key(self.shard)
        return key

    def announcement(self, owner_rev: int | None, level: int, now: Now, *, resigned: bool = False) -> Fact:
        """The owner's announcement that it has the shard, and the level; a lease of 0 means that it has released it."""
        record = OwnerAnnounced(
            owner_id=self.owner_id,
            owner_rev=owner_rev,
            version=self.version,
            schema_version=self.schema_version,
            lease_seconds=0.0 if resigned else self.lease_seconds,
            announced_ms=now.wall_ms,
            level=level,
        )
        return Fact(self.owner_key, record)


class RoleCounters(msgspec.Struct):
    """Counts since the process started, for metrics; read them from any thread."""

    garbage: dict[str, int] = msgspec.field(default_factory=dict)
    """Records that could not be understood, by topic."""
    records: int = 0
    commits: int = 0
    facts: int = 0
    campaigns: int = 0
    terms: int = 0
    sessions_ended: int = 0
    """Sessions of holders whose end this process has recorded, those that left by themselves included."""
    failovers: int = 0
    """Take-overs of a holder's session, or of the shard's owner, that had not ended by itself."""
    falls: int = 0
    """Times the role threw its state away: lost its term, lost the log, or found a gap in its own turns."""
