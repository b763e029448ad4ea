"""One task's rows of one span, and their results: the task's own state, never sent."""

from bisect import bisect_left
from typing import Final

import msgspec

from headgate.agent.core.span.inputs import SpanResult
from headgate.config.times import show_ts
from headgate.eventlog.clock import wall_ms
from headgate.formats.change import Change
from headgate.formats.decoding import Watermark
from headgate.formats.transactions import TransactionRun
from headgate.records.control import Positions
from headgate.records.source_tables import SourceTable, Tail
from headgate.records.ts import ts_of_ms
from headgate.replication.bad_changes import BadChange, Original, SetAside
from headgate.replication.frames import Chunk
from headgate.replication.plan import SpanWork, StagedSpan
from headgate.sinks.contract import ChangeBatch, Events, OffsetRange, Quarantine, RawEvent
from headgate.sinks.on_driver import Staged

__all__ = ["SnapshotAfterTargetError", "SpanRows"]

ERROR_LENGTH_MAX: Final = 2000
"""An error travels to a control topic and to people's screens; a whole row in it would do neither good."""


class SnapshotAfterTargetError(Exception):
    """A feed is to end at a time before the one its table is known from."""


class SpanRows:
    """``next`` has the new positions; ``bad`` are changes that could not be decoded and must be set aside.

    ``kept`` are the places of changes that are safely on the deadletter topic. What ``settle`` was called for is at the
    sink and no longer in memory; ``work`` then begins behind it.
    """

    def __init__(self, work: SpanWork) -> None:
        self.work = work
        self.shapes = False
        """Whether the feed's options make other changes of the events."""
        self.table = work.known_table
        """The source's table, as the sink has it or as the first event describes it."""
        self.changes: list[Change] = []
        self.waiting_bytes = 0
        self._settled: dict[int, int] = {}
        self._settled_rows = self._settled_bytes = 0
        self.bad: list[BadChange] = []
        self.originals: list[Chunk] = []
        """What its changes came as, where bad ones are set aside or the sink writes events; until they are there."""
        self._last_found: Chunk | None = None
        self.kept: set[tuple[int, int]] = set()
        self.staged: list[StagedSpan] = []
        """What the driver is to commit, where the sink commits there."""
        self.set_aside: list[SetAside] = []
        """Bad changes that the driver is to keep with what is staged next."""
        self.next: dict[int, int] = {}
        self.bytes = 0
        self.rows = 0
        self.oldest_append_ms: int | None = None
        self.newest_source_ms: int | None = None
        self.decode_cpu_ns = 0
        self.apply_cpu_ns = 0
        self.wall_ns = 0
        self.error: tuple[str, str, bool] | None = None
        self.lacking: dict[str, str] = {}
        """Columns that the sink lacks, which is the error, and how the event's schema describes them."""
        self.held: set[int] = set()
        """Partitions that must not continue because of the error."""
        self.is_silent = False
        """Whether the error is that the sink's server has given no answer."""
        self.marks: list[Watermark] = []
        self.ended: set[int] = set()
        """Partitions of which nothing more is wanted: next comes the watermark of the target, or a change after it."""
        self.runs: list[TransactionRun] = []
        self.passed_over = 0
        self.passed_over_table: str | None = None
        self.cut: dict[int, str | None] = {}
        """Partitions whose next change was made after the feed's target, and the transaction that made it, if known."""

    def failed(self, partition: int, code: str, text: str, *, retryable: bool) -> None:
        """Nothing was written, because of what came of ``partition``."""
        self.stopped({}, code, text, retryable=retryable)
        self.held = {partition}

    def stopped(self, reached: Positions, code: str, text: str, *, retryable: bool) -> None:
        """Written up to ``reached`` (nothing, where a partition is not named), and no further."""
        self.error = (code, text[:ERROR_LENGTH_MAX], retryable)
        self.held |= {p for p, end in self.next.items() if {**self._settled, **reached}.get(p, -1) < end}
        written = sum(change.offset < reached.get(change.partition, 0) for change in self.changes)
        part = (self.bytes - self._settled_bytes) * written // max(1, len(self.changes))
        self.rows, self.bytes = self._settled_rows + written, self._settled_bytes + part
        self.next = {**self._settled, **reached}
        self.changes, self.bad, self.originals, self._last_found, self.waiting_bytes = [], [], [], None, 0
        self.set_aside = []

    def stage(self, staged: Staged, met: SourceTable | None) -> None:
        """A part of the batch is ready to be committed by the driver. ``met``: as ChangeBatch.source_table."""
        aside, self.set_aside = tuple(self.set_aside), []
        self.staged.append(StagedSpan(self.work.id, staged.ranges, staged.payload, met, aside))

    def settle(self) -> None:
        """All that was gathered so far is at the sink, or staged for it."""
        self._settled, self._settled_rows, self._settled_bytes = dict(self.next), self.rows, self.bytes
        expected = {**self.work.expected, **self.next}
        self.work = msgspec.structs.replace(self.work, expected=expected, known_table=self.table)
        self.changes, self.bad, self.originals, self._last_found, self.waiting_bytes = [], [], [], None, 0

    def original(self, partition: int, offset: int) -> Original:
        """What came from the log at that place."""
        chunk, row = self._found(partition, offset)
        return Original(chunk.keys[row], chunk.value_at(row), chunk.headers_at(row), chunk.appended_ms[row])

    def _event(self, partition: int, offset: int) -> RawEvent:
        chunk, row = self._found(partition, offset)
        return RawEvent(chunk.keys[row], chunk.values[row], chunk.head)

    def _found(self, partition: int, offset: int) -> tuple[Chunk, int]:
        """The chunk and the row of a record. Mostly the same chunk as of the last one."""
        for chunk in (*([] if self._last_found is None else [self._last_found]), *self.originals):
            row = bisect_left(chunk.offsets, offset)
            if chunk.partition == partition and row < len(chunk.offsets) and chunk.offsets[row] == offset:
                self._last_found = chunk
                return chunk, row
        raise AssertionError(f"{self.work.topic}[{partition}]: nothing came at offset {offset}")

    @property
    def is_waiting(self) -> bool:
        """There is something to applyeven if only positions move."""
        return any(end != self.work.expected[partition] for partition, end in self.next.items())

    @property
    def may_rest(self) -> bool:
        """Only positions are to move, of one of several tables of a topic: that costs a transaction, and can wait."""
        is_one_of_several = self.work.source_table is not None and not self.work.settle
        return is_one_of_several and not self.changes and not self.bad and self.error is None

    def poisoned(self, partition: int, text: str) -> None:
        """Stop at a bad row: the rows before it are good and are written, and the position then names the bad row."""
        self.error = ("change_undecodable", text[:ERROR_LENGTH_MAX], False)
        self.held = {partition}

    def forgive(self) -> None:
        """What is wrong is behind what is wanted."""
        self.error, self.held = None, set()

    def batch_from(
        self, reached: Positions, quarantine: Quarantine | None, *, with_events: bool = False
    ) -> ChangeBatch:
        """All that is not yet applied, when the sink is at ``reached`` (at the start: what was expected)."""
        expected = self.work.expected | reached
        changes = self.changes
        if reached:
            changes = [change for change in changes if change.offset >= expected[change.partition]]
        ranges = {p: OffsetRange(expected=expected[p], next=end) for p, end in sorted(self.next.items())}
        first_met = None if self.work.known_table is not None else self.table
        events = Events(self._event, self.shapes) if with_events else None
        return ChangeBatch(self.work.claim, ranges, changes, quarantine, first_met, events)

    def result(self, *, rests: bool = False) -> SpanResult:
        """For the driver. ``rests``: what is not settled is not at the sink."""
        code, text, retryable = self.error or (None, None, False)
        return SpanResult(
            id=self.work.id,
            positions=self._settled if rests else self.next,
            rows=self.rows,
            bytes=self.bytes,
            oldest_append_ms=self.oldest_append_ms,
            newest_source_ms=self.newest_source_ms,
            visible_ms=wall_ms(),
            error_code=code,
            error=text,
            retryable=retryable,
            decode_cpu_us=self.decode_cpu_ns // 1000,
            apply_cpu_us=self.apply_cpu_ns // 1000,
            resolved=self._resolved(),
            wall_ms=self.wall_ns // 1_000_000,
            quarantined=sum(offset < self.next.get(partition, 0) for partition, offset in self.kept),
            tail=self._tail(),
            cut=() if self.error is not None else tuple(sorted(self.cut)),
            passed_over=self.passed_over,
            passed_over_table=self.passed_over_table,
            held=tuple(sorted(self.held)),
            known_table=self.work.known_table,
            is_silent=self.is_silent,
            lacking=self.lacking,
        )

    def end_at(self, partition: int, target_ts: int | None, marks: list[Watermark]) -> int | None:
        """Take over a partition's watermarks; the offset of the first that reaches the target, where reading ends.

        The position stays in front of that watermark, so that the span's next agent meets it again: the evidence
        is in the log, and nowhere else.
        """
        for mark in marks:
            self.marks.append(mark)
            if target_ts is not None and mark.ts >= target_ts:
                self.ended.add(partition)
                return mark.offset
        return None

    def cut_at(self, target_ts: int | None, partition: int, changes: list[Change]) -> int | None:
        """The offset of the first change made after the target, where reading ends; ``runs`` has its transaction.

        Raises SnapshotAfterTargetError.
        """
        if target_ts is None:
            return None
        stamped = ((change.offset, ts_of_ms(change.source_ms)) for change in changes if change.source_ms is not None)
        offset, ts = next(((offset, ts) for offset, ts in stamped if ts > target_ts), (None, 0))
        if offset is None:
            return None
        runs = (run for run in self.runs if run.partition == partition and run.first <= offset <= run.last)
        run = next(runs, None)
        if run is not None and run.transaction is None:
            raise SnapshotAfterTargetError(
                f"{self.work.claim.table}: the snapshot that its changes begin with was taken at {show_ts(ts)}, after "
                f"the feed's target {show_ts(target_ts)}: what it held then is not in the log; take a later target"
            )
        self.cut[partition] = None if run is None else run.transaction
        self.ended.add(partition)
        return offset

    def _tail(self) -> Tail | None:
        """The newest transaction that is applied up to the end of a run; a cut one counts with none of its changes."""
        cut = next((transaction for transaction in self.cut.values() if transaction is not None), None)
        if cut is not None and self.error is None:
            return Tail(cut, 0)
        for run in reversed(self.runs):
            if run.transaction is not None and run.last < self.next.get(run.partition, 0):
                return Tail(run.transaction, run.order)
        return None

    def _resolved(self) -> dict[int, int]:
        """Watermarks all before which is at the sink."""
        resolved: dict[int, int] = {}
        for mark in self.marks:
            if mark.offset <= self.next.get(mark.partition, self.work.expected[mark.partition]):
                resolved[mark.partition] = max(mark.ts, resolved.get(mark.partition, mark.ts))
        return resolved
