"""The part of a lane that runs inside Spark's Python workers: Arrow rows in, fenced sink transactions out.

A task reads several source partitions one after the other, each in offset order (the lane refuses every option that
would split one). Rows are grouped by span, those below the sink's position are dropped, the rest is decoded and
applied in one sink transaction per (table, task), under the span's claim. A span that fails says so in its result
and writes nothing; its neighbours in the task go on.

Sink connections and decoders are kept per worker process, because a connection costs more than a small batch.
"""

import itertools
import time
import traceback
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from headgate.agent.executor import SpanId
from headgate.agent.lane.parts import FeedParts
from headgate.agent.lane.plan import BatchPlan, SpanResult, SpanWork, TaskResult
from headgate.changes.change import Change, ChangeError
from headgate.changes.decoding import Decoder, UndecodableError, Watermark
from headgate.sinks.contract import ChangeBatch, OffsetRange, SinkError, SinkUnavailableError

__all__ = ["INPUT_COLUMNS", "RESULT_SCHEMA", "run_task", "warm"]

INPUT_COLUMNS: Final = (
    "topic",
    "partition",
    "offset",
    "unix_millis(timestamp) AS append_ms",
    "key",
    "value",
)
"""Spark SQL for the columns that ``run_task`` expects, in this order."""

RESULT_SCHEMA: Final = "result binary"

_ERROR_LENGTH_MAX: Final = 2000
"""An error travels to a control topic and to people's screens; a whole row in it would do neither good."""

_parts: dict[str, FeedParts] = {}


def warm(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Does nothing, in a worker that has imported all that ``run_task`` needs."""
    yield from batches


def run_task(plan: BatchPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Apply one task's rows; yields a single row, a TaskResult as JSON."""
    result = _Task(plan).run(batches)
    yield pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode(result)], pa.binary())], names=["result"])


class _SpanRows:
    """What one task has gathered for one span."""

    def __init__(self, work: SpanWork) -> None:
        self.work = work
        self.changes: list[Change] = []
        self.next: dict[int, int] = {}
        self.bytes = 0
        self.rows = 0
        self.oldest_append_ms: int | None = None
        self.newest_source_ms: int | None = None
        self.decode_cpu_ns = 0
        self.apply_cpu_ns = 0
        self.error: tuple[str, str, bool] | None = None
        self.marks: list[Watermark] = []
        self.ended: set[int] = set()
        """Partitions of which nothing more is wanted: the next event is the watermark of the feed's target."""

    def failed(self, code: str, text: str, *, retryable: bool) -> None:
        """Nothing was written."""
        self.error = (code, text[:_ERROR_LENGTH_MAX], retryable)
        self.changes, self.next, self.rows, self.bytes, self.marks = [], {}, 0, 0, []

    def poisoned(self, text: str) -> None:
        """What stands before the bad row is good: it is written, and the position then names the bad row."""
        self.error = ("change_undecodable", text[:_ERROR_LENGTH_MAX], False)

    def result(self) -> SpanResult:
        code, text, retryable = self.error or (None, None, False)
        return SpanResult(
            id=self.work.id,
            positions=self.next,
            rows=self.rows,
            bytes=self.bytes,
            oldest_append_ms=self.oldest_append_ms,
            newest_source_ms=self.newest_source_ms,
            visible_ms=time.time_ns() // 1_000_000,
            error_code=code,
            error=text,
            retryable=retryable,
            decode_cpu_us=self.decode_cpu_ns // 1000,
            apply_cpu_us=self.apply_cpu_ns // 1000,
            resolved=self._resolved(),
        )

    def end_at(self, partition: int, target_ts: int | None, marks: list[Watermark]) -> int | None:
        """Take over a partition's watermarks; the offset of the first that reaches the target, where reading ends.

        The position stays in front of that watermark, so that whoever takes the span next meets it again: the
        evidence is in the log, and nowhere else.
        """
        for mark in marks:
            self.marks.append(mark)
            if target_ts is not None and mark.ts >= target_ts:
                self.ended.add(partition)
                return mark.offset
        return None

    def _resolved(self) -> dict[int, int]:
        """Watermarks all before which is at the sink."""
        resolved: dict[int, int] = {}
        for mark in self.marks:
            if mark.offset <= self.next.get(mark.partition, self.work.expected[mark.partition]):
                resolved[mark.partition] = max(mark.ts, resolved.get(mark.partition, mark.ts))
        return resolved


