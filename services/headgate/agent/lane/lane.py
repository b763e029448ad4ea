"""A lane: one Structured Streaming query that wakes up when its spans' partitions grow, and reads them in its tasks.

The query says *that* there is something (Spark's Kafka source, as far as offsets); its tasks read the log themselves,
each span from the position of the sink, in batch after batch until the end of the log is met. Who may write what in a
batch is asked at each batch's border, so a span joins or leaves without the query noticing. Spark's own progress is
never the truth: every start gets a fresh checkpoint directory and the offsets that the sink names.
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
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headgate.agent.lane.plan import BatchPlan, TaskPlan, TaskResult
from headgate.agent.lane.span import SpanRun
from headgate.agent.lane.spark import check_options
from headgate.agent.lane.task import read_task
from headgate.config.crash_points import CrashPoint, reach
from headgate.records.control import Positions
from headgate.sources.offsets import SourceUnreachableError
from headgate.sources.reader import Reading

__all__ = ["Crew", "Lane", "LaneSource"]

_log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 3.0
"""Without a batch for so long there is nothing to read: a lane with data starts the next one within a second, under
full load too."""

SMALL_ROWS: Final = 2_000
"""Up to here a batch is divided by spans, above it by partitions: one small transaction costs less than two."""

OWED_SECONDS: Final = 0.05
"""How soon a lane looks again for a span that cannot be written yet, or for rows that are said to be there."""

STALL_SECONDS_MAX: Final = 60.0
"""The log is said to hold more and nothing comes: the lane is given up, and its spans start again."""


class LaneSource(msgspec.Struct, frozen=True):
    """Where a lane reads, and how many rows a batch may have.

    ``options`` are further client properties by Java's names, for the query; ``reader`` all of librdkafka's, for tasks.
    ``one_machine``: tasks run where the driver does, and see its files.
    """

    bootstrap: str
    rows_max: int
    options: Mapping[str, str] = {}
    reader: Mapping[str, str] = {}
    one_machine: bool = False


class Crew(Protocol):
    """Decides what is written in each batch of a lane. Called on the lane's own thread."""

    def begin_batch(self, lane: "Lane") -> BatchPlan | None:
        """The batch's plan; the spans in it are this lane's until ``end_batch``. None: the lane is to stop."""
        ...

    def read_along(self, lane: "Lane", seen: Mapping[str, Positions]) -> bool:
        """The log has grown to ``seen``, and nothing may be written. True: it is behind the sink; False: plan again."""
        ...

    def end_batch(self, lane: "Lane", plan: BatchPlan, results: list[TaskResult] | None) -> None:
        """The batch is over; ``results`` None means that nobody knows what it has written."""
        ...


