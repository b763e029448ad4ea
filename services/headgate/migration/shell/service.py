"""The migration owner as a process: the runtime's service, with the scheduler's machine, effects and words."""

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from headgate.eventlog.kafka import KafkaLog
from headgate.migration.core.effects import Progressed, WatchMigration
from headgate.migration.core.kind import MIGRATION_KIND
from headgate.migration.core.machine import MIGRATIONS
from headgate.migration.core.state import MigrationsState
from headgate.migration.shell.feeds import ChangeFeeds
from headgate.migration.shell.metrics import MigrationMetrics
from headgate.migration.shell.reports import ToolReports
from headgate.migration.shell.work import MigrationWork
from headgate.migration.strategies.online.marked import Copier
from headgate.migration.strategies.tools.tool import Tools
from headgate.observability.probes import Probes
from headgate.records.base import Fact
from headgate.runtime.effect_log import EffectLog
from headgate.runtime.service import OwnerObserver, OwnerService, ServiceSettings

__all__ = ["MigrationService"]


class _Standing(OwnerObserver[MigrationsState]):
    """Passes the owner's state to the tools' endpoint and to the metrics."""

    def __init__(self, reports: ToolReports, metrics: MigrationMetrics) -> None:
        self._reports, self._metrics = reports, metrics

    def committed(self, shard: int, facts: Sequence[Fact]) -> None:
        self._metrics.committed(shard, facts)

    def stands(self, shard: int, state: MigrationsState | None) -> None:
        self._reports.stands(state)
        self._metrics.stands(shard, state)


class MigrationService(OwnerService[MigrationsState]):
    """The owner of the migrations, or a standby for it; ``run`` as the runtime's."""

    def __init__(
        self,
        settings: ServiceSettings,
        log: KafkaLog,
        *,
        copier: Copier,
        reports: ToolReports,
        tools: Tools,
        probes: Probes,
        registry: CollectorRegistry,
    ) -> None:
        """Nothing is read or written before ``run``."""
        self._migration_work = MigrationWork(ChangeFeeds(log), copier, tools, cluster_id=log.cluster_id)
        super().__init__(
            settings,
            MIGRATION_KIND,
            MIGRATIONS,
            log,
            self._migration_work,
            tell=_EffectLog("migration", "migration").tell,
            probes=probes,
            registry=registry,
            observer=_Standing(reports, MigrationMetrics(registry)),
        )
        role = self.roles[min(self.roles)]
        reports.serve(role.give, lambda: role.status.owner_id)

    def run(self) -> bool:
        """See the runtime's; what is under way here is closed at the end."""
        try:
            return super().run()
        finally:
            self._migration_work.close()


class _EffectLog(EffectLog):
    """See the runtime's. What runs is watched every second."""

    def is_repeated(self, effect: Any) -> bool:
        """A migration is watched until it ends."""
        return isinstance(effect, WatchMigration)

    def answer(self, result: Any) -> str:
        """Progress is on the log already, as records."""
        return "Progressed" if isinstance(result, Progressed) else super().answer(result)

    def usual(self, effect: Any) -> str | None:
        """The usual result of a watch: the migration continues."""
        return "Progressed" if isinstance(effect, WatchMigration) else None
