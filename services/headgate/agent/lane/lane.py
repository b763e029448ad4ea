"""A lane: one Structured Streaming query that reads several spans' partitions and hands every batch to its crew.

A lane only reads and remembers what it has delivered; who may write what in a batch is asked at each batch's border,
so a span joins or leaves without the query noticing. Spark's own progress is never the truth: every start gets a
fresh checkpoint directory and the offsets that the sink names.
"""

import functools
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headgate.agent.lane.plan import BatchPlan, TaskResult
from headgate.agent.lane.span import SpanRun
from headgate.agent.lane.spark import check_options
from headgate.agent.lane.task import INPUT_COLUMNS, RESULT_SCHEMA, run_task
from headgate.config.crash_points import CrashPoint, reach
from headgate.records.control import Positions

__all__ = ["Crew", "Lane", "LaneSource"]

_log = logging.getLogger(__name__)

FETCH_WAIT_MS: Final = 5
"""The connector asks for offsets on the connection on which its long poll is parked: each partition would otherwise
cost up to 500 ms a batch (design §4)."""

IDLE_SECONDS: Final = 3.0
"""Without a batch for so long there is nothing to read: a lane with data starts the next one within a second, under
full load too."""

FETCH_BYTES: Final = 64 << 20
"""What all consumers of a lane may hold together: an eighth of the smallest driver heap that makes sense."""

FETCH_BYTES_MIN: Final = 1 << 20
FETCH_BYTES_MAX: Final = 8 << 20
"""Per partition. A fetch of 8 MB instead of Kafka's 1 MB saves the broker half of its CPU per change and the JVM a
sixth (docs/benchmarks.md); beyond that nothing was gained."""

POLL_RECORDS_MAX: Final = 10_000
"""Kafka's 500 would cut such a fetch into a hundred polls."""


class LaneSource(msgspec.Struct, frozen=True):
    """Where a lane reads: the brokers, further Kafka client properties, and how many rows a batch may have."""

    bootstrap: str
    rows_max: int
    options: Mapping[str, str] = {}


class Crew(Protocol):
    """Decides what is written in each batch of a lane. Called on the lane's own thread."""

    def begin_batch(self, lane: "Lane") -> BatchPlan | None:
        """The batch's plan; the spans in it are this lane's until ``end_batch``. None: the lane is to stop."""
        ...

    def read_along(self, lane: "Lane", seen: Mapping[str, Positions]) -> bool:
        """A batch without work has been read. True: its rows are not needed; False: plan the batch again."""
        ...

    def end_batch(self, lane: "Lane", plan: BatchPlan, results: list[TaskResult] | None) -> None:
        """The batch is over; ``results`` None means that nobody knows what it has written."""
        ...


class Lane:
    """One query. ``delivered`` is, per topic and partition, the last offset handed over in a finished batch, + 1.

    ``members`` are the spans it may write; ``heirs`` those it has yet to take over from other lanes. ``in_batch`` is
    true from a batch's plan until it is delivered.
    """

    def __init__(self, name: str, crew: Crew, spec: str, starts: Mapping[str, Positions]) -> None:
        self.name = name
        self.spec = spec
        self.delivered: dict[str, dict[int, int]] = {topic: dict(p) for topic, p in starts.items()}
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
        self._folder: Path | None = None

    def start(self, session: SparkSession, source: LaneSource, cores: int, scratch: Path) -> None:
        """Start reading from ``delivered`` on. Raises PySparkException or Py4JError; 0.3 to 0.6 s."""
        check_options(source.options)
        self._cores = cores
        self._folder = Path(tempfile.mkdtemp(prefix="lane-", dir=scratch))
        assign = {topic: sorted(partitions) for topic, partitions in sorted(self.delivered.items())}
        offsets = {topic: {str(p): o for p, o in sorted(at.items())} for topic, at in sorted(self.delivered.items())}
        options = {
            **_fetch_sizes(sum(len(partitions) for partitions in assign.values())),
            **{name if name.startswith("kafka.") else f"kafka.{name}": value for name, value in source.options.items()},
            "kafka.bootstrap.servers": source.bootstrap,
            "kafka.isolation.level": "read_committed",
            "kafka.fetch.max.wait.ms": str(FETCH_WAIT_MS),
            "assign": msgspec.json.encode(assign).decode(),
            "startingOffsets": msgspec.json.encode(offsets).decode(),
            "failOnDataLoss": "true",
            "maxOffsetsPerTrigger": str(source.rows_max),
        }
        # Tasks of different lanes share the cores fairly; within a pool they would queue up.
        session.sparkContext.setLocalProperty("spark.scheduler.pool", self.name)
        reader = session.readStream.format("kafka").options(**options)
        self._query = (
            reader.load()
            .writeStream.queryName(self.name)
            .option("checkpointLocation", str(self._folder))
            .foreachBatch(self._on_batch)
            .start()
        )
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

    def _on_batch(self, frame: DataFrame, _batch_id: int) -> None:
        self.started = True
        try:
            self._serve(frame)
        finally:
            self.in_batch = False
            self._batch_ended_at = time.monotonic()

    def _serve(self, frame: DataFrame) -> None:
        rows = frame.coalesce(self._cores).selectExpr(*INPUT_COLUMNS)
        while not self.stopping.is_set():
            plan = self._crew.begin_batch(self)
            if plan is None:
                return
            results: list[TaskResult] | None = None
            try:
                results = self._run(rows, plan)
                if plan.works:
                    reach(CrashPoint.BEFORE_CHECKPOINT)
            finally:
                if plan.works or results is None:
                    self._crew.end_batch(self, plan, results)
            seen = _merged(results)
            if plan.works or self._crew.read_along(self, seen):
                self._deliver(seen)
                return

    def _run(self, rows: DataFrame, plan: BatchPlan) -> list[TaskResult]:
        answers = rows.mapInArrow(functools.partial(run_task, plan), RESULT_SCHEMA).collect()
        return [msgspec.json.decode(bytes(answer[0]), type=TaskResult) for answer in answers]

    def _deliver(self, seen: Mapping[str, Positions]) -> None:
        self.batches += 1
        for topic, ends in seen.items():
            at = self.delivered[topic]
            for partition, end in ends.items():
                at[partition] = max(end, at[partition])


def _fetch_sizes(partitions: int) -> dict[str, str]:
    """Large fetches for few partitions, Kafka's default for many."""
    size = min(max(FETCH_BYTES // partitions, FETCH_BYTES_MIN), FETCH_BYTES_MAX)
    return {
        "kafka.max.partition.fetch.bytes": str(size),
        "kafka.max.poll.records": str(POLL_RECORDS_MAX),
        "kafka.receive.buffer.bytes": str(FETCH_BYTES_MIN),
    }


def _merged(results: list[TaskResult]) -> dict[str, dict[int, int]]:
    """What all tasks of a batch have seen; a partition is read by one task only."""
    seen: dict[str, dict[int, int]] = {}
    for result in results:
        for topic, ends in result.seen.items():
            seen.setdefault(topic, {}).update(ends)
    return seen