class Lane:
    """One query. ``starts`` is, per topic and partition, from where on it wakes up.

    ``members`` are the spans it may write; ``heirs`` those it has yet to take over from other lanes. ``in_batch`` is
    true from a batch's plan until its end.
    """

    def __init__(self, name: str, crew: Crew, spec: str, starts: Mapping[str, Positions]) -> None:
        self.name = name
        self.spec = spec
        self.starts: dict[str, dict[int, int]] = {topic: dict(p) for topic, p in starts.items()}
        self.members: list[SpanRun] = []
        self.heirs: list[SpanRun] = []
        self.in_batch = False
        self.started = False
        self.failed = False
        self.stopping = threading.Event()
        self.batches = 0
        self._batch_ended_at: float | None = None
        self._crew = crew
        self._cores = 1
        self._query: Any = None
        self._query_known = threading.Event()
        self._folder: Path | None = None
        self._source = LaneSource(bootstrap="", rows_max=1)
        self._numbers: Any = None
        self._latest: dict[tuple[str, int], int] = {}

    def start(self, session: SparkSession, source: LaneSource, cores: int, scratch: Path) -> None:
        """Start reading from ``delivered`` on. Raises PySparkException or Py4JError; 0.3 to 0.6 s."""
        check_options(source.options)
        self._cores, self._source = cores, source
        self._folder = Path(tempfile.mkdtemp(prefix="lane-", dir=scratch))
        assign = {topic: sorted(partitions) for topic, partitions in sorted(self.starts.items())}
        offsets = {topic: {str(p): o for p, o in sorted(at.items())} for topic, at in sorted(self.starts.items())}
        options = {
            **{name if name.startswith("kafka.") else f"kafka.{name}": value for name, value in source.options.items()},
            "kafka.bootstrap.servers": source.bootstrap,
            "kafka.isolation.level": "read_committed",
            "assign": msgspec.json.encode(assign).decode(),
            "startingOffsets": msgspec.json.encode(offsets).decode(),
            "failOnDataLoss": "true",
        }
        # Tasks of different lanes share the cores fairly; within a pool they would queue up.
        session.sparkContext.setLocalProperty("spark.scheduler.pool", self.name)
        self._numbers = session.sparkContext.parallelize(range(cores), cores)
        reader = session.readStream.format("kafka").options(**options)
        self._query = (
            reader.load()
            .writeStream.queryName(self.name)
            .option("checkpointLocation", str(self._folder))
            .foreachBatch(self._on_batch)
            .start()
        )
        self._query_known.set()
        self.started = True
        if self.stopping.is_set():
            self.stop()

    def failure(self) -> str | None:
        """Why the query is over; None while it runs, or has not been started."""
        if self._query is None:
            return None
        try:
            if self._query.isActive:
                return None
            error = self._query.exception()
        except (Py4JError, OSError) as gone:
            return f"the Spark JVM does not answer: {gone}"
        return "the query ended by itself" if error is None else str(error)

    def is_idle(self) -> bool:
        """Whether the query has found nothing to read for a while: what it has delivered is then all there is."""
        ended = self._batch_ended_at
        return not self.in_batch and ended is not None and time.monotonic() - ended > IDLE_SECONDS

    def stop(self) -> None:
        """End the query and delete its directory. Blocks until a batch under way is over; idempotent."""
        self.stopping.set()
        try:
            if self._query is not None:
                self._query.stop()
        except (Py4JError, PySparkException, OSError) as error:
            _log.info("lane %s: stopping a query that is gone: %s", self.name, error)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _on_batch(self, _frame: DataFrame, _batch_id: int) -> None:
        self.started = True
        try:
            if not self.stopping.is_set():
                self._query_known.wait()
                self._serve(self._log_ends())
        finally:
            self.in_batch = False
            self._batch_ended_at = time.monotonic()

    def _log_ends(self) -> dict[tuple[str, int], int]:
        """Up to where Spark has seen the log grow: what woke the query."""
        offset = self._query._jsq.streamingQuery().availableOffsets().iterator().next()._2().json()
        ends = msgspec.json.decode(offset, type=dict[str, dict[int, int]])
        return {(topic, partition): end for topic, found in ends.items() for partition, end in found.items()}

    def _serve(self, ends: dict[tuple[str, int], int]) -> None:
        """Batch after batch until all that the query was woken for is at the sink, and no more is there."""
        fruitful_at = time.monotonic()
        while not self.stopping.is_set():
            plan = self._crew.begin_batch(self)
            if plan is None:
                return
            if not plan.works:
                self.in_batch = False
                if not self.heirs and self._warm_up(plan, ends):
                    return
                self.stopping.wait(OWED_SECONDS if self.heirs else 0)
                continue
            tasks = self._task_plan(plan, ends)
            results: list[TaskResult] | None = None
            try:
                results = self._run(tasks)
                reach(CrashPoint.BEFORE_CHECKPOINT)
            finally:
                self._crew.end_batch(self, plan, results)
            self.batches += 1
            now = time.monotonic()
            if any(span.rows for result in results for span in result.spans):
                fruitful_at = now
                continue
            missing = _missing(tasks, results)
            if not missing and not plan.waiting:
                return
            if missing and now - fruitful_at > STALL_SECONDS_MAX:
                raise SourceUnreachableError(
                    f"{missing[0].topic}[{missing[0].partition}] is said to end at {missing[0].until}, but nothing "
                    f"came after {missing[0].start} for {STALL_SECONDS_MAX:.0f} s: look at the broker"
                )
            self.stopping.wait(OWED_SECONDS)

    def _warm_up(self, plan: BatchPlan, ends: dict[tuple[str, int], int]) -> bool:
        """Nothing may be written yet: have workers and readers ready, then wait. True when there is nothing to do."""
        readings = tuple(Reading(*place, end, end) for place, end in sorted(ends.items()))
        self._run(TaskPlan(plan, self.name, self._source.reader, (readings,) * self._cores, rows_max=1))
        seen: dict[str, Positions] = {}
        for (topic, partition), end in ends.items():
            seen.setdefault(topic, {})[partition] = end
        return self._crew.read_along(self, seen)

    def _task_plan(self, plan: BatchPlan, ends: Mapping[tuple[str, int], int]) -> TaskPlan:
        """The batch's readings, spread over as many tasks as it is worth."""
        spans = []
        for work in plan.works:
            places = [(work.topic, partition) for partition in sorted(work.expected)]
            spans.append([Reading(*place, work.expected[place[1]], ends.get(place, 0)) for place in places])
        loads = {
            (one.topic, one.partition): max(one.until - one.start, self._latest.get((one.topic, one.partition), 0), 1)
            for readings in spans
            for one in readings
        }
        if sum(loads.values()) > SMALL_ROWS:
            spans = [[one] for readings in spans for one in readings]
        shares: list[list[Reading]] = [[] for _ in range(min(self._cores, len(spans)))]
        weights = [0] * len(shares)
        # The heaviest first, each to whoever has least: a batch ends with its slowest task. By orders of magnitude
        # only, so that shares stay as they are from batch to batch: a reader has fetched ahead of its own.
        heaviest = sorted(
            ((sum(loads[one.topic, one.partition] for one in span).bit_length(), n) for n, span in enumerate(spans)),
            key=lambda weighted: (-weighted[0], weighted[1]),
        )
        for magnitude, number in heaviest:
            least = weights.index(min(weights))
            shares[least] += spans[number]
            weights[least] += 1 << magnitude
        rows_max = max(1, self._source.rows_max // len(shares))
        return TaskPlan(plan, self.name, self._source.reader, tuple(map(tuple, shares)), rows_max, self._claims(shares))

    def _claims(self, shares: Sequence[object]) -> str | None:
        """Where tasks choose among several shares: a new name for each batch."""
        if len(shares) == 1 or self._folder is None or not self._source.one_machine:
            return None
        for claimed in self._folder.glob("share-*"):
            claimed.unlink()
        return str(self._folder / f"share-{self.batches}")

    def _run(self, plan: TaskPlan) -> list[TaskResult]:
        numbers = range(len(plan.readings))
        answers = self._numbers.context.runJob(self._numbers, functools.partial(read_task, plan), numbers)
        results = [msgspec.json.decode(answer, type=TaskResult) for answer in answers]
        topics = {work.id: work.topic for work in plan.batch.works}
        self._latest = {
            (topics[span.id], partition): span.rows
            for result in results
            for span in result.spans
            for partition in span.positions
        }
        return results


def _missing(plan: TaskPlan, results: Sequence[TaskResult]) -> list[Reading]:
    """Readings of a fruitless batch that are said to hold more, and of which not even the log's end has come."""
    reached = {
        (topic, partition): end
        for result in results
        for found in (result.seen, result.ends)
        for topic, ends in found.items()
        for partition, end in ends.items()
    }
    return [
        one
        for readings in plan.readings
        for one in readings
        if one.start < one.until and reached.get((one.topic, one.partition), -1) <= one.start
    ]
