"""The work of one task: rows grouped by span, decoded, and applied in one fenced sink transaction per (table, task).

Where the sink commits on the driver, a task only stages them, and commits.py does the rest.

Each partition comes in offset order; what lies below a span's position is dropped. A span that fails reports that in
its result and writes nothing; its neighbours in the task continue. Decoders and sink connections are kept per worker
process, because each costs more than a small batch.
"""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.inputs import SpanResult
from headgate.config.crash_points import CrashPoint, reach
from headgate.eventlog.clock import wall_ms
from headgate.formats.change import Change
from headgate.formats.dealing import Dealt, EventColumns
from headgate.formats.decoding import (
    CutDecoder,
    Decoder,
    SchemasUnavailableError,
    TransactionDecoder,
    UndecodableError,
)
from headgate.formats.expressions.declared import SourceTypesUnavailableError
from headgate.formats.shaping import SaltUnavailableError
from headgate.records.control import Positions
from headgate.records.places import LogPosition
from headgate.replication.bad_changes import BadChange
from headgate.replication.feed_parts import FeedIncarnation, FeedParts, server_of_feed
from headgate.replication.frames import Chunk
from headgate.replication.kept_parts import KeptParts
from headgate.replication.plan import HEAD_ROWS_MIN, BatchPlan, SpanWork, StagedSpan, TaskResult
from headgate.replication.rows import SnapshotAfterTargetError, SpanRows
from headgate.replication.set_aside import TaskQuarantine, too_many
from headgate.replication.silent_sinks import SilentSinks
from headgate.replication.sink_failures import described, failure_of
from headgate.sinks.contract import Applied, ChangeBatch, SinkError

TASK_BYTES_MAX: Final = 128 << 20
"""Raw values gathered in one task before they are applied: decoded they take about five times that. A batch of 200 k
small changes stays one; records of several MB go in portions."""


def _poisoned_advice(place: LogPosition) -> str:
    return (
        "If the feed's `where` or `columns` do not fit the table, correct them with `headgate feed update`. Otherwise "
        f"set the event aside with `headgate feed skip FEED {place}`, or let the feed set all such events aside "
        "(on_bad_change: quarantine)"
    )


_STRANGE: Final = (
    "no ChangeWriter wrote this record, so its place among the changes of its key is not known. Find out who writes to "
    "the change log's topic; the records behind it have to be written again to another change log"
)

KEPT_SECONDS: Final = 60.0
"""A feed with a change a minute need not open a session for each. Sooner, once its lane has ended (task.py)."""

kept = KeptParts(KEPT_SECONDS)
"""Decoders and sink sessions of this worker process."""


silent_sinks = SilentSinks()
"""What this worker process knows: a task with many tables finds out once that their sink does not answer."""


def run_task(plan: BatchPlan, chunks: Iterable[Chunk]) -> TaskResult:
    """Apply the rows of one task."""
    with ExitStack() as lent:
        run = TaskRun(plan, lent)
        run.run(chunks)
        return run.result()


