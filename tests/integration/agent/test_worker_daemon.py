"""Spark forks its workers from our daemon: what they need is there, and nothing slows a task down."""

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest

from headgate.replication.arrow_map import map_in_arrow
from headgate.replication.spark import WORKER_DAEMON, WORKER_MEMORY_ARENAS, SparkRuntime

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]


def look(_numbers: Iterable[int]) -> Iterator[tuple[int, str, bool, int, int]]:
    """Of the worker: its id, what its parent runs, if it had our task, objects set apart, zip importers."""
    import gc
    import sys
    import zipimport
    from pathlib import Path

    had = "headgate.replication.task" in sys.modules
    from headgate.replication.archives import forget_archives

    parent = Path(f"/proc/{os.getppid()}/cmdline").read_text()
    archives = sum(isinstance(one, zipimport.zipimporter) for one in sys.path_importer_cache.values())
    forget_archives()
    yield os.getpid(), parent, had, gc.get_freeze_count(), archives


def arenas(_numbers: Iterable[int]) -> Iterator[str | None]:
    """What bounds the places that a worker's threads keep memory in."""
    yield os.environ.get("MALLOC_ARENA_MAX")


def test_workers_keep_memory_in_one_place(spark_runtime: SparkRuntime) -> None:
    context = spark_runtime.start().sparkContext
    assert context.runJob(context.parallelize(range(1), 1), arenas) == [WORKER_MEMORY_ARENAS]
    assert "MALLOC_ARENA_MAX" not in os.environ, "it is the workers' own"


def test_workers_come_from_our_daemon_with_all_they_need(spark_runtime: SparkRuntime) -> None:
    context = spark_runtime.start().sparkContext
    numbers = context.parallelize(range(1), 1)
    for _ in range(3):
        ((_, parent, had, frozen, _),) = context.runJob(numbers, look)
        assert WORKER_DAEMON in parent
        assert had
        assert frozen > 50_000, "without what is imported before the fork it is none at all"
    ((worker, *_, archives),) = context.runJob(numbers, look)
    assert archives == 0, f"worker {worker} would read them anew before every task"


def imported(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Whether the worker has imported pandas, after it has made an array."""
    import sys

    for batch in batches:
        has_pandas = "pandas" in sys.modules
        yield pa.RecordBatch.from_arrays([pa.array([has_pandas] * batch.num_rows)], names=["has_pandas"])


def test_workers_make_arrays_without_pandas(spark_runtime: SparkRuntime) -> None:
    """To import it takes a start of Spark more than a second of a core, and each worker the memory."""
    session = spark_runtime.start()
    for _ in range(2):
        rows = map_in_arrow(session.range(3, numPartitions=1), imported, "has_pandas boolean").collect()
        assert [row.has_pandas for row in rows] == [False] * 3
