"""An agent put together from the settings. Spark is imported when it is started: an agent is there before that."""

import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headgate.agent.shell.service import AgentCounters, AgentOptions, run_agent
from headgate.app.process import Part, Surroundings
from headgate.config.security import java_properties
from headgate.observability.metrics import AgentFeeds, AgentMemory, AgentMetrics, AgentRestraint, AgentStream
from headgate.replication.progress import LaneProgress

if TYPE_CHECKING:
    from headgate.agent.core.executor import TableExecutor

SPARK_STOP_SECONDS: Final = 6.0
"""Part of a clean stop's time kept for Spark's end, which takes two seconds, and three times as long on a busy machine:
draining up to the last second would always end in a hard stop."""

DRAIN_SECONDS_MIN: Final = 0.5


def agent_part(around: Surroundings, scratch: Path) -> Part:
    """The agent of this process, not started. ``scratch`` is for Spark's temporary files.

    Raises SettingsError for a login that Spark's Java client cannot use, which is known before Spark is started.
    Its run raises SettingsError, NoJavaError, ArtifactError, and CommandError when Spark does not start.
    """
    settings = around.settings
    java_properties(settings.kafka)
    options = AgentOptions(
        agent=settings.agent.name,
        address=f"http://{settings.http.bind}:{around.http_port}",
        capacity_spans=settings.agent.capacity_spans,
        lease_seconds=settings.lease_seconds,
        drain_seconds=max(DRAIN_SECONDS_MIN, settings.shutdown_seconds - SPARK_STOP_SECONDS),
    )
    counters, stop, spark = AgentCounters(), threading.Event(), _Spark(around, scratch)
    AgentMetrics(around.registry, lambda name: float(getattr(counters, name)))
    AgentFeeds(around.registry, counters.feeds)
    AgentMemory(around.registry, spark.memory_bytes)
    AgentRestraint(around.registry, spark.restraint)
    AgentStream(around.registry, spark.progress)

    def run() -> None:
        try:
            run_agent(
                options,
                around.log,
                spark.new_executor,
                stop,
                probes=around.probes,
                counters=counters,
                warm=spark.start,
            )
        finally:
            spark.stop()

    return Part("agent", run, stop.set)


class _Spark:
    """Spark and what imports it, which takes a second or, on a busy machine, ten: not before it is started."""

    def __init__(self, around: Surroundings, scratch: Path) -> None:
        self._around = around
        self._scratch = scratch
        self._part: Any = None
        self._runtime: Any = None
        self._executor: Any = None
        self._past = LaneProgress()

    def start(self) -> None:
        if self._runtime is None:
            self._part = import_module("headgate.app.spark")
            self._runtime = self._part.new_runtime(self._around.settings, self._scratch)
        self._part.start(self._runtime)

    def new_executor(self) -> "TableExecutor":
        self._past = msgspec.structs.replace(self._total(), behind_rows=None)
        self._executor = self._part.new_executor(self._runtime, self._around)
        executor: TableExecutor = self._executor
        return executor

    def progress(self) -> dict[str, Any]:
        """Spark's progress reports of all sessions' queries (replication/progress.py)."""
        return msgspec.structs.asdict(self._total())

    def _total(self) -> LaneProgress:
        total = msgspec.structs.replace(self._past, step_ms=dict(self._past.step_ms))
        if self._executor is not None:
            present = self._executor.progress()
            total.add(present)
            total.behind_rows = present.behind_rows
        return total

    def memory_bytes(self) -> dict[str, int]:
        sizes: dict[str, int] = {} if self._runtime is None else self._runtime.memory_bytes()
        return sizes

    def restraint(self) -> dict[str, Any]:
        """What keeps it from working at full speed (observability.metrics.AgentRestraint)."""
        if self._runtime is None:
            return {}
        sizes = self._runtime.poll_size
        silent = {} if self._executor is None else self._executor.silent_sinks
        return {"memory_failures": sizes.failures, "poll_records": sizes.records, "silent_sinks": silent}

    def stop(self) -> None:
        if self._runtime is not None:
            self._runtime.stop()
