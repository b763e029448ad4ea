"""The coordinator as a process: the runtime's service, with the coordinator's machine, effects, log and metrics."""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from headgate.config.plugs import SCHEDULERS, PlugError
from headgate.coordinator.core.kind import COORDINATOR_KIND
from headgate.coordinator.core.machine import coordinator
from headgate.coordinator.core.state import CoordinatorState
from headgate.coordinator.schedulers.contract import Scheduler
from headgate.coordinator.schedulers.standard import STANDARD
from headgate.coordinator.shell.effect_log import EffectLog
from headgate.coordinator.shell.effect_runner import crashed, server_of_effect
from headgate.coordinator.shell.metrics import CoordinatorMetrics
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.log import Log
from headgate.observability.probes import Probes
from headgate.runtime.service import EffectRunner, OwnerService, ServiceSettings

__all__ = ["CoordinatorService", "load_schedulers"]


class CoordinatorService(OwnerService[CoordinatorState]):
    """All coordinator roles of one process; ``run`` is the runtime's."""

    def __init__(
        self,
        settings: ServiceSettings,
        log: Log,
        effects: EffectRunner,
        *,
        probes: Probes,
        registry: CollectorRegistry,
        schedulers: Sequence[Scheduler] = STANDARD,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        """Nothing is read or written before ``run``. ``now_ms``: the time by the broker's clock."""
        super().__init__(
            settings,
            COORDINATOR_KIND,
            coordinator(schedulers),
            log,
            effects,
            tell=EffectLog().tell,
            probes=probes,
            registry=registry,
            observer=CoordinatorMetrics(registry, now_ms),
            waits_for=server_of_effect,
            crashed=crashed,
        )


def load_schedulers(names: Sequence[str]) -> tuple[Scheduler, ...]:
    """The schedulers of HEADGATE_SCHEDULERS, Headgate's own and those of other packages. Raises PlugError."""
    schedulers = []
    for name in names:
        scheduler = SCHEDULERS[name]
        if not isinstance(scheduler, Scheduler):
            raise PlugError(f"scheduler {name}: it is a {type(scheduler).__name__}, and no Scheduler")
        if scheduler.name != name:
            raise PlugError(f"scheduler {name}: it calls itself {scheduler.name!r}; its entry point must, too")
        schedulers.append(scheduler)
    return tuple(schedulers)
