"""What Spark calls inside its Python workers: the rows of a task are given to a run, which says what became of them."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa

from headgate.replication.archives import forget_archives
from headgate.replication.frames import chunks_of
from headgate.replication.plan import BatchPlan
from headgate.replication.task_run import run_task

__all__ = ["RESULT_SCHEMA", "apply", "applying", "warm"]

RESULT_SCHEMA: Final = "result binary"


def warm(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Does nothing, in a worker that has imported all that ``apply`` needs."""
    forget_archives()
    yield from batches


def apply(plan: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Apply the rows of one task; yields one row, a TaskResult as JSON. ``plan`` is a BatchPlan as MessagePack."""
    forget_archives()
    given = msgspec.msgpack.decode(plan, type=BatchPlan)
    result = run_task(given, chunks_of(iter(batches), [head for _, head in given.heads]))
    yield pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode(result)], pa.binary())], names=["result"])


def applying(plan: BatchPlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """``apply`` under ``plan``, small to send: pickled as it is, a plan of many tables takes a worker milliseconds."""
    return functools.partial(apply, msgspec.msgpack.encode(plan))
