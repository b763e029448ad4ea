"""Parts of feeds (decoders, sink sessions) that are kept between uses, because each costs more than a small batch.

The key is the feed's incarnation, not its name: a feed that is re-created or rewound under its name may read a topic
that was re-created under its name, and what a decoder remembers of the old one is wrong for the new one.
"""

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from headgate.replication.feed_parts import FeedIncarnation, FeedParts
from headgate.supervision.threads import BackgroundThread

KEPT_MAX: Final = 64
"""Unused parts kept per process. Each may hold a session, and a server with default settings has 100 of them."""


EXPIRY_SECONDS: Final = 5.0
"""Between two purges in the background."""


class KeptParts:
    """Lends parts to one user at a time, and closes those unused for ``seconds``. Thread-safe."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._kept: list[tuple[float, FeedIncarnation, FeedParts]] = []
        """Unused parts, the longest unused first, with the time of their last use (monotonic seconds)."""
        self._closed = False
        self._expiry: BackgroundThread | None = None

    @contextmanager
    def lent(self, feed: FeedIncarnation) -> Iterator[FeedParts]:
        """Parts for the caller alone. They are closed instead of kept if an exception leaves the block.

        Raises FeedSpecError.
        """
        with self._lock:
            found = next((kept for kept in self._kept if kept[1] == feed), None)
            if found is not None:
                self._kept.remove(found)
        parts = FeedParts(feed.spec) if found is None else found[2]
        is_good = False
        try:
            yield parts
            is_good = True
        finally:
            if not (is_good and self._keep(feed, parts)):
                parts.close()

    def _keep(self, feed: FeedIncarnation, parts: FeedParts) -> bool:
        with self._lock:
            if self._closed:
                return False
            self._kept.append((time.monotonic(), feed, parts))
            surplus = self._kept[:-KEPT_MAX]
            self._kept = self._kept[-KEPT_MAX:]
        for _, _, old in surplus:
            old.close()
        return True

    def are_due(self, now: float) -> bool:
        """Whether some parts have not been used for ``seconds``."""
        return any(now - since > self._seconds for since, _, _ in self._kept)

    def purge(self, now: float, live: Collection[FeedIncarnation] | None = None) -> None:
        """Close parts unused for ``seconds``, and those of feeds that are not among ``live``."""
        with self._lock:
            old = [
                kept
                for kept in self._kept
                if now - kept[0] > self._seconds or (live is not None and kept[1] not in live)
            ]
            self._kept = [kept for kept in self._kept if kept not in old]
        for _, _, parts in old:
            parts.close()

    def expire_in_background(self) -> None:
        """From now on ``purge`` is called every few seconds, by a thread of this process. Idempotent."""
        with self._lock:
            if self._expiry is None:
                self._expiry = BackgroundThread(self._expire, name="headgate-expiry")
                self._expiry.start()

    def _expire(self) -> None:
        while not self._closed:
            time.sleep(EXPIRY_SECONDS)
            self.purge(time.monotonic())

    def close(self) -> None:
        """Close all unused parts, and keep none from now on. Idempotent."""
        with self._lock:
            self._closed = True
            kept, self._kept = self._kept, []
        for _, _, parts in kept:
            parts.close()
