"""The lanes of an executor: who is on which, what each batch may write, and how spans get from one to another.

What keeps a span exact whatever lane it is on: it is planned into a batch only if it is claimed and in no other batch,
and every batch reads it from the sink's position on. A lane remembers nothing that could be wrong.

So a span changes lanes between two batches, and nobody waits for it. Each feed has a home lane, its largest. A span
that arrives with little to catch up goes there at once; one with a backlog, or one that is slow, has a lane beside it
until it has caught up. What is made anew when spans come and go is the lane's alarm only, and beside the old one.
"""

import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headgate.agent.executor import SpanId, SpanTask
from headgate.agent.lane.alarm import Alarm
from headgate.agent.lane.keeper import Board, SpanKeeper
from headgate.agent.lane.lane import Lane, LaneSource
from headgate.agent.lane.parts import feed_of
from headgate.agent.lane.plan import BatchPlan, Letterbox, SpanResult, TaskResult
from headgate.agent.lane.span import SpanRun, positions_of
from headgate.agent.lane.spark import RefusedOptionError, SparkRuntime, SparkStartError
from headgate.config.feed import FeedSpec
from headgate.records.control import TaskState
from headgate.sources.fetching import reader_properties
from headgate.sources.offsets import SourceUnreachableError
from headgate.sources.reader import Reading

__all__ = ["ARRIVAL_SECONDS", "ExecutorSettings", "Fleet", "LaneCpu"]

_log = logging.getLogger(__name__)

ARRIVAL_SECONDS: Final = 0.2
"""Spans that become ready within this time share a lane; a lane of its own for each would cost its fixed work."""

ARRIVAL_ROWS_MAX: Final = 20_000
"""A span with so much to catch up joins the home lane at once: it is less than half a second of a batch of all."""

JOIN_SECONDS: Final = 5.0
"""Spans go over to their feed's home lane once no lane has started for so long: several arrive at a time."""

JOIN_LAG_MS: Final = 2_000
"""A span that lags more has better things to do than to share batches."""

SETTLE_SECONDS: Final = 1.0
"""A lane with spans that its alarm does not know gets another alarm once it has found no rows, and no more spans have
come, for so long: while it is busy nothing needs to wake it, and a query that starts takes half a second of a core."""

SETTLE_SECONDS_MAX: Final = 30.0
"""After that they are watched all the same: a lane whose spans or rows come one by one looks twenty times a second."""

STRANGERS_SECONDS: Final = 5.0
"""An alarm that rings for spans that have left is replaced after that: often more of them leave."""

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

