"""Starts and stops the lanes of an executor.

Which lane a span is on is decided in placement.py, what a batch may write in batch_coordinator.py. Here their queries
are started, watched, and ended without spans.
"""

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.inputs import (
    Failed,
    JoinLane,
    LaneLost,
    LeaveLane,
    Served,
)
from headgate.agent.core.span.states import OVER, Span, Stop
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.log import Log
from headgate.records.error_codes import MEMORY_SHORT, SINK_SLOW
from headgate.replication.batch_coordinator import LaneBatchCoordinator
from headgate.replication.causes import cause_of
from headgate.replication.consumer_groups import ConsumerGroups
from headgate.replication.feed_parts import FeedIncarnation, feed_of, server_of_feed
from headgate.replication.lane import Lane, LaneSource
from headgate.replication.placement import JOIN_SECONDS, Placement
from headgate.replication.plan import DeadLetterTarget
from headgate.replication.poll_size import POLL_RECORDS_MAX
from headgate.replication.progress import LaneProgress, most_behind
from headgate.replication.silent_sinks import WAITING_SECONDS
from headgate.replication.span_lifecycle import SpanLifecycle
from headgate.replication.span_table import SpanTable
from headgate.replication.spark import SparkRuntime, SparkStartError
from headgate.replication.spark_options import RefusedOptionError
from headgate.runtime.shared_pool import SharedPool

__all__ = ["ExecutorSettings", "Queries", "positions_of"]

_log = logging.getLogger(__name__)

WARM_SECONDS_MAX: Final = 3.0
"""How long a warm lane's first batch is waited for before its spans are called prepared; there may be no rows."""

STARTERS: Final = 4
"""Lanes that start at a time: a start takes half a second of a core, and a warm lane's first batch is waited for."""

ENDERS: Final = 4
ENDERS_MAX: Final = 32
"""Lanes that end at a time, per sink server and in total. One that ends waits for its last batch, which may wait for a
sink that does not answer; lanes of other sinks neither start nor end any later for it."""

_lane_numbers = itertools.count(1)
"""Names of queries are unique per Spark session, which outlives executors."""


class ExecutorSettings(msgspec.Struct, frozen=True):
    """What the executor must know besides Spark: the source cluster and its identity.

    ``log``: the control topics, for feeds that read change logs.

    ``kafka`` are further client properties by librdkafka's names for asking offsets, ``lane_options`` by Java's names
    for reading; ``dead_letters`` is where feeds that ask for it set bad changes aside. ``now_ms``: the time by the
    broker's clock, for lags.
    """

    bootstrap: str
    cluster_id: str
    kafka: Mapping[str, str] = {}
    lane_options: Mapping[str, str] = {}
    dead_letters: DeadLetterTarget | None = None
    log: Log | None = None
    now_ms: Callable[[], int] = wall_ms


