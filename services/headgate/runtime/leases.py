"""Leases: those of holders as their owner sees them, and the owner's as a standby sees it.

A lease is a length of time by the watcher's own monotonic clock since it last read a record of the holder; clocks of
different machines are never compared. Silence heard by a watcher that was itself behind proves nothing, so a lease
that has run out only makes a *suspect*; the driver captures the end of the log afterwards, reads to it, and then checks
which holders are still silent. The owner's kind defines the holders and their signs of life (kind.py).
"""

import heapq
from typing import Final

from headgate.records.control import OwnerAnnounced
from headgate.runtime.kind import Holder, Sign, SignOfLife

LEASE_SECONDS_MIN: Final = 0.2
"""Shorter than a long pause of any process: every holder could be lost at any time."""

LEASE_SECONDS_MAX: Final = 300.0
"""Longer, and the work of a dead holder pauses for longer than people wait. A longer announced lease counts as this."""


def lease_of(said: float | None, otherwise: float) -> float:
    """The lease by which a holder is judged: the one it has announced, within bounds, because it judges itself by it.

    ``otherwise``, the watcher's own setting, if it has announced none, or none that is valid.
    """
    if said is None or not said > 0:
        return otherwise
    return min(max(said, LEASE_SECONDS_MIN), LEASE_SECONDS_MAX)


class HolderLeases:
    """Deadlines of all holders that announced themselves and are not known to have ended.

    A heartbeat costs a dictionary write; the heap holds one entry per watched holder, which is moved when it comes to
    the top and turns out to be old: O(log n) per lease, not per heartbeat.
    """

    def __init__(self, lease_seconds: float) -> None:
        """``lease_seconds``: for holders that have not announced theirs."""
        self._lease_seconds = lease_seconds
        self._announced: dict[Holder, float] = {}
        self._deadlines: dict[Holder, float] = {}
        self._heap: list[tuple[float, Holder]] = []
        self._queued: set[Holder] = set()
        self._ended: set[Holder] = set()
        self._suspects: set[Holder] = set()

    def heard(self, holder: Holder, now: float, lease_seconds: float | None = None) -> None:
        """A heartbeat was read; one of a holder that has ended is ignored, in any order of reading the topics."""
        if holder in self._ended:
            return
        self._suspects.discard(holder)
        lease, before = lease_of(lease_seconds, self._lease_seconds), self.lease(holder)
        self._announced[holder] = lease
        self._deadlines[holder] = now + lease
        if lease < before and holder in self._queued:
            # Its entry would come too late. A holder announces its lease once, when the log's level has risen.
            self._heap = [(self._deadlines[each], each) for each in sorted(self._queued & self._deadlines.keys())]
            self._queued = {each for _, each in self._heap}
            heapq.heapify(self._heap)
        if holder not in self._queued:
            self._queued.add(holder)
            heapq.heappush(self._heap, (self._deadlines[holder], holder))

    def learn(self, sign: SignOfLife, now: float) -> None:
        """Apply what a record, read or written, shows about a holder."""
        match sign.sign:
            case Sign.HEARD:
                self.heard(sign.holder, now, sign.lease_seconds)
            case Sign.LEFT:
                self.left(sign.holder)
            case Sign.ENDED:
                self.ended(sign.holder)
            case Sign.FORGOTTEN:
                self.forgotten(sign.holder)

    def left(self, holder: Holder) -> None:
        """The holder's announcement was deleted: it is no longer watched."""
        self._deadlines.pop(holder, None)
        self._announced.pop(holder, None)
        self._suspects.discard(holder)

    def ended(self, holder: Holder) -> None:
        """The owner wrote the holder dead, finally."""
        self._ended.add(holder)
        self.left(holder)

    def forgotten(self, holder: Holder) -> None:
        """The record of its death was deleted, and with it every reason to remember the holder."""
        self._ended.discard(holder)

    def renew_all(self, now: float) -> None:
        """Give every known holder a full lease from now: a new owner has not heard any of them yet."""
        self._suspects.clear()
        self._deadlines = {holder: now + self.lease(holder) for holder in self._deadlines}
        self._heap = [(deadline, holder) for holder, deadline in sorted(self._deadlines.items())]
        heapq.heapify(self._heap)
        self._queued = set(self._deadlines)

    def lease(self, holder: Holder) -> float:
        """Seconds of silence after which the holder is suspected."""
        return self._announced.get(holder, self._lease_seconds)

    def next_deadline(self) -> float | None:
        """When the next lease may run out (never too late, perhaps too early); None if no holder is watched."""
        return self._heap[0][0] if self._heap else None

    def suspect(self, now: float) -> bool:
        """Move every holder whose lease has run out to the suspects. Return whether there are new ones."""
        found = False
        while self._heap and self._heap[0][0] <= now:
            _, holder = heapq.heappop(self._heap)
            deadline = self._deadlines.get(holder)
            if deadline is not None and deadline > now:
                heapq.heappush(self._heap, (deadline, holder))
                continue
            self._queued.discard(holder)
            if deadline is not None:
                self._suspects.add(holder)
                found = True
        return found

    def take_silent(self) -> list[Holder]:
        """The suspects not heard since, sorted; each is returned once, and watched again if heard again."""
        silent = sorted(self._suspects)
        self._suspects.clear()
        for holder in silent:
            del self._deadlines[holder]
        return silent


class OwnerWatch:
    """What a standby knows of its shard's owner. Times are monotonic seconds of the standby's own clock."""

    def __init__(self, lease_seconds: float, now: float) -> None:
        self._lease_seconds = lease_seconds
        self._heard_at = now
        self.owner: OwnerAnnounced | None = None

    def heard(self, record: OwnerAnnounced | None, now: float) -> None:
        """A record of the owner was read; None means that its key was deleted."""
        self.owner = record
        self._heard_at = now

    def is_vacant(self) -> bool:
        """No owner at all, or one that resigned. Meaningful only once the log was read to an end."""
        return self.owner is None or self.owner.lease_seconds <= 0

    def runs_out_at(self) -> float:
        """When the owner's lease is over, unless it is heard again."""
        known = self.owner.lease_seconds if self.owner else 0.0
        return self._heard_at + (known if known > 0 else self._lease_seconds)
