"""The brokers' time, as estimated by this process: the clock by which lags are computed.

Kafka has no request that returns the time. But a broker stamps each record of the topic announce itself
(``message.timestamp.type=LogAppendTime``) and returns the stamp in its acknowledgement. Every process that writes
there, each of its heartbeats, thus learns the broker's time, to within half of the time that the request took.

The offset is kept against the monotonic clock, so a step of this machine's wall clock changes nothing. Before the first
acknowledgement, or where announce was created with CreateTime, this machine's wall clock is used.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["BrokerClock", "wall_ms"]

SAMPLES_MAX: Final = 30
"""About a minute of heartbeats: long enough to include one that a busy machine did not delay, short enough to follow
clocks that drift apart by less than a millisecond in that time."""


def wall_ms() -> int:
    """Milliseconds since 1970 by this machine's clock."""
    return time.time_ns() // 1_000_000


class BrokerClock:
    """Any thread may feed and ask it. ``monotonic`` and ``wall`` are replaced in tests."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], int] = wall_ms) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)
        """(seconds that the request took, milliseconds from the monotonic clock to the broker's)."""
        self._offset_ms: float | None = None
        self._was_refused = False

    def is_refused(self) -> bool:
        """A broker has not stamped a record that asks for its time. True the first time, for the log."""
        with self._lock:
            is_first, self._was_refused = not self._was_refused, True
            return is_first

    @property
    def is_known(self) -> bool:
        """Whether a broker has reported its time; until then ``now_ms`` is this machine's."""
        return self._offset_ms is not None

    def acknowledged(self, sent_at: float, append_ms: int) -> None:
        """The broker stamped a record with ``append_ms``; it was sent at ``sent_at`` (monotonic), acknowledged now."""
        acknowledged_at = self._monotonic()
        middle = (sent_at + acknowledged_at) / 2
        with self._lock:
            self._samples.append((acknowledged_at - sent_at, append_ms - middle * 1000))
            self._offset_ms = min(self._samples)[1]

    def now_ms(self) -> int:
        """Milliseconds since 1970 by the broker's clock."""
        offset_ms = self._offset_ms
        return self._wall() if offset_ms is None else round(self._monotonic() * 1000 + offset_ms)
