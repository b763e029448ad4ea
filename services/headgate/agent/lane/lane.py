"""A lane: batch after batch over its spans, read by Spark's tasks from the sink's positions until the log's end is met.

A lane rests when there is nothing more; its alarm (a Structured Streaming query over its partitions) wakes it when the
log grows. Who may write what in a batch is asked at each batch's border, so a span joins or leaves without its
neighbours noticing: only the alarm is made anew, beside the lane, and until it watches the new span the lane looks by
itself.
"""

import functools
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headgate.agent.lane.alarm import Alarm, LaneSource
from headgate.agent.lane.plan import BatchPlan, TaskPlan, TaskResult
from headgate.agent.lane.planner import TaskPlanner
from headgate.agent.lane.span import SpanRun
from headgate.agent.lane.task import read_task
from headgate.config.crash_points import CrashPoint, reach
from headgate.sources.offsets import SourceUnreachableError
from headgate.sources.reader import Reading

__all__ = ["Crew", "Lane", "LaneSource"]

_log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 3.0
"""Without a batch for so long there is nothing to read: a lane with data starts the next one within a second, under
full load too."""

OWED_SECONDS: Final = 0.05
"""How soon a lane looks again for what its alarm does not watch yet, or for rows that are said to be there."""

LINGER_SECONDS: Final = 0.25
"""So long after its last row a lane goes on looking before it rests. A task's look costs a few milliseconds of a core
and waits for rows where they come first; the alarm answers only after a micro-batch of Spark's, a tenth of a second."""

STALL_SECONDS_MAX: Final = 60.0
"""The log is said to hold more and nothing comes: the lane is given up, and its spans start again."""


class Crew(Protocol):
    """Decides what is written in each batch of a lane. Called on the lane's own thread."""

    def begin_batch(self, lane: "Lane") -> BatchPlan | None:
        """The batch's plan; the spans in it are this lane's until ``end_batch``. None: the lane is to stop."""
        ...

    def end_batch(self, lane: "Lane", plan: BatchPlan, results: list[TaskResult] | None) -> None:
        """The batch is over; ``results`` None means that nobody knows what it has written."""
        ...


