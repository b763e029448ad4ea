"""What a coordinator's log says of effects: each answer once, not again for every look that finds the same.

A feed's source is looked at every ten seconds for as long as the feed runs (``DiscoverTables``), and what cannot be
done now is tried again every few seconds. Only an answer that is not the one before is news; the others are there at
debug.
"""

from typing import Any, Final

import msgspec

from headgate.coordinator.core.effects import DiscoverTables, TablesDiscovered
from headgate.observability.logs import logger
from headgate.runtime.machine import EffectFailed

__all__ = ["EffectLog"]

TOLD_MAX: Final = 10_000
"""Answers that are remembered, a few bytes each: one per running feed, and one per effect that is tried again."""

_NOTHING_NEW: Final = TablesDiscovered()


class EffectLog:
    """Writes a line per answer. Calls may come from several threads: at worst a line is written twice."""

    def __init__(self) -> None:
        self._told: dict[tuple[Any, ...], Any] = {}
        self._log = logger(service="coordinator")

    def tell(self, shard: int, effect: Any, result: Any) -> None:
        """An effect of the shard was run and this came of it."""
        kind = type(effect).__name__
        if isinstance(result, TablesDiscovered):
            result = msgspec.structs.replace(result, unapplied=None, complete=(), looked_ms=0)  # change all the time
        where = (shard, kind, effect.feed, getattr(effect, "request", ""))
        before = self._told.pop(where, _NOTHING_NEW)
        if isinstance(effect, DiscoverTables) or isinstance(result, EffectFailed):
            while len(self._told) >= TOLD_MAX:
                self._told.pop(next(iter(self._told)), None)
            self._told[where] = result
        write = self._log.info if result != before else self._log.debug
        write("effect", shard=shard, effect=kind, feed=effect.feed, result=_shown(result))


def _shown(result: Any) -> str:
    name = type(result).__name__
    if isinstance(result, TablesDiscovered):
        said = [f"{plan.table} joins" for plan in result.joined]
        said += [f"{result.grown} has more partitions than before"] if result.grown else []
        return f"{name}: {'; '.join([*said, *result.notices]) or 'nothing new'}"
    reason = getattr(result, "reason", None)
    return f"{name}: {reason}" if reason else name
