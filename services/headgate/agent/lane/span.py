"""One run of one span under one role, as the executor keeps it: a value with a state, changed under its lock only."""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from headgate.agent.executor import SpanTask, TaskStatus
from headgate.agent.lane.failures import Failures
from headgate.agent.lane.parts import feed_of
from headgate.agent.lane.plan import SpanResult, SpanWork
from headgate.changes.tables import SourceTable
from headgate.changes.transactions import TableEvidence, Tail
from headgate.config.feed import SourceSpec
from headgate.records.control import Positions, TaskState
from headgate.records.ts import ts_of_ms
from headgate.sinks.contract import Claim, FeedIdentity
from headgate.sources.topics import source_tables

if TYPE_CHECKING:
    from headgate.agent.lane.lane import Lane

__all__ = ["SpanRun", "positions_of"]


QUARANTINE_WINDOW_SECONDS: Final = 3600.0
"""What ``quarantine_per_hour_max`` counts over, per run of a span: to resume a feed is to allow as many again."""

REST_SECONDS: Final = 10.0
"""A table of a topic that carries several moves its position at the sink with its rows. Without any it costs a
transaction for nothing, so it waits; whoever takes the table over reads so much of the topic again."""

FAILURES_BORNE: Final = 5
"""Failures in a row (about 8 s) after which a change that only a rule between rows refuses counts as bad. Fewer than
the keeper's, so that a table that may set it aside does so before it is given up."""


