"""The part of a lane that runs inside Spark's Python workers: the log in, fenced sink transactions out.

A task reads its partitions from the sink's positions on, each in offset order. Rows are grouped by span, decoded, and
applied in one sink transaction per (table, task), under the span's claim. A span that fails says so in its result
and writes nothing; its neighbours in the task go on.

Readers, decoders and sink connections are kept per worker process, because each costs more than a small batch.
"""

import os
import time
import traceback
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from headgate.agent.executor import SpanId
from headgate.agent.lane.archives import forget_archives
from headgate.agent.lane.parts import FeedParts
from headgate.agent.lane.plan import Letterbox, SpanResult, SpanWork, TaskPlan, TaskResult
from headgate.agent.lane.rows import BadChange, SnapshotAfterTargetError, SpanRows
from headgate.changes.change import Change, ChangeError
from headgate.changes.dealing import Columns, Dealt
from headgate.changes.decoding import Decoder, SchemasUnavailableError, TransactionDecoder, UndecodableError
from headgate.records.control import Positions
from headgate.sinks.contract import Aside, ChangeRefusedError, SinkError, SinkUnavailableError
from headgate.sources.reader import Chunk, LogReader, Reading

__all__ = ["read_task", "run_task", "warm"]

WAIT_SECONDS: Final = 0.02
"""A task that finds nothing does not wait longer: it holds one of few slots, and others have rows."""

READERS_MAX: Final = 4
"""Readers kept per worker: as many lanes as a worker serves at a time; that of the lane used longest ago is closed."""

READER_IDLE_SECONDS: Final = 60.0
"""A reader that nobody has asked for so long is closed by the next task of another lane: its lane has ended, as a rule,
and it would go on asking the brokers ten times a second, and hold what it has fetched."""

TASK_BYTES_MAX: Final = 128 << 20
"""Raw values gathered in one task before they are applied: decoded they take about five times that. A batch of 200 k
small changes stays one; records of several MB go in portions."""

_POISONED_ADVICE: Final = (
    "correct or remove the event, then `headgate feed resume`; or let the feed set such events aside "
    "(on_bad_change: quarantine)"
)

_parts: dict[str, FeedParts] = {}
_readers: dict[str, LogReader] = {}
_read_at: dict[str, float] = {}
_last_shares: dict[str, int] = {}
_quarantines: dict[Letterbox, Any] = {}


def warm(numbers: Iterable[int]) -> Iterator[int]:
    """Does nothing, in a worker that has imported all that ``read_task`` needs."""
    forget_archives()
    yield from numbers


def read_task(plan: TaskPlan, numbers: Iterable[int]) -> Iterator[bytes]:
    """Read and apply the readings of one task; ``numbers`` is its number alone. Yields one TaskResult as JSON."""
    (number,) = numbers
    forget_archives()
    readings = plan.readings[_share(plan, number)]
    reader = _reader(plan)
    try:
        task = _Task(plan, readings)
        task.run(reader.read(readings, plan.rows_max, WAIT_SECONDS))
    except BaseException:
        _readers.pop(plan.lane).close()
        raise
    ends: dict[str, dict[int, int]] = {}
    for (topic, partition), end in sorted(reader.ends.items()):
        ends.setdefault(topic, {})[partition] = end
    ahead: dict[str, dict[int, int]] = {}
    for (topic, partition), end in sorted(reader.ahead(readings).items()):
        ahead.setdefault(topic, {})[partition] = end
    yield msgspec.json.encode(task.result(ends, ahead))


def run_task(plan: TaskPlan, chunks: Iterable[Chunk]) -> TaskResult:
    """Apply rows that have been read: all of the plan's readings."""
    task = _Task(plan, [one for readings in plan.readings for one in readings])
    task.run(chunks)
    return task.result({}, {})


def _share(plan: TaskPlan, number: int) -> int:
    """Which readings are this task's: if it can be, those that this worker had last time and has fetched ahead of."""
    if plan.shares is None:
        return number
    count = len(plan.readings)
    preferred = _last_shares.get(plan.lane, number) % count
    share: int
    for share in (preferred, *range(count)):
        with suppress(FileExistsError):
            os.close(os.open(f"{plan.shares}-{share}", os.O_CREAT | os.O_EXCL))
            _last_shares[plan.lane] = share
            return share
    raise AssertionError(f"{plan.lane}: more tasks than shares")


def _reader(plan: TaskPlan) -> LogReader:
    reader = _readers.pop(plan.lane, None) or LogReader(plan.source)
    now = time.monotonic()
    idle = [lane for lane in _readers if now - _read_at[lane] > READER_IDLE_SECONDS]
    excess = max(0, len(_readers) + 1 - READERS_MAX)
    for lane in dict.fromkeys([*idle, *list(_readers)[:excess]]):
        _readers.pop(lane).close()
        _read_at.pop(lane)
        _last_shares.pop(lane, None)
    _readers[plan.lane] = reader
    _read_at[plan.lane] = now
    return reader