class _Task:
    """One run of the task function."""

    def __init__(self, plan: BatchPlan) -> None:
        self._works = {(work.topic, partition): work for work in plan.works for partition in work.expected}
        self._spec = plan.spec
        self._open: dict[SpanId, _SpanRows] = {}
        self._done: list[SpanResult] = []
        self._seen: dict[str, dict[int, int]] = {}

    def run(self, batches: Iterator[pa.RecordBatch]) -> TaskResult:
        last: SpanWork | None = None
        for batch in batches:
            columns = [batch.column(number) for number in range(len(INPUT_COLUMNS))]
            offsets = columns[2].to_numpy(zero_copy_only=False)
            for topic, partition, start, stop in _runs(columns[0], columns[1]):
                ends = self._seen.setdefault(topic, {})
                ends[partition] = max(int(offsets[stop - 1]) + 1, ends.get(partition, 0))
                work = self._works.get((topic, partition))
                if last is not None and work is not last:
                    self._finish_early(last)
                last = work
                if work is None:
                    continue
                first = start + int(np.searchsorted(offsets[start:stop], work.expected[partition]))
                if first < stop:
                    self._take(work, partition, columns, first, stop)
        for span in sorted(self._open):
            self._finish(span)
        return TaskResult(seen=self._seen, spans=tuple(self._done))

    def _take(self, work: SpanWork, partition: int, columns: list[Any], first: int, stop: int) -> None:
        """Decode rows [first, stop) of one partition, unless the span has already failed in this task."""
        rows = self._open.setdefault(work.id, _SpanRows(work))
        if rows.error is not None or partition in rows.ended:
            return
        began = time.thread_time_ns()
        offsets, appended, keys, values = (c.slice(first, stop - first).to_pylist() for c in columns[2:])
        end = offsets[-1] + 1
        decoder: Decoder | None = None
        try:
            decoder = self._parts().decoder(work.topic)
            changes = decoder.decode_batch(keys, values, [partition] * len(keys), offsets, appended)
        except UndecodableError as error:
            changes = error.decoded
            rows.poisoned(f"{work.topic}: {error}; correct or remove the event, then resume the feed")
            end = error.offset
        except Exception as error:  # noqa: BLE001 (a fault of ours in one table's rows must not stop its neighbours)
            rows.failed("internal", _described(error), retryable=False)
            return
        finally:
            marks = [] if decoder is None else decoder.take_watermarks()
        ends_at = rows.end_at(partition, self._parts().target_ts, marks)
        if ends_at is not None:
            end, changes = ends_at, [change for change in changes if change.offset < ends_at]
        rows.changes += changes
        if end > offsets[0]:
            good = int(np.searchsorted(offsets, end))
            rows.next[partition] = end
            rows.rows += good
            rows.bytes += sum(len(value) for value in values[:good] if value is not None)
            oldest = min(appended)
            rows.oldest_append_ms = oldest if rows.oldest_append_ms is None else min(rows.oldest_append_ms, oldest)
        rows.decode_cpu_ns += time.thread_time_ns() - began

    def _finish_early(self, work: SpanWork) -> None:
        """A span of one partition is complete when the next partition begins: apply it while Spark reads on."""
        if len(work.expected) == 1 and work.id in self._open:
            self._finish(work.id)

    def _finish(self, span: SpanId) -> None:
        rows = self._open.pop(span)
        if rows.next:
            self._apply(rows)
        self._done.append(rows.result())

    def _apply(self, rows: _SpanRows) -> None:
        work = rows.work
        ranges = {p: OffsetRange(expected=work.expected[p], next=end) for p, end in sorted(rows.next.items())}
        rows.newest_source_ms = max((c.source_ms for c in rows.changes if c.source_ms is not None), default=None)
        began = time.thread_time_ns()
        try:
            batch = ChangeBatch(claim=work.claim, ranges=ranges, changes=rows.changes)
            applied = self._parts().writer().apply(batch).positions
            rows.next = {partition: applied[partition] for partition in sorted(ranges)}
        except SinkUnavailableError as error:
            self._parts().drop_writer()
            rows.failed(error.code, str(error), retryable=True)
        except SinkError as error:
            rows.failed(error.code, str(error), retryable=error.retryable)
        except ChangeError as error:
            rows.failed("change_undecodable", f"{work.topic}: {error}", retryable=False)
        except Exception as error:  # noqa: BLE001 (a fault of ours with one table must not stop its neighbours)
            self._parts().drop_writer()
            rows.failed("internal", _described(error), retryable=False)
        rows.changes = []
        rows.apply_cpu_ns = time.thread_time_ns() - began

    def _parts(self) -> FeedParts:
        parts = _parts.get(self._spec)
        if parts is None:
            parts = _parts[self._spec] = FeedParts(self._spec)
        return parts


def _runs(topics: Any, partitions: Any) -> Iterator[tuple[str, int, int, int]]:
    """(topic, partition, start, stop) of each stretch of rows of one partition."""
    numbers = partitions.to_numpy(zero_copy_only=False)
    if not len(numbers):
        return
    codes = topics.dictionary_encode()
    indices = codes.indices.to_numpy(zero_copy_only=False)
    names = codes.dictionary.to_pylist()
    borders = np.flatnonzero((np.diff(indices) != 0) | (np.diff(numbers) != 0)) + 1
    edges = [0, *borders.tolist(), len(numbers)]
    for start, stop in itertools.pairwise(edges):
        yield names[indices[start]], int(numbers[start]), start, stop


def _described(error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (at {where.filename}:{where.lineno}): a fault of Headgate"
