"""SparkExecutor: spans on lanes, each under its own claim, none the trouble of another (seed 001, design §4).

Calls only note what is wanted. A control thread turns that into work: the keeper opens and ends spans at source and
sink, the fleet puts them on lanes.
"""

import threading
import time
from typing import Final

from headgate.agent.executor import SpanId, SpanTask, TaskStatus
from headgate.agent.lane.crew import LaneCpu
from headgate.agent.lane.fleet import ExecutorSettings, Fleet
from headgate.agent.lane.keeper import Board, SpanKeeper
from headgate.agent.lane.placement import ARRIVAL_SECONDS
from headgate.agent.lane.progress import LaneProgress
from headgate.agent.lane.span import SpanRun
from headgate.agent.lane.spark import SparkRuntime
from headgate.agent.lane.transactions import Witness
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import Positions, TaskState

__all__ = ["ExecutorSettings", "LaneCpu", "SparkExecutor"]

WATCH_SECONDS: Final = 0.5
"""How often lanes are asked whether they live: a restart costs as much."""


class SparkExecutor:
    """A TableExecutor on one Spark session."""

    def __init__(self, runtime: SparkRuntime, settings: ExecutorSettings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._board = Board()
        self._changed = self._board.changed
        self._runs = self._board.runs
        source = KafkaConnection(settings.bootstrap, settings.kafka)
        self._keeper = SpanKeeper(self._board, source)
        self._fleet = Fleet(self._board, self._keeper, runtime, settings)
        self._witness = Witness(self._board, source)
        self._control = threading.Thread(target=self._run, name="headgate-lanes", daemon=True)
        self._control.start()

    @property
    def cpu(self) -> LaneCpu:
        """What workers have spent so far."""
        return self._fleet.crew.cpu

    def progress(self) -> LaneProgress:
        """What Spark says of the lanes' queries: rows that came through them, and how long their steps took."""
        return self._fleet.progress()

    @property
    def lanes(self) -> dict[str, tuple[SpanId, ...]]:
        """The lanes that run and the spans on each, for people and tests."""
        return self._fleet.crews()

    # --- TableExecutor ----------------------------------------------------------------------------------------

    def add_table(self, task: SpanTask, *, prepare: bool) -> bool:
        """See TableExecutor."""
        with self._changed:
            run = self._runs.get(task.id)
            if run is not None and task.epoch < run.task.epoch:
                raise ValueError(f"{task.id}: epoch {task.epoch} is below {run.task.epoch}, which has run here")
            if self._board.killed:
                return False
            warm = run is not None and run.state is TaskState.PREPARED and not run.stop
            if run is None or (task.epoch > run.task.epoch and not warm):
                if run is not None:
                    self._keeper.leave(run)
                run = self._runs[task.id] = SpanRun(task, self._settings.cluster_id, primary=not prepare)
                self._keeper.submit(run, self._keeper.open)
                return False
            if warm:
                run.task = task
            if not prepare and not run.primary and not run.over:
                run.primary = True
                if run.state is TaskState.PREPARED:
                    self._keeper.submit(run, self._keeper.open)
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
            elif not seal and run.stop == "seal":
                run.stop = "plain"
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
                self._keeper.leave(run)
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
                self._keeper.leave(run)
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
        self._board.killed = True
        self._runtime.kill()
        with self._changed:
            self._fleet.signal_stop()
            self._changed.notify_all()
        self._release()

    def close(self) -> None:
        """Stop every lane in order, without sealing; Spark stays for whoever comes next."""
        with self._changed:
            self._board.killed = True
            self._fleet.signal_stop()
            lanes = list(self._fleet.lanes.values())
            self._changed.notify_all()
        for lane in lanes:
            lane.stop()
        self._release()

    def _release(self) -> None:
        self._witness.close()
        self._keeper.close()
        self._fleet.close()
        if threading.current_thread() is not self._control:
            self._control.join(timeout=WATCH_SECONDS * 4)

    def _run(self) -> None:
        watched_at = time.monotonic()
        while self._turn():
            now = time.monotonic()
            if now - watched_at >= WATCH_SECONDS:
                watched_at = now
                self._fleet.watch()

    def _turn(self) -> bool:
        with self._changed:
            if not self._board.killed:
                self._changed.wait(self._pause())
            if not self._board.killed:
                now = time.monotonic()
                self._keeper.turn(now)
                self._fleet.turn(now)
            return not self._board.killed

    def _pause(self) -> float:
        runs = self._runs.values()
        waiting = any(run.ready_at is not None or run.retry_at is not None or run.stop or run.heir for run in runs)
        return ARRIVAL_SECONDS / 4 if waiting else WATCH_SECONDS