TOPICS_SECONDS: Final = 10.0
"""How often a lane's topics are looked for. A reader is not told when one is deleted, and an alarm does not hear of it
while its lane is busy; the owner looks as often (coordinator/discovery.py)."""

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
        self._looked_at = time.monotonic()
        self._missing: frozenset[str] = frozenset()
        self._starter = ThreadPoolExecutor(2, thread_name_prefix="headgate-lane")

    def signal_stop(self) -> None:
        """Every lane is to end at its next border."""
        for lane in self.lanes.values():
            lane.signal_stop()

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
            works = []
            waiting = False
            owing = self._owing(lane)
            for run in lane.members:
                if run.writable and not run.in_batch:
                    run.in_batch = True
                    works.append(run.work(feed.quarantine_per_hour_max, settle=run in owing))
                    waiting |= bool(lane.unwatched) and not lane.unwatched.isdisjoint(run.places)
            return BatchPlan(lane.spec, tuple(works), letterbox, waiting=waiting)

    def _owing(self, lane: Lane) -> list[SpanRun]:
        """Members whose positions at the sink are to follow now, those that have waited longest first."""
        now = time.monotonic()
        owing = [run for run in lane.members if run.owes(now) and run.writable]
        return sorted(owing, key=lambda run: (run.rests_since or now, run.task.id))[:SETTLED_MAX]

    def _letterbox(self, feed: FeedSpec) -> Letterbox | None:
        if feed.on_bad_change != "quarantine":
            return None
        if self._settings.letterbox is None:
            raise ValueError(f"feed {feed.feed} wants bad changes set aside, but this executor has no letterbox")
        return self._settings.letterbox

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
            self._keeper.fail(run, result.error_code, result.error or "", retryable=result.retryable)

    # --- starting, joining and ending lanes: on the control thread, with the board's lock ------------------------

    def turn(self, now: float) -> None:
        """Find lanes for what is ready, join what has caught up, end lanes without spans, renew alarms."""
        self._place_ready(now)
        if now - self._started_at >= JOIN_SECONDS:
            self._join(now)
        for lane in [lane for _, lane in sorted(self.lanes.items()) if not lane.members]:
            self._drop(lane)
        if self.lanes and now - self._looked_at >= TOPICS_SECONDS:
            self._looked_at = now
            self._starter.submit(self.look_for_topics)
        for lane in self.lanes.values():
            if lane.started and lane.is_resting and self._owing(lane):
                lane.wake()
        for _, lane in sorted(self.lanes.items()):
            if lane.started and not lane.wiring and self._is_alarm_due(lane, now):
                lane.wiring = True
                self._starter.submit(self._guarded, lane, self._wire)

    def _place_ready(self, now: float) -> None:
        """The home lane for those that may share it, if there is one; else one lane per kind (written, warm, slow)."""
        groups: dict[tuple[str, bool, SpanId | None], list[SpanRun]] = {}
        for _, run in sorted(self._board.runs.items()):
            if run.ready_at is None or run.busy or run.stop or run.over:
                continue
            alone = run.task.id if run.alone_until > now else None
            home = self._home(run.task.spec) if alone is None and run.backlog <= ARRIVAL_ROWS_MAX else None
            if home is not None:
                self._enter(home, run)
            else:
                groups.setdefault((run.task.spec, run.claimed, alone), []).append(run)
        for runs in groups.values():
            if now - min(run.ready_at or now for run in runs) >= ARRIVAL_SECONDS:
                lane = self._launch(runs[0].task, now)
                for run in runs:
                    self._enter(lane, run)

    def _home(self, spec: str) -> Lane | None:
        """Where a feed's spans belong together: its lane with the most of them, none of which is slow."""
        now = time.monotonic()
        lanes = [
            lane
            for _, lane in sorted(self.lanes.items())
            if lane.spec == spec
            and not lane.failed
            and not lane.stopping.is_set()
            and not any(run.alone_until > now or run.backlog > ARRIVAL_ROWS_MAX for run in lane.members)
        ]
        return max(lanes, key=lambda lane: len(lane.members), default=None)

    def _enter(self, lane: Lane, run: SpanRun) -> None:
        run.lane, run.heir, run.ready_at = lane, None, None
        lane.take_on(run)
        if lane.started:
            self._settle(run)
            lane.wake()

    def _settle(self, run: SpanRun) -> None:
        """Its lane serves."""
        if run.state is TaskState.PREPARING and not run.stop:
            run.state = TaskState.REPLICATING if run.claimed else TaskState.PREPARED
        if run.primary and not run.claimed and not run.busy and not run.stop:
            self._keeper.submit(run, self._keeper.open)

    def _launch(self, task: SpanTask, now: float) -> Lane:
        lane = Lane(f"{task.id.feed}-{next(_lane_numbers)}", self, task.spec)
        self.lanes[lane.name] = lane
        self._started_at = now
        self._starter.submit(self._guarded, lane, self._begin)
        return lane

    def _join(self, now: float) -> None:
        """Spans that have caught up beside their feed's home lane go over to it."""
        for spec in sorted({lane.spec for lane in self.lanes.values()}):
            for run in [run for lane in self.lanes.values() if lane.spec == spec for run in lane.members]:
                if run.has_caught_up(JOIN_LAG_MS):
                    run.backlog = 0
            home = self._home(spec)
            if home is None or not home.started:
                continue
            for lane in [lane for _, lane in sorted(self.lanes.items()) if lane.spec == spec and lane is not home]:
                for run in list(lane.members):
                    quiet = run.writable and run.state is TaskState.REPLICATING and run.alone_until <= now
                    if quiet and run.has_caught_up(JOIN_LAG_MS):
                        run.heir = home
                        self._go_over(run)

    def _go_over(self, run: SpanRun) -> None:
        """To the lane that it is to be on, if no batch has it."""
        home = run.heir
        if home is None or run.in_batch or run.lane is None:
            return
        run.heir = None
        if home.name in self.lanes and not home.failed:
            run.lane.part_with(run)
            self._enter(home, run)

    def _is_alarm_due(self, lane: Lane, now: float) -> bool:
        """Not while the lane is busy anyway: it looks by itself, and a query that starts would take its cores away."""
        alarm = lane.alarm
        settled = now - lane.changed_at
        if lane.unwatched:
            quiet = 0.0 if lane.looking_since is None else now - lane.looking_since
            return min(quiet, settled) >= SETTLE_SECONDS or now - (lane.unwatched_since or now) >= SETTLE_SECONDS_MAX
        if alarm is None or settled < STRANGERS_SECONDS or not lane.is_resting:
            return False
        return not alarm.places.issubset(place for run in lane.members for place in run.places)

    def look_for_topics(self) -> None:
        """Send spans whose topic is missing at two looks in a row back, to find out what has become of it."""
        try:
            present = self._keeper.present_topics()
        except SourceUnreachableError as error:
            _log.info("looking for the topics of lanes: %s", error)
            return
        with self._board.changed:
            runs = [run for _, lane in sorted(self.lanes.items()) for run in lane.members]
            # At one look only it may be so new that this broker has not heard of it yet.
            missing = frozenset(run.task.plan.topic for run in runs).difference(present)
            for run in runs:
                if run.task.plan.topic in missing & self._missing:
                    self._keeper.restart(run, "its topic is not there any more")
            self._missing = missing

    def _guarded(self, lane: Lane, step: Callable[[Lane], None]) -> None:
        """On the starter's threads: a lane that cannot be started, or watched, sends its spans back."""
        if self._board.killed:
            return
        try:
            step(lane)
        except (SparkStartError, RefusedOptionError, PySparkException, Py4JError, OSError) as error:
            with self._board.changed:
                lane.failed = True
                for run in list(lane.members):
                    self._keeper.fail(run, "lane_not_started", str(error), retryable=True)
                self._drop(lane)

    def _begin(self, lane: Lane) -> None:
        session = self._runtime.start()
        options = self._runtime.settings
        lane.begin(session, self._source(feed_of(lane.spec).batch_rows_max), options.cores, options.scratch)
        with self._board.changed:
            starts = positions_of(run for run in lane.members if not run.claimed)
        if starts:
            lane.warm_up(
                [Reading(topic, *at, at[1]) for topic in sorted(starts) for at in sorted(starts[topic].items())]
            )
        with self._board.changed:
            for run in lane.members:
                self._settle(run)
            lane.wake()
            self._board.changed.notify_all()

    def _wire(self, lane: Lane) -> None:
        """Another alarm, over what its spans read now."""
        with self._board.changed:
            starts = positions_of(lane.members)
        before = None
        if starts:
            alarm = Alarm(f"{lane.name}.{next(_lane_numbers)}", lane, starts)
            alarm.start(self._runtime.start(), self._source(1), self._runtime.settings.scratch)
            with self._board.changed:
                before = lane.watch_with(alarm)
        with self._board.changed:
            lane.wiring = False
            self._board.changed.notify_all()
        if before is not None:
            before.stop()

    def _source(self, rows_max: int) -> LaneSource:
        settings = self._settings
        return LaneSource(
            bootstrap=settings.bootstrap,
            rows_max=rows_max,
            options=settings.lane_options,
            reader=reader_properties(settings.bootstrap, settings.kafka),
            one_machine=self._runtime.settings.in_one_process,
        )

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
        self.lanes.pop(lane.name, None)
        lane.signal_stop()
        self._board.changed.notify_all()
        self._starter.submit(lane.stop)

    def crews(self) -> dict[str, tuple[SpanId, ...]]:
        """The lanes that run and the spans on each, for people and tests."""
        with self._board.changed:
            return {
                name: tuple(sorted(run.task.id for run in lane.members)) for name, lane in sorted(self.lanes.items())
            }
