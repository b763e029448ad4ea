"""SparkExecutor: spans on lanes, each under its own claim, none the trouble of another (seed 001, design §4).

Calls only note what is wanted. A control thread turns that into work: claims and seals run in a small pool, because a
sink may be slow; spans that became ready at about the same time get one lane; a span whose transaction failed leaves
its lane and starts again from the sink's position; a lane or JVM that died takes its spans through the same door.

What keeps a span exact whatever lane it is on: it is planned into a batch only if it is claimed, in no other batch, and
if nothing its lane has delivered before lies at or beyond the sink's position. Then every row the lane has dropped
for it had been applied already.
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final

import msgspec
from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headgate.agent.executor import SpanId, SpanTask, TaskStatus
from headgate.agent.lane.lane import Lane, LaneSource
from headgate.agent.lane.parts import FeedParts
from headgate.agent.lane.plan import BatchPlan, SpanResult, TaskResult
from headgate.agent.lane.span import SpanRun
from headgate.agent.lane.spark import SparkRuntime, SparkStartError
from headgate.config.feed import FeedSpecError, parse_feed
from headgate.records.control import Positions, TaskState
from headgate.sinks.contract import SinkError
from headgate.sources.offsets import SourceError, check_retention

__all__ = ["ARRIVAL_SECONDS", "ExecutorSettings", "LaneCpu", "SparkExecutor"]

_log = logging.getLogger(__name__)

ARRIVAL_SECONDS: Final = 0.2
"""Spans that become ready within this time share a lane; a lane of its own for each would cost its fixed work."""

RETRY_SECONDS_MIN: Final = 0.25
RETRY_SECONDS_MAX: Final = 5.0
FAILURES_MAX: Final = 8
"""A span that cannot be opened so often in a row (about 20 s) is the owner's affair: it is reported failed."""

POOL_THREADS: Final = 8
"""Slow sinks of other feeds must not hold up a claim; more would only queue up at the sink."""

ERROR_LENGTH_MAX: Final = 1_000
"""Java's stack traces belong into the log, not onto a control topic."""

PARK_SECONDS: Final = 1.0
"""How often a warm lane looks where the sink stands, to read along behind the present writer."""

WATCH_SECONDS: Final = 0.5
"""How often lanes are asked whether they live: a restart costs as much."""


_lane_numbers = itertools.count(1)
"""Names of queries are unique per Spark session, which outlives executors."""


class ExecutorSettings(msgspec.Struct, frozen=True):
    """What the executor must know besides Spark: the source cluster and its identity.

    ``kafka`` are further client properties by librdkafka's names for asking offsets, ``lane_options`` by Java's names
    for reading.
    """

    bootstrap: str
    cluster_id: str
    kafka: Mapping[str, str] = {}
    lane_options: Mapping[str, str] = {}


class LaneCpu(msgspec.Struct):
    """What workers have spent so far, in CPU µs, and on how many rows: for the bench."""

    rows: int = 0
    decode_us: int = 0
    apply_us: int = 0


