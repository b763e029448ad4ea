"""The coordinator as a process: the runtime's service, with the coordinator's machine, effects and words."""

from prometheus_client import CollectorRegistry

from headgate.coordinator.core.effects import EffectFailed
from headgate.coordinator.core.kind import COORDINATOR_KIND
from headgate.coordinator.core.machine import COORDINATOR
from headgate.coordinator.core.state import CoordinatorState
from headgate.coordinator.shell.effect_log import EffectLog
from headgate.eventlog.log import Log
from headgate.observability.probes import Probes
from headgate.runtime.service import EffectRunner, OwnerService, ServiceSettings

__all__ = ["CoordinatorService"]


class CoordinatorService(OwnerService[CoordinatorState]):
    """All coordinator roles of one process; ``run`` as the runtime's."""

    def __init__(
        self,
        settings: ServiceSettings,
        log: Log,
        effects: EffectRunner,
        *,
        probes: Probes,
        registry: CollectorRegistry,
    ) -> None:
        """Nothing is read or written before ``run``."""
        super().__init__(
            settings,
            COORDINATOR_KIND,
            COORDINATOR,
            log,
            effects,
            busy=EffectFailed("the coordinator has too many effects waiting"),
            tell=EffectLog().tell,
            probes=probes,
            registry=registry,
        )
