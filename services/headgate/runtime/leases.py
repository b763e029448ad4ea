"""Who is still there: the leases of agent sessions as their owner sees them, and the owner's as a standby sees it.

A lease is a length of time by the watcher's own monotonic clock since it last read a record of the holder; clocks of
different machines are never compared. Silence heard by a watcher that was itself behind proves nothing, so a lease
that has run out only makes a *suspect*; whoever drives this captures the end of the log afterwards, reads to it, and
then asks who is still silent (design §2).
"""

import heapq
from collections.abc import Iterable
from typing import Final

from headgate.records.control import AgentAnnounced, OwnerAnnounced, Record
from headgate.records.keys import AgentKey, Key, SessionKey

__all__ = ["LEASE_SECONDS_MAX", "LEASE_SECONDS_MIN", "OwnerWatch", "SessionId", "SessionLeases", "lease_of"]

SessionId = tuple[str, str]
"""(agent, session)."""

LEASE_SECONDS_MIN: Final = 0.2
"""Shorter than a long pause of any process: everybody would be lost at any time."""

LEASE_SECONDS_MAX: Final = 300.0
"""Longer, and a dead agent's tables rest for longer than people wait. What is announced beyond counts as this."""


def lease_of(announced: AgentAnnounced | None, otherwise: float) -> float:
    """The lease by which a session is judged: the one it has announced, within bounds, for it judges itself by it.

    ``otherwise``, the watcher's own setting, where it has not said it, or nothing that a lease can be.
    """
    said = None if announced is None else announced.lease_seconds
    if said is None or not said > 0:
        return otherwise
    return min(max(said, LEASE_SECONDS_MIN), LEASE_SECONDS_MAX)


class SessionLeases:
    """Deadlines of all sessions that announced themselves and are not known to be over.

    A heartbeat costs a dictionary write; the heap holds one entry per watched session, moved when it comes to the top
    and turns out to be old: O(log n) per lease, not per heartbeat.
    """

    def __init__(self, lease_seconds: float) -> None:
        """``lease_seconds``: of those who have not announced theirs."""
        self._lease_seconds = lease_seconds
        self._announced: dict[SessionId, float] = {}
        self._deadlines: dict[SessionId, float] = {}
        self._heap: list[tuple[float, SessionId]] = []
        self._queued: set[SessionId] = set()
        self._ended: set[SessionId] = set()
        self._suspects: set[SessionId] = set()

    def heard(self, session: SessionId, now: float, announced: AgentAnnounced | None = None) -> None:
        """A heartbeat was read; one of a session that is over is ignored, in whatever order the topics are read."""
        if session in self._ended:
            return
        self._suspects.discard(session)
        lease, before = lease_of(announced, self._lease_seconds), self._lease(session)
        self._announced[session] = lease
        self._deadlines[session] = now + lease
        if lease < before and session in self._queued:
            # Its entry would come too late. A session says its lease once, when the log's level has risen.
            self._heap = [(self._deadlines[each], each) for each in sorted(self._queued & self._deadlines.keys())]
            self._queued = {each for _, each in self._heap}
            heapq.heapify(self._heap)
        if session not in self._queued:
            self._queued.add(session)
            heapq.heappush(self._heap, (self._deadlines[session], session))

    def learn(self, key: Key, value: Record | None, now: float) -> None:
        """What a record, read or written, says about sessions; other keys say nothing."""
        if isinstance(key, AgentKey):
            session = (key.agent, key.session)
            if value is None:
                self.left(session)
            else:
                self.heard(session, now, value if isinstance(value, AgentAnnounced) else None)
        elif isinstance(key, SessionKey):
            session = (key.agent, key.session)
            if value is None:
                self.forgotten(session)
            else:
                self.ended(session)

    def left(self, session: SessionId) -> None:
        """The session's announcement was deleted: there is nobody to watch."""
        self._deadlines.pop(session, None)
        self._announced.pop(session, None)
        self._suspects.discard(session)

    def ended(self, session: SessionId) -> None:
        """The owner wrote the session dead, finally."""
        self._ended.add(session)
        self.left(session)

    def forgotten(self, session: SessionId) -> None:
        """The record of its death was deleted, and with it every reason to remember the session."""
        self._ended.discard(session)

    def renew_all(self, now: float) -> None:
        """Every known session gets a full lease from now: a new owner has heard nobody yet."""
        self._suspects.clear()
        self._deadlines = {session: now + self._lease(session) for session in self._deadlines}
        self._heap = [(deadline, session) for session, deadline in sorted(self._deadlines.items())]
        heapq.heapify(self._heap)
        self._queued = set(self._deadlines)

    def _lease(self, session: SessionId) -> float:
        return self._announced.get(session, self._lease_seconds)

    def watched(self) -> Iterable[SessionId]:
        """The sessions watched, sorted."""
        return sorted(self._deadlines)

    def next_deadline(self) -> float | None:
        """When the next lease may run out (never too late, perhaps too early); None with nobody to watch."""
        return self._heap[0][0] if self._heap else None

    def suspect(self, now: float) -> bool:
        """Move every session whose lease has run out to the suspects; whether there are new ones."""
        found = False
        while self._heap and self._heap[0][0] <= now:
            _, session = heapq.heappop(self._heap)
            deadline = self._deadlines.get(session)
            if deadline is not None and deadline > now:
                heapq.heappush(self._heap, (deadline, session))
                continue
            self._queued.discard(session)
            if deadline is not None:
                self._suspects.add(session)
                found = True
        return found

    def take_silent(self) -> list[SessionId]:
        """The suspects that were not heard meanwhile, sorted; each is told once, and watched again if heard again."""
        silent = sorted(self._suspects)
        self._suspects.clear()
        for session in silent:
            del self._deadlines[session]
        return silent


class OwnerWatch:
    """What a standby knows of its shard's owner. Times are monotonic seconds of the standby's own clock."""

    def __init__(self, lease_seconds: float, now: float) -> None:
        self._lease_seconds = lease_seconds
        self._heard_at = now
        self.owner: OwnerAnnounced | None = None

    def heard(self, record: OwnerAnnounced | None, now: float) -> None:
        """A record of the owner was read; None says that its key was deleted."""
        self.owner = record
        self._heard_at = now

    def is_vacant(self) -> bool:
        """No owner at all, or one that resigned. Means something only once the log was read to an end."""
        return self.owner is None or self.owner.lease_seconds <= 0

    def runs_out_at(self) -> float:
        """When the owner's lease is over, unless it is heard again."""
        known = self.owner.lease_seconds if self.owner else 0.0
        return self._heard_at + (known if known > 0 else self._lease_seconds)
