"""Copies a table's rows with a streaming query: ranges of its key go in, rows pass through Spark.

Each micro-batch has as many numbers as tasks run at once (number_stream.py), and each number is one range of the batch.
A first operator reads the range and gives its rows to Spark; a second one takes them and writes them in one
transaction. Spark's own progress is never the truth: the tasks' answers report which ranges are copied, and the caller
keeps that.
"""

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headgate.migration.strategies.contract import (
    Chunk,
    DatabaseUnavailableError,
    LockUnavailableError,
    RefusedError,
    SupersededError,
)
from headgate.migration.strategies.online.range_work import RangeWork
from headgate.migration.strategies.ranges import read_range, write_range
from headgate.replication.archives import forget_archives
from headgate.replication.arrow_map import map_in_arrow
from headgate.replication.causes import cause_of
from headgate.replication.number_stream import run_numbered
from headgate.replication.row_lines import (
    ANSWER_SCHEMA,
    ROWS_SCHEMA,
    Failure,
    ReadFailedError,
    answer_batch,
    failed_batch,
    lines_batch,
    lines_of,
    why_ended,
)
from headgate.replication.spark import SparkRuntime, SparkStartError

ROWS_AT_A_TIME: Final = 2_000
"""As in a lane: such a batch of lines stays in a processor's cache on its way."""

_KINDS: Final[dict[str, type[Exception]]] = {
    kind.__name__: kind for kind in (DatabaseUnavailableError, LockUnavailableError, RefusedError, SupersededError)
}
_ERRORS: Final = tuple(_KINDS.values())


class _Answer(msgspec.Struct, frozen=True):
    rows: int = 0
    failure: Failure | None = None


class RangeCopier:
    """Copies ranges on a Spark of its own, started when it is needed; see strategies.online.marked.Copier."""

    def __init__(self, runtime: SparkRuntime, scratch: Path) -> None:
        self._runtime = runtime
        self._scratch = scratch

    def copy(
        self,
        work: RangeWork,
        next_ranges: Callable[[int], list[Chunk]],
        copied: Callable[[list[Chunk], int], None],
        stopping: threading.Event,
    ) -> None:
        """See Copier. Raises DatabaseUnavailableError, which is retried, if Spark does not start or is lost."""
        try:
            session = self._runtime.start()
        except SparkStartError as error:
            raise DatabaseUnavailableError(str(error)) from error
        tasks = self._runtime.settings.cores
        batches = _Batches(work, tasks, next_ranges, copied)
        try:
            ended = run_numbered(
                session,
                f"copy-{work.migration}",
                tasks,
                scratch=self._scratch,
                serve=batches.copy,
                is_over=stopping.is_set,
            )
        except (PySparkException, Py4JError, OSError) as error:
            raise DatabaseUnavailableError(why_ended(error)) from error
        if ended is not None:
            raise DatabaseUnavailableError(f"the copying query has ended: {cause_of(ended)}")

    def stop(self) -> None:
        """End Spark."""
        self._runtime.stop()


class _Batches:
    """The query's micro-batches, on its own thread."""

    def __init__(
        self,
        work: RangeWork,
        tasks: int,
        next_ranges: Callable[[int], list[Chunk]],
        copied: Callable[[list[Chunk], int], None],
    ) -> None:
        self._work, self._tasks = work, tasks
        self._next_ranges, self._copied = next_ranges, copied
        self._ahead: list[Chunk] = []

    def copy(self, numbers: DataFrame) -> bool:
        """Whether there is more: that is asked at once, for a micro-batch that finds nothing to do takes time, too."""
        chunks = self._ahead or self._next_ranges(self._tasks)
        if not chunks:
            return False
        plan = msgspec.msgpack.encode(self._work)
        read = functools.partial(_read, plan, chunks, self._tasks)
        rows = map_in_arrow(numbers, read, ROWS_SCHEMA)
        answers = map_in_arrow(rows, functools.partial(_write, plan, chunks), ANSWER_SCHEMA).collect()
        told = [msgspec.json.decode(bytes(answer[0]), type=_Answer) for answer in answers]
        for answer in told:
            if answer.failure is not None:
                raise _KINDS[answer.failure.kind](answer.failure.text)
        self._copied(chunks, sum(answer.rows for answer in told))
        self._ahead = self._next_ranges(self._tasks)
        return bool(self._ahead)


def _read(plan: bytes, chunks: list[Chunk], tasks: int, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the number of its range, then the range's rows, or the error that came instead."""
    forget_archives()
    work = msgspec.msgpack.decode(plan, type=RangeWork)
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            if number % tasks < len(chunks):
                yield lines_batch([b"%d" % (number % tasks)])
                yield from _rows(work, chunks[number % tasks])


def _rows(work: RangeWork, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    lines: list[bytes] = []
    try:
        for line in read_range(work, chunk):
            lines.append(line)
            if len(lines) == ROWS_AT_A_TIME:
                yield lines_batch(lines)
                lines = []
    except _ERRORS as error:
        yield failed_batch(Failure(str(error), type(error).__name__))
    else:
        if lines:
            yield lines_batch(lines)


def _write(plan: bytes, chunks: list[Chunk], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: write what its reader gives, in one transaction; yields one _Answer."""
    forget_archives()
    work = msgspec.msgpack.decode(plan, type=RangeWork)
    lines = lines_of(batches)
    try:
        first = next(lines, [])
        answer = _Answer()
        if first:
            rows = itertools.chain([first[1:]], lines)
            answer = _Answer(write_range(work, chunks[int(first[0])], rows))
    except ReadFailedError as error:
        answer = _Answer(failure=error.failure)
    except _ERRORS as error:
        answer = _Answer(failure=Failure(str(error), type(error).__name__))
    yield answer_batch(answer)
