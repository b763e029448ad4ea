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
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from headgate.agent.executor import SpanId
from headgate.agent.lane.parts import FeedParts
from headgate.agent.lane.plan import BatchPlan, Letterbox, SpanResult, SpanWork, TaskResult
from headgate.agent.lane.rows import BadChange, SpanRows
from headgate.changes.change import Change, ChangeError
from headgate.changes.decoding import Decoder, UndecodableError
from headgate.records.control import Positions
from headgate.sinks.contract import Aside, ChangeRefusedError, SinkError, SinkUnavailableError

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

TASK_BYTES_MAX: Final = 128 << 20
"""Raw values gathered in one task before they are applied: decoded they take about five times that. A batch of 200 k
small changes stays one; records of several MB go in portions."""

_POISONED_ADVICE: Final = (
    "correct or remove the event, then `headgate feed resume`; or let the feed set such events aside "
    "(on_bad_change: quarantine)"
)

_parts: dict[str, FeedParts] = {}
_quarantines: dict[Letterbox, Any] = {}


def warm(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Does nothing, in a worker that has imported all that ``run_task`` needs."""
    yield from batches


def run_task(plan: BatchPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Apply one task's rows; yields a single row, a TaskResult as JSON."""
    result = _Task(plan).run(batches)
    yield pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode(result)], pa.binary())], names=["result"])


