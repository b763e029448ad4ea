"""An effect that meets a bug does not end the owner of all change logs: it is logged, and asked for again."""

import threading
import time
from typing import Any

from prometheus_client import CollectorRegistry

from headgate.eventlog.log import Partition, Placed
from headgate.generation.owner.shell.service import GenerationService
from headgate.observability.probes import Probes
from headgate.records.base import Fact
from headgate.records.generation import GenerationRequested, GenerationRequestKey, GenerationRequestKind
from headgate.runtime.service import ServiceSettings
from headgate.supervision.threads import SUPERVISOR
from headgate_lab.memory_log.log import MemoryBroker

DEADLINE_SECONDS = 60.0


class _Broken:
    """Meets a bug each time."""

    def __init__(self) -> None:
        self.runs = 0
        self.again = threading.Event()

    def run(self, effect: Any) -> Any:
        self.runs += 1
        if self.runs > 1:
            self.again.set()
        raise ZeroDivisionError(type(effect).__name__)


def test_a_bug_met_by_one_effect_is_not_the_owners_end() -> None:
    broker, work = MemoryBroker(), _Broken()
    settings = ServiceSettings(
        cluster="c", shards=(0,), lease_seconds=5, holder_lease_seconds=5, shutdown_seconds=DEADLINE_SECONDS
    )
    service = GenerationService(settings, broker.client(), work, probes=Probes(60), registry=CollectorRegistry())
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        asked = GenerationRequested(GenerationRequestKind.CREATE, "t", 2, 1, 0, (), "me", time.time_ns() // 1_000_000)
        broker.append(Placed(Partition("generation", 0), Fact(GenerationRequestKey("s", "r"), asked)), 2)
        assert work.again.wait(DEADLINE_SECONDS), "the effect is asked for again"
        assert thread.is_alive()
    finally:
        service.stop()
        thread.join(DEADLINE_SECONDS)
    assert not SUPERVISOR.fatal
