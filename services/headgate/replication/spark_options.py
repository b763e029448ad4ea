"""Spark's properties: those a user may set, those that keep order and are fixed, and why others are refused."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

REFUSED_OPTIONS: Final[dict[str, str]] = {
    "minpartitions": "it splits a Kafka partition over tasks, changes of one key would overtake each other",
    "maxrecordsperpartition": "it splits a Kafka partition over tasks, changes of one key would overtake each other",
    "subscribe": "Headgate decides which partitions are read, from which offsets",
    "subscribepattern": "Headgate decides which partitions are read, from which offsets",
    "assign": "Headgate decides which partitions are read, from which offsets",
    "startingoffsets": "the sink's positions decide where reading starts",
    "startingtimestamp": "the sink's positions decide where reading starts",
    "startingoffsetsbytimestamp": "the sink's positions decide where reading starts",
    "failondataloss": "a skipped offset is a lost change",
    "kafka.isolation.level": "changes of aborted transactions never happened",
    "maxoffsetspertrigger": "it is the feed's batch_rows_max",
    "minoffsetspertrigger": "it is the feed's batch_interval_seconds",
    "spark.speculation": "two attempts of one task would race; the sink would refuse one and stop the span",
    "spark.task.maxfailures": "a second attempt of a task finds the sink moved; the agent restarts the lane instead",
    "spark.python.worker.reuse": "a sink connection would be made for every batch",
    "spark.sql.shuffle.partitions": "queries have no shuffle: a key never leaves its source partition",
    "spark.streaming.dynamicallocation.enabled": (
        "it is of Spark's older streams and does nothing here; spark.dynamicAllocation.enabled does"
    ),
    "spark.sql.codegen.factorymode": "each lane chooses it by the size of its batches",
    "spark.jars.packages": "jars are given by path, each checked against a pinned hash",
    "spark.jars": "it is HEADGATE_SPARK__JARS",
    "spark.master": "it is HEADGATE_SPARK__MASTER",
    "spark.app.name": "it is headgate-agent",
    "spark.driver.memory": "it is HEADGATE_SPARK__MEMORY",
    "spark.driver.extrajavaoptions": "spark.driver.defaultJavaOptions takes options of the JVM",
    "spark.local.dir": "it is HEADGATE_SPARK__SCRATCH",
    "spark.sql.warehouse.dir": "it is HEADGATE_SPARK__SCRATCH",
    "spark.ui.enabled": "it is HEADGATE_SPARK__UI",
    "spark.ui.port": "it is HEADGATE_SPARK__UI_PORT",
}
"""Options by lower-case name that would break order or exactness, or that are settings of our own, and why."""

CONSUMER_CACHE_CAPACITY: Final = 16_384
"""Above any number of partitions of one agent: an evicted consumer costs a reconnect in every batch."""

ARROW_ROWS_MAX: Final = 2_000
ARROW_BYTES_MAX: Final = 32 << 20
"""One Arrow batch on its way to a Python worker: 2 000 rows of 2 KB stay in a processor's cache on their way through
it, 20 000 did not (docs/benchmarks.md); with records of several MB they would be more than a machine has. (Spark 4.0.5
closes a batch with the row that passes the limit.)"""

FIXED: Final[dict[str, str]] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",  # no shuffle to adapt, 10 ms of planning less
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "40",  # read twice a second (progress.py)
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS_MAX),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BYTES_MAX),
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "false",
    "spark.kafka.consumer.cache.capacity": str(CONSUMER_CACHE_CAPACITY),
    # Spark records each batch in two files. By its usual ways each costs a process (chmod), which on a busy machine
    # takes a tenth of a second; and a file of checksums more, though these records are never the truth.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    "spark.scheduler.mode": "FAIR",  # a big lane must not make a small one wait for all its tasks
    "spark.python.worker.reuse": "true",
    "spark.log.level": "ERROR",
}


ARCHIVE_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Java ignores an archive of another Java or of other jars; each start would report that."""


def class_archive() -> Path:
    """Where this installation keeps Spark's classes (class_archive.py), whether or not it has them."""
    return Path(sys.prefix, "share", "headgate", "spark-classes.jsa")


DYNAMIC_ALLOCATION: Final = "spark.dynamicAllocation.enabled"


class RefusedOptionError(ValueError):
    """An option that would break a guarantee; the text names it and explains why."""


class SparkOptions(msgspec.Struct, frozen=True):
    """How to run Spark. ``jars`` are the Kafka connector's four; ``java_home`` None means whatever Spark finds.

    ``cores`` is how many tasks a batch is coalesced to: that of ``master``, when it is ``local[n]``.
    ``ui``: Spark's own web pages are served, from ``ui_port`` on, at the address that is then in the log.
    ``options`` are further Spark properties, refused by name when they would break order.
    """

    jars: Sequence[Path]
    scratch: Path
    master: str = "local[2]"
    cores: int = 2
    driver_memory: str = "1g"
    java_home: Path | None = None
    ui: bool = False
    ui_port: int = 4040
    options: Mapping[str, str] = {}

    @property
    def local_threads(self) -> int | None:
        """See the function of that name."""
        return local_threads(self.master)

    @property
    def in_one_process(self) -> bool:
        """Whether tasks run on this machine, as threads of the driver: everywhere else they are sent our package."""
        return self.local_threads is not None


def local_threads(master: str) -> int | None:
    """How many tasks ``local``, ``local[n]`` or ``local[*]`` runs at once; None where executors run them."""
    if master == "local":
        return 1
    if not master.startswith("local["):
        return None
    found = re.fullmatch(r"local\[(\d+)(?:,\d+)?\]", master)
    return os.cpu_count() or 1 if found is None else int(found[1])


def check_options(options: Mapping[str, str]) -> None:
    """Raise RefusedOptionError for the first option that would break order, or that is fixed to another value."""
    for name, value in sorted(options.items()):
        reason = REFUSED_OPTIONS.get(name.lower())
        if reason is not None:
            raise RefusedOptionError(f"option {name}={value} is refused: {reason}")
        if FIXED.get(name, value) != value:
            raise RefusedOptionError(f"option {name}={value} is refused: Headgate needs {FIXED[name]}")


def check_allocation(settings: SparkOptions) -> None:
    """Raise RefusedOptionError for dynamic allocation without executors, which Spark would not report."""
    if settings.in_one_process and settings.options.get(DYNAMIC_ALLOCATION, "").lower() == "true":
        raise RefusedOptionError(
            f"option {DYNAMIC_ALLOCATION}=true is refused: with {settings.master} everything runs in one process, "
            "without executors; it is for a Spark cluster (HEADGATE_SPARK__MASTER)"
        )
