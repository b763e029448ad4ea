"""An agent with its data plane on Spark, put together from the settings: imported by the commands that run one only."""

import os
import re
import threading
from pathlib import Path
from typing import Final

from headgate.agent.lane.executor import ExecutorSettings, SparkExecutor
from headgate.agent.lane.plan import Letterbox
from headgate.agent.lane.spark import SparkOptions, SparkRuntime, SparkStartError
from headgate.agent.service import AgentCounters, AgentOptions, run_agent
from headgate.cli.exit_codes import CommandError, ExitCode
from headgate.cli.running import Part, Surroundings
from headgate.config.security import java_properties
from headgate.config.settings import SettingsError
from headgate.embedded.artifacts import ensure
from headgate.embedded.java import java_home_for_spark
from headgate.observability.metrics import AgentMemory, watch_agent

__all__ = ["agent_part"]

SPARK_STOP_SECONDS: Final = 4.0
"""Part of a clean stop's time kept for Spark's end: draining up to the last second would always end in a hard stop."""

DRAIN_SECONDS_MIN: Final = 0.5


def agent_part(around: Surroundings, scratch: Path) -> Part:
    """The agent of this process, not started. ``scratch`` is for Spark's temporary files.

    Raises SettingsError, NoJavaError, ArtifactError; its run raises CommandError when Spark does not start.
    """
    settings, log = around.settings, around.log
    runtime = SparkRuntime(
        SparkOptions(
            jars=_jars(settings.spark.jars),
            scratch=scratch,
            master=settings.spark.master,
            cores=settings.spark.cores or _cores(settings.spark.master),
            driver_memory=settings.spark.memory,
            java_home=java_home_for_spark(),
        )
    )
    executor = ExecutorSettings(
        bootstrap=settings.bootstrap,
        cluster_id=log.cluster_id,
        kafka=settings.kafka,
        lane_options=java_properties(settings.kafka),
        letterbox=Letterbox(settings.bootstrap, settings.cluster, log.shards, tuple(sorted(settings.kafka.items()))),
    )
    options = AgentOptions(
        agent=settings.agent.name,
        address=f"http://{settings.http.bind}:{around.http_port}",
        capacity_spans=settings.agent.capacity_spans,
        lease_seconds=settings.lease_seconds,
        drain_seconds=max(DRAIN_SECONDS_MIN, settings.shutdown_seconds - SPARK_STOP_SECONDS),
    )
    counters, stop = AgentCounters(), threading.Event()
    watch_agent(around.registry, lambda name: float(getattr(counters, name)))
    AgentMemory(around.registry, runtime.memory_bytes)

    def run() -> None:
        def warm() -> None:
            _start(runtime)

        def new_executor() -> SparkExecutor:
            return SparkExecutor(runtime, executor)

        try:
            run_agent(options, log, new_executor, stop, probes=around.probes, counters=counters, warm=warm)
        finally:
            runtime.stop()

    return Part("agent", run, stop.set)


def _start(runtime: SparkRuntime) -> None:
    try:
        runtime.start()
    except SparkStartError as error:
        raise CommandError(ExitCode.SPARK, str(error)) from error


def _cores(master: str) -> int:
    """How many tasks run at once: what ``local[n]`` or ``local-cluster[n,cores,mb]`` says, else our cores."""
    if found := re.fullmatch(r"local\[(\d+)(?:,\d+)?\]", master):
        return int(found[1])
    if found := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master):
        return int(found[1]) * int(found[2])
    return os.cpu_count() or 1


def _jars(setting: str) -> tuple[Path, ...]:
    """The connector's jars: a directory's, those listed, or our cache's (fetched if they are not there)."""
    if not setting:
        return ensure("spark-kafka")
    folder = Path(setting)
    jars = sorted(folder.glob("*.jar")) if folder.is_dir() else [Path(part.strip()) for part in setting.split(",")]
    missing = [str(jar) for jar in jars if not jar.is_file()]
    if missing or not jars:
        raise SettingsError(f"HEADGATE_SPARK__JARS: {', '.join(missing) or f'{folder} holds no jar'}: no such file")
    return tuple(jars)
