"""Spark forks its workers from our daemon: what they need is there, and nothing slows a task down."""

import os
from collections.abc import Iterable, Iterator

import pytest

from headgate.replication.spark import WORKER_DAEMON, WORKER_MEMORY_ARENAS, SparkRuntime

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]


def look(_numbers: Iterable[int]) -> Iterator[tuple[int, str, bool, int, int]]:
    """Of the worker: its id, what its parent runs, what it had when it began, objects set apart, zip importers."""
    import gc
    import sys
    import zipimport
    from pathlib import Path

    had = {"headgate.replication.task", "pandas"} <= sys.modules.keys()
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
