"""The lanes of an executor: how they begin, are woken, and end.

Which lane a span is on is decided in placement.py, what a batch may write in crew.py. Here lanes are started for spans
that have none to go to, and are ended without spans. What is made anew when spans come and go is the lane's alarm only,
and beside the old one.
"""

import itertools
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headgate.agent.executor import SpanId, SpanTask
from headgate.agent.lane.alarm import Alarm
from headgate.agent.lane.crew import LaneCrew
from headgate.agent.lane.keeper import Board, SpanKeeper
from headgate.agent.lane.lane import Lane, LaneSource
from headgate.agent.lane.parts import feed_of
from headgate.agent.lane.placement import JOIN_SECONDS, Placement
from headgate.agent.lane.plan import Letterbox
from headgate.agent.lane.span import positions_of
from headgate.agent.lane.spark import RefusedOptionError, SparkRuntime, SparkStartError
from headgate.sources.fetching import reader_properties
from headgate.sources.reader import Reading

__all__ = ["ExecutorSettings", "Fleet"]

_log = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 1.0
"""A lane with spans that its alarm does not know gets another alarm once it has found no rows, and no more spans have
come, for so long: while it is busy nothing needs to wake it, and a query that starts takes half a second of a core."""

SETTLE_SECONDS_MAX: Final = 30.0
"""After that they are watched all the same: a lane whose spans or rows come one by one looks twenty times a second."""

STRANGERS_SECONDS: Final = 5.0
"""An alarm that rings for spans that have left is replaced after that: often more of them leave."""

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


class Fleet:
    """All lanes; ``turn`` and ``watch`` are the control thread's."""

    def __init__(self, board: Board, keeper: SpanKeeper, runtime: SparkRuntime, settings: ExecutorSettings) -> None:
        self.lanes: dict[str, Lane] = {}
        self.placement = Placement(board, keeper, self.lanes, self._launch)
        self.crew = LaneCrew(board, keeper, settings.letterbox, self.placement.go_over)
        self._board = board
        self._keeper = keeper
        self._runtime = runtime
        self._settings = settings
        self._started_at = 0.0
        self._starter = ThreadPoolExecutor(2, thread_name_prefix="headgate-lane")

    def signal_stop(self) -> None:
        """Every lane is to end at its next border."""
        for lane in self.lanes.values():
            lane.signal_stop()

    def close(self) -> None:
        """Take no more work."""
        self._starter.shutdown(wait=False, cancel_futures=True)

    # --- starting and ending lanes: on the control thread, with the board's lock ------------------------

    def turn(self, now: float) -> None:
        """Find lanes for what is ready, join what has caught up, end lanes without spans, renew alarms."""
        self.placement.place_ready(now)
        if now - self._started_at >= JOIN_SECONDS:
            self.placement.join(now)
        for lane in [lane for _, lane in sorted(self.lanes.items()) if not lane.members]:
            self._drop(lane)
        for lane in self.lanes.values():
            if lane.started and lane.is_resting and self.crew.owing(lane):
                lane.wake()
        for _, lane in sorted(self.lanes.items()):
            if lane.started and not lane.wiring and self._is_alarm_due(lane, now):
                lane.wiring = True
                self._starter.submit(self._guarded, lane, self._wire)

    def _launch(self, task: SpanTask, now: float) -> Lane:
        lane = Lane(f"{task.id.feed}-{next(_lane_numbers)}", self.crew, task.spec)
        self.lanes[lane.name] = lane
        self._started_at = now
        self._starter.submit(self._guarded, lane, self._begin)
        return lane

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
                self.placement.settle(run)
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
