"""A lane: one Structured Streaming query that reads several spans' partitions; the batch coordinator gets every batch.

A lane only reads, and remembers what it has delivered; who may write what in a batch is asked at each batch's border,
so a span joins or leaves without the query noticing.
"""

import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.states import Span
from headgate.config.crash_points import CrashPoint, reach
from headgate.replication.arrow_map import map_column
from headgate.replication.causes import cause_of
from headgate.replication.commit_interval import CommitInterval
from headgate.replication.commits import commit_staged
from headgate.replication.feed_parts import FeedIncarnation, server_of_feed
from headgate.replication.frames import HEAD
from headgate.replication.heads import without_heads
from headgate.replication.plan import BatchPlan, TaskResult
from headgate.replication.poll_size import POLL_RECORDS_MAX
from headgate.replication.progress import LaneProgress, ProgressReader
from headgate.replication.spark import end_of_jvm
from headgate.replication.stream import NOTES, Ends, LaneSource, batch_ends, log_ends, polling_delay, rows_of
from headgate.replication.task import applying, set_plan
from headgate.replication.task_slots import TaskSlots

__all__ = ["BatchCoordinator", "Lane", "LaneSource"]

_log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 3.0
"""Without a batch for so long there is nothing to read: a lane with data starts the next one within a second, under
full load too."""

TOLD_SECONDS_MAX: Final = 5.0
"""How long a lane that must end waits for Spark to report its last batch, which usually takes milliseconds."""

TOLD_LOOK_SECONDS: Final = 0.02

BORDER_SECONDS_MAX: Final = 30.0
"""How long a lane that is to end waits for its batch; then that is broken off, and the sink knows what it was."""

GENERATED_ROWS_MIN: Final = 400
"""So many rows per partition of a batch are worth code that Spark generates for it. It is generated again for each
partition, which costs a millisecond; without it a row costs 3 to 5 µs more (docs/benchmarks.md)."""

REST_SECONDS: Final = 1.0
REST_ROWS_MAX: Final = 16
"""Where so few changes come in so long, the next batch begins so long after the one before it, or later: they would be
a batch each otherwise, and a batch costs the same however few they are."""

REST_SETTLED_SECONDS: Final = 5.0
"""How long a lane does not rest after a span came or left: a table that moves would be held up."""

ONE_TASK_PARTITIONS_MAX: Final = 5
ONE_TASK_ROWS_MAX: Final = 64
"""So few are one task: a second one costs some 8 ms of a core, and the batch is not over any sooner for it."""

_POLLING: Final = "spark.sql.streaming.pollingDelay"
_GENERATED: Final = "spark.sql.codegen.factoryMode"

_starting = threading.Lock()
"""The polling delay is the session's, and so is how code is run; a query takes them over while it is built."""


class BatchCoordinator(Protocol):
    """Decides what is written in each batch of a lane. Called on the lane's own thread."""

    def begin_batch(self, lane: "Lane", ends: Ends) -> BatchPlan | None:
        """The plan of the batch up to ``ends``; its spans are this lane's until ``end_batch``. None: it is not run."""
        ...

    def end_batch(self, lane: "Lane", results: list[TaskResult] | None) -> bool:
        """End the batch; ``results`` None: its outcome is unknown. False: it must be planned again."""
        ...

    def is_silent(self, lane: "Lane") -> bool:
        """Whether the sink is known not to answer, so that a batch that has waited for its turn is not run."""
        ...

    def is_awaited(self, lane: "Lane") -> bool:
        """Whether something waits for what the lane reads next, so that it is not held back for the sink's interval."""
        ...


