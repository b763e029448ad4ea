"""Logs the coordinator's effects. A running feed's source is checked every ten seconds."""

from typing import Any, Final

from headgate.coordinator.core.effects import DiscoverTables, TablesDiscovered
from headgate.runtime import effect_log

__all__ = ["EffectLog"]

_NOTHING_NEW: Final = "TablesDiscovered: nothing new"


class EffectLog(effect_log.EffectLog):
    """See the runtime's."""

    def __init__(self) -> None:
        super().__init__("coordinator", "feed", "request")

    def answer(self, result: Any) -> str:
        """The result as a line shows it."""
        if not isinstance(result, TablesDiscovered):
            return super().answer(result)
        said = [f"{plan.table} joins" for plan in result.joined]
        said += [f"{result.grown} has more partitions than before"] if result.grown else []
        said += result.notices
        return f"TablesDiscovered: {'; '.join(said)}" if said else _NOTHING_NEW

    def is_repeated(self, effect: Any) -> bool:
        """Sources are checked again and again."""
        return isinstance(effect, DiscoverTables)

    def usual(self, effect: Any) -> str | None:
        """A source with nothing new."""
        return _NOTHING_NEW if isinstance(effect, DiscoverTables) else None
