"""The speed of a copy: limited by the operator, and by the load of the database."""

import math
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

from headgate.migration.core.spec import MigrationSpec
from headgate.records.throttle_reasons import DATABASE, REPLICA, by_operator

THROTTLED_POLL_SECONDS: Final = 0.1
"""How soon a stopped copy notices that it may resume."""

LOAD_POLL_SECONDS: Final = 0.5
"""How often the database is asked for its load, where the operator has set limits."""


class Lags(Protocol):
    """How far feeds are behind."""

    def why(self, limits: Mapping[str, float]) -> str:
        """Which feed is behind by more than its limit (seconds), as a reason; empty if none is."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


class CopyPace:
    """The pace of one copy. ``ratio`` may be set at any time; ``reason`` is why the copy waits, empty if it does not.

    ``is_held``: it waits for a limit that the operator has set.
    """

    def __init__(
        self, server: Any, spec: MigrationSpec, ratio: float, stopping: threading.Event, lags: Lags | None
    ) -> None:
        self.ratio = ratio
        self.reason = ""
        self.is_held = False
        self._server = server
        self._spec = spec
        self._lags = lags
        self._stopping = stopping
        self._busy = ""
        self._asked_at: float | None = None

    def slow_down(self, took_seconds: float) -> None:
        """A ratio r leaves 1 - r of the time for work; 1, or a busy database, stops it. Obeyed within a second."""
        slept = 0.0
        while not self._stopping.is_set():
            ratio, busy = self.ratio, self._why_busy()
            self.is_held = bool(busy) or ratio >= 1
            self.reason = busy or (by_operator(ratio) if ratio > 0 else "")
            owed = float("inf") if ratio >= 1 or busy else took_seconds * ratio / (1 - ratio)
            if slept >= owed:
                return
            pause = min(owed - slept, THROTTLED_POLL_SECONDS)
            self._stopping.wait(pause)
            slept += pause

    def _why_busy(self) -> str:
        """Which of the operator's limits the database, or a feed, is beyond; empty if none."""
        now = time.monotonic()
        if self._asked_at is None or now - self._asked_at >= LOAD_POLL_SECONDS:
            self._busy = self._why_database() or self._why_feeds()
            self._asked_at = now
        return self._busy

    def _why_database(self) -> str:
        threads_max, lag_max = self._spec.threads_running_max, self._spec.lag_seconds_max
        if threads_max is None and lag_max is None:
            return ""
        load = self._server.load()
        if threads_max is not None and load.threads_running > threads_max:
            return f"{DATABASE} {load.threads_running} sessions at work, {threads_max} allowed"
        if lag_max is not None and math.isinf(load.lag_seconds):
            return f"{REPLICA} does not replicate, or cannot be asked"
        if lag_max is not None and load.lag_seconds > lag_max:
            return f"{REPLICA}: {load.lag_seconds:.1f} s behind, {lag_max:g} allowed"
        return ""

    def _why_feeds(self) -> str:
        limits = self._spec.feed_lags_max
        return self._lags.why(limits) if limits and self._lags is not None else ""

    def close(self) -> None:
        """Let go of what was asked about feeds."""
        if self._lags is not None:
            self._lags.close()
