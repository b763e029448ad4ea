"""What each batch of a lane may write, and what becomes of spans when it is over.

What keeps a span exact whatever lane it is on: it is planned into a batch only if it is claimed and in no other batch,
and every batch reads it from the sink's position on. A lane remembers nothing that could be wrong.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from headgate.agent.executor import SpanId
from headgate.agent.lane.keeper import Board, SpanKeeper
from headgate.agent.lane.lane import Lane
from headgate.agent.lane.merging import merge_results
from headgate.agent.lane.parts import feed_of
from headgate.agent.lane.plan import BatchPlan, Letterbox, SpanResult, TaskResult
from headgate.agent.lane.span import SpanRun
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


class LaneCpu(msgspec.Struct):
    """What workers have spent so far, in CPU µs, and on how many rows: for the bench."""

    rows: int = 0
    decode_us: int = 0
    apply_us: int = 0


class LaneCrew:
    """The crew of all lanes of an executor (see lane.Crew). ``go_over`` lets a span that no batch has change lanes."""

    def __init__(
        self, board: Board, keeper: SpanKeeper, letterbox: Letterbox | None, go_over: Callable[[SpanRun], None]
    ) -> None:
        self.cpu = LaneCpu()
        self._board = board
        self._keeper = keeper
        self._letterbox = letterbox
        self._go_over = go_over

    def begin_batch(self, lane: Lane) -> BatchPlan | None:
        """Every member that may be written, from the sink's positions on."""
        feed = feed_of(lane.spec)
        letterbox = self._letterbox_of(feed)
        with self._board.changed:
            if self._board.killed or lane.stopping.is_set():
                return None
            works = []
            waiting = False
            owing = self.owing(lane)
            for run in lane.members:
                if run.writable and not run.in_batch:
                    run.in_batch = True
                    works.append(run.work(feed.quarantine_per_hour_max, settle=run in owing))
                    waiting |= bool(lane.unwatched) and not lane.unwatched.isdisjoint(run.places)
            return BatchPlan(lane.spec, tuple(works), letterbox, waiting=waiting)

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

    def end_batch(self, lane: Lane, plan: BatchPlan, results: list[TaskResult] | None) -> None:
        """Adopt what became visible; a span with an error, or one nobody knows about, leaves the lane."""
        planned = {work.id: work for work in plan.works}
        merged = merge_results(results or ())
        with self._board.changed:
            runs = {run.task.id: run for run in lane.members if run.task.id in planned}
            for run in runs.values():
                run.in_batch = False
            for result in merged:
                self.cpu.rows += result.rows
                self.cpu.decode_us += result.decode_cpu_us
                self.cpu.apply_us += result.apply_cpu_us
                planned_run = runs.get(result.id)
                if planned_run is not None and planned_run.task.epoch == planned[result.id].claim.epoch:
                    self._adopt(planned_run, result)
            self._part(lane, merged, runs)
            if results is None:
                for run in runs.values():
                    self._keeper.restart(run, "the batch ended without an answer")
            for run in runs.values():
                self._go_over(run)
            self._board.changed.notify_all()

    def _part(self, lane: Lane, results: Sequence[SpanResult], runs: Mapping[SpanId, SpanRun]) -> None:
        """A span that its neighbours have waited for gets a lane of its own, and keeps it while it is slow or stuck."""
        now = time.monotonic()
        slowest = max(results, key=lambda result: result.wall_ms, default=None)
        run = None if slowest is None else runs.get(slowest.id)
        if slowest is None or run is None:
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
