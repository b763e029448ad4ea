"""The lanes of an executor: who is on which, what each batch may write, and how lanes are joined.

What keeps a span exact whatever lane it is on: it is planned into a batch only if it is claimed and in no other batch,
and every batch reads it from the sink's position on. A lane remembers nothing that could be wrong.

That is also what joins lanes. A joined lane starts beside the old ones at the positions of that moment, and takes
the spans over one by one when they are between two batches; the old lanes, left without spans, end. Nobody pauses.
"""

import itertools
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headgate.agent.executor import SpanId
from headgate.agent.lane.keeper import Board, SpanKeeper
from headgate.agent.lane.lane import Lane, LaneSource
from headgate.agent.lane.parts import feed_of
from headgate.agent.lane.plan import BatchPlan, Letterbox, SpanResult, TaskResult
from headgate.agent.lane.span import SpanRun
from headgate.agent.lane.spark import SparkRuntime, SparkStartError
from headgate.config.feed import FeedSpec
from headgate.records.control import Positions, TaskState
from headgate.sources.reader import reader_properties

__all__ = ["ARRIVAL_SECONDS", "ExecutorSettings", "Fleet", "LaneCpu"]

_log = logging.getLogger(__name__)

ARRIVAL_SECONDS: Final = 0.2
"""Spans that become ready within this time share a lane; a lane of its own for each would cost its fixed work."""

PARK_SECONDS: Final = 1.0
"""How often a warm lane looks where the sink stands, to read along behind the present writer."""

JOIN_SECONDS: Final = 5.0
"""Lanes of a feed are joined once none has started for so long: a start costs half a second of a core."""

JOIN_LAG_MS: Final = 2_000
"""While a span lags more, its lane has better things to do than to have its rows read twice."""

HANDOVER_SECONDS: Final = 1.0
"""How long a joined lane's first batch waits for the old lanes' borders; held spans rest no longer than that."""

SLOW_SECONDS: Final = 1.0
"""A span that takes longer than that in a batch, and longer than all its neighbours together, leaves them: they would
wait for it in every batch (a huge backlog, a lock at the sink, a slow trigger)."""

ALONE_SECONDS: Final = 30.0
"""So long a slow span keeps a lane of its own before it may be joined; after that its lag decides."""

ALONE_MAX: Final = 4
"""Lanes of slow spans per agent: each costs its own planning, about a tenth of a core while it is busy."""

_lane_numbers = itertools.count(1)
"""Names of queries are unique per Spark session, which outlives executors."""


class ExecutorSettings(msgspec.Struct, frozen=True):
    """What the executor must know besides Spark: the source cluster and its identity.

    ``kafka`` are further client properties by librdkafka's names, for asking offsets and for reading;
    ``lane_options`` by Java's names, for the query that wakes a lane; ``letterbox`` is where feeds that ask for it set
    bad changes aside.
    """

    bootstrap: str
    cluster_id: str
    kafka: Mapping[str, str] = {}
    lane_options: Mapping[str, str] = {}
    letterbox: Letterbox | None = None


class LaneCpu(msgspec.Struct):
    """What workers have spent so far, in CPU µs, and on how many rows: for the bench."""

    rows: int = 0
    decode_us: int = 0
    apply_us: int = 0