class Queries:
    """All lanes; ``turn`` and ``watch`` are the control thread's."""

    def __init__(
        self, table: SpanTable, lifecycle: SpanLifecycle, runtime: SparkRuntime, settings: ExecutorSettings
    ) -> None:
        self.lanes: dict[str, Lane] = {}
        self.placement = Placement(table, self.lanes, self._launch)
        self.batch_coordinator = LaneBatchCoordinator(
            table, lifecycle, self.lanes, settings.dead_letters, lifecycle.change_logs, now_ms=settings.now_ms
        )
        self._table = table
        self._lifecycle = lifecycle
        self._runtime = runtime
        self._settings = settings
        self._groups = ConsumerGroups()
        self._started_at = 0.0
        self._ending: list[Lane] = []
        self._ended = LaneProgress()
        self._starter = SharedPool("headgate-lane", threads=2 * STARTERS + 2, usual=STARTERS, each=STARTERS)
        self._ender = SharedPool("headgate-lane-end", threads=ENDERS_MAX, usual=ENDERS_MAX // 2, each=ENDERS)
        table.performers[JoinLane] = self._join
        table.performers[LeaveLane] = self._leave

    def _join(self, span: Span, effect: JoinLane) -> None:
        self.lanes[effect.lane].take_on(span.id)

    def _leave(self, span: Span, effect: LeaveLane) -> None:
        self.lanes[effect.lane].part_with(span.id)

    def signal_stop(self) -> None:
        """Every lane is to end at its next border."""
        for lane in self.lanes.values():
            lane.signal_stop()

    def close(self) -> None:
        """Take no more work."""
        self._starter.shutdown()
        self._ender.shutdown()

    # --- starting and ending lanes: on the control thread, with the table's lock ------------------------

    def turn(self, now: float) -> None:
        """Find lanes for what is ready, join those that have caught up, end lanes without spans, move positions."""
        self._turn_polls(now)
        self.placement.place_ready(now)
        for lane in self.lanes.values():
            if lane.taking_over and lane.started and not lane.in_batch:
                self.batch_coordinator.take_over(lane)
        for lane in [lane for _, lane in sorted(self.lanes.items()) if not lane.members and not lane.taking_over]:
            self._drop(lane)
        if now - self._started_at >= JOIN_SECONDS:
            self.placement.join(now)
        for lane in self.lanes.values():
            if lane.started and not lane.in_batch:
                for span, errand in self.batch_coordinator.errands(lane).items():
                    self._table.apply(span, errand)
                self.batch_coordinator.send_back(lane)

    def _turn_polls(self, now: float) -> None:
        """Lanes that poll less than they may by now are replaced, since a query keeps the size it was started with."""
        sizes = self._runtime.poll_size
        if sizes.turn(now):
            for lane in self.lanes.values():
                lane.is_outdated = lane.started and lane.poll_records < sizes.records

    def slowness(self, span: Span) -> tuple[str, str] | None:
        """Why the span waits, or its lane is slower than it could be, as code and text; None if neither is so.

        A text stays the same for as long as its reason does: each other one is a record on the log.
        """
        if (waiting := self._lifecycle.why_waiting(span, time.monotonic())) is not None:
            return SINK_SLOW, waiting
        lane = None if span.lane is None else self.lanes.get(span.lane)
        if lane is None or lane.poll_records >= POLL_RECORDS_MAX or not _is_behind(span, lane):
            return None
        why = (
            f"{span.task.plan.table}: the agent's Spark JVM has run out of memory, so it reads {lane.poll_records} "
            f"records at a time instead of {POLL_RECORDS_MAX}, which is slower. The number grows tenfold after each "
            f"stretch without that (now {self._runtime.poll_size.calm_seconds:.0f} s)"
        )
        return MEMORY_SHORT, why

    def _launch(self, spans: Sequence[Span], now: float) -> Lane:
        task = spans[0].task
        feed = FeedIncarnation.of_task(task)
        group = self._groups.tag(feed, ((span.task.plan.topic, span.progress.topic_id) for span in spans))
        name = f"{task.id.feed}-{next(_lane_numbers)}"
        lane = Lane(name, self.batch_coordinator, feed, group, positions_of(spans))
        self.lanes[lane.name] = lane
        self._started_at = now
        self._starter.submit(server_of_feed(feed.spec), self._guarded, lane, self._begin)
        return lane

    def _guarded(self, lane: Lane, step: Callable[[Lane], None]) -> None:
        """On the starter's threads: a lane that cannot be started, or watched, sends its spans back."""
        if self._table.killed:
            return
        try:
            step(lane)
        except (SparkStartError, RefusedOptionError, PySparkException, Py4JError, OSError) as error:
            why = str(error) if isinstance(error, SparkStartError) else cause_of(error)
            with self._table.changed:
                lane.failed = True
                for span in tuple(lane.members):
                    self._table.apply(span, Failed("lane_not_started", why, retryable=True))
                self._drop(lane)

    def _begin(self, lane: Lane) -> None:
        session = self._runtime.start()
        settings, options, feed = self._settings, self._runtime.settings, feed_of(lane.feed.spec)
        lane.poll_records = self._runtime.poll_size.records
        source = LaneSource(
            bootstrap=settings.bootstrap,
            group=lane.group,
            rows_max=feed.batch_rows_max,
            interval_seconds=0.0 if feed.batch_interval_seconds == "auto" else feed.batch_interval_seconds,
            rests=feed.batch_interval_seconds == "auto",
            commit_seconds=feed.commit_interval_seconds,
            options=settings.lane_options,
            headers=feed.may_set_aside,
            marks=feed.source.change_log is not None,
            poll_records=lane.poll_records,
        )
        lane.start(session, source, self._runtime.slots, options.scratch)
        if any(span.progress.backlog and not span.claimed for span in self._table.members(lane.members)):
            lane.warmed.wait(WARM_SECONDS_MAX)
        with self._table.changed:
            for span in tuple(lane.members):
                self._table.apply(span, Served())

    def watch(self) -> None:
        """Spans of a lane that is over go back to the sink's positions; a dead JVM ends every lane."""
        self._runtime.end_if_starved(time.monotonic())
        with self._table.changed:
            lanes = list(self.lanes.values())
        self._check_sinks(lanes)
        for lane in lanes:
            lane.read_progress()
            why = None if lane.stopping.is_set() else lane.failure()
            if why is None:
                continue
            _log.warning("lane %s is over: %s", lane.name, why)
            with self._table.changed:
                members = tuple(lane.members)
                for span in members:
                    self._table.apply(span, LaneLost(why, alone=len(members) == 1 or not self._runtime.alive()))
                self._drop(lane)

    def _check_sinks(self, lanes: Sequence[Lane]) -> None:
        """Name the servers that calls and batches have waited for, long before those give up."""
        now = time.monotonic()
        for lane in lanes:
            since = lane.applying_since
            if since is not None and now - since >= WAITING_SECONDS:
                with self._table.changed:
                    members = self._table.members(lane.members)
                for span in members[:1]:
                    self._lifecycle.check(span, now)
        for text in self._lifecycle.silent_sinks.reports():
            _log.warning("%s", text)

    def _drop(self, lane: Lane) -> None:
        lane.taking_over = []
        if self.lanes.pop(lane.name, None) is not None:
            self._ending.append(lane)
        lane.signal_stop()
        self._table.changed.notify_all()
        self._ender.submit(server_of_feed(lane.feed.spec), self._end, lane)

    def _end(self, lane: Lane) -> None:
        lane.stop()
        with self._table.changed:
            if lane in self._ending:
                self._ending.remove(lane)
                self._ended.add(lane.progress.total)
            live = {other.feed for other in (*self.lanes.values(), *self._ending)}
            # A span that is retried has no lane until then. What its decoder remembers counts: how long
            # a schema has been unknown, for example.
            live |= {FeedIncarnation.of_task(span.task) for span in self._table.all() if _is_kept(span)}
        if lane.feed not in live:
            self._runtime.close_unused(live)

    def is_idle(self, span: Span) -> bool:
        """Whether its lane finds nothing to read."""
        lane = None if span.lane is None else self.lanes.get(span.lane)
        return lane is not None and lane.is_idle()

    def spans_by_lane(self) -> dict[str, tuple[SpanId, ...]]:
        """The lanes that run and the spans on each, for people and tests."""
        with self._table.changed:
            return {name: tuple(sorted(lane.members)) for name, lane in sorted(self.lanes.items())}

    def progress(self) -> LaneProgress:
        """The progress that Spark has reported of all queries so far, ended ones included."""
        with self._table.changed:
            total = msgspec.structs.replace(self._ended, step_ms=dict(self._ended.step_ms))
            running, ending = [*self.lanes.values()], [*self._ending]
        for lane in (*running, *ending):
            total.add(lane.read_progress())
        total.behind_rows = most_behind(lane.progress.total.behind_rows for lane in running)
        return total


def positions_of(spans: Iterable[Span]) -> dict[tuple[str, int], int]:
    """(topic, partition) → where to continue to read its span; the last of them, where several read it."""
    found: dict[tuple[str, int], int] = {}
    for span in spans:
        for partition in span.readable or span.positions:
            place, start = (span.task.plan.topic, partition), span.reached(partition)
            found[place] = min(start, found.get(place, start))
    return found


def _is_kept(span: Span) -> bool:
    """Whether it runs, or will run again by itself."""
    return span.stop is Stop.NOT and span.phase not in OVER


def _is_behind(span: Span, lane: Lane) -> bool:
    """Whether the size of a poll slows the span down. Before the lane's first batch ends, its claim's backlog decides.

    That batch may take minutes if polls are small.
    """
    return not lane.has_caught_up() if lane.batches else lane.started and span.progress.backlog > lane.poll_records
