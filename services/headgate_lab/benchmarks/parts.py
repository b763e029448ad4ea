"""The real parts a bench runs on: a broker, a PostgreSQL, and Headgate's own data plane in this process.

What is measured is the path of an agent from claim to seal: Spark lane, decoding, reducing, fenced transactions. The
control plane is not part of it; it adds nothing per row.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import psutil
import psycopg

from headgate.agent.core.executor import SpanId, SpanTask, TaskStatus
from headgate.config.columns import ColumnOptions
from headgate.config.feed import FeedSpec
from headgate.config.sink_spec import SinkSpec
from headgate.config.source_spec import SourceSpec
from headgate.provisioning import artifacts
from headgate.provisioning.java import java_home_for_spark
from headgate.records.control import Epoch, SpanPlan, TaskState
from headgate.replication.executor import SparkExecutor
from headgate.replication.queries import ExecutorSettings
from headgate.replication.spark import SparkRuntime
from headgate.replication.spark_options import SparkOptions
from headgate_lab.benchmarks.cpu import tree
from headgate_lab.embedded.broker import CALM, EmbeddedKafka
from headgate_lab.embedded.clients import postgres_client
from headgate_lab.embedded.postgres import EmbeddedPostgres

CLUSTER_ID: Final = "bench"
WAIT_SECONDS_MAX: Final = 900.0
"""A million changes at a tenth of the expected speed."""

POLL_SECONDS: Final = 0.02

PROGRESS_SECONDS_MAX: Final = 10.0
"""Spark reports a batch after it, when its rows have long been at the sink."""

# The embedded server does not wait for the disk, which would measure the disk; both sides write to the same server.
POSTGRES_SETTINGS: Final = {
    "track_commit_timestamp": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
}


MEMORY_DISK: Final = Path("/dev/shm")  # noqa: S108 - its folder there has a name of its own
LOG_BYTES_MAX: Final = 8 << 30
"""The topics of the largest bench, twice over."""


class BenchError(Exception):
    """A run that does not count: the text contains what was wrong."""


class BenchParts(msgspec.Struct, frozen=True):
    """Where to read and write, and who does it."""

    bootstrap: str
    dsn: str
    executor: SparkExecutor
    runtime: SparkRuntime
    broker_pid: int
    postgres: EmbeddedPostgres
    scratch: Path

    def connect(self) -> psycopg.Connection[Any]:
        """A connection to the target, in autocommit."""
        return postgres_client(self.dsn)

    def jvm(self) -> list[psutil.Process]:
        """Spark's JVM, without its Python workers."""
        return [process for process in self._spark() if not _is_named(process, "python")]

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers."""
        return [process for process in self._spark() if _is_named(process, "python")]

    def servers(self) -> list[psutil.Process]:
        """PostgreSQL's processes."""
        return [p for p in psutil.process_iter(["name", "cmdline"]) if _is_postgres(p, self.postgres)]

    def broker(self) -> list[psutil.Process]:
        """The broker's JVM."""
        return tree(self.broker_pid)

    def _spark(self) -> list[psutil.Process]:
        """Spark's JVM, and what it has started."""
        pid = self.runtime.pid
        return [] if pid is None else tree(pid)


def _is_named(process: psutil.Process, name: str) -> bool:
    try:
        return process.name().startswith(name)
    except psutil.NoSuchProcess:
        return False


def _is_postgres(process: psutil.Process, server: EmbeddedPostgres) -> bool:
    try:
        return process.name() == "postgres" and process.cwd() == str(server.data_dir / "cluster")
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


