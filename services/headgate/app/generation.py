"""The owner of change logs put together from the settings."""

from headgate.app.process import Part, Surroundings
from headgate.generation.owner.shell.effect_runner import GenerationEffects
from headgate.generation.owner.shell.service import GenerationService
from headgate.runtime.service import ServiceSettings


def generation_part(around: Surroundings, owner: ServiceSettings) -> Part:
    """The service of this process, not started."""
    log = around.log
    service = GenerationService(
        owner,
        log,
        GenerationEffects(log, around.settings.replication_factor),
        probes=around.probes,
        registry=around.registry,
    )
    return Part("generation", service.run, service.stop)