class TaskRun:
    """One task of one batch: ``run``, then ``result``."""

    def __init__(self, plan: BatchPlan, lent: ExitStack) -> None:
        """``lent``: what is lent to the task goes back when it is closed."""
        self._lent = lent
        self._feed_parts: FeedParts | None = None
        self._works: dict[tuple[str, int], list[SpanWork]] = {}
        for work in plan.works:
            for partition in work.expected:
                self._works.setdefault((work.topic, partition), []).append(work)
        self._plan = plan
        dead_letters = plan.dead_letters
        self._quarantine = (
            None
            if dead_letters is None
            else TaskQuarantine(
                dead_letters,
                lambda: self._parts().shared_name,
                lambda topic: self._parts().hides_columns(topic),
                lambda: self._parts().commits_on_driver,
            )
        )
        self._open: dict[SpanId, SpanRows] = {}
        self._done: list[SpanResult] = []
        self._staged: list[StagedSpan] = []
        self._seen: dict[str, dict[int, int]] = {}
        self._whole: dict[tuple[str, bytes], int] = {}
        """Rows that came with their head, by topic and head."""

    def run(self, chunks: Iterable[Chunk]) -> None:
        """Gather the chunks by span, then apply span after span."""
        for chunk in chunks:
            self._seen.setdefault(chunk.topic, {})[chunk.partition] = chunk.offsets[-1] + 1
            works = self._works.get((chunk.topic, chunk.partition), ())
            if works and works[0].source_table is not None:
                self._deal(works, chunk.as_written())
            else:
                for work in works:  # one, of the only span that has the partition
                    self._take_whole(self._rows(work), chunk)
            self._make_room()
        for span in sorted(self._open):
            self._finish(span)

    def _rows(self, work: SpanWork) -> SpanRows:
        rows = self._open.get(work.id)
        if rows is None:
            rows = self._open[work.id] = SpanRows(work)
        return rows

    def result(self) -> TaskResult:
        """What came of it."""
        heads = {topic: head for (topic, head), rows in self._whole.items() if rows >= HEAD_ROWS_MIN}
        return TaskResult(self._seen, tuple(self._done), heads, ended_ms=wall_ms(), staged=tuple(self._staged))

    def _take_whole(self, rows: SpanRows, chunk: Chunk) -> None:
        """All that the sink does not have yet."""
        start, chunk = rows.work.start(chunk.partition), _within(rows, chunk)
        if not chunk.offsets or chunk.offsets[-1] < start:
            return
        self._remember(rows, chunk)
        chunk = chunk if chunk.offsets[0] >= start else chunk.from_offset(start)
        if chunk.marks is None:
            self._take(rows, chunk)
        else:
            self._take_marked(rows, chunk)

    def _take_marked(self, rows: SpanRows, chunk: Chunk) -> None:
        """Rows of a change log: END markers are passed, and nothing goes past what no ChangeWriter wrote."""
        strange = chunk.first_strange()
        stretch = chunk.offsets[0], chunk.offsets[-1] + 1 if strange is None else strange
        self._take(rows, chunk.before(stretch[1]).changes(), stretch)
        if strange is not None and rows.error is None:
            rows.poisoned(
                chunk.partition,
                f"{rows.work.claim.table}: topic {chunk.topic}, partition {chunk.partition}, offset {strange}: "
                f"{_STRANGE}",
            )

    def _remember(self, rows: SpanRows, chunk: Chunk) -> None:
        """Where bad changes are set aside, with all that they came with, and where the sink writes events."""
        if (self._quarantine is not None or self._writes_events) and rows.error is None:
            rows.originals.append(chunk)

    def _deal(self, works: Sequence[SpanWork], chunk: Chunk) -> None:
        """Give each of several tables of a topic its rows of a chunk.

        An event that does not name its table may be of any of them: all stop in front of it; or, if such events are set
        aside, none moves past it before it is (``TaskQuarantine.keep``).
        """
        partition = chunk.partition
        spans = [rows for rows in map(self._rows, works) if rows.error is None and partition not in rows.ended]
        if not spans:
            return
        try:
            dealt = (
                self._parts()
                .dealer(chunk.topic, works[0].topic_id)
                .deal(EventColumns(chunk.offsets, chunk.appended_ms, chunk.keys, chunk.values))
            )
        except SchemasUnavailableError as error:
            where = f"topic {chunk.topic}, partition {partition}, from offset {chunk.offsets[0]} on"
            for rows in spans:
                rows.failed(partition, error.code, f"{where}: {error}", retryable=error.retryable)
            return
        except Exception as error:  # noqa: BLE001 (an internal error in one topic's events must not stop the task)
            for rows in spans:
                rows.failed(partition, "internal", described(error), retryable=False)
            return
        for rows in spans:
            self._take_dealt(rows, chunk, dealt)

    def _take_dealt(self, rows: SpanRows, chunk: Chunk, dealt: Dealt) -> None:
        table, partition = rows.work.source_table or "", chunk.partition
        start, end = max(rows.work.start(partition), rows.next.get(partition, 0)), chunk.offsets[-1] + 1
        if end <= start:
            return
        self._remember(rows, chunk)
        wrong = [
            BadChange(partition, offset, "change_undecodable", f"partition {partition}, offset {offset}: {why}", True)
            for offset, why in dealt.unreadable
            if offset >= start
        ]
        stuck = next((each for each in wrong if not self._sets_aside(rows, partition, each.offset)), None)
        if stuck is not None:
            end = stuck.offset
            wrong = [each for each in wrong if each.offset < end]
        mine = dealt.tables[table].within(start, end)
        part = Chunk(
            chunk.topic,
            partition,
            offsets=mine.offsets,
            appended_ms=mine.appended_ms,
            keys=mine.keys,
            values=mine.values,
        )
        self._take(rows, part, (start, end))
        if rows.error is not None:
            return
        rows.passed_over += dealt.passed_over
        rows.passed_over_table = dealt.passed_over_table or rows.passed_over_table
        oldest = chunk.appended_ms[0]
        rows.oldest_append_ms = oldest if rows.oldest_append_ms is None else min(rows.oldest_append_ms, oldest)
        if partition in rows.ended:
            stuck, wrong = None, [each for each in wrong if each.offset < rows.next.get(partition, start)]
        if len(rows.kept) + len(rows.bad) + len(wrong) > rows.work.quarantine_left and wrong:
            rows.failed(partition, "quarantine_full", too_many(rows, wrong[-1].reason), retryable=False)
            return
        rows.bad += wrong
        if stuck is not None:
            place = LogPosition(chunk.topic, partition, stuck.offset)
            rows.poisoned(
                partition,
                f"{rows.work.claim.table}: topic {chunk.topic}, {stuck.reason}: it may be a change of this table. "
                f"{_poisoned_advice(place)}",
            )

    def _sets_aside(self, rows: SpanRows, partition: int, offset: int) -> bool:
        return self._quarantine is not None and rows.work.sets_aside(partition, offset)

    def _take(self, rows: SpanRows, chunk: Chunk, stretch: tuple[int, int] | None = None) -> None:
        """Decode the rows of one chunk, unless the span has already failed in this task.

        ``stretch``: from which offset on, and up to which, the chunk has all that is the span's.
        """
        partition = chunk.partition
        if rows.error is not None or partition in rows.ended:
            return
        began, began_wall = time.thread_time_ns(), time.monotonic_ns()
        offsets, appended, values = chunk.offsets, chunk.appended_ms, chunk.values
        first, last = (offsets[0], offsets[-1] + 1) if stretch is None else stretch
        decoder: Decoder | None = None
        try:
            decoder = self._parts_of(rows).decoder(rows.work.topic, rows.work.source_table, rows.work.topic_id)
            decoder.table.name = rows.table  # what this worker has met before is not what the sink knows
            end, changes, bad = self._decode(self._decoding(decoder, rows, chunk), rows, chunk)
            rows.table = decoder.table.name
            end = last if end is None else end
            ends_at = None
            if isinstance(decoder, TransactionDecoder):
                rows.runs += decoder.take_runs()
                ends_at = rows.cut_at(self._parts().target_ts, partition, changes)
        except (SchemasUnavailableError, SaltUnavailableError, SourceTypesUnavailableError, SinkError) as error:
            where = f"topic {rows.work.topic}, partition {partition}, from offset {first} on"
            rows.failed(partition, error.code, f"{rows.work.claim.table}: {where}: {error}", retryable=error.retryable)
            return
        except SnapshotAfterTargetError as error:
            rows.failed(partition, "target_before_snapshot", str(error), retryable=False)
            return
        except Exception as error:  # noqa: BLE001 (an internal error in one table's rows must not stop its neighbours)
            rows.failed(partition, "internal", described(error), retryable=False)
            return
        finally:
            marks = [] if decoder is None else decoder.take_watermarks()
        if ends_at is None:
            ends_at = rows.end_at(partition, self._parts().target_ts, marks)
        if ends_at is not None and ends_at <= end:  # beyond ``end`` nothing was decoded, or may be applied
            rows.forgive()
            end, changes = ends_at, [change for change in changes if change.offset < ends_at]
            bad = [each for each in bad if each.offset < ends_at]
        rows.changes += changes
        rows.bad += bad
        if end > first:
            good = len(offsets) if end == last else bisect_left(offsets, end)
            rows.next[partition] = end
            rows.rows += good
            size = sum(len(value) for value in values[:good] if value is not None)
            rows.bytes += size if chunk.head is None else size + good * len(chunk.head)
            rows.waiting_bytes += size
            oldest = min(appended, default=rows.oldest_append_ms)
            if oldest is not None:
                rows.oldest_append_ms = min(oldest, rows.oldest_append_ms or oldest)
        rows.decode_cpu_ns += time.thread_time_ns() - began
        rows.wall_ns += time.monotonic_ns() - began_wall

    def _decoding(self, decoder: Decoder, rows: SpanRows, chunk: Chunk) -> Callable[..., list[Change]]:
        """How a chunk's values become changes as the sink gets them. Raises SaltUnavailableError."""
        decode = self._plain_decoding(decoder, rows, chunk)
        shaping = self._parts().shaping(rows.work.topic, rows.work.source_table, rows.work.claim.table)
        rows.shapes = shaping is not None
        return decode if shaping is None else partial(shaping.decoded, decode)

    def _plain_decoding(self, decoder: Decoder, rows: SpanRows, chunk: Chunk) -> Callable[..., list[Change]]:
        """How a chunk's values are decoded; heads that they came with are counted, if the topic has one table."""
        if not isinstance(decoder, CutDecoder) or rows.work.source_table is not None:
            return decoder.decode_batch
        if chunk.head is not None:
            return partial(decoder.decode_cut, chunk.head)

        def decode(*columns: Any) -> list[Change]:
            changes = decoder.decode_batch(*columns)
            if decoder.head is not None:
                met = chunk.topic, decoder.head
                self._whole[met] = self._whole.get(met, 0) + len(columns[0])
            return changes

        return decode

    def _decode(
        self, decode: Callable[..., list[Change]], rows: SpanRows, chunk: Chunk
    ) -> tuple[int | None, list[Change], list[BadChange]]:
        """How far a chunk goes; its changes, and those to be set aside.

        None: all the way.
        """
        changes: list[Change] = []
        bad: list[BadChange] = []
        first, partition = 0, chunk.partition
        columns: tuple[Sequence[Any], ...] = (chunk.offsets, chunk.appended_ms, chunk.keys, chunk.values)
        while first < len(chunk.offsets):
            offsets, appended, keys, values = (column[first:] for column in columns) if first else columns
            try:
                changes += decode(keys, values, [partition] * len(keys), offsets, appended)
                break
            except UndecodableError as error:
                changes += error.decoded
                where = f"{rows.work.claim.table}: topic {rows.work.topic}, {error}"
                if not self._sets_aside(rows, partition, error.offset):
                    advice = _poisoned_advice(LogPosition(rows.work.topic, partition, error.offset))
                    rows.poisoned(partition, f"{where}. {advice}")
                    return error.offset, changes, bad
                if len(rows.kept) + len(rows.bad) + len(bad) >= rows.work.quarantine_left:
                    rows.failed(partition, "quarantine_full", too_many(rows, str(error)), retryable=False)
                    return int(chunk.offsets[0]), [], []
                bad.append(BadChange(partition, error.offset, "change_undecodable", str(error)))
                first += bisect_right(offsets, error.offset)
        return None, changes, bad

    def _make_room(self) -> None:
        """Apply what waits for its end, the largest first, before memory runs out: positions record how far it is."""
        while sum(rows.waiting_bytes for rows in self._open.values()) > TASK_BYTES_MAX:
            self._apply(max(self._open.values(), key=lambda rows: (rows.waiting_bytes, rows.work.id)))

    def _finish(self, span: SpanId) -> None:
        rows = self._open.pop(span)
        rests = rows.is_waiting and rows.may_rest
        if rows.is_waiting and not rests:
            self._apply(rows)
        self._done.append(rows.result(rests=rests))
        self._staged += rows.staged

    def _apply(self, rows: SpanRows) -> None:
        source_ms = (change.source_ms for change in rows.changes if change.source_ms is not None)
        rows.newest_source_ms = max(source_ms, default=rows.newest_source_ms)
        began, began_wall = time.thread_time_ns(), time.monotonic_ns()
        reached: Positions = {}
        try:
            if rows.bad:
                assert self._quarantine is not None  # noqa: S101 - without them nothing is set aside
                self._quarantine.keep(rows, rows.bad)
            while reached != rows.next:  # as a rule once; behind a prefix comes the rest, or its error
                before = {partition: rows.work.expected[partition] for partition in rows.next} | reached
                aside = None if self._quarantine is None else self._quarantine.of(rows)
                with silent_sinks.asked(server_of_feed(self._plan.spec)):
                    applied = self._write(rows, rows.batch_from(reached, aside, with_events=self._writes_events))
                reached = {partition: applied.positions[partition] for partition in rows.next}
                _check_progress(before, reached, rows.next)
            rows.next = reached
            rows.settle()
        except Exception as error:  # noqa: BLE001 (an internal error with one table must not stop its neighbours)
            failure = failure_of(error, rows.work.topic, alters_tables=self._parts().evolves_tables)
            rows.is_silent, rows.lacking = failure.is_silent, failure.lacking
            if failure.spoils_session:
                self._parts_of(rows).drop_writer()
            rows.stopped(reached, failure.code, failure.text, retryable=failure.retryable)
        rows.apply_cpu_ns += time.thread_time_ns() - began
        rows.wall_ns += time.monotonic_ns() - began_wall

    def _write(self, rows: SpanRows, batch: ChangeBatch) -> Applied:
        """Apply the batch; or stage it, where the driver commits: the result then shows what the commit will make true.

        A part of it, where a later change is refused.
        """
        parts = self._parts_of(rows)
        if not parts.commits_on_driver:
            return parts.writer().apply(batch)
        staged = parts.stager().stage(batch)
        rows.stage(staged, batch.source_table)
        reach(CrashPoint.ROWS_SENT)
        return staged.applied

    @property
    def _writes_events(self) -> bool:
        return self._parts().writes_events

    def _parts_of(self, rows: SpanRows) -> FeedParts:
        """Those of the table, whose options may differ from the feed's."""
        return self._parts().of_table(rows.work.topic, rows.work.source_table)

    def _parts(self) -> FeedParts:
        if self._feed_parts is None:
            # A lane, and so a plan, is of one incarnation of one feed.
            feed = FeedIncarnation.of_claim(self._plan.works[0].claim, self._plan.spec)
            self._feed_parts = self._lent.enter_context(kept.lent(feed))
        return self._feed_parts


def _within(rows: SpanRows, chunk: Chunk) -> Chunk:
    """Without what may not be applied yet, of a change log."""
    limit = rows.work.limits.get(chunk.partition)
    return chunk if limit is None or chunk.offsets[-1] < limit else chunk.before(limit)


def _check_progress(before: Positions, reached: Positions, end: Positions) -> None:
    if before == reached != end:
        raise RuntimeError(f"the sink reports that a part of a batch was applied, but its positions stay at {reached}")
