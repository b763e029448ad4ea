"""Migrations of strategy ``triggers``, which earlier versions had: they are ended, and what they left is taken away.

Nothing can be submitted, started or continued with it. A migration that was under way when the service was upgraded
fails with the reason; its triggers are dropped, because clients' writes go through them.
"""

from typing import Any

import msgspec

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec, StrategyRemovedError
from headgate.migration.strategies.contract import CopyPlan, Memory
from headgate.migration.strategies.no_way_back import revert_refused
from headgate.records.migration import Artifact, MigrationRecorded, MigrationStrategy


class RemovedStrategy:
    """See contract.Strategy."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def examine(self, spec: MigrationSpec, reverted: MigrationRecorded | None) -> fx.Examined | fx.ExamineRefused:
        """See contract."""
        return fx.ExamineRefused(_why()) if reverted is None else revert_refused(spec, reverted)

    def plan(self, _spec: MigrationSpec) -> fx.Examined | fx.ExamineRefused:
        """See contract."""
        return fx.ExamineRefused(_why())

    def start(self, _effect: fx.StartMigration) -> Any:
        """See contract."""
        return fx.Refused(_why())

    def adopt(self, effect: fx.AdoptMigration) -> Any:
        """See contract."""
        return self._completed(self._server.take_over(effect.owner_rev)) or fx.Broke(_why(), effect.record.artifacts)

    def watch(self, effect: fx.WatchMigration) -> Any:
        """See contract."""
        return fx.Broke(_why(), effect.record.artifacts)

    def cut_over(self, effect: fx.CutOverMigration) -> Any:
        """See contract."""
        return fx.Broke(_why(), effect.record.artifacts)

    def stop(self, effect: fx.StopMigration) -> Any:
        """See contract."""
        memory = self._server.take_over(effect.owner_rev)
        if (done := self._completed(memory)) is not None:
            return done
        if memory is not None and memory.before:
            self._server.drop_row_triggers(_plan(memory).before)
        self._server.close()
        return fx.Stopped(effect.record.artifacts)

    def clean_up(self, effect: fx.CleanUpMigration) -> Any:
        """See contract."""
        self._server.take_over(effect.owner_rev)
        return fx.CleanedUp(self._server.drop(effect.record.artifacts))

    def close(self) -> None:
        """Let go of the database."""
        self._server.close()

    def _completed(self, memory: Memory | None) -> fx.Completed | None:
        """The cut-over had come into force before the upgrade."""
        if memory is None or not memory.before or not self._server.is_changed(memory, plan := _plan(memory)):
            return None
        self._server.drop_row_triggers(plan.before)
        return fx.Completed("seen in force", (Artifact("table", f"{plan.before.schema}.{plan.shadow}"),))


def _plan(memory: Memory) -> CopyPlan:
    return msgspec.json.decode(memory.before, type=CopyPlan)


def _why() -> str:
    return str(StrategyRemovedError(MigrationStrategy.TRIGGERS))