class Fleet:
    """All lanes. A Crew to each of them; ``turn`` and ``watch`` are the control thread's."""

    def __init__(self, board: Board, keeper: SpanKeeper, runtime: SparkRuntime, settings: ExecutorSettings) -> None:
        self.cpu = LaneCpu()
        self.lanes: dict[str, Lane] = {}
        self._board = board
        self._keeper = keeper
        self._runtime = runtime
        self._settings = settings
        self._started_at = 0.0
        self._starter = ThreadPoolExecutor(2, thread_name_prefix="headgate-lane")

    def signal_stop(self) -> None:
        """Every lane is to end at its next border."""
        for lane in self.lanes.values():
            lane.stopping.set()

    def close(self) -> None:
        """Take no more work."""
        self._starter.shutdown(wait=False, cancel_futures=True)

    def begin_batch(self, lane: Lane) -> BatchPlan | None:
        """Every member that may be written, from the sink's positions on."""
        feed = feed_of(lane.spec)
        letterbox = self._letterbox(feed)
        with self._board.changed:
            if self._board.killed or lane.stopping.is_set():
                return None
            if lane.heirs:
                self._await_heirs(lane, 0.0 if lane.batches else HANDOVER_SECONDS)
            lane.in_batch = True
            works = []
            waiting = bool(lane.heirs)
            for run in list(lane.members):
                if run.writable and not run.in_batch and not run.held:
                    run.in_batch = True
                    works.append(run.work(feed.quarantine_per_hour_max))
                elif not run.over and not run.stop and not run.is_at_target:
                    waiting = True
            return BatchPlan(spec=lane.spec, works=tuple(works), letterbox=letterbox, waiting=waiting)

    def _letterbox(self, feed: FeedSpec) -> Letterbox | None:
        if feed.on_bad_change != "quarantine":
            return None
        if self._settings.letterbox is None:
            raise ValueError(f"feed {feed.feed} wants bad changes set aside, but this executor has no letterbox")
        return self._settings.letterbox

    def read_along(self, lane: Lane, seen: Mapping[str, Positions]) -> bool:
        """A lane of warm spans only is parked until the log it has seen is behind the sink, or a span is promoted."""
        while True:
            with self._board.changed:
                members = [run for run in lane.members if not run.over and not run.stop]
                if self._board.killed or lane.stopping.is_set() or not members:
                    return True
                if any(run.writable and not run.held for run in members):
                    return False
                if all(_behind(run, seen) for run in members):
                    return True
                self._board.changed.wait(PARK_SECONDS)
                waiting = [run for run in members if not run.claimed and not run.busy and not run.stop]
            for run in waiting:
                self._keeper.look(run)

    def end_batch(self, lane: Lane, plan: BatchPlan, results: list[TaskResult] | None) -> None:
        """Adopt what became visible; a span with an error, or one nobody knows about, leaves the lane."""
        planned = {work.id: work for work in plan.works}
        with self._board.changed:
            runs = {run.task.id: run for run in lane.members if run.task.id in planned}
            for run in runs.values():
                run.in_batch = False
            for result in [span for task in results or () for span in task.spans]:
                self.cpu.rows += result.rows
                self.cpu.decode_us += result.decode_cpu_us
                self.cpu.apply_us += result.apply_cpu_us
                planned_run = runs.get(result.id)
                if planned_run is not None and planned_run.task.epoch == planned[result.id].claim.epoch:
                    self._adopt(planned_run, result)
            self._part(lane, [span for task in results or () for span in task.spans], runs)
            if results is None:
                for run in runs.values():
                    self._keeper.restart(run, "the batch ended without an answer")
            self._board.changed.notify_all()

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
            self._keeper.fail(run, result.error_code, result.error or "", retryable=result.retryable)

    # --- starting, joining and ending lanes: on the control thread, with the board's lock ------------------------

    def turn(self, now: float) -> None:
        """Start lanes for what is ready, hand over what a joined lane waits for, end lanes without spans."""
        self._start_ready(now)
        for lane in self.lanes.values():
            if lane.heirs and not lane.in_batch:
                self._take_over(lane)
        for lane in [lane for _, lane in sorted(self.lanes.items()) if not lane.members and not lane.heirs]:
            self._drop(lane)
        if now - self._started_at >= JOIN_SECONDS:
            self._join(now)

    def _start_ready(self, now: float) -> None:
        """One lane per feed and kind (written, warm, slow) for what is ready, once the first has waited a moment."""
        groups: dict[tuple[str, bool, SpanId | None], list[SpanRun]] = {}
        for _, run in sorted(self._board.runs.items()):
            if run.ready_at is not None and not run.busy and not run.stop and not run.over:
                alone = run.task.id if run.alone_until > now else None
                groups.setdefault((run.task.spec, run.claimed, alone), []).append(run)
        for runs in groups.values():
            if now - min(run.ready_at or now for run in runs) >= ARRIVAL_SECONDS:
                lane = self._launch(runs, now)
                lane.members = runs
                for run in runs:
                    run.lane, run.ready_at = lane, None

    def _launch(self, runs: list[SpanRun], now: float) -> Lane:
        starts: dict[str, dict[int, int]] = {}
        for run in runs:
            starts.setdefault(run.task.plan.topic, {}).update(run.positions)
        spec = runs[0].task.spec
        lane = Lane(f"{runs[0].task.id.feed}-{next(_lane_numbers)}", self, spec, starts)
        self.lanes[lane.name] = lane
        self._started_at = now
        self._starter.submit(self._start, lane, feed_of(spec).batch_rows_max)
        return lane

    def _join(self, now: float) -> None:
        """One lane for all spans of a feed that has several, when nothing else is going on in it."""
        feeds: dict[str, list[Lane]] = {}
        for _, lane in sorted(self.lanes.items()):
            if not any(run.alone_until > now for run in lane.members):
                feeds.setdefault(lane.spec, []).append(lane)
        for spec, lanes in sorted(feeds.items()):
            members = [run for lane in lanes for run in lane.members]
            quiet = all(run.writable and run.state is TaskState.REPLICATING for run in members)
            behind = any(run.lag_ms > JOIN_LAG_MS for run in members)
            if len(lanes) < 2 or not quiet or behind or any(lane.heirs or lane.failed for lane in lanes):
                continue
            joined = self._launch(members, now)
            joined.heirs = members
            for run in members:
                run.heir = joined
            _log.info("lane %s joins %d lanes of %s", joined.name, len(lanes), feed_of(spec).feed)

    def _take_over(self, lane: Lane) -> None:
        """Every heir that is between two batches."""
        taken = False
        for run in list(lane.heirs):
            if run.in_batch or not lane.started or run.lane is None:
                continue
            run.lane.members.remove(run)
            lane.members.append(run)
            lane.heirs.remove(run)
            run.lane, run.heir, run.held = lane, None, False
            taken = True
        if taken:
            self._board.changed.notify_all()

    def _await_heirs(self, lane: Lane, seconds: float) -> None:
        """Before a joined lane's batch: the old lanes leave its spans out from their next border on."""
        deadline = time.monotonic() + seconds
        for run in lane.heirs:
            run.held = True
        while lane.heirs and not lane.stopping.is_set():
            self._take_over(lane)
            left = deadline - time.monotonic()
            if left <= 0 or not lane.heirs:
                break
            self._board.changed.wait(left)
        for run in lane.heirs:
            run.held = False

    def _start(self, lane: Lane, rows_max: int) -> None:
        if self._board.killed:
            return
        settings = self._settings
        source = LaneSource(
            bootstrap=settings.bootstrap,
            rows_max=rows_max,
            options=settings.lane_options,
            reader=reader_properties(settings.bootstrap, settings.kafka),
            one_machine=self._runtime.settings.in_one_process,
        )
        runtime = self._runtime
        try:
            lane.start(runtime.start(), source, runtime.settings.cores, runtime.settings.scratch)
        except (SparkStartError, PySparkException, Py4JError, OSError) as error:
            with self._board.changed:
                lane.failed = True
                for run in list(lane.members):
                    self._keeper.fail(run, "lane_not_started", str(error), retryable=True)
                self._drop(lane)
            return
        with self._board.changed:
            for run in lane.members:
                if run.state is TaskState.PREPARING and not run.stop:
                    run.state = TaskState.REPLICATING if run.claimed else TaskState.PREPARED
                if run.primary and not run.claimed and not run.busy and not run.stop:
                    self._keeper.submit(run, self._keeper.open)
            self._board.changed.notify_all()

    def watch(self) -> None:
        """Spans of a lane that is over go back to the sink's positions; a dead JVM ends every lane."""
        with self._board.changed:
            lanes = list(self.lanes.values())
        for lane in lanes:
            why = None if lane.stopping.is_set() else lane.failure()
            if why is None:
                continue
            _log.warning("lane %s is over: %s", lane.name, why)
            with self._board.changed:
                for run in list(lane.members):
                    self._keeper.fail(run, "lane_lost", why, retryable=True)
                self._drop(lane)

    def _drop(self, lane: Lane) -> None:
        for run in lane.heirs:
            run.heir, run.held = None, False
        lane.heirs = []
        self.lanes.pop(lane.name, None)
        lane.stopping.set()
        self._board.changed.notify_all()
        self._starter.submit(lane.stop)

    def crews(self) -> dict[str, tuple[SpanId, ...]]:
        """The lanes that run and the spans on each, for people and tests."""
        with self._board.changed:
            return {
                name: tuple(sorted(run.task.id for run in lane.members)) for name, lane in sorted(self.lanes.items())
            }


def _behind(run: SpanRun, seen: Mapping[str, Positions]) -> bool:
    """Whether the log up to ``seen`` holds nothing that is wanted and the sink does not have."""
    ends = seen.get(run.task.plan.topic, {})
    return all(ends.get(partition, 0) <= position for partition, position in run.awaited.items())
