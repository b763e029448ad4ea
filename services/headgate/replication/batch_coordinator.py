"""Decides what each batch of a lane may write, and updates the spans when it is over.

What keeps a span exact whatever lane it is on: it is planned into a batch only if it is claimed, in no other batch, and
if nothing that its lane has delivered before lies at or beyond the sink's position. Then every row that the lane has
dropped for it had been applied already.

Lanes are joined by the same rule. A joined lane starts beside the old ones at their current positions, and takes over
the spans one by one when they are between two batches; the old lanes, left without spans, end. No span pauses.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.errands import Errand, errands
from headgate.agent.core.span.inputs import (
    BatchOver,
    Failed,
    LaneLost,
    Passed,
    Placed,
    Planned,
    SentBack,
    SettleDue,
    Slowed,
    SpanResult,
)
from headgate.agent.core.span.states import Span, TaskPhase
from headgate.config.feed import FeedSpec
from headgate.replication.change_logs import ChangeLogFollower
from headgate.replication.feed_parts import feed_of, server_of_feed
from headgate.replication.heads import KnownHeads
from headgate.replication.lane import Lane
from headgate.replication.merging import merge_results
from headgate.replication.plan import BatchPlan, DeadLetterTarget, TaskResult
from headgate.replication.span_lifecycle import SERVER_THREADS, SpanLifecycle
from headgate.replication.span_table import SpanTable
from headgate.replication.stream import Ends
from headgate.sinks.contract import SinkUnavailableError

SLOW_SECONDS: Final = 1.0
"""A span that takes longer than that in a batch, and longer than all its neighbours together, leaves them: they would
wait for it in every batch (a huge backlog, a lock at the sink, a slow trigger)."""

ALONE_SECONDS: Final = 30.0
"""So long a slow span keeps a lane of its own before it may be joined; after that its lag decides."""

ALONE_MAX: Final = 4
"""Lanes of slow spans per agent: each costs its own planning, about a tenth of a core while it is busy."""

BUSY_SECONDS_MAX: Final = 1.0
"""How long a batch waits for a member that is just being claimed: left out, it would have to start again."""

HANDOVER_SECONDS_MAX: Final = 1.0
"""How long a joined lane's first batch waits for the old lanes' borders; no held span waits longer."""

PARK_SECONDS: Final = 1.0
"""How often a warm lane reads the positions of the sinks, to read along behind the present writers."""

BETWEEN: Final = frozenset({TaskPhase.CLAIMED, TaskPhase.WRITING, TaskPhase.DRAINING})
"""Phases of spans of a batch that is over."""


class LaneCpu(msgspec.Struct):
    """What workers have spent so far, in CPU µs, and on how many rows: for the bench."""

    rows: int = 0
    decode_us: int = 0
    apply_us: int = 0


class LaneBatchCoordinator:
    """The batch coordinator of all lanes of an executor (see lane.BatchCoordinator)."""

    def __init__(
        self,
        table: SpanTable,
        lifecycle: SpanLifecycle,
        lanes: Mapping[str, Lane],
        dead_letters: DeadLetterTarget | None,
        change_logs: ChangeLogFollower,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        """``lanes``: all of the executor, by name. ``now_ms``: the time by the broker's clock, which records carry."""
        self._now_ms = now_ms
        self.cpu = LaneCpu()
        self._heads = KnownHeads()
        self._table = table
        self._lifecycle = lifecycle
        self._lanes = lanes
        self._dead_letters = dead_letters
        self._change_logs = change_logs
        self._held: set[SpanId] = set()
        """Spans whose present lanes begin no batch, for a joined lane is just taking them over."""

    # --- before a batch -----------------------------------------------------------------------------------------------

    def begin_batch(self, lane: Lane, ends: Ends) -> BatchPlan | None:
        """Every member that may be written and has rows below ``ends``, from the sink's positions on."""
        feed = feed_of(lane.feed.spec)
        dead_letters = self._dead_letters_of(feed)
        name = feed.source.change_log
        known = None if name is None else self._change_logs.catch_up(name)
        with self._table.changed:
            self._await_taking_over(lane)
            self._await_members(lane)
            settling = self._run_errands(lane, ends)
            if self._table.killed or lane.stopping.is_set():
                return None
            works = []
            lane.served, lane.served_ends, lane.in_batch = [], {}, True
            members = self._members(lane)
            self._fail_silent(lane, members)
            is_warm = not any(span.claimed for span in members)
            is_replaced = lane.is_outdated and not lane.has_caught_up()
            for span in self._members(lane):
                if span.writable:
                    if is_replaced:  # a lane that has caught up is joined instead, without a pause
                        self._table.apply(span.id, SentBack("its lane polls fewer records than it could by now"))
                        continue
                    if known is not None and span.progress.limits_at < known:
                        self._table.apply(span.id, SentBack("what its change log's generations are is not known"))
                        continue
                    if not lane.has_all_before(span):
                        self._table.apply(span.id, SentBack("its lane has read ahead of the sink"))
                        continue
                    lane.served.append(span.id)
                    lane.served_ends[span.id] = _given(span, ends)
                    if _has_rows(lane, span, ends):
                        self._table.apply(span.id, Planned())
                        works.append(self._table.work_of(span, settle=span.id in settling))
                elif span.phase is TaskPhase.READING and not is_warm and not lane.has_all_before(span):
                    self._table.apply(span.id, SentBack("its lane reads for others, who may be written"))
            if not works and not (is_warm and lane.members):
                for span in self._served(lane):
                    self._table.apply(span.id, Passed(lane.served_ends[span.id]))
                self._deliver(lane, ends)
                return None
            heads = self._heads.worth_cutting(_rows_by_topic(lane, ends))
            return BatchPlan(lane.feed.spec, tuple(works), dead_letters, heads)

    def _members(self, lane: Lane) -> list[Span]:
        return self._table.members(lane.members)

    def is_silent(self, lane: Lane) -> bool:
        """Whether the lane's sink is known not to answer: its tasks would only hold their places."""
        return self._why_silent(lane) is not None

    def is_awaited(self, lane: Lane) -> bool:
        """Whether something waits for what one of its members reads next."""
        now_ms = self._now_ms()
        return any(span.is_awaited(now_ms) for span in self._members(lane))

    def _why_silent(self, lane: Lane) -> str | None:
        return self._lifecycle.silent_sinks.why(server_of_feed(lane.feed.spec))

    def _fail_silent(self, lane: Lane, members: Sequence[Span]) -> None:
        """Leave members whose sink does not answer to their claims, which retry and hold no core."""
        why = self._why_silent(lane)
        for span in members if why is not None else ():
            if span.phase is TaskPhase.CLAIMED:
                self._table.apply(span.id, Failed(SinkUnavailableError.code, f"{span.task.plan.table}: {why}", True))

    def errands(self, lane: Lane) -> dict[SpanId, Errand]:
        """What is due for the lane's members, which are in no batch."""

        def caught_up(name: str) -> bool | None:
            other = self._lanes.get(name)
            if other is None or (other is not lane and (other.in_batch or not other.started)):
                return None
            return other.has_caught_up()

        now, members = time.monotonic(), self._members(lane)
        return errands(members, self._table.all, now, caught_up=caught_up, copies_max=SERVER_THREADS)

    def _run_errands(self, lane: Lane, ends: Ends) -> frozenset[SpanId]:
        """Do what is due before a batch up to ``ends``; the members whose positions move with their rows in it."""
        if self._table.killed or lane.stopping.is_set():
            return frozenset()
        due, settling = self.errands(lane), set()
        for span in self._members(lane):
            errand = due.get(span.id)
            if isinstance(errand, SettleDue) and _has_rows(lane, span, ends):
                settling.add(span.id)
            elif errand is not None:
                self._table.apply(span.id, errand)
        if any(isinstance(errand, SettleDue) for span, errand in due.items() if span not in settling):
            self._await_members(lane)
        return frozenset(settling)

    def send_back(self, lane: Lane) -> None:
        """Members of which the lane does not read what may be read by now, though no batch comes that would show it."""
        for span in self._members(lane):
            if span.progress.limits_at and span.writable and not lane.has_all_before(span):
                self._table.apply(span.id, SentBack("another stream of its change log may be read"))

    def _dead_letters_of(self, feed: FeedSpec) -> DeadLetterTarget | None:
        if not feed.may_set_aside:
            return None
        if self._dead_letters is None:
            raise ValueError(f"feed {feed.feed} sets bad changes aside, but this executor has no deadletter topic")
        return self._dead_letters

    def _await_members(self, lane: Lane) -> None:
        """Spans that are being claimed or settled, and those that a joined lane is just taking over."""
        deadline = time.monotonic() + BUSY_SECONDS_MAX
        while not (self._table.killed or lane.stopping.is_set()):
            is_called = any(span.phase in {TaskPhase.CLAIMING, TaskPhase.SETTLING} for span in self._members(lane))
            left = deadline - time.monotonic()
            if left <= 0 or not (is_called or self._held.intersection(lane.members)):
                return
            self._table.changed.wait(left)

    def _await_taking_over(self, lane: Lane) -> None:
        """In a joined lane's first batch: the old lanes begin no other one until it has their spans."""
        deadline = time.monotonic() + HANDOVER_SECONDS_MAX
        held = set(lane.taking_over)
        self._held |= held
        while lane.taking_over and not lane.stopping.is_set() and not self._table.killed:
            self.take_over(lane)
            left = deadline - time.monotonic()
            if left <= 0 or not lane.taking_over:
                break
            self._table.changed.wait(left)
        lane.taking_over = []  # what could not be had now is joined another time
        self._held -= held
        self._table.changed.notify_all()

    def take_over(self, lane: Lane) -> None:
        """Take over spans that are between two batches, and of which this lane has dropped nothing not applied."""
        taking_over = self._table.members(lane.taking_over)
        lane.taking_over = [span.id for span in taking_over if span.lane is not None]
        for span in taking_over:
            if span.phase is TaskPhase.CLAIMED and lane.has_all_before(span):
                lane.taking_over.remove(span.id)
                self._table.apply(span.id, Placed(lane.name))

    # --- after a batch ------------------------------------------------------------------------------------------------

    def end_batch(self, lane: Lane, results: list[TaskResult] | None) -> bool:
        """Adopt what became visible; a span with an error or an unknown result leaves the lane."""
        seen = _seen(results or ())
        found = merge_results(results or (), self._now_ms())
        merged = {result.id: self._heard(lane, result) for result in found}
        with self._table.changed:
            for task in results or ():
                self._heads.learn(task.heads)
            if results is not None and not lane.served:
                return self._read_along(lane, seen)
            spans = self._served(lane)
            if results is None:
                self._lose(lane, spans)
            for span in spans if results is not None else ():
                if span.phase is TaskPhase.CLAIMED:
                    self._table.apply(span.id, Passed(lane.served_ends[span.id]))
                else:
                    self._table.apply(span.id, BatchOver(merged.get(span.id), lane.served_ends[span.id]))
            for result in merged.values():
                self.cpu.rows += result.rows
                self.cpu.decode_us += result.decode_cpu_us
                self.cpu.apply_us += result.apply_cpu_us
            self._part(lane, merged, spans)
            self._deliver(lane, seen)
            return True

    def _heard(self, lane: Lane, result: SpanResult) -> SpanResult:
        """Remember a sink that did not answer a task, and let the result's error name it."""
        if not result.is_silent:
            return result
        server, sinks = server_of_feed(lane.feed.spec), self._lifecycle.silent_sinks
        sinks.failed(server, result.error or "", result.wall_ms / 1000)
        return msgspec.structs.replace(result, error=sinks.why(server) or result.error)

    def _lose(self, lane: Lane, spans: Sequence[Span]) -> None:
        """Handle a batch whose outcome only the sink knows. A lane that was not asked to end ends with it."""
        why = None if lane.stopping.is_set() or self._table.killed else lane.failure()
        members = tuple(lane.members)
        for member in members if why is not None else ():
            self._table.apply(member, LaneLost(why or "", alone=len(members) == 1))
        for span in spans if why is None else ():
            self._table.apply(span.id, SentBack("the batch ended without an answer"))

    def _served(self, lane: Lane) -> list[Span]:
        """Those of the batch under way that are still its own."""
        spans = self._table.members(lane.served)
        return [span for span in spans if span.lane == lane.name and span.phase in BETWEEN]

    def _deliver(self, lane: Lane, seen: Ends) -> None:
        """A batch is over in which rows up to ``seen`` came."""
        for place, end in seen.items():
            lane.delivered[place] = max(end, lane.delivered[place])
        lane.served, lane.in_batch = [], False
        lane.warmed.set()
        self._table.changed.notify_all()

    def _read_along(self, lane: Lane, seen: Ends) -> bool:
        """A lane of warm spans is parked until its batch is behind the sinks, or a span may be written."""
        lane.warmed.set()
        looked_at = 0.0
        while True:
            members = self._members(lane)
            if self._table.killed or lane.stopping.is_set() or not members:
                break
            if any(span.claimed for span in members):
                return False
            if all(_is_behind(span, seen) for span in members):
                break
            if time.monotonic() - looked_at > PARK_SECONDS:
                looked_at = time.monotonic()
                for span in members:
                    if not span.primary:
                        self._lifecycle.look(span)
            self._table.changed.wait(PARK_SECONDS)
        self._deliver(lane, seen)
        return True

    def _part(self, lane: Lane, results: Mapping[SpanId, SpanResult], spans: Sequence[Span]) -> None:
        """A span that its neighbours have waited for gets a lane of its own, and keeps it while it is slow or stuck."""
        now = time.monotonic()
        slowest = max(results.values(), key=lambda result: result.wall_ms, default=None)
        if slowest is None or lane.taking_over:
            return
        (span,) = [span for span in spans if span.id == slowest.id] or (None,)
        others = sum(result.wall_ms for result in results.values()) - slowest.wall_ms
        if span is None or slowest.wall_ms < max(SLOW_SECONDS * 1000, others):
            return
        is_alone = span.alone_until > now
        if len(spans) < 2 and not is_alone:
            return
        if not is_alone and sum(other.alone_until > now for other in self._table.all()) >= ALONE_MAX:
            return
        now_is = self._table.apply(span.id, Slowed(now + ALONE_SECONDS))
        if (
            len(spans) > 1 and now_is is not None and now_is.phase is TaskPhase.CLAIMED
        ):  # one that failed has left already
            why = f"it took {slowest.wall_ms} ms of a batch, its neighbours {others} ms"
            self._table.apply(span.id, SentBack(why))