class Lane:
    """One loop over batches. ``members`` are the spans it may write; ``alarm`` is what wakes it.

    ``unwatched`` are partitions of its spans that the alarm does not know, ``unwatched_since`` when the first of them
    came. ``changed_at`` is when a span last joined or left; ``wiring``: another alarm is on its way. All of these are
    changed under the board's lock. ``looking_since``: from when on it has found nothing for which no alarm would wake
    it, though it has looked. Times are monotonic seconds.
    """

    def __init__(self, name: str, crew: Crew, spec: str) -> None:
        self.name = name
        self.spec = spec
        self.members: list[SpanRun] = []
        self.started = False
        self.failed = False
        self.wiring = False
        self.changed_at = time.monotonic()
        self.looking_since: float | None = None
        self.unwatched_since: float | None = None
        self.alarm: Alarm | None = None
        self.unwatched: set[tuple[str, int]] = set()
        self.stopping = threading.Event()
        self.batches = 0
        self._crew = crew
        self._cores = 1
        self._folder: Path | None = None
        self._source = LaneSource(bootstrap="", rows_max=1)
        self._numbers: Any = None
        self._thread: threading.Thread | None = None
        self._broken: str | None = None
        self._bell = threading.Condition()
        self._wakes = self._rested = 0
        self._rested_at: float | None = None
        self.planner = TaskPlanner(name)

    # --- life: called by the fleet --------------------------------------------------------------------------------

    def begin(self, session: SparkSession, source: LaneSource, cores: int, scratch: Path) -> None:
        """Begin to serve. Raises PySparkException, Py4JError or OSError."""
        self._cores, self._source = cores, source
        self._folder = Path(tempfile.mkdtemp(prefix="lane-", dir=scratch))
        self._numbers = session.sparkContext.parallelize(range(cores), cores)
        self._thread = InheritableThread(target=self._live, name=f"headgate-lane-{self.name}", daemon=True)
        self._thread.start()
        self.started = True

    def warm_up(self, places: Sequence[Reading]) -> None:
        """Have workers and readers ready for ``places``, of which nothing may be written yet; their rows are dropped.

        On the caller's thread. Raises PySparkException or Py4JError.
        """
        plan = BatchPlan(spec=self.spec, works=())
        readings = (tuple(places),) * self._cores
        self._job(TaskPlan(plan, self.name, self._source.reader, readings, rows_max=1))

    def watch_with(self, alarm: Alarm) -> Alarm | None:
        """From now on ``alarm`` wakes it; returns the one before, put off, for the caller to stop."""
        before, self.alarm = self.alarm, alarm
        self.unwatched = {place for run in self.members for place in run.places} - alarm.places
        self.looking_since = None
        self.unwatched_since = time.monotonic() if self.unwatched else None
        for old in (before, alarm if self.stopping.is_set() else None):
            if old is not None:
                old.off.set()
        self._ring_bell()
        return before

    def take_on(self, run: SpanRun) -> None:
        """A span more. It must be between two batches."""
        self.members.append(run)
        self.changed_at = time.monotonic()
        self.planner.hear({(run.task.plan.topic, partition): end for partition, end in run.log_ends.items()})
        self.unwatched.update(set(run.places) - (self.alarm.places if self.alarm is not None else frozenset()))
        if self.unwatched and self.unwatched_since is None:
            self.unwatched_since = self.changed_at

    def part_with(self, run: SpanRun) -> None:
        """The span is not its any more."""
        if run in self.members:
            self.members.remove(run)
            self.changed_at = time.monotonic()
            self.unwatched &= {place for other in self.members for place in other.places}
            if not self.unwatched:
                self.unwatched_since = None

    def failure(self) -> str | None:
        """Why it serves no more; None while it does."""
        if self._broken is not None:
            return self._broken
        return None if self.alarm is None else self.alarm.failure()

    def is_idle(self) -> bool:
        """Whether it has found nothing to read for a while: what it has delivered is then all there is."""
        rested = self._rested_at
        return rested is not None and time.monotonic() - rested > IDLE_SECONDS

    @property
    def is_resting(self) -> bool:
        """Whether it has nothing to do just now."""
        return self._rested == self._wakes

    def signal_stop(self) -> None:
        """It is to end at its next border."""
        self.stopping.set()
        if self.alarm is not None:
            self.alarm.off.set()
        self._ring_bell()

    def stop(self) -> None:
        """End it, its alarm, and its directory. Blocks until a batch under way is over; idempotent."""
        self.signal_stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self.alarm is not None:
            self.alarm.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    # --- sleeping and waking --------------------------------------------------------------------------------------

    def wake(self, ends: Mapping[tuple[str, int], int] | None = None) -> None:
        """The log has grown up to ``ends``; or, without, a span may now be written that could not before."""
        with self._bell:
            self.planner.tell(ends or {})
            self._wakes += 1
            self._bell.notify_all()

    def await_rest(self, off: threading.Event) -> None:
        """See Sleeper."""
        with self._bell:
            mine = self._wakes
            while self._rested < mine and not off.is_set() and not self.stopping.is_set() and self._broken is None:
                self._bell.wait()

    def _ring_bell(self) -> None:
        with self._bell:
            self._bell.notify_all()

    def _live(self) -> None:
        # Tasks of different lanes share the cores fairly; within a pool they would queue up.
        try:
            self._numbers.context.setLocalProperty("spark.scheduler.pool", self.name)
            while self._sleep():
                self._rested_at = None
                answered = self._wakes
                self._serve()
                self._rested_at = time.monotonic()
                with self._bell:
                    self._rested = answered
                    self._bell.notify_all()
        except Exception as error:  # noqa: BLE001 (whatever it is, the spans must not wait for a loop that is over)
            self._broken = f"{type(error).__name__}: {error}"
            if not isinstance(error, PySparkException | Py4JError | OSError | SourceUnreachableError):
                _log.exception("lane %s", self.name)
            self._ring_bell()

    def _sleep(self) -> bool:
        """Until it is woken; False when it is to end."""
        with self._bell:
            while self._rested == self._wakes and not self.stopping.is_set():
                self._bell.wait()
        return not self.stopping.is_set()

    # --- batches --------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Batch after batch until all that it was woken for is at the sink, and no more is there."""
        fruitful_at, found = time.monotonic(), False
        while not self.stopping.is_set():
            plan = self._crew.begin_batch(self)
            if plan is None or not plan.works:
                return  # whoever may be written later wakes the lane
            tasks = self.planner.plan(plan, self._source, self._cores, self._claims)
            results: list[TaskResult] | None = None
            try:
                results = self._job(tasks)
                self.planner.learn(tasks, results)
                reach(CrashPoint.BEFORE_CHECKPOINT)
            finally:
                self._crew.end_batch(self, plan, results)
            self.batches += 1
            now = time.monotonic()
            if any(span.rows or span.passed_over or span.read_to for result in results for span in result.spans):
                fruitful_at, found = now, True
                self.looking_since = None
                continue
            missing = self.planner.missing(tasks, results)
            if found and now - fruitful_at < LINGER_SECONDS:
                continue
            if not missing and not plan.waiting:
                return
            if plan.waiting and self.looking_since is None:
                self.looking_since = now
            if missing and now - fruitful_at > STALL_SECONDS_MAX:
                raise SourceUnreachableError(
                    f"{missing[0].topic}[{missing[0].partition}] is said to end at {missing[0].until}, but nothing "
                    f"came after {missing[0].start} for {STALL_SECONDS_MAX:.0f} s: look at the broker"
                )
            self.stopping.wait(OWED_SECONDS)

    def _claims(self, shares: int) -> str | None:
        """Where tasks choose among several shares: a new name for each batch."""
        if shares == 1 or self._folder is None or not self._source.one_machine:
            return None
        for claimed in self._folder.glob("share-*"):
            claimed.unlink()
        return str(self._folder / f"share-{self.batches}")

    def _job(self, plan: TaskPlan) -> list[TaskResult]:
        numbers = range(len(plan.readings))
        answers = self._numbers.context.runJob(self._numbers, functools.partial(read_task, plan), numbers)
        return [msgspec.json.decode(answer, type=TaskResult) for answer in answers]
