"""A strategy that hands each migration to one of two: the statement as it is, or whatever else was named."""

from abc import ABC, abstractmethod
from typing import Any

import msgspec

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.strategies.direct import DirectStrategy
from headgate.records.migration import MigrationStrategy


class Delegating(ABC):
    """See contract.Strategy; what is requested may be changed on the way."""

    def __init__(self, server: Any, other: Any) -> None:
        self._server = server
        self._direct = DirectStrategy(server)
        self._other = other

    @abstractmethod
    def plan(self, spec: MigrationSpec) -> fx.Examined | fx.ExamineRefused:
        """See contract."""

    @abstractmethod
    def _for(self, effect: Any) -> tuple[Any, Any]:
        """The strategy that does it, and the effect that it gets."""

    def start(self, effect: fx.StartMigration) -> Any:
        """See contract."""
        strategy, asked = self._for(effect)
        return strategy.start(asked)

    def adopt(self, effect: fx.AdoptMigration) -> Any:
        """See contract."""
        strategy, asked = self._for(effect)
        return strategy.adopt(asked)

    def watch(self, effect: fx.WatchMigration) -> Any:
        """See contract."""
        strategy, asked = self._for(effect)
        return strategy.watch(asked)

    def cut_over(self, effect: fx.CutOverMigration) -> Any:
        """See contract."""
        strategy, asked = self._for(effect)
        return strategy.cut_over(asked)

    def stop(self, effect: fx.StopMigration) -> Any:
        """See contract."""
        strategy, asked = self._for(effect)
        return strategy.stop(asked)

    def clean_up(self, effect: fx.CleanUpMigration) -> Any:
        """See contract."""
        strategy, asked = self._for(effect)
        return strategy.clean_up(asked)

    def close(self) -> None:
        """Let go of the database."""
        self._other.close()
        self._direct.close()


def done_directly(spec: MigrationSpec) -> MigrationSpec:
    """The same for strategy direct: without the options that only a strategy which copies the table has."""
    return msgspec.structs.replace(
        spec,
        strategy=MigrationStrategy.DIRECT,
        prefer_instant=False,
        topic=None,
        registry=None,
        threads_running_max=None,
        lag_seconds_max=None,
        replicas=(),
        feed_lags_max={},
        tool_options=(),
    )
