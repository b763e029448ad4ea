"""The entry point in Spark's Python workers: passes a task's rows to a run, and returns its results."""

import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.sql import Column, SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from headgate.config.plugs import FORMATS, SINKS
from headgate.replication.archives import forget_archives
from headgate.replication.arrow_map import arrow_column, map_in_arrow
from headgate.replication.feed_parts import FeedIncarnation
from headgate.replication.frames import chunks_of
from headgate.replication.plan import BatchPlan
from headgate.replication.task_run import kept, run_task

__all__ = ["RESULT_SCHEMA", "apply", "applying", "close_unused", "set_plan", "warm", "warm_up"]

RESULT_SCHEMA: Final = StructType([StructField("result", BinaryType())])

PLAN: Final = "headgate.plan.secret"
"""The local property of a job that has its BatchPlan: MessagePack, as text (base64). A plan may hold a password of
Kafka's; Spark keeps what is called a secret out of its event log."""


LIVE: Final = "headgate.live.secret"
"""The local property of a sweep that has the feeds with lanes; a secret as descriptions of feeds may be."""


def warm(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Import all that ``apply`` needs, whatever a feed's format and sink are, and pass the rows on.

    An executor that lacks a package thus fails when its agent starts, not in the first batch of a feed.
    """
    forget_archives()
    FORMATS.load_own()
    SINKS.load_own()
    yield from batches


def warm_up(session: SparkSession, workers: int) -> None:
    """Have so many Python workers, each with all that it needs. Raises PySparkException, Py4JError."""
    map_in_arrow(session.range(workers, numPartitions=workers), warm, "id bigint").collect()


def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Apply the rows of one task under its job's plan; yields one row, a TaskResult as MessagePack."""
    forget_archives()
    context = TaskContext.get()
    plan = None if context is None else context.getLocalProperty(PLAN)
    assert plan is not None  # noqa: S101 - no job of a lane is without
    given = msgspec.msgpack.decode(b64decode(plan), type=BatchPlan)
    kept.expire_in_background()
    result = run_task(given, chunks_of(iter(batches), [head for _, head in given.heads]))
    yield pa.RecordBatch.from_arrays([pa.array([msgspec.msgpack.encode(result)], pa.binary())], names=["result"])


def sweep(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Close what this worker keeps of feeds that have no lane any more."""
    forget_archives()
    context = TaskContext.get()
    live = None if context is None else context.getLocalProperty(LIVE)
    if live is not None:
        kept.purge(time.monotonic(), msgspec.msgpack.decode(b64decode(live), type=set[FeedIncarnation]))
    yield from batches


def close_unused(session: SparkSession, workers: int, live: Iterable[FeedIncarnation]) -> None:
    """Have Python workers close their sessions for feeds that are not among ``live``.

    Spark hands out idle workers in turn, so as many short tasks as there are workers reach those that are idle. A busy
    one is missed; it closes the session when it has not used it for a while. Raises PySparkException, Py4JError.
    """
    session.sparkContext.setLocalProperty(LIVE, b64encode(msgspec.msgpack.encode(sorted(live))).decode())
    map_in_arrow(session.range(workers, numPartitions=workers), sweep, "id bigint").collect()


def set_plan(context: SparkContext, plan: BatchPlan) -> None:
    """Give the next jobs of this thread their plan."""
    context.setLocalProperty(PLAN, b64encode(msgspec.msgpack.encode(plan)).decode())


def applying(columns: Iterable[str]) -> Column:
    """``apply``, of rows with these ``columns``, as Spark's planner knows it."""
    return arrow_column(apply, RESULT_SCHEMA, columns)