@contextmanager
def bench_parts() -> Iterator[BenchParts]:
    """Start everything on loopback, in a temporary folder, and stop it again."""
    folder = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    folder.chmod(0o755)
    log_folder = _log_folder(folder)
    try:
        with (
            EmbeddedKafka(log_folder / "kafka", heap_mb=1024, settings=CALM) as kafka,
            EmbeddedPostgres(folder / "postgres", settings=POSTGRES_SETTINGS) as postgres,
        ):
            jars = artifacts.ensure("spark-kafka")
            options = SparkOptions(jars=jars, scratch=folder / "spark", java_home=java_home_for_spark())
            runtime = SparkRuntime(options)
            executor = SparkExecutor(runtime, ExecutorSettings(kafka.bootstrap, CLUSTER_ID))
            try:
                runtime.start()
                yield BenchParts(kafka.bootstrap, postgres.dsn(), executor, runtime, kafka.pid, postgres, folder)
            finally:
                executor.close()
                runtime.stop()
    finally:
        shutil.rmtree(log_folder, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def _log_folder(folder: Path) -> Path:
    """Where the broker keeps its log: in memory if there is room, else in ``folder``.

    A broker touches a new page of a partition's index now and then, which on a busy disk takes it a tenth of a second;
    with 200 partitions it then takes ten changes a second, and what is measured is the disk.
    """
    if MEMORY_DISK.is_dir() and shutil.disk_usage(MEMORY_DISK).free >= LOG_BYTES_MAX:
        return Path(tempfile.mkdtemp(prefix="headgate-bench-", dir=MEMORY_DISK))
    return folder


def make_task(
    parts: BenchParts,
    topic: str,
    table: str,
    partitions: int,
    number: int,
    *,
    sink: SinkSpec | None = None,
    interval_seconds: float | Literal["auto"] = "auto",
    columns: ColumnOptions | None = None,
    where: str | None = None,
    batch_rows_max: int | None = None,
) -> SpanTask:
    """A task as an agent would get it, of a table never written before.

    Tasks of one ``number`` are of one feed, so they share lanes.
    ``sink`` is the bench's PostgreSQL unless it is another. ``columns``, ``where`` and ``batch_rows_max``: options of
    the feed.
    """
    spec = FeedSpec(
        feed="bench",
        source=SourceSpec(topic_pattern=r"bench\..*"),
        sink=sink or SinkSpec(type="postgresql", dsn=parts.dsn),
        batch_interval_seconds=interval_seconds,
        columns=columns or ColumnOptions(),
        where=where,
    )
    if batch_rows_max is not None:
        spec = spec.model_copy(update={"batch_rows_max": batch_rows_max})
    return SpanTask(
        id=SpanId("bench", table),
        feed_id=f"0-{number}",
        incarnation=0,
        epoch=Epoch(1, number),
        plan=SpanPlan(span=table, topic=topic, table=table, start=dict.fromkeys(range(partitions), 0)),
        spec=spec.to_json(),
    )


def spark_rows(parts: BenchParts) -> int:
    """How many rows have come through the lanes' queries so far, by Spark's own count (``numInputRows``)."""
    return parts.executor.progress().rows


def spark_rows_since(parts: BenchParts, before: int, changes: int) -> int:
    """How many have come since there were ``before``. Raises BenchError if they are fewer than ``changes``."""
    deadline = time.monotonic() + PROGRESS_SECONDS_MAX
    while (rows := spark_rows(parts) - before) < changes:
        if time.monotonic() > deadline:
            raise BenchError(f"{changes} changes were applied, but only {rows} rows came through Spark's queries")
        time.sleep(POLL_SECONDS)
    return rows


def wait_for(parts: BenchParts, ends: Mapping[SpanId, Mapping[int, int]]) -> None:
    """Wait until every span's sink positions have reached ``ends``. Raises BenchError on a failed task."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    waiting = dict(ends)
    while waiting:
        for span, target in list(waiting.items()):
            status = parts.executor.status(span)
            _raise_failed(span, status)
            if status is not None and all(status.positions.get(p, -1) >= end for p, end in target.items()):
                del waiting[span]
        if waiting and time.monotonic() > deadline:
            raise BenchError(f"{sorted(waiting)[0].span} did not reach its end within {WAIT_SECONDS_MAX:.0f} s")
        time.sleep(POLL_SECONDS)


def _raise_failed(span: SpanId, status: TaskStatus | None) -> None:
    if status is not None and status.state is TaskState.FAILED:
        raise BenchError(f"{span.span} failed: {status.error_code}: {status.error}")