class _Task:
    """One run of the task function."""

    def __init__(self, plan: TaskPlan, readings: Sequence[Reading]) -> None:
        self._works: dict[tuple[str, int], list[SpanWork]] = {}
        for work in plan.batch.works:
            for partition in work.expected:
                self._works.setdefault((work.topic, partition), []).append(work)
        self._places = [(one.topic, one.partition) for one in readings]
        self._set_aside: set[tuple[str, int, int]] = set()
        self._spec = plan.batch.spec
        self._letterbox = plan.batch.letterbox
        self._open: dict[SpanId, SpanRows] = {}
        self._done: list[SpanResult] = []
        self._seen: dict[str, dict[int, int]] = {}

    def run(self, chunks: Iterable[Chunk]) -> None:
        """Gather the chunks by span, then apply span after span."""
        self._catch_up()
        for chunk in chunks:
            if chunk.error is None:
                self._seen.setdefault(chunk.topic, {})[chunk.partition] = chunk.offsets[-1] + 1
            works = self._works.get((chunk.topic, chunk.partition), ())
            if works and works[0].source_table is not None:
                self._deal(works, chunk)
            else:
                for work in works:  # one, of the only span that has the partition
                    self._take(self._rows(work), chunk)
            self._make_room()
        for span in sorted(self._open):
            self._finish(span)

    def _rows(self, work: SpanWork) -> SpanRows:
        rows = self._open.get(work.id)
        if rows is None:
            rows = self._open[work.id] = SpanRows(work)
        return rows

    def _catch_up(self) -> None:
        """Where the sink's positions are to follow what was passed before, they do, be there rows or not."""
        for topic, partition in self._places:
            for work in self._works.get((topic, partition), ()):
                if work.settle and work.start(partition) > work.expected[partition]:
                    self._rows(work).next[partition] = work.start(partition)

    def result(self, ends: dict[str, dict[int, int]], ahead: dict[str, dict[int, int]]) -> TaskResult:
        """What came of it; ``ends`` and ``ahead`` as in TaskResult."""
        return TaskResult(seen=self._seen, ends=ends, spans=tuple(self._done), ahead=ahead)

    def _deal(self, works: Sequence[SpanWork], chunk: Chunk) -> None:
        """Give each of several tables of a topic its rows of a chunk.

        An event that does not say whose it is may be anybody's: all stop in front of it; or, if such are set aside,
        none moves past it before it is (``_keep``).
        """
        partition = chunk.partition
        spans = [rows for rows in map(self._rows, works) if rows.error is None and partition not in rows.ended]
        if chunk.error is not None or not spans:
            for rows in spans:
                self._take(rows, chunk)
            return
        try:
            dealt = (
                self._parts()
                .dealer(chunk.topic)
                .deal(Columns(chunk.offsets, chunk.appended_ms, chunk.keys, chunk.values))
            )
        except SchemasUnavailableError as error:
            where = f"topic {chunk.topic}, partition {partition}, from offset {chunk.offsets[0]} on"
            for rows in spans:
                rows.failed(error.code, f"{where}: {error}", retryable=error.retryable)
            return
        for rows in spans:
            self._take_dealt(rows, chunk, dealt)

    def _take_dealt(self, rows: SpanRows, chunk: Chunk, dealt: Dealt) -> None:
        table, partition = rows.work.source_table or "", chunk.partition
        start, end = max(rows.work.start(partition), rows.next.get(partition, 0)), chunk.offsets[-1] + 1
        if end <= start:
            return
        wrong = [
            BadChange(partition, offset, "change_undecodable", f"partition {partition}, offset {offset}: {why}", True)
            for offset, why in dealt.unreadable
            if offset >= start
        ]
        if wrong and self._letterbox is None:
            end = wrong[0].offset
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
        if not wrong or partition in rows.ended:
            wrong = [each for each in wrong if each.offset < rows.next.get(partition, start)]
        if wrong and self._letterbox is None:
            rows.poisoned(
                f"{rows.work.claim.table}: topic {chunk.topic}, {wrong[0].reason}: it may be a change of this table; "
                f"{_POISONED_ADVICE}"
            )
        elif len(rows.kept) + len(rows.bad) + len(wrong) > rows.work.quarantine_left and wrong:
            rows.failed("quarantine_full", self._too_many(rows, wrong[-1].reason), retryable=False)
        else:
            rows.bad += wrong

    @staticmethod
    def _too_many(rows: SpanRows, where: str) -> str:
        return (
            f"{rows.work.claim.table}: topic {rows.work.topic}, {where}; it is one more than the feed may set aside in "
            "an hour (quarantine_per_hour_max)"
        )

    def _take(self, rows: SpanRows, chunk: Chunk, stretch: tuple[int, int] | None = None) -> None:
        """Decode the rows of one chunk, unless the span has already failed in this task.

        ``stretch``: from which offset on, and up to which, the chunk has all that is the span's.
        """
        partition = chunk.partition
        if rows.error is not None or partition in rows.ended:
            return
        if chunk.error is not None:
            rows.failed(chunk.error.code, str(chunk.error), retryable=chunk.error.retryable)
            return
        began, began_wall = time.thread_time_ns(), time.monotonic_ns()
        offsets, appended, values = chunk.offsets, chunk.appended_ms, chunk.values
        first, last = (offsets[0], offsets[-1] + 1) if stretch is None else stretch
        decoder: Decoder | None = None
        try:
            decoder = self._parts().decoder(rows.work.topic, rows.work.source_table)
            end, changes, bad = self._decode(decoder, rows, partition, (offsets, appended, chunk.keys, values))
            end = last if end is None else end
            ends_at = None
            if isinstance(decoder, TransactionDecoder):
                rows.runs += decoder.take_runs()
                ends_at = rows.cut_at(self._parts().target_ts, partition, changes)
        except SchemasUnavailableError as error:
            where = f"topic {rows.work.topic}, partition {partition}, from offset {first} on"
            rows.failed(error.code, f"{rows.work.claim.table}: {where}: {error}", retryable=error.retryable)
            return
        except SnapshotAfterTargetError as error:
            rows.failed("target_before_snapshot", str(error), retryable=False)
            return
        except Exception as error:  # noqa: BLE001 (a fault of ours in one table's rows must not stop its neighbours)
            rows.failed("internal", _described(error), retryable=False)
            return
        finally:
            marks = [] if decoder is None else decoder.take_watermarks()
        if ends_at is None:
            ends_at = rows.end_at(partition, self._parts().target_ts, marks)
        if ends_at is not None and ends_at <= end:  # beyond ``end`` nothing was decoded, or may be applied
            rows.error = None  # what is wrong behind it is not wanted
            end, changes = ends_at, [change for change in changes if change.offset < ends_at]
            bad = [each for each in bad if each.offset < ends_at]
        rows.changes += changes
        rows.bad += bad
        if end > first:
            good = len(offsets) if end == last else bisect_left(offsets, end)
            rows.next[partition] = end
            rows.rows += good
            size = sum(len(value) for value in values[:good] if value is not None)
            rows.bytes += size
            rows.waiting_bytes += size
            oldest = min(appended, default=rows.oldest_append_ms)
            if oldest is not None:
                rows.oldest_append_ms = min(oldest, rows.oldest_append_ms or oldest)
        rows.decode_cpu_ns += time.thread_time_ns() - began
        rows.wall_ns += time.monotonic_ns() - began_wall

    def _decode(
        self, decoder: Decoder, rows: SpanRows, partition: int, columns: Sequence[Sequence[Any]]
    ) -> tuple[int | None, list[Change], list[BadChange]]:
        """How far ``columns`` (offsets, append times, keys, values) go; their changes, and those to be set aside.

        None: all the way.
        """
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
                    rows.failed("quarantine_full", self._too_many(rows, str(error)), retryable=False)
                    return int(columns[0][0]), [], []
                bad.append(BadChange(partition, error.offset, "change_undecodable", str(error)))
                first += bisect_right(offsets, error.offset)
        return None, changes, bad

    def _make_room(self) -> None:
        """Apply what waits for its end, the largest first, before memory runs out: positions say how far it is."""
        while sum(rows.waiting_bytes for rows in self._open.values()) > TASK_BYTES_MAX:
            self._apply(max(self._open.values(), key=lambda rows: (rows.waiting_bytes, rows.work.id)))

    def _finish(self, span: SpanId) -> None:
        rows = self._open.pop(span)
        rests = rows.is_waiting and rows.may_rest
        if rows.is_waiting and not rests:
            self._apply(rows)
        self._done.append(rows.result(rests=rests))

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
        # What does not say its table is the trouble of all of them, and is set aside once by each task that meets it,
        # under one name everywhere, so that it is one on the deadletter topic.
        fresh = [each for each in bad if not each.unreadable]
        shared = [
            each
            for each in bad
            if each.unreadable and (rows.work.topic, each.partition, each.offset) not in self._set_aside
        ]
        quarantine = _quarantines.get(self._letterbox)
        if quarantine is None:
            # Brings a Kafka client and our codec along: in most workers nobody ever needs them.
            from headgate.agent.lane.quarantine import Quarantine  # noqa: PLC0415

            quarantine = _quarantines[self._letterbox] = Quarantine(self._letterbox)
        if fresh:
            quarantine.keep(rows.work, fresh)
        if shared:
            quarantine.keep(rows.work, shared, self._parts().keeper)
            self._set_aside.update((rows.work.topic, each.partition, each.offset) for each in shared)
        rows.kept.update((each.partition, each.offset) for each in bad)

    def _parts(self) -> FeedParts:
        parts = _parts.get(self._spec)
        if parts is None:
            parts = _parts[self._spec] = FeedParts(self._spec)
        return parts


def _described(error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (at {where.filename}:{where.lineno}): a fault of Headgate"
