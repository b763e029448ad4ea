"""An owner of generations in this process, as `headgate serve generation` is one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry

from headgate.eventlog.kafka import KafkaLog
from headgate.generation.owner.shell.effect_runner import GenerationEffects
from headgate.generation.owner.shell.service import GenerationService
from headgate.observability.probes import Probes
from headgate.runtime.service import ServiceSettings
from support.kafka_cluster import ANSWER_SECONDS, Cluster
from support.waiting import eventually


@contextmanager
def running_owner(log: KafkaLog, cluster: Cluster) -> Iterator[GenerationService]:
    """An owner on a thread, once each shard has elected it: the product waits for one for 30 s only."""
    settings = ServiceSettings(
        cluster=cluster.cluster,
        shards=tuple(range(log.shards)),
        lease_seconds=5.0,
        holder_lease_seconds=5.0,
        shutdown_seconds=ANSWER_SECONDS,
    )
    effects = GenerationEffects(log, 1)
    service = GenerationService(settings, log, effects, probes=Probes(60.0), registry=CollectorRegistry())
    thread = threading.Thread(target=service.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: is_elected(service), lambda: f"an owner is elected: {service.roles}")
        yield service
    finally:
        service.stop()
        thread.join(2 * ANSWER_SECONDS)


def is_elected(service: GenerationService) -> bool:
    """Whether each of its shards has an owner."""
    return all(role.status.owner_id is not None for role in service.roles.values())
