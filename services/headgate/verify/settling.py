"""Rows that differ are read again until they are equal, are known to differ, or have changed for too long.

Source and target are read at different moments, and the target lacks what has not been applied yet, so a row that was
read once as different may only be on its way. It is known to differ if it was the same on both sides from one reading
to another, and between the two

- the feed has applied everything that its topic had after the first reading, by the sink's own positions, and
- the connector has written everything that the source had at the first reading: a newer change is in the feed's topics
  (sources/last_written.py), or its snapshot is over and no change has come for so long that the source must be quiet;
  and
- ``seconds`` have passed.

A connector that is stopped writes nothing either. It is detected by its heartbeats, which do not continue, and at
PostgreSQL by a replication slot that no process reads. A connector that copies tables may write nothing for a while,
and sends no heartbeats: it is never taken for a quiet one.
"""

import time
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from headgate.eventlog.clock import wall_ms
from headgate.sources.last_written import LastWritten

__all__ = ["Feed", "Settled", "Settling"]

ROUND_SECONDS: Final = 0.5
"""Between two readings of the rows that are left: most are equal at the next one."""

QUIET_DELAYS: Final = 3
"""A connector that wrote its last change so many seconds late may well write nothing for a few times as long, and not
be done. But it may also have been stopped for days before, so never more than what the user is ready to wait. That long
if its delay is not known: right after a snapshot, it begins with changes that are as old as the snapshot took."""

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")


class Feed(Protocol):
    """The feed of one table, the topics that it reads, and the source that these come from."""

    def ends(self) -> Mapping[int, int]:
        """Partition → offset behind everything that the topic has now."""
        ...

    def why_behind(self, ends: Mapping[int, int]) -> str:
        """Why not everything before these offsets is in the target, as a clause; empty if it is."""
        ...

    def source_ms(self) -> int:
        """The source's clock, ms since 1970: by the one that its changes have their times from."""
        ...

    def last_written(self) -> LastWritten:
        """What the connector has written to the topics of all the feed's tables."""
        ...

    def beats(self, within_seconds: float) -> tuple[int, ...]:
        """How many heartbeats each connector has sent so far, of those that send one within that time."""
        ...

    def why_unread(self) -> str:
        """Why no process reads the source's log, as a clause, where the source shows that; else empty."""
        ...

    @property
    def is_given_up(self) -> bool:
        """Whether the connector has been waited for without success, in this table or another one."""
        ...

    def give_up(self) -> None:
        """From now on the connector is not waited for."""
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


class _Seen(msgspec.Struct, frozen=True):
    """Since when a row has not changed: in seconds of this process, in ms of the source's clock, and in heartbeats."""

    at: float
    source_ms: int
    beats: tuple[int, ...]


class Settling:
    """Of the rows of one table.

    ``timeout_seconds``: so long, beyond ``seconds``, rows are read again that keep changing, or a feed or connector is
    waited for that is behind. ``now`` and ``pause``: a monotonic clock in seconds, and what lets time pass. ``wall``:
    ms since 1970 by the clock of the processes that write to the topics, more or less.
    """

    def __init__(
        self,
        feed: Feed,
        *,
        seconds: float,
        timeout_seconds: float,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        wall: Callable[[], int] = wall_ms,
    ) -> None:
        self._feed = feed
        self._seconds = seconds
        self._timeout_seconds = timeout_seconds
        self._now = now
        self._pause = pause
        self._wall = wall

    def settle(self, found: Mapping[K, S], read: Callable[[Collection[K]], Mapping[K, S]]) -> Settled[K, S]:
        """What of ``found`` differs. ``read`` gives those of some keys that still differ, each as it is now."""
        if not found:
            return Settled({}, {}, "")
        begun = self._now()
        deadline = begun + self._seconds + self._timeout_seconds
        left = dict(found)
        since = dict.fromkeys(found, self._seen(begun))
        differing: dict[K, S] = {}
        while left:
            # Read before the topics' ends: what the connector had written by then is in front of these.
            due = {key for key in left if self._now() - since[key].at >= self._seconds}
            written = self._feed.last_written() if due else LastWritten()
            behind = self._wait_for_feed(deadline)
            seen = read(left)
            changed = self._seen(self._now())
            unwritten = ""
            for key, before in list(left.items()):
                if key not in seen:
                    del left[key]
                elif seen[key] != before:
                    left[key], since[key] = seen[key], changed
                elif key in due and not behind:
                    why = self._why_unwritten(written, since[key], changed)
                    unwritten = unwritten or why
                    if not why:
                        differing[key] = left.pop(key)
            if behind:
                return Settled(differing, left, f"the feed {behind}")
            if unwritten and self._now() >= deadline:
                self._feed.give_up()
            if left and (self._now() >= deadline or (unwritten and self._feed.is_given_up)):
                return Settled(differing, left, unwritten or "they kept changing")
            if left:
                self._pause(ROUND_SECONDS)
        return Settled(differing, {}, "")

    def _seen(self, at: float) -> _Seen:
        return _Seen(at, self._feed.source_ms(), self._feed.beats(self._seconds + self._timeout_seconds))

    def _why_unwritten(self, written: LastWritten, since: _Seen, now: _Seen) -> str:
        """Why the connector may not have written yet what the source had by then; empty if it has."""
        if written.commit_ms is not None and written.commit_ms >= since.source_ms:
            return ""
        if why := self._feed.why_unread():
            return why
        if any(count <= before for before, count in zip(since.beats, now.beats, strict=True)):
            return "the connector has sent no heartbeat since: is it running?"
        return self._why_not_quiet(written, has_heartbeats=bool(now.beats))

    def _why_not_quiet(self, written: LastWritten, *, has_heartbeats: bool) -> str:
        """Why the connector may write more of what the source had long ago; empty if it writes no more of that."""
        if written.unread:
            return written.unread
        if written.copying and not has_heartbeats:
            return written.copying
        if written.append_ms is None:
            return ""
        delay_seconds = self._timeout_seconds if written.delay_ms is None else QUIET_DELAYS * written.delay_ms / 1000
        quiet_seconds = max(self._seconds, min(delay_seconds, self._timeout_seconds))
        if self._wall() - written.append_ms >= quiet_seconds * 1000:
            return ""
        if written.delay_ms is None:
            return "the connector's snapshot has just ended, and what was changed during it may be on its way"
        late = f", {written.delay_ms / 1000:.1f} s late" if written.delay_ms else ""
        return f"the connector is still writing older changes{late}"

    def _wait_for_feed(self, deadline: float) -> str:
        """Until everything is applied that the topic has now; why it is not, if that takes too long."""
        ends = self._feed.ends()
        while behind := self._feed.why_behind(ends):
            if not self._feed.is_running or self._now() >= deadline:
                return behind
            self._pause(ROUND_SECONDS)
        return ""
