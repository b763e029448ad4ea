"""The free capacity of each session: the read-only view that schedulers get, and how they draw from it."""

import heapq
from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

STARTING_PER_AGENT_MAX: Final = 64
"""Spans an agent opens at the same time. Opening costs connections and memory (800 feeds started at once took 96 GB in
TiCDC: ticdc#4831); 64 on 8 agents keep an owner's commits full all the same."""


class SessionCapacity(msgspec.Struct, frozen=True):
    """A session that may be assigned roles: how many it has, how many it is opening, and its limit."""

    session: tuple[str, str]
    roles: int
    starting: int
    capacity: int

    @property
    def free(self) -> int:
        """Roles it can be assigned now."""
        return max(min(self.capacity - self.roles, STARTING_PER_AGENT_MAX - self.starting), 0)


class Capacity:
    """Free capacity per session, least loaded first; equal loads by name, so that one state gives one choice."""

    def __init__(self, sessions: Iterable[SessionCapacity]) -> None:
        """Sessions without free capacity are left out."""
        self._left = {session.session: session.free for session in sessions if session.free}
        self._roles = {session.session: session.roles for session in sessions if session.free}
        self._heap = [(roles, session) for session, roles in self._roles.items()]
        heapq.heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._left)

    def has(self, session: tuple[str, str]) -> bool:
        """Whether the session can take another role."""
        return session in self._left

    def take(self, session: tuple[str, str]) -> None:
        """The session takes one more role."""
        self._roles[session] += 1
        self._left[session] -= 1
        if self._left[session]:
            heapq.heappush(self._heap, (self._roles[session], session))
        else:
            del self._left[session]

    def least(self, *, other_than: Collection[tuple[str, str]] = ()) -> tuple[str, str] | None:
        """The least loaded session with free capacity that is not in ``other_than``; None if there is none."""
        passed_over = []
        found = None
        while self._heap and found is None:
            roles, session = self._heap[0]
            if session not in self._left or roles != self._roles[session]:
                heapq.heappop(self._heap)
            elif session in other_than:
                passed_over.append(heapq.heappop(self._heap))
            else:
                found = session
        for entry in passed_over:
            heapq.heappush(self._heap, entry)
        return found


MOVING_PER_FEED_MAX: Final = 64
"""Spans of one feed on their way at the same time: until they arrive each is open at two agents, which costs memory and
connections; as many as one agent opens at a time keep it busy."""


class FeedQuota:
    """How many more spans of each feed may start to move; ``moving_count`` returns how many are moving."""

    def __init__(self, moving_count: Callable[[str], int]) -> None:
        """A feed's count is read on first use."""
        self._moving_count = moving_count
        self._left: dict[str, int] = {}

    def has(self, feed: str) -> bool:
        """Whether another span may start to move."""
        if feed not in self._left:
            self._left[feed] = MOVING_PER_FEED_MAX - self._moving_count(feed)
        return self._left[feed] > 0

    def take(self, feed: str) -> None:
        """Count one more moving span; call ``has`` first."""
        self._left[feed] -= 1