class SparkExecutor:
    """A TableExecutor on one Spark session."""

    def __init__(self, runtime: SparkRuntime, settings: ExecutorSettings) -> None:
        self.cpu = LaneCpu()
        self._runtime = runtime
        self._settings = settings
        self._runs: dict[SpanId, SpanRun] = {}
        self._lanes: dict[str, Lane] = {}
        self._members: dict[str, list[SpanRun]] = {}
        self._changed = threading.Condition(threading.RLock())
        self._killed = False
        self._admin = AdminClient({"bootstrap.servers": settings.bootstrap, **settings.kafka})
        self._pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="headgate-span")
        self._starter = ThreadPoolExecutor(2, thread_name_prefix="headgate-lane")
        self._control = threading.Thread(target=self._run, name="headgate-lanes", daemon=True)
        self._control.start()

    # --- TableExecutor ----------------------------------------------------------------------------------------

    def add_table(self, task: SpanTask, *, prepare: bool) -> bool:
        """See TableExecutor."""
        with self._changed:
            run = self._runs.get(task.id)
            if run is not None and task.epoch < run.task.epoch:
                raise ValueError(f"{task.id}: epoch {task.epoch} is below {run.task.epoch}, which has run here")
            if self._killed:
                return False
            warm = run is not None and run.state is TaskState.PREPARED and not run.stop
            if run is None or (task.epoch > run.task.epoch and not warm):
                if run is not None:
                    self._leave(run)
                run = self._runs[task.id] = SpanRun(task, self._settings.cluster_id, primary=not prepare)
                self._submit(run, self._open)
                return False
            if warm:
                run.task = task
            if not prepare and not run.primary and not run.over:
                run.primary = True
                if run.state is TaskState.PREPARED:
                    self._submit(run, self._open)
            return self.is_add_table_finished(task.id, prepare=prepare)

    def is_add_table_finished(self, span: SpanId, *, prepare: bool) -> bool:
        """See TableExecutor."""
        with self._changed:
            run = self._runs.get(span)
            if run is None:
                return False
            return run.state is TaskState.REPLICATING or (prepare and run.state is TaskState.PREPARED)

    def remove_table(self, span: SpanId, *, seal: bool) -> bool:
        """See TableExecutor."""
        with self._changed:
            run = self._runs.get(span)
            if run is None or run.over:
                return True
            if not run.stop:
                run.stop = "seal" if seal else "plain"
                run.state = TaskState.STOPPING
                run.retry_at = None
                self._changed.notify_all()
            return False

    def close_table(self, task: SpanTask) -> bool:
        """See TableExecutor."""
        with self._changed:
            run = self._runs.get(task.id)
            if run is not None and run.task.epoch == task.epoch:
                if run.over and (run.state is TaskState.STOPPED or run.stop):
                    return True
                if not run.over:
                    return self.remove_table(task.id, seal=True)
            if run is not None:
                self._leave(run)
            self._runs[task.id] = SpanRun(task, self._settings.cluster_id, primary=True)
            return self.remove_table(task.id, seal=True)

    def is_remove_table_finished(self, span: SpanId) -> Positions | None:
        """See TableExecutor."""
        with self._changed:
            run = self._runs.get(span)
            return dict(run.positions) if run is not None and run.state is TaskState.STOPPED else None

    def forget_table(self, span: SpanId) -> None:
        """See TableExecutor."""
        with self._changed:
            run = self._runs.get(span)
            if run is not None and run.over:
                self._leave(run)
                del self._runs[span]

    def all_spans(self) -> tuple[SpanId, ...]:
        """See TableExecutor."""
        with self._changed:
            return tuple(sorted(self._runs))

    def status(self, span: SpanId) -> TaskStatus | None:
        """See TableExecutor."""
        with self._changed:
            run = self._runs.get(span)
            return None if run is None else run.status()

    def kill(self) -> None:
        """See TableExecutor. The JVM and its workers die first, then everything else is let go."""
        self._killed = True
        self._runtime.kill()
        with self._changed:
            for lane in self._lanes.values():
                lane.stopping.set()
            self._changed.notify_all()
        self._release()

    def close(self) -> None:
        """Stop every lane in order, without sealing; Spark stays for whoever comes next."""
        with self._changed:
            self._killed = True
            lanes = list(self._lanes.values())
            for lane in lanes:
                lane.stopping.set()
            self._changed.notify_all()
        for lane in lanes:
            lane.stop()
        self._release()

    def _release(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._starter.shutdown(wait=False, cancel_futures=True)
        if threading.current_thread() is not self._control:
            self._control.join(timeout=WATCH_SECONDS * 4)

    # --- Crew: called on a lane's thread ------------------------------------------------------------------------

    def begin_batch(self, lane: Lane) -> BatchPlan | None:
        """Every member that may be written, from the sink's positions on."""
        with self._changed:
            if self._killed or lane.stopping.is_set():
                return None
            works = []
            for run in list(self._members.get(lane.name, ())):
                if not run.writable or run.in_batch:
                    continue
                if not _complete(lane, run):
                    self._restart(run, "the lane has read ahead of the sink")
                    continue
                run.in_batch = True
                works.append(run.work())
            return BatchPlan(spec=lane.spec, works=tuple(works))

    def read_along(self, lane: Lane, seen: Mapping[str, Positions]) -> bool:
        """A lane of warm spans only is parked until its batch is behind the sink, or a span is promoted."""
        while True:
            with self._changed:
                members = [run for run in self._members.get(lane.name, ()) if not run.over and not run.stop]
                if self._killed or lane.stopping.is_set() or not members:
                    return True
                if any(run.writable for run in members):
                    return False
                if any(run.claimed for run in members) or all(_behind(run, seen) for run in members):
                    return True
                self._changed.wait(PARK_SECONDS)
                waiting = [run for run in members if not run.claimed and not run.busy and not run.stop]
            for run in waiting:
                self._look(run)

    def end_batch(self, lane: Lane, plan: BatchPlan, results: list[TaskResult] | None) -> None:
        """Adopt what became visible; a span with an error, or one nobody knows about, leaves the lane."""
        planned = {work.id: work for work in plan.works}
        with self._changed:
            runs = {run.task.id: run for run in self._members.get(lane.name, ()) if run.task.id in planned}
            for run in runs.values():
                run.in_batch = False
            for result in [span for task in results or () for span in task.spans]:
                self.cpu.rows += result.rows
                self.cpu.decode_us += result.decode_cpu_us
                self.cpu.apply_us += result.apply_cpu_us
                planned_run = runs.get(result.id)
                if planned_run is not None and planned_run.task.epoch == planned[result.id].claim.epoch:
                    self._adopt(planned_run, result)
            if results is None:
                for run in runs.values():
                    self._restart(run, "the batch ended without an answer")
            self._changed.notify_all()

    def _adopt(self, run: SpanRun, result: SpanResult) -> None:
        run.adopt(result)
        if result.error_code is not None and not run.stop:
            self._fail(run, result.error_code, result.error or "", retryable=result.retryable)

    def _look(self, run: SpanRun) -> None:
        """Where the present writer of a warm span stands."""
        try:
            with closing(FeedParts(run.task.spec)) as parts:
                positions = parts.sink.positions(run.claim)
        except SinkError as error:
            _log.info("span %s: the sink does not say its position: %s", run.task.id, error)
            return
        with self._changed:
            if not run.claimed:
                run.positions = positions

    # --- opening and ending a span: in the pool -----------------------------------------------------------------

    def _submit(self, run: SpanRun, step: Callable[[SpanRun], None]) -> None:
        run.busy = True
        run.retry_at = None
        self._pool.submit(self._guarded, run, step)

    def _guarded(self, run: SpanRun, step: Callable[[SpanRun], None]) -> None:
        try:
            step(run)
        except (SinkError, SourceError) as error:
            with self._changed:
                self._fail(run, error.code, str(error), retryable=error.retryable)
        except FeedSpecError as error:
            with self._changed:
                self._fail(run, "feed_spec", str(error), retryable=False)
        except Exception as error:  # noqa: BLE001 (a fault of ours with one span must not end the thread of all)
            _log.exception("span %s", run.task.id)
            with self._changed:
                self._fail(run, "internal", f"{type(error).__name__}: {error}", retryable=False)
        finally:
            with self._changed:
                run.busy = False
                self._changed.notify_all()

    def _open(self, run: SpanRun) -> None:
        """Check sink and source; claim if the span is ours to write. Then it waits for a lane, or flips its own."""
        opened = False
        while not opened:
            with self._changed:
                claim, primary = run.claim, run.primary
            with closing(FeedParts(run.task.spec)) as parts:
                parts.sink.check([claim.table])
                positions = parts.sink.claim(claim) if primary else parts.sink.positions(claim)
            check_retention(self._admin, claim.topic, positions)
            with self._changed:
                opened = (claim.epoch, primary) == (run.task.epoch, run.primary)
                run.claimed = opened and primary
                if opened:
                    run.positions = positions
                if self._killed or run.stop:
                    return
        with self._changed:
            if run.lane is None:
                run.ready_at = time.monotonic()
            elif primary:
                run.state = TaskState.REPLICATING

    def _end(self, run: SpanRun) -> None:
        """No batch has the span any more: seal it if so asked, claiming first what was never claimed."""
        positions = dict(run.positions)
        if run.stop == "seal":
            with closing(FeedParts(run.task.spec)) as parts:
                if not run.claimed:
                    parts.sink.claim(run.claim)
                positions = parts.sink.seal(run.claim)
        with self._changed:
            run.positions = positions
            run.state = TaskState.STOPPED
            run.error = None

    def _fail(self, run: SpanRun, code: str, text: str, *, retryable: bool) -> None:
        """Leave the lane; try again later, or report the failure. A seal is tried for as long as it may succeed."""
        self._leave(run)
        run.failures += 1
        run.error = (code, text[:ERROR_LENGTH_MAX], retryable)
        if retryable and (run.stop or run.failures <= FAILURES_MAX):
            delay = min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2 ** (run.failures - 1))
            run.retry_at = time.monotonic() + delay
            _log.warning("span %s: %s (%s); again in %.2f s", run.task.id, text, code, delay)
        else:
            run.state = TaskState.FAILED
            run.retry_at = None
            _log.error("span %s: %s (%s)", run.task.id, text, code)

    def _restart(self, run: SpanRun, why: str) -> None:
        """Back through the door: a new look at the sink, then a new lane."""
        self._leave(run)
        if not run.stop and not run.over:
            _log.info("span %s: %s; it starts again from the sink's position", run.task.id, why)
            self._submit(run, self._open)

    def _leave(self, run: SpanRun) -> None:
        if run.lane is not None:
            members = self._members.get(run.lane.name)
            if members is not None and run in members:
                members.remove(run)
        run.lane = None
        run.ready_at = None
        run.in_batch = False
        self._changed.notify_all()

    # --- lanes: on the control thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        watched_at = time.monotonic()
        while True:
            with self._changed:
                if self._killed:
                    return
                self._changed.wait(self._pause())
                now = time.monotonic()
                self._end_stopping()
                self._retry(now)
                self._start_ready(now)
                idle = [lane for name, lane in sorted(self._lanes.items()) if not self._members[name]]
            for lane in idle:
                self._drop(lane)
            if now - watched_at >= WATCH_SECONDS:
                watched_at = now
                self._watch()

    def _pause(self) -> float:
        waiting = any(run.ready_at is not None or run.retry_at is not None or run.stop for run in self._runs.values())
        return ARRIVAL_SECONDS / 4 if waiting else WATCH_SECONDS

    def _end_stopping(self) -> None:
        for _, run in sorted(self._runs.items()):
            if run.stop and not run.over and not run.busy and not run.in_batch and run.retry_at is None:
                self._leave(run)
                self._submit(run, self._end)

    def _retry(self, now: float) -> None:
        for _, run in sorted(self._runs.items()):
            if run.retry_at is not None and run.retry_at <= now and not run.busy:
                self._submit(run, self._end if run.stop else self._open)

    def _start_ready(self, now: float) -> None:
        """One lane per feed and kind (written or warm) for all that is ready, once the first has waited a moment."""
        groups: dict[tuple[str, bool], list[SpanRun]] = {}
        for _, run in sorted(self._runs.items()):
            if run.ready_at is not None and not run.busy and not run.stop and not run.over:
                groups.setdefault((run.task.spec, run.claimed), []).append(run)
        for (spec, _), runs in sorted(groups.items(), key=lambda item: item[0]):
            if now - min(run.ready_at or now for run in runs) < ARRIVAL_SECONDS:
                continue
            starts: dict[str, dict[int, int]] = {}
            for run in runs:
                starts.setdefault(run.task.plan.topic, {}).update(run.positions)
            lane = Lane(f"{runs[0].task.id.feed}-{next(_lane_numbers)}", self, spec, starts)
            self._lanes[lane.name] = lane
            self._members[lane.name] = runs
            for run in runs:
                run.lane, run.ready_at = lane, None
            self._starter.submit(self._start, lane, parse_feed(spec).batch_rows_max)

    def _start(self, lane: Lane, rows_max: int) -> None:
        if self._killed:
            return
        source = LaneSource(bootstrap=self._settings.bootstrap, rows_max=rows_max, options=self._settings.lane_options)
        runtime = self._runtime
        try:
            lane.start(runtime.start(), source, runtime.settings.cores, runtime.settings.scratch)
        except (SparkStartError, PySparkException, Py4JError, OSError) as error:
            with self._changed:
                for run in list(self._members.get(lane.name, ())):
                    self._fail(run, "lane_not_started", str(error), retryable=True)
            return
        with self._changed:
            for run in self._members.get(lane.name, ()):
                if run.state is TaskState.PREPARING and not run.stop:
                    run.state = TaskState.REPLICATING if run.claimed else TaskState.PREPARED
                if run.primary and not run.claimed and not run.busy and not run.stop:
                    self._submit(run, self._open)
            self._changed.notify_all()

    def _watch(self) -> None:
        """Spans of a lane that is over go back to the sink's positions; a dead JVM ends every lane."""
        with self._changed:
            lanes = list(self._lanes.values())
        for lane in lanes:
            why = None if lane.stopping.is_set() else lane.failure()
            if why is None:
                continue
            _log.warning("lane %s is over: %s", lane.name, why)
            with self._changed:
                for run in list(self._members.get(lane.name, ())):
                    self._fail(run, "lane_lost", why, retryable=True)
            self._drop(lane)

    def _drop(self, lane: Lane) -> None:
        with self._changed:
            self._lanes.pop(lane.name, None)
            self._members.pop(lane.name, None)
            lane.stopping.set()
            self._changed.notify_all()
        self._starter.submit(lane.stop)

    @property
    def lanes(self) -> dict[str, tuple[SpanId, ...]]:
        """The lanes that run and the spans on each, for people and tests."""
        with self._changed:
            return {name: tuple(sorted(run.task.id for run in self._members[name])) for name in sorted(self._lanes)}


def _complete(lane: Lane, run: SpanRun) -> bool:
    """Whether all that the lane has delivered so far lies below the span's positions, so that nothing is missed."""
    delivered = lane.delivered.get(run.task.plan.topic, {})
    return all(delivered.get(p, position + 1) <= position for p, position in run.positions.items())


def _behind(run: SpanRun, seen: Mapping[str, Positions]) -> bool:
    """Whether a batch that saw up to ``seen`` holds nothing the sink does not have."""
    ends = seen.get(run.task.plan.topic, {})
    return all(end <= run.positions.get(partition, 0) for partition, end in ends.items())
