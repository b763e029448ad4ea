"""The assignment of shards to processes of one kind, without a central decision: each reads the same log.

On announce are every shard's owner and every living process (``member/<id>``, Presence). So each role knows which
processes own how many shards and which others could, and all roles come to the same answer to two questions:

- **Which process follows?** A shard is free: its owner has resigned or is silent. The processes that could own it form
  a line, those that own least first, the last owner last. The first campaigns at once, each further one two heartbeats
  later if no other has been faster. Of several free shards the lowest is assigned first, so that a dead owner's shards
  spread.
- **Which process gives away?** An owner steps down from a shard if another process that could have it owns at least two
  fewer: only then is the difference smaller afterwards. Of all such shards one moves at a time, the same for every
  reader, and only after nothing has changed for a lease: so shares do not swing, and a passing process moves nothing.

These are hints. Only the broker's fencing decides which process owns a shard (role.py); two roles that see different
pictures campaign against each other, and one wins. Times are monotonic seconds of the reader (as in leases.py).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from headgate.records.base import Key, Record
from headgate.records.control import MemberAnnounced, OwnerAnnounced
from headgate.runtime.kind import OwnerKind
from headgate.runtime.settings import HEARTBEATS_PER_LEASE

FOLLOW_HEARTBEATS: Final = 2
"""Heartbeats' time that each in line gives the one before: a take-over takes 0.5 to 1 s, as measured."""

GAP_MIN: Final = 2
"""Least difference between two shares for which a shard is moved: with less, the two would only change places."""

MEMBER_FORGOTTEN_SECONDS: Final = 60.0
"""A process silent for so long has ended, and its key is deleted. If it was only frozen, its next heartbeat restores
it."""


class Roster:
    """What one role knows of owners and processes, its own process included."""

    def __init__(self, kind: OwnerKind, me: str, shard: int, lease_seconds: float) -> None:
        """Only ``me`` is known yet, the id of this process, whose role of ``shard`` uses this."""
        self._kind = kind
        self._me = me
        self._shard = shard
        self._lease_seconds = lease_seconds
        self._owners: dict[int, tuple[str, float]] = {}
        """Shard → its last owner, and until when it counts as alive."""
        self._members: dict[str, tuple[tuple[int, ...], float, float]] = {}
        """Process → shards it could own, until when it counts as alive, when it was heard."""
        self._look_at = float("-inf")
        self._picture: object = None
        self._changed_at = float("-inf")

    def learn(self, key: Key, value: Record | None, now: float) -> None:
        """Apply what a record shows about owners and processes; others are ignored."""
        if isinstance(key, self._kind.owner_key):
            if isinstance(value, OwnerAnnounced):
                alive_until = now + value.lease_seconds if value.lease_seconds > 0 else float("-inf")
                self._owners[key.shard] = value.owner_id, alive_until
            elif value is None:
                self._owners.pop(key.shard, None)
        elif isinstance(key, self._kind.member_key):
            if isinstance(value, MemberAnnounced):
                self._members[key.member] = value.shards, now + value.lease_seconds, now
            elif value is None:
                self._members.pop(key.member, None)

    def wait_seconds(self, now: float) -> float:
        """How long this role lets others go first, now that its shard is free."""
        loads = self._loads(now)
        shards = sorted({self._shard, *self._known(now)})
        # The role knows by itself that its own shard is free; that is why it calls this.
        free = [shard for shard in shards if shard == self._shard or self._owner(shard, now) is None]
        for shard in free:
            last = self._owners.get(shard, ("", 0.0))[0]
            line = sorted(self._standing(shard, now), key=lambda name: (name == last, loads[name], name))
            if shard == self._shard:
                place = line.index(self._me)
                return min(place * FOLLOW_HEARTBEATS / HEARTBEATS_PER_LEASE, 1.0) * self._lease_seconds
            if line:
                loads[line[0]] += 1
        raise AssertionError("the role's own shard is among the free ones")

    def poorer(self, now: float) -> str | None:
        """The process that should have this role's shard instead of its owner, this process; None to keep it.

        Checks again only at the pace of heartbeats, because that is the pace at which anything changes.
        """
        if now < self._look_at:
            return None
        self._look_at = now + self._lease_seconds / HEARTBEATS_PER_LEASE
        owners = {shard: owner for shard in sorted(self._owners) if (owner := self._owner(shard, now)) is not None}
        standing = {shard: self._standing(shard, now) for shard in owners}
        living = sorted(name for name, (_, until, _) in self._members.items() if now < until)
        if (owners, living) != self._picture:
            self._picture, self._changed_at = (owners, living), now
        if now - self._changed_at < self._lease_seconds:
            return None
        loads = self._loads(now)
        gaps = []
        for shard, owner in owners.items():
            others = [name for name in standing[shard] if name != owner]
            if others:
                poorest = min(others, key=lambda name: (loads[name], name))
                gaps.append((loads[owner] - loads[poorest], shard, owner, poorest))
        if not gaps:
            return None
        gap, shard, owner, poorest = max(gaps)
        return poorest if gap >= GAP_MIN and (shard, owner) == (self._shard, self._me) else None

    def forget_gone(self, now: float) -> Sequence[str]:
        """Processes silent for so long that their keys may be deleted; each is returned once."""
        gone = [name for name, (_, _, at) in sorted(self._members.items()) if now - at > MEMBER_FORGOTTEN_SECONDS]
        for name in gone:
            del self._members[name]
        return gone

    def _owner(self, shard: int, now: float) -> str | None:
        """The shard's living owner."""
        owner, alive_until = self._owners.get(shard, ("", float("-inf")))
        return owner if now < alive_until else None

    def _known(self, now: float) -> set[int]:
        """Shards that a living process could own."""
        return {shard for shards, until, _ in self._members.values() if now < until for shard in shards}

    def _standing(self, shard: int, now: float) -> list[str]:
        """Living processes that could own the shard, sorted."""
        others = {name for name, (shards, until, _) in self._members.items() if now < until and shard in shards}
        return sorted({self._me, *others}) if shard == self._shard else sorted(others)

    def _loads(self, now: float) -> Counter[str]:
        """How many shards each living owner has."""
        return Counter(owner for shard in self._owners if (owner := self._owner(shard, now)) is not None)
