"""Rows on their way through Spark, from a reading task to a writing one: lines, or an error instead."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError

from headgate.replication.causes import cause_of
from headgate.replication.spark import end_of_jvm

__all__ = [
    "ANSWER_SCHEMA", "ROWS_SCHEMA", "Failure", "ReadFailedError", "answer_batch", "failed_batch", "lines_batch",
    "lines_of", "why_ended",
]  # fmt: skip

ROWS_SCHEMA: Final = "line binary, error binary"
ANSWER_SCHEMA: Final = "answer binary"


class Failure(msgspec.Struct, frozen=True):
    """An error of a task, which Spark would turn into a text of its own. ``kind``: the caller's name of it."""

    text: str
    kind: str = ""


class ReadFailedError(Exception):
    """The rows could not be read: nothing of them is written."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


def lines_batch(lines: Sequence[bytes]) -> pa.RecordBatch:
    """Rows, a line each."""
    columns = [pa.array(lines, pa.binary()), pa.nulls(len(lines), pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["line", "error"])


def failed_batch(failure: Failure) -> pa.RecordBatch:
    """A batch that carries the failure in place of rows."""
    columns = [pa.array([None], pa.binary()), pa.array([msgspec.json.encode(failure)], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["line", "error"])


def lines_of(batches: Iterable[pa.RecordBatch]) -> Iterator[list[bytes]]:
    """Lines, as many at a time as Spark gives. Raises ReadFailedError."""
    for batch in batches:
        for error in batch.column(1).drop_null().to_pylist():
            raise ReadFailedError(msgspec.json.decode(error, type=Failure))
        yield batch.column(0).to_pylist()


def answer_batch(answer: msgspec.Struct) -> pa.RecordBatch:
    """What the task that writes has done."""
    return pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode(answer)], pa.binary())], names=["answer"])


def why_ended(error: Exception) -> str:
    """Why a query ended, whether Spark or its JVM did."""
    try:
        return cause_of(error)
    except (Py4JError, OSError) as gone:
        return end_of_jvm(gone)
