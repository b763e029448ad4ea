"""What each batch of a lane may write, and what becomes of spans when it is over.

What keeps a span exact whatever lane it is on: it is planned into a batch only if it is claimed, in no other batch, and
if nothing that its lane has delivered before lies at or beyond the sink's position. Then every row that the lane has
dropped for it had been applied already.

That rule is also what joins lanes. A joined lane starts beside the old ones at the positions of that moment, and takes
the spans over one by one when they are between two batches; the old lanes, left without spans, end. Nobody pauses.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headgate.agent.executor import SpanId
from headgate.agent.lane.keeper import Board, SpanKeeper
from headgate.agent.lane.lane import Lane
from headgate.agent.lane.merging import merge_results
from headgate.agent.lane.parts import feed_of
from headgate.agent.lane.plan import BatchPlan, Letterbox, SpanResult, TaskResult
from headgate.agent.lane.span import SpanRun
from headgate.agent.lane.stream import Ends
from headgate.config.feed import FeedSpec

__all__ = ["LaneCpu", "LaneCrew"]

SLOW_SECONDS: Final = 1.0
"""A span that takes longer than that in a batch, and longer than all its neighbours together, leaves them: they would
wait for it in every batch (a huge backlog, a lock at the sink, a slow trigger)."""

ALONE_SECONDS: Final = 30.0
"""So long a slow span keeps a lane of its own before it may be joined; after that its lag decides."""

ALONE_MAX: Final = 4
"""Lanes of slow spans per agent: each costs its own planning, about a tenth of a core while it is busy."""

SETTLED_MAX: Final = 8
"""Tables without rows whose positions move in one batch: each costs a transaction, a millisecond or two, and those that
have rows wait for it."""

BUSY_SECONDS_MAX: Final = 1.0
"""How long a batch waits for a member that is just being claimed: left out, it would have to start again."""

HANDOVER_SECONDS_MAX: Final = 1.0
"""How long a joined lane's first batch waits for the old lanes' borders; held spans rest no longer than that."""

PARK_SECONDS: Final = 1.0
"""How often a warm lane looks where the sinks stand, to read along behind the present writers."""


class LaneCpu(msgspec.Struct):
    """What workers have spent so far, in CPU µs, and on how many rows: for the bench."""

    rows: int = 0
    decode_us: int = 0
    apply_us: int = 0


class LaneCrew:
    """The crew of all lanes of an executor (see lane.Crew)."""

    def __init__(self, board: Board, keeper: SpanKeeper, letterbox: Letterbox | None) -> None:
        self.cpu = LaneCpu()
        self._board = board
        self._keeper = keeper
        self._letterbox = letterbox

    # --- before a batch -----------------------------------------------------------------------------------------------

    def begin_batch(self, lane: Lane, ends: Ends) -> BatchPlan | None:
        """Every member that may be written and has rows below ``ends``, from the sink's positions on."""
        feed = feed_of(lane.spec)
        letterbox = self._letterbox_of(feed)
        with self._board.changed:
            self._await_heirs(lane)
            self._await_members(lane)
            if self._board.killed or lane.stopping.is_set():
                return None
            works = []
            lane.served, lane.in_batch = [], True
            settling = self.owing(lane)
            is_warm = not any(run.claimed for run in lane.members)
            for run in list(lane.members):
                if run.writable and not run.in_batch:
                    if not lane.has_all_before(run):
                        self._keeper.restart(run, "its lane has read ahead of the sink")
                        continue
                    lane.served.append(run)
                    if _has_rows(lane, run, ends):
                        run.in_batch = True
                        works.append(run.work(feed.quarantine_per_hour_max, settle=run in settling))
                elif not (run.claimed or run.busy or is_warm or lane.has_all_before(run)):
                    self._keeper.restart(run, "its lane reads for others, who may be written")
            if not works and not (is_warm and lane.members):
                self._deliver(lane, ends)
                return None
            return BatchPlan(lane.spec, tuple(works), letterbox)

    def owing(self, lane: Lane) -> list[SpanRun]:
        """Members whose positions at the sink are to follow now, those that have waited longest first."""
        now = time.monotonic()
        owing = [run for run in lane.members if run.owes(now) and run.writable]
        return sorted(owing, key=lambda run: (run.rests_since or now, run.task.id))[:SETTLED_MAX]

    def _letterbox_of(self, feed: FeedSpec) -> Letterbox | None:
        if feed.on_bad_change != "quarantine":
            return None
        if self._letterbox is None:
            raise ValueError(f"feed {feed.feed} wants bad changes set aside, but this executor has no letterbox")
        return self._letterbox

    def _await_members(self, lane: Lane) -> None:
        """Spans that are being claimed, and those that a joined lane is just taking over."""
        deadline = time.monotonic() + BUSY_SECONDS_MAX
        while not (self._board.killed or lane.stopping.is_set()):
            awaited = any(run.held or (run.busy and run.primary and not run.stop) for run in lane.members)
            left = deadline - time.monotonic()
            if not awaited or left <= 0:
                return
            self._board.changed.wait(left)

    def _await_heirs(self, lane: Lane) -> None:
        """In a joined lane's first batch: the old lanes begin no other one until it has their spans."""
        deadline = time.monotonic() + HANDOVER_SECONDS_MAX
        for run in lane.heirs:
            run.held = True
        while lane.heirs and not lane.stopping.is_set() and not self._board.killed:
            self.take_over(lane)
            left = deadline - time.monotonic()
            if left <= 0 or not lane.heirs:
                break
            self._board.changed.wait(left)
        for run in lane.heirs:  # what could not be had now is joined another time
            run.heir, run.held = None, False
        lane.heirs = []
        self._board.changed.notify_all()

    def take_over(self, lane: Lane) -> None:
        """Every heir that is between two batches, and of which this lane has dropped nothing that is not applied."""
        for run in list(lane.heirs):
            if run.heir is not lane or run.lane is None or run.over or run.stop:
                lane.heirs.remove(run)
            elif not run.in_batch and not run.busy and lane.has_all_before(run):
                run.lane.part_with(run)
                lane.take_on(run)
                lane.heirs.remove(run)
                run.lane, run.heir, run.held, run.losses = lane, None, False, 0

    # --- after a batch ------------------------------------------------------------------------------------------------

    def end_batch(self, lane: Lane, ends: Ends, results: list[TaskResult] | None) -> bool:
        """Adopt what became visible; a span with an error, or one nobody knows about, leaves the lane."""
        seen = _seen(results or ())
        merged = merge_results(results or ())
        with self._board.changed:
            if results is not None and not lane.served:
                return self._read_along(lane, seen)
            runs = {run.task.id: run for run in lane.served if run.lane is lane and not run.busy}
            for run in runs.values():
                run.in_batch = False
            for result in merged:
                self.cpu.rows += result.rows
                self.cpu.decode_us += result.decode_cpu_us
                self.cpu.apply_us += result.apply_cpu_us
                if result.id in runs:
                    self._adopt(runs[result.id], result)
            self._part(lane, merged, runs)
            if results is None:
                self._lose(lane, runs.values())
            self._deliver(lane, seen, ends)
            return True

    def _lose(self, lane: Lane, runs: Iterable[SpanRun]) -> None:
        """Nobody knows what a batch has written: the sink does. A lane that was not told to end is over with it."""
        why = None if lane.stopping.is_set() or self._board.killed else lane.failure()
        members = tuple(lane.members)
        for run in members if why is not None else ():
            self._keeper.lost(run, why or "", alone=len(members) == 1)
        for run in runs if why is None else ():
            self._keeper.restart(run, "the batch ended without an answer")

    def _deliver(self, lane: Lane, seen: Ends, ends: Ends | None = None) -> None:
        """A batch is over in which rows up to ``seen`` came; up to ``ends``, what is not at the sink is nobody's."""
        for place, end in seen.items():
            lane.delivered[place] = max(end, lane.delivered[place])
        for run in lane.served:
            if run.lane is lane and not run.busy:
                run.pass_to(seen if ends is None else ends)
        lane.served, lane.in_batch = [], False
        lane.warmed.set()
        self._board.changed.notify_all()

    def _read_along(self, lane: Lane, seen: Ends) -> bool:
        """A lane of warm spans is parked until its batch is behind the sinks, or a span may be written."""
        lane.warmed.set()
        looked_at = 0.0
        while True:
            members = [run for run in lane.members if not run.over and not run.stop]
            if self._board.killed or lane.stopping.is_set() or not members:
                break
            if any(run.claimed for run in members):
                return False
            if all(_is_behind(run, seen) for run in members):
                break
            if time.monotonic() - looked_at > PARK_SECONDS:
                looked_at = time.monotonic()
                for run in members:
                    self._keeper.look(run)
            self._board.changed.wait(PARK_SECONDS)
        self._deliver(lane, seen)
        return True

    def _part(self, lane: Lane, results: Sequence[SpanResult], runs: Mapping[SpanId, SpanRun]) -> None:
        """A span that its neighbours have waited for gets a lane of its own, and keeps it while it is slow or stuck."""
        now = time.monotonic()
        slowest = max(results, key=lambda result: result.wall_ms, default=None)
        run = None if slowest is None else runs.get(slowest.id)
        if slowest is None or run is None or lane.heirs:
            return
        others = sum(result.wall_ms for result in results) - slowest.wall_ms
        is_alone = run.alone_until > now
        if slowest.wall_ms < max(SLOW_SECONDS * 1000, others) or (len(runs) < 2 and not is_alone):
            return
        if not is_alone and sum(other.alone_until > now for other in self._board.runs.values()) >= ALONE_MAX:
            return
        run.alone_until = now + ALONE_SECONDS
        if len(runs) > 1 and run in lane.members:  # one that failed has left already
            self._keeper.restart(run, f"it took {slowest.wall_ms} ms of a batch, its neighbours {others} ms")

    def _adopt(self, run: SpanRun, result: SpanResult) -> None:
        run.adopt(result)
        if result.error_code is not None and not run.stop:
            self._keeper.fail(run, result.error_code, result.error or "", retryable=result.retryable, held=result.held)


def _has_rows(lane: Lane, run: SpanRun, ends: Ends) -> bool:
    """Whether there may be some in a batch up to ``ends``: else its task would have nothing to do with it."""
    topic = run.task.plan.topic
    return any(
        ends[topic, partition] > max(run.reached(partition), lane.delivered[topic, partition])
        for partition in run.awaited
    )


def _seen(results: Sequence[TaskResult]) -> dict[tuple[str, int], int]:
    """Up to where rows came to the tasks of a batch; a partition is read by one task only."""
    return {
        (topic, partition): end
        for result in results
        for topic, ends in result.seen.items()
        for partition, end in ends.items()
    }


def _is_behind(run: SpanRun, seen: Ends) -> bool:
    """Whether a batch that saw up to ``seen`` holds nothing the sink does not have."""
    return all(seen.get((run.task.plan.topic, p), position) <= position for p, position in run.positions.items())
