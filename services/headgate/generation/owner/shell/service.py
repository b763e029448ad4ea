"""The owner of generations as a process: the runtime's service, with the machine and effects of generations."""

from typing import Final

from prometheus_client import CollectorRegistry

from headgate.eventlog.log import Log
from headgate.generation.core.state import GenerationState
from headgate.generation.owner.core.kind import GENERATION_KIND
from headgate.generation.owner.core.machine import GENERATION
from headgate.generation.owner.shell.metrics import GenerationMetrics
from headgate.observability.probes import Probes
from headgate.runtime.effect_log import EffectLog
from headgate.runtime.service import EffectRunner, OwnerService, ServiceSettings

__all__ = ["GenerationService"]

WORKERS: Final = 16
"""Effects that run at once: as many fences as the machine asks for, and some for other change logs' topics."""


class GenerationService(OwnerService[GenerationState]):
    """All roles of one process; ``run`` as the runtime's."""

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
            GENERATION_KIND,
            GENERATION,
            log,
            effects,
            tell=EffectLog("generation", "set", "writer", "timestamp_ms").tell,
            probes=probes,
            registry=registry,
            observer=GenerationMetrics(registry),
            workers=WORKERS,
        )
