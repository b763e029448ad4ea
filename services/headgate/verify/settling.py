"""Rows that differ are read again until they are equal, are known to differ, or have changed for too long.

Source and target are read at different moments, and the target lacks what has not been applied yet, so a row that was
read once as different may only be on its way. It is known to differ if it was the same on both sides from one reading
to another, and between the two

- the feed has applied everything that its topic had after the first reading, by the sink's own positions, and
- ``seconds`` have passed, in which the connector has had time to write what the source had at the first reading.

Nothing tells how far the connector is, so only the second condition covers a change that has not reached the topic.
"""

import time
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Final, Generic, Protocol, TypeVar

import msgspec

__all__ = ["Feed", "Settled", "Settling"]

ROUND_SECONDS: Final = 0.5
"""Between two readings of the rows that are left: most are equal at the next one."""

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")


class Feed(Protocol):
    """The feed of one table, and the topic that it reads."""

    def ends(self) -> Mapping[int, int]:
        """Partition → offset behind everything that the topic has now."""
        ...

    def why_behind(self, ends: Mapping[int, int]) -> str:
        """Why not everything before these offsets is in the target, as a clause; empty if it is."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether it makes sense to wait for the feed: not if it is paused, or has failed."""
        ...


class Settled(msgspec.Struct, Generic[K, S], frozen=True):
    """Rows that differ, rows that could not be settled, and why not."""

    differing: dict[K, S]
    unsettled: dict[K, S]
    reason: str


class Settling:
    """Of the rows of one table.

    ``timeout_seconds``: so long, beyond ``seconds``, rows are read again that keep changing, or a feed is waited for
    that is behind. ``now`` and ``pause``: a monotonic clock in seconds, and what lets time pass.
    """

    def __init__(
        self,
        feed: Feed,
        *,
        seconds: float,
        timeout_seconds: float,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._feed = feed
        self._seconds = seconds
        self._timeout_seconds = timeout_seconds
        self._now = now
        self._pause = pause

    def settle(self, found: Mapping[K, S], read: Callable[[Collection[K]], Mapping[K, S]]) -> Settled[K, S]:
        """What of ``found`` differs. ``read`` gives those of some keys that still differ, each as it is now."""
        begun = self._now()
        deadline = begun + self._seconds + self._timeout_seconds
        left, since = dict(found), dict.fromkeys(found, begun)
        differing: dict[K, S] = {}
        while left:
            behind = self._wait_for_feed(deadline)
            at = self._now()
            seen = read(left)
            for key, before in list(left.items()):
                if key not in seen:
                    del left[key]
                elif seen[key] != before:
                    left[key], since[key] = seen[key], self._now()
                elif not behind and at - since[key] >= self._seconds:
                    differing[key] = left.pop(key)
            if behind:
                return Settled(differing, left, f"the feed {behind}")
            if left and self._now() >= deadline:
                return Settled(differing, left, "they kept changing")
            if left:
                self._pause(ROUND_SECONDS)
        return Settled(differing, {}, "")

    def _wait_for_feed(self, deadline: float) -> str:
        """Until everything is applied that the topic has now; why it is not, if that takes too long."""
        ends = self._feed.ends()
        while behind := self._feed.why_behind(ends):
            if not self._feed.is_running or self._now() >= deadline:
                return behind
            self._pause(ROUND_SECONDS)
        return ""