class Lane:
    """One query over the partitions of ``starts``, for spans of one incarnation of one feed.

    ``delivered`` is, per (topic, partition), behind the last offset handed over in a batch that is over; ``members``
    are the spans it may write, ``taking_over`` those it has yet to take over from other lanes, ``served`` those of the
    batch under way, ``served_ends`` up to where each of them is given its rows in it. ``changed_at`` is when a span
    last came or left (monotonic seconds). All of these are changed under the span table's lock; ``members`` as the
    spans' machine requests (JoinLane, LeaveLane).
    """

    def __init__(
        self, name: str, batch_coordinator: BatchCoordinator, feed: FeedIncarnation, group: str, starts: Ends
    ) -> None:
        """``group``: see LaneSource."""
        self.name = name
        self.feed = feed
        self.group = group
        self.delivered = dict(starts)
        self.members: list[SpanId] = []
        self.taking_over: list[SpanId] = []
        self.served: list[SpanId] = []
        self.served_ends: dict[SpanId, Ends] = {}
        self.in_batch = False
        self.started = False
        self.failed = False
        self.poll_records = POLL_RECORDS_MAX
        """How many records its consumers hand over at a time."""
        self.is_outdated = False
        """It could poll more by now, and should be replaced."""
        self.changed_at = time.monotonic()
        self.applying_since: float | None = None
        """When the batch that Spark works on now was given to it (monotonic seconds)."""
        self.batches = 0
        self.stopping = threading.Event()
        self.warmed = threading.Event()
        """Its first batch is over, even if nothing of it was to be written."""
        self.progress = ProgressReader()
        self._starts = dict(starts)
        self._batch_coordinator = batch_coordinator
        self._rows_max = 1
        self._is_small = False
        self._slots = TaskSlots(1, 0)
        self._functions: dict[bool, Column] = {}
        self._latest_rows = 0
        self._rests = False
        self._interval = CommitInterval()
        self._began_at = float("-inf")
        """When its latest batch began that it may have rested after."""
        self._is_generated = False
        self._query: Any = None
        self._execution: Any = None
        """What Spark runs for the query: it knows up to where a batch goes."""
        self._is_known = threading.Event()
        self._folder: Path | None = None
        self._batch_ended_at: float | None = None
        self._broken: str | None = None
        self._border = threading.Condition()
        self._reading = threading.Lock()
        self._serving = False
        self._served_batch = -1

    def take_on(self, span: SpanId) -> None:
        """A span more."""
        self.members.append(span)
        self.changed_at = time.monotonic()

    def part_with(self, span: SpanId) -> None:
        """The span is not its any more."""
        self.members.remove(span)
        self.changed_at = time.monotonic()

    def reads_only(self, spans: Iterable[Span]) -> bool:
        """Whether it reads no partition but those of ``spans``."""
        return self._starts.keys() <= {(span.task.plan.topic, p) for span in spans for p in span.task.plan.start}

    def has_all_before(self, span: Span) -> bool:
        """Whether all that it has delivered is at the span's sink: then it has dropped nothing that is still wanted."""
        topic = span.task.plan.topic
        places = [(topic, partition) for partition in span.readable]
        return all(place in self.delivered and self.delivered[place] <= span.reached(place[1]) for place in places)

    # --- life: called by the queries --------------------------------------------------------------------------------

    def start(self, session: SparkSession, source: LaneSource, slots: TaskSlots, scratch: Path) -> None:
        """Start reading. Raises RefusedOptionError, PySparkException, Py4JError or OSError; 0.3 to 0.6 s."""
        self._slots, self._rows_max, self._rests = slots, source.rows_max, source.rests
        self._interval.seconds = source.commit_seconds
        self._folder = Path(tempfile.mkdtemp(prefix="lane-", dir=scratch))
        stream = rows_of(session, source, self._starts).writeStream.queryName(self.name)
        stream = stream.options(checkpointLocation=self._folder.as_uri(), **NOTES).foreachBatch(self._on_batch)
        stream = stream.trigger(processingTime=f"{round(source.interval_seconds * 1000)} milliseconds")
        with _starting:
            # Tasks of different lanes share the cores fairly; within a pool they would queue up.
            session.sparkContext.setLocalProperty("spark.scheduler.pool", self.name)
            session.conf.set(_POLLING, polling_delay(len(self._starts), rests=source.rests))
            session.conf.set(_GENERATED, _factory_mode(is_generated=False))
            try:
                self._query = stream.start()
            finally:
                session.conf.unset(_GENERATED)  # others who work with the session read and write a lot at a time
        self._execution = self._query._jsq.streamingQuery()
        self._is_known.set()
        self._batch_ended_at = time.monotonic()
        self.started = True
        if self.stopping.is_set():
            self.stop()

    def failure(self) -> str | None:
        """Why it serves no more; None while it does, or has not been started."""
        if self._broken is not None or self._query is None:
            return self._broken
        try:
            if self._query.isActive:
                return None
            error = self._query.exception()
        except (Py4JError, OSError) as gone:
            return end_of_jvm(gone)
        return "the query ended by itself" if error is None else cause_of(error)

    def read_progress(self) -> LaneProgress:
        """The query's latest progress report, or the previous one if Spark does not respond."""
        with suppress(Py4JError, OSError), self._reading:
            if self._query is not None:
                self.progress.read(self._query)
        return self.progress.total

    def is_idle(self) -> bool:
        """Whether the query has found nothing to read for a while: what it has delivered is then all there is."""
        ended = self._batch_ended_at
        is_still = not self._serving and not self._interval.rows_waiting
        return is_still and ended is not None and time.monotonic() - ended > IDLE_SECONDS

    def has_caught_up(self) -> bool:
        """Whether it reads what comes, and no backlog: its last batch was not as large as one may be."""
        return self.started and (self.is_idle() or (self.batches > 0 and self._latest_rows <= self._rows_max // 2))

    def signal_stop(self) -> None:
        """It is to end at its next border."""
        self.stopping.set()

    def stop(self) -> None:
        """End the query, at a border if one comes, and delete its directory; idempotent."""
        self.stopping.set()
        with self._border:
            self._border.wait_for(lambda: not self._serving, BORDER_SECONDS_MAX)
        self._await_progress()
        try:
            if self._query is not None:
                self._query.stop()
        except (Py4JError, PySparkException, OSError) as error:
            _log.info("lane %s: stopping a query that is gone: %s", self.name, error)
        self.read_progress()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _await_progress(self) -> None:
        """Wait until Spark has reported the last batch, so that its rows are counted; not if the query is over."""
        deadline = time.monotonic() + TOLD_SECONDS_MAX
        while self.progress.batch < self._served_batch and self.failure() is None and time.monotonic() < deadline:
            self.read_progress()
            time.sleep(TOLD_LOOK_SECONDS)

    # --- batches: on the query's thread -------------------------------------------------------------------------------

    def _on_batch(self, rows: DataFrame, batch: int) -> None:
        if self.stopping.is_set() or self._broken is not None:
            return
        began = time.monotonic()
        self._serving, self._served_batch = True, batch
        try:
            self._is_known.wait(BORDER_SECONDS_MAX)  # a first batch may come before start() is through
            self._serve(rows, batch_ends(self._execution, self._starts), began)
        except Exception as error:  # noqa: BLE001 (whatever it is, the spans must not wait for a query that is over)
            self._broken = _why(error)
            if not isinstance(error, PySparkException | Py4JError | OSError):
                _log.exception("lane %s", self.name)
        finally:
            self._batch_ended_at = time.monotonic()
            with self._border:
                self._serving = False
                self._border.notify_all()
        self._rest(batch, began)
        self._await_interval(rows.sparkSession, batch)

    def _await_interval(self, session: SparkSession, batch: int) -> None:
        """Hold the next batch back until the sink may be committed to again. Spark takes it for a part of this one."""
        waits = time.monotonic()
        try:
            has_waited = self._broken is None and self._interval.wait(
                self.stopping,
                rows_max=self._rows_max,
                waiting=lambda: self._rows_waiting(session),
                is_awaited=lambda: self._batch_coordinator.is_awaited(self),
            )
        except (PySparkException, Py4JError, OSError) as error:  # the query meets the same, and reports it
            _log.info("lane %s: looking for rows: %s", self.name, _why(error))
            has_waited = True
        if has_waited:
            self._batch_ended_at = time.monotonic()
            waited_ms = round((self._batch_ended_at - waits) * 1000)
            self.progress.rested_ms[batch] = self.progress.rested_ms.get(batch, 0) + waited_ms

    def _rows_waiting(self, session: SparkSession) -> int:
        ends = log_ends(session, self._execution, self._starts)
        return sum(end - self.delivered[place] for place, end in ends.items())

    def _rest(self, batch: int, began: float) -> None:
        """Between two batches, though Spark takes it for a part of the first one."""
        came_in, self._began_at = min(began - self._began_at, REST_SECONDS), began
        are_few = self._latest_rows <= min(REST_ROWS_MAX * came_in / REST_SECONDS, self._rows_max // 2)
        resting = time.monotonic()
        left = began + REST_SECONDS - resting
        is_settled = self._broken is None and resting - self.changed_at > REST_SETTLED_SECONDS
        if self._rests and are_few and is_settled and left > 0:
            self.stopping.wait(left)
            self._batch_ended_at = time.monotonic()
            self.progress.rested_ms[batch] = round((self._batch_ended_at - resting) * 1000)

    def _serve(self, rows: DataFrame, ends: Ends, began: float) -> None:
        is_over = False
        counts = [end - self.delivered[place] for place, end in ends.items()]
        self._latest_rows = sum(counts)
        partitions = sum(count > 0 for count in counts)
        self._generate(rows, is_worth=self._latest_rows >= GENERATED_ROWS_MIN * partitions)
        self._is_small = partitions <= ONE_TASK_PARTITIONS_MAX and self._latest_rows <= ONE_TASK_ROWS_MAX
        while not is_over and (plan := self._batch_coordinator.begin_batch(self, ends)) is not None:
            results: list[TaskResult] | None = None
            try:
                results = self._run(rows, plan)
                results = None if results is None else commit_staged(plan, results)
                if plan.works:
                    spans = [span for task in results or () for span in task.spans]
                    self._interval.committed(began, sum(s.rows for s in spans), sum(s.bytes for s in spans))
                    reach(CrashPoint.BEFORE_CHECKPOINT)
            except (PySparkException, Py4JError, OSError) as error:
                self._broken = _why(error)  # the batch coordinator reports why the answer is missing
                raise
            finally:
                is_over = self._batch_coordinator.end_batch(self, results)
        self.batches += is_over

    def _generate(self, rows: DataFrame, *, is_worth: bool) -> None:
        """Have tasks run code made for this query, or have them interpret it; the session is the query's own."""
        if is_worth != self._is_generated:
            rows.sparkSession.conf.set(_GENERATED, _factory_mode(is_generated=is_worth))
            self._is_generated = is_worth

    def _run(self, rows: DataFrame, plan: BatchPlan) -> list[TaskResult] | None:
        """What came of the batch; None if it was not run, because the lane is to end or its sink does not answer."""
        set_plan(rows.sparkSession.sparkContext, plan)
        sink = server_of_feed(self.feed.spec)
        with self._slots.taken(sink, is_light=self._is_small, given_up=self.stopping.is_set) as tasks:
            if not tasks or self._batch_coordinator.is_silent(self):
                return None
            cut = without_heads(rows, plan.heads).coalesce(tasks)
            self.applying_since = time.monotonic()
            try:
                answers = map_column(cut, self._function(rows, has_heads=bool(plan.heads))).collect()
            finally:
                self.applying_since = None
        return [msgspec.msgpack.decode(bytes(answer[0]), type=TaskResult) for answer in answers]

    def _function(self, rows: DataFrame, *, has_heads: bool) -> Column:
        """What is done with rows of this query, made once."""
        function = self._functions.get(has_heads)
        if function is None:
            columns = [*rows.columns, HEAD] if has_heads else rows.columns
            function = self._functions[has_heads] = applying(columns)
        return function


def _factory_mode(*, is_generated: bool) -> str:
    return "FALLBACK" if is_generated else "NO_CODEGEN"


def _why(error: Exception) -> str:
    if not isinstance(error, Py4JNetworkError | ConnectionError):
        try:
            return cause_of(error)
        except (Py4JError, OSError) as gone:  # the text of the error was in the JVM
            return end_of_jvm(gone)
    return end_of_jvm(error)
