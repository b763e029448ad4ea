"""What an agent's tables run on, put together from the settings: the part of an agent that imports Spark."""

import os
import re
from pathlib import Path
from typing import Final

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.app.process import Surroundings
from headgate.app.spark_jars import chosen_jars
from headgate.config.security import java_properties
from headgate.config.settings import Settings, SettingsError
from headgate.provisioning.java import java_home_for_spark
from headgate.replication.executor import SparkExecutor
from headgate.replication.plan import DeadLetterTarget
from headgate.replication.queries import ExecutorSettings
from headgate.replication.range_copy import RangeCopier
from headgate.replication.spark import SparkRuntime, SparkStartError
from headgate.replication.spark_options import RefusedOptionError, SparkOptions, local_threads

_PROPERTIES: Final = "HEADGATE_SPARK__PROPERTIES"


def new_runtime(settings: Settings, scratch: Path) -> SparkRuntime:
    """Spark, not started. Raises SettingsError, NoJavaError, ArtifactError."""
    options = SparkOptions(
        jars=chosen_jars(settings.spark.jars),
        scratch=scratch,
        master=settings.spark.master,
        cores=settings.spark.cores or _cores(settings.spark.master),
        driver_memory=settings.spark.memory,
        java_home=java_home_for_spark(),
        ui=settings.spark.ui,
        ui_port=settings.spark.ui_port,
        options=_properties(settings.spark.properties),
    )
    try:
        return SparkRuntime(options)
    except RefusedOptionError as error:
        raise SettingsError(f"{_PROPERTIES}: {error}") from error


def start(runtime: SparkRuntime) -> None:
    """Start it if it does not run. Raises CommandError."""
    try:
        runtime.start()
    except SparkStartError as error:
        raise CommandError(ExitCode.SPARK, str(error)) from error


def new_executor(runtime: SparkRuntime, around: Surroundings) -> SparkExecutor:
    """One session's executor on a Spark that runs."""
    settings, log = around.settings, around.log
    options = ExecutorSettings(
        bootstrap=settings.bootstrap,
        cluster_id=log.cluster_id,
        kafka=settings.kafka,
        lane_options=java_properties(settings.kafka),
        dead_letters=DeadLetterTarget(
            settings.bootstrap, settings.cluster, log.shards, tuple(sorted(settings.kafka.items()))
        ),
        log=log,
        now_ms=log.clock.now_ms,
    )
    return SparkExecutor(runtime, options)


def new_copier(settings: Settings, scratch: Path) -> RangeCopier:
    """What copies tables for the owner of migrations. Raises SettingsError, NoJavaError, ArtifactError."""
    return RangeCopier(new_runtime(settings, scratch), scratch)


def _cores(master: str) -> int:
    """Tasks of a batch: from ``local[n]`` or ``local-cluster[n,cores,mb]``, otherwise this machine's cores."""
    threads = local_threads(master)
    if threads is not None:
        return threads
    if found := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master):
        return int(found[1]) * int(found[2])
    return os.cpu_count() or 1


def _properties(text: str) -> dict[str, str]:
    """Lines of a name and a value, with blanks or ``=`` between, as in Spark's own spark-defaults.conf."""
    properties: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = re.fullmatch(r"\s*(spark\.[^\s=]+)(?:\s*=\s*|\s+)(\S.*?)\s*", line)
        if found is None:
            wanted = "wanted is the name of a Spark property (spark.…), a blank or =, and its value"
            raise SettingsError(f"{_PROPERTIES}, line {number}: {wanted}")
        if found[1] in properties:
            raise SettingsError(f"{_PROPERTIES}, line {number}: {found[1]} is given twice")
        properties[found[1]] = found[2]
    return properties
