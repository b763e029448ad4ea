"""Lag of each table over time, in Faust's windowed tables, which are kept in memory only.

A table of Faust's is a dictionary with a changelog topic behind it. This one has none: its content follows from the
checkpoint topic, which is read again at each start, and a changelog would be a second truth to keep (measured in Faust
0.15.3: recovery from one that ends with a transaction's marker hangs, or takes 12 s under exactly_once).
"""

from typing import Any, Final

import faust
import msgspec
from faust.streams import current_event

from headgate.eventlog.clock import wall_ms
from headgate.records.control import SpanProgressed
from headgate.views.rows import LagPoint

WINDOW_SECONDS: Final = 30.0
"""Length of a window: agents report each second, so there is more than one report in it."""

KEPT_SECONDS: Final = 7200.0
"""How long a window is kept: two hours of a table are 240 windows, of a thousand tables 50 MB."""


class _Window(msgspec.Struct, frozen=True):
    lag_ms_max: int = 0
    lag_ms_last: int = 0
    rows: int = 0
    bytes: int = 0
    reports: int = 0


class _Forgetful(faust.Table[Any, Any]):
    """A table without a changelog: it is never sent anything, and nothing is recovered."""

    async def on_start(self) -> None:
        await self.add_runtime_dependency(self.data)

    def on_key_set(self, key: Any, value: Any) -> None:  # noqa: ARG002
        # Faust records a key at every change; once is enough to let it expire.
        if key not in self.data:
            self._maybe_set_key_ttl(key, _partition())

    def on_key_del(self, key: Any) -> None:
        self._maybe_del_key_ttl(key, _partition())

    def on_clear(self) -> None:
        """Nothing is stored elsewhere."""


def _partition() -> int:
    """Of the record that is being taken: tables are changed from within a stream only."""
    event = current_event()
    if event is None:
        raise RuntimeError("lag is reported within an agent's stream only")
    return event.message.partition


class LagWindows:
    """Windows by feed and table. ``table`` must be started with the application, which lets windows expire."""

    def __init__(self, app: faust.App) -> None:
        self.table = _Forgetful(app, name="lag", default=_Window, key_type=bytes, value_type=bytes)
        self._window = faust.TumblingWindow(WINDOW_SECONDS, expires=KEPT_SECONDS)
        self._windows = self.table.using_window(self._window)

    def add(self, feed: str, table: str, before: SpanProgressed | None, now: SpanProgressed, *, is_first: bool) -> None:
        """One report more, within an agent's stream: its record's time decides its window.

        A report without one before it counts rows in its window only if it ``is_first``: if it is what compaction has
        left, most of what it counts was applied long before.
        """
        windows = self._windows[feed, table]
        so_far = windows.current()
        rows, byte_count = (0, 0) if before is None and not is_first else (now.rows, now.bytes)
        # Rows count since the claim, so they begin again with each epoch.
        if before is not None and before.epoch == now.epoch and before.rows <= now.rows:
            rows, byte_count = now.rows - before.rows, now.bytes - before.bytes
        self._windows[feed, table] = _Window(
            max(so_far.lag_ms_max, now.lag_ms),
            now.lag_ms,
            so_far.rows + rows,
            so_far.bytes + byte_count,
            so_far.reports + 1,
        )

    def points(self, feed: str, table: str) -> list[LagPoint]:
        """The windows of a table that have not expired, oldest first."""
        found = []
        now = wall_ms() / 1000
        start = now - KEPT_SECONDS
        while start <= now + WINDOW_SECONDS:
            (window,) = self._window.ranges(start)
            value = self.table.data.get(((feed, table), window))
            if value is not None:
                begin = round(window[0] * 1000)
                point = msgspec.structs.asdict(value)
                found.append(LagPoint(from_ms=begin, to_ms=begin + round(WINDOW_SECONDS * 1000), **point))
            start += WINDOW_SECONDS
        return found