def _given(span: Span, ends: Ends) -> Ends:
    """Up to where a batch gives a span its rows: of a change log only what may be applied, as far as it may."""
    limits, topic = span.progress.limits, span.task.plan.topic
    if not limits:
        return ends
    places = {partition: (topic, partition) for partition in span.readable}
    return {place: min(ends[place], limits.get(partition, ends[place])) for partition, place in places.items()}


def _has_rows(lane: Lane, span: Span, ends: Ends) -> bool:
    """Whether there may be some in a batch up to ``ends``: else its task would have nothing to do with it."""
    topic = span.task.plan.topic
    return any(
        ends[topic, partition] > max(span.reached(partition), lane.delivered[topic, partition])
        for partition in span.readable
    )


def _rows_by_topic(lane: Lane, ends: Ends) -> dict[str, int]:
    """How many rows of each topic a batch up to ``ends`` has at most."""
    rows: dict[str, int] = {}
    for (topic, partition), end in ends.items():
        rows[topic] = rows.get(topic, 0) + end - lane.delivered[topic, partition]
    return rows


def _seen(results: Sequence[TaskResult]) -> dict[tuple[str, int], int]:
    """Up to where rows came to the tasks of a batch; a partition is read by one task only."""
    return {
        (topic, partition): end
        for result in results
        for topic, ends in result.seen.items()
        for partition, end in ends.items()
    }


def _is_behind(span: Span, seen: Ends) -> bool:
    """Whether a batch that saw up to ``seen`` holds nothing the sink does not have."""
    return all(seen.get((span.task.plan.topic, p), position) <= position for p, position in span.positions.items())