class _Task:
    """One run of the task function."""

    def __init__(self, plan: BatchPlan) -> None:
        self._works = {(work.topic, partition): work for work in plan.works for partition in work.expected}
        self._spec = plan.spec
        self._letterbox = plan.letterbox
        self._open: dict[SpanId, SpanRows] = {}
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
                    self._make_room()
        for span in sorted(self._open):
            self._finish(span)
        return TaskResult(seen=self._seen, spans=tuple(self._done))

    def _take(self, work: SpanWork, partition: int, columns: list[Any], first: int, stop: int) -> None:
        """Decode rows [first, stop) of one partition, unless the span has already failed in this task."""
        rows = self._open.setdefault(work.id, SpanRows(work))
        if rows.error is not None or partition in rows.ended:
            return
        began, began_wall = time.thread_time_ns(), time.monotonic_ns()
        offsets, appended, keys, values = (c.slice(first, stop - first).to_pylist() for c in columns[2:])
        decoder: Decoder | None = None
        try:
            decoder = self._parts().decoder(work.topic)
            end, changes, bad = self._decode(decoder, rows, partition, (offsets, appended, keys, values))
        except Exception as error:  # noqa: BLE001 (a fault of ours in one table's rows must not stop its neighbours)
            rows.failed("internal", _described(error), retryable=False)
            return
        finally:
            marks = [] if decoder is None else decoder.take_watermarks()
        ends_at = rows.end_at(partition, self._parts().target_ts, marks)
        if ends_at is not None:
            end, changes = ends_at, [change for change in changes if change.offset < ends_at]
            bad = [each for each in bad if each.offset < ends_at]
        rows.changes += changes
        rows.bad += bad
        if end > offsets[0]:
            good = int(np.searchsorted(offsets, end))
            rows.next[partition] = end
            rows.rows += good
            size = sum(len(value) for value in values[:good] if value is not None)
            rows.bytes += size
            rows.waiting_bytes += size
            oldest = min(appended)
            rows.oldest_append_ms = oldest if rows.oldest_append_ms is None else min(rows.oldest_append_ms, oldest)
        rows.decode_cpu_ns += time.thread_time_ns() - began
        rows.wall_ns += time.monotonic_ns() - began_wall

    def _decode(
        self, decoder: Decoder, rows: SpanRows, partition: int, columns: Sequence[Sequence[Any]]
    ) -> tuple[int, list[Change], list[BadChange]]:
        """How far ``columns`` (offsets, append times, keys, values) go; their changes, and those to be set aside."""
        changes: list[Change] = []
        bad: list[BadChange] = []
        first = 0
        while first < len(columns[0]):
            offsets, appended, keys, values = (column[first:] for column in columns) if first else columns
            try:
                changes += decoder.decode_batch(keys, values, [partition] * len(keys), offsets, appended)
                break
            except UndecodableError as error:
                changes += error.decoded
                where = f"{rows.work.claim.table}: topic {rows.work.topic}, {error}"
                if self._letterbox is None:
                    rows.poisoned(f"{where}; {_POISONED_ADVICE}")
                    return error.offset, changes, []
                if len(rows.kept) + len(rows.bad) + len(bad) >= rows.work.quarantine_left:
                    text = f"{where}; it is one more than the feed may set aside in an hour (quarantine_per_hour_max)"
                    rows.failed("quarantine_full", text, retryable=False)
                    return int(columns[0][0]), [], []
                bad.append(BadChange(partition, error.offset, "change_undecodable", str(error)))
                first += bisect_right(offsets, error.offset)
        return int(columns[0][-1]) + 1, changes, bad

    def _make_room(self) -> None:
        """Apply what waits for its end, the largest first, before memory runs out: positions say how far it is."""
        while sum(rows.waiting_bytes for rows in self._open.values()) > TASK_BYTES_MAX:
            self._apply(max(self._open.values(), key=lambda rows: (rows.waiting_bytes, rows.work.id)))

    def _finish_early(self, work: SpanWork) -> None:
        """A span of one partition is complete when the next partition begins: apply it while Spark reads on."""
        if len(work.expected) == 1 and work.id in self._open:
            self._finish(work.id)

    def _finish(self, span: SpanId) -> None:
        rows = self._open.pop(span)
        if rows.is_waiting:
            self._apply(rows)
        self._done.append(rows.result())

    def _apply(self, rows: SpanRows) -> None:
        source_ms = (change.source_ms for change in rows.changes if change.source_ms is not None)
        rows.newest_source_ms = max(source_ms, default=rows.newest_source_ms)
        began, began_wall = time.thread_time_ns(), time.monotonic_ns()
        reached: Positions = {}
        try:
            if rows.bad:
                self._keep(rows, rows.bad)
            before: Positions | None = None
            while reached not in (rows.next, before):  # as a rule once; behind a prefix comes the rest, or its error
                before = reached
                applied = self._parts().writer().apply(rows.batch_from(reached, self._aside(rows)))
                reached = {partition: applied.positions[partition] for partition in rows.next}
            rows.next = reached
            rows.settle()
        except SinkUnavailableError as error:
            self._parts().drop_writer()
            rows.stopped(reached, error.code, str(error), retryable=True)
        except SinkError as error:
            rows.stopped(reached, error.code, str(error), retryable=error.retryable)
        except ChangeError as error:
            rows.stopped(reached, "change_undecodable", f"{rows.work.topic}: {error}", retryable=False)
        except Exception as error:  # noqa: BLE001 (a fault of ours with one table must not stop its neighbours)
            self._parts().drop_writer()
            rows.stopped(reached, "internal", _described(error), retryable=False)
        rows.apply_cpu_ns += time.thread_time_ns() - began
        rows.wall_ns += time.monotonic_ns() - began_wall

    def _aside(self, rows: SpanRows) -> Aside | None:
        """What the sink is to do with a change it refuses; None if the span is to stop there."""
        if self._letterbox is None:
            return None

        def keep(refused: Sequence[ChangeRefusedError]) -> None:
            self._keep(rows, [BadChange(each.partition, each.offset, each.code, str(each)) for each in refused])

        return Aside(keep, max(0, rows.work.quarantine_left - len(rows.kept)), rows.work.patient)

    def _keep(self, rows: SpanRows, bad: Sequence[BadChange]) -> None:
        assert self._letterbox is not None  # noqa: S101 - without one, nothing is set aside
        quarantine = _quarantines.get(self._letterbox)
        if quarantine is None:
            # Brings a Kafka client and our codec along: in most workers nobody ever needs them.
            from headgate.agent.lane.quarantine import Quarantine  # noqa: PLC0415

            quarantine = _quarantines[self._letterbox] = Quarantine(self._letterbox)
        quarantine.keep(rows.work, bad)
        rows.kept.update((each.partition, each.offset) for each in bad)

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