class SpanRun:
    """A span that is opening, warm, written, stopping or over.

    ``primary``: writing is wanted (a claim is allowed). ``claimed``: the sink holds our epoch; only then is it planned.
    ``busy``: a sink or source call is under way in the pool. ``in_batch``: a lane's tasks may be writing it.
    ``stop`` is "" or how it is to end, "plain" or "seal". ``heir`` is the joined lane that is to take it over; while it
    is ``held``, its present lane begins no batch. ``backlog`` is how many offsets ahead the log's end was when it was
    opened. Until ``alone_until`` (monotonic) it shares no lane, being slow. ``losses``: how often in a row its lane was
    lost under it, nothing of it applied between.
    """

    def __init__(self, task: SpanTask, cluster_id: str, *, primary: bool) -> None:
        self.task = task
        self.primary = primary
        self.claimed = False
        self.busy = False
        self.in_batch = False
        self.stop = ""
        self.state = TaskState.PREPARING
        self.lane: Lane | None = None
        self.heir: Lane | None = None
        self.held = False
        self.losses = 0
        self.backlog = 0
        self.ready_at: float | None = None
        self.retry_at: float | None = None
        self.failures = Failures()
        self.topic_id: str | None = None
        """Kafka's id of the topic when the span was opened."""
        self.known_table: SourceTable | None = None
        """The table that the topic's events are of, as the sink has it."""
        self.positions: Positions = {}
        self.read_to: dict[int, int] = {}
        """Up to where its partitions have been read beyond the sink's positions, and had nothing of it: markers, gaps
        that compaction left, changes of other tables of its topic."""
        self.rests_since: float | None = None
        """Since when the sink's positions have been behind that (monotonic)."""
        self.passed_over = 0
        self.passed_over_table: str | None = None
        """Changes of tables that nobody named, since it was opened, and the last one's table."""
        self.rows = 0
        self.bytes = 0
        self.lag_ms = 0
        self.seen_ms: int | None = None
        self.resolved: dict[int, int] = {}
        """Partition → the newest watermark that all before is at the sink of."""
        self.opening = 0
        """How often it has gone on from the sink's positions."""
        self.tail: Tail | None = None
        self.evidence: TableEvidence | None = None
        """Transactions it waits for, while the witness (transactions.py) tells of them; ``tail`` is how far it is."""
        self.cut: set[int] = set()
        """Partitions whose next change was made after the feed's target."""
        self.quarantined = 0
        self.alone_until = 0.0
        self.error: tuple[str, str, bool] | None = None
        self._cluster_id = cluster_id
        self._set_aside: deque[tuple[float, int]] = deque()

    @property
    def claim(self) -> Claim:
        """The assignment as the sink sees it."""
        task = self.task
        return Claim(
            identity=FeedIdentity(cluster_id=self._cluster_id, feed_id=task.feed_id, feed=task.id.feed),
            table=task.plan.table,
            topic=task.plan.topic,
            epoch=task.epoch,
            incarnation=task.incarnation,
            start=task.plan.start,
            span=task.plan.span,
        )

    @property
    def over(self) -> bool:
        """Nothing is running and nothing will be, under this epoch."""
        return self.state in {TaskState.STOPPED, TaskState.FAILED}

    @property
    def is_open(self) -> bool:
        """Its source and its sink have been looked at, and it is not on its way out."""
        return bool(self.positions) and not self.stop and not self.over

    @property
    def writable(self) -> bool:
        """May be part of a batch."""
        is_ours = self.claimed and not self.stop and not self.over and not self.busy and self.retry_at is None
        return is_ours and not self.is_at_target

    @property
    def awaited(self) -> Positions:
        """Positions of the partitions of which more is wanted: all, but for those that have reached the target."""
        ended = self._ended()
        return {p: position for p, position in self.positions.items() if p not in ended} if ended else self.positions

    @property
    def is_at_target(self) -> bool:
        """Nothing more of it is wanted; it waits for the rest of the feed."""
        ended = self._ended()
        return bool(ended) and ended.issuperset(self.positions)

    def _ended(self) -> set[int]:
        target_ts = self.source.target_ts if self.resolved else None
        if target_ts is None:
            return self.cut
        return self.cut | {partition for partition, ts in self.resolved.items() if ts >= target_ts}

    @cached_property
    def source(self) -> SourceSpec:
        """What the feed says of its source."""
        return feed_of(self.task.spec).source

    @property
    def places(self) -> list[tuple[str, int]]:
        """The partitions it reads."""
        return [(self.task.plan.topic, partition) for partition in self.task.plan.start]

    def opened(
        self, positions: Positions, ends: Positions | None = None, known_table: SourceTable | None = None
    ) -> None:
        """It goes on from the sink's positions, the log from there to ``ends``; evidence of time is looked for anew."""
        self.positions = positions
        self.known_table = known_table
        self.read_to, self.rests_since = {}, None
        self.backlog = sum(end - positions[partition] for partition, end in (ends or {}).items())
        self.resolved = {}
        self.opening += 1
        self.tail = self.evidence = None
        self.cut = set()

    def complete(self, ts: int) -> bool:
        """Everything up to ``ts`` is at the sink, as far as the feed wants it. True if that is news."""
        before = self.resolved
        ts = ts if self.source.target_ts is None else min(ts, self.source.target_ts)
        self.resolved = {partition: max(ts, before.get(partition, ts)) for partition in self.positions}
        return self.resolved != before

    def work(self, quarantine_max: int = 0, *, settle: bool = False) -> SpanWork:
        """What a batch is to do with it; at most ``quarantine_max`` changes an hour may be set aside.

        ``settle``: the sink's positions are to follow what has been read (see ``owes``).
        """
        return SpanWork(
            id=self.task.id,
            topic=self.task.plan.topic,
            claim=self.claim,
            expected=dict(self.awaited),
            quarantine_left=max(0, quarantine_max - self._set_aside_lately()),
            patient=self.failures.worst < FAILURES_BORNE,
            source_table=self.source_table,
            begin=dict(self.read_to),
            settle=settle,
            known_table=self.known_table,
        )

    @cached_property
    def source_table(self) -> str | None:
        """What the feed calls it among the tables of its topic; None where the topic has no other."""
        return source_tables(feed_of(self.task.spec)).get(self.task.plan.table)

    def owes(self, now: float) -> bool:
        """Whether it is time for the sink's positions to follow what has been read, though there was nothing of it."""
        return self.rests_since is not None and now - self.rests_since >= REST_SECONDS

    def reached(self, partition: int) -> int:
        """The first offset that may have something of it that is not at the sink."""
        return max(self.positions[partition], self.read_to.get(partition, 0))

    def pass_to(self, ends: Mapping[tuple[str, int], int]) -> None:
        """All of it that stands below ``ends`` (by topic and partition) is at the sink, be its positions behind."""
        topic = self.task.plan.topic
        for partition in self.awaited:
            self.read_to[partition] = max(ends.get((topic, partition), 0), self.reached(partition))
        if any(end > self.positions[partition] for partition, end in self.read_to.items()):
            self.rests_since = self.rests_since or time.monotonic()
        else:
            self.rests_since = None

    def _set_aside_lately(self) -> int:
        since = time.monotonic() - QUARANTINE_WINDOW_SECONDS
        while self._set_aside and self._set_aside[0][0] < since:
            self._set_aside.popleft()
        return sum(count for _, count in self._set_aside)

    def adopt(self, result: SpanResult) -> None:
        """Take over what a batch has made visible; what has failed in it is the keeper's (``SpanKeeper.fail``)."""
        moved = [p for p, end in result.positions.items() if end > self.positions.get(p, -1)]
        self.failures.went_on(moved)
        self.positions = {**self.positions, **result.positions}
        self.known_table = result.known_table or self.known_table
        self.passed_over += result.passed_over
        self.passed_over_table = result.passed_over_table or self.passed_over_table
        if result.positions or result.error is None:
            self._note_lag(result)
        for partition, ts in result.resolved.items():
            self.resolved[partition] = max(ts, self.resolved.get(partition, ts))
        self.cut.update(result.cut)
        if result.tail is not None:
            self.tail = result.tail
            if self.evidence is not None:
                self.evidence.reached(result.tail)
        if not result.positions:
            return
        if result.quarantined:
            self._set_aside.append((time.monotonic(), result.quarantined))
            self.quarantined += result.quarantined
        if not self.over and self.retry_at is None:
            self.error = None  # a failure keeps its code, whatever arrives of a batch behind it
        self.losses = 0
        self.rows += result.rows
        self.bytes += result.bytes
        if result.newest_source_ms is not None:
            self.seen_ms = max(result.newest_source_ms, self.seen_ms or 0)

    def _note_lag(self, result: SpanResult) -> None:
        if result.oldest_append_ms is not None:
            self.lag_ms = max(0, result.visible_ms - result.oldest_append_ms)

    @property
    def lag_now_ms(self) -> int:
        """Of the last batch; none while its lane finds nothing to read."""
        return 0 if self.lane is not None and self.lane.is_idle() else self.lag_ms

    def status(self) -> TaskStatus:
        """How it stands."""
        code, text, retryable = self.error or (None, None, False)
        return TaskStatus(
            id=self.task.id,
            feed_id=self.task.feed_id,
            epoch=self.task.epoch,
            state=self.state,
            positions=dict(self.positions),
            seen_ts=None if self.seen_ms is None else ts_of_ms(self.seen_ms),
            rows=self.rows,
            bytes=self.bytes,
            lag_ms=self.lag_now_ms,
            error_code=code,
            error=text,
            retryable=retryable,
            resolved_ts=self._resolved_ts(),
            passed_over=self.passed_over,
            passed_over_table=self.passed_over_table,
        )

    def _resolved_ts(self) -> int | None:
        """Least over the partitions, once each has one."""
        if not self.resolved or self.resolved.keys() != self.task.plan.start.keys():
            return None
        return min(self.resolved.values())


def positions_of(runs: Iterable[SpanRun]) -> dict[tuple[str, int], int]:
    """(topic, partition) → from where its span is to be read on; the last of them, where several read it."""
    found: dict[tuple[str, int], int] = {}
    for run in runs:
        for partition in run.positions:
            place, start = (run.task.plan.topic, partition), run.reached(partition)
            found[place] = min(start, found.get(place, start))
    return found
