"""The owner of generations as a process: the runtime's service, with the machine and effects of generations."""

from typing import Any, Final

from prometheus_client import CollectorRegistry

from headgate.eventlog.log import Log
from headgate.generation.core.state import GenerationState
from headgate.generation.owner.core.kind import GENERATION_KIND
from headgate.generation.owner.core.machine import GENERATION
from headgate.generation.owner.shell.metrics import GenerationMetrics
from headgate.observability.logs import logger
from headgate.observability.probes import Probes
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
            tell=_tell,
            probes=probes,
            registry=registry,
            observer=GenerationMetrics(registry),
            workers=WORKERS,
        )


def _tell(shard: int, effect: Any, result: Any) -> None:
    write = logger(service="generation").info
    reason = getattr(result, "reason", None)
    name = type(result).__name__
    said = f"{name}: {reason}" if reason else name
    write("effect", shard=shard, effect=type(effect).__name__, set=effect.set, result=said)
