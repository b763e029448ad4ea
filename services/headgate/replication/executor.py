"""SparkExecutor: spans on lanes, each under its own claim, no failure of one affecting another.

Calls pass the desired state to the machine of the span (agent/core/span), through the span table alone. The lifecycle
calls source and sink for it; a control thread gives it the time, and the queries carry its rows.
"""

import threading
import time
from concurrent.futures import wait
from typing import Final

from headgate.agent.core.executor import SpanId, SpanTask, TaskStatus
from headgate.agent.core.span.inputs import DropCopy, Forget, MaintainFor, Remove
from headgate.agent.core.span.states import OVER, TaskPhase
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import Positions, TaskState
from headgate.replication.batch_coordinator import LaneCpu
from headgate.replication.placement import ARRIVAL_SECONDS
from headgate.replication.progress import LaneProgress
from headgate.replication.queries import ExecutorSettings, Queries
from headgate.replication.row_copy import RowCopier
from headgate.replication.span_lifecycle import SpanLifecycle
from headgate.replication.span_table import SpanTable
from headgate.replication.spark import SparkRuntime
from headgate.replication.transaction_end_reader import TransactionEndReader
from headgate.supervision.threads import BackgroundPool, BackgroundThread

WATCH_SECONDS: Final = 0.5
"""How often lanes are asked whether they live: a restart costs as much."""

WAITING: Final = frozenset({TaskPhase.WAITING, TaskPhase.RETRYING, TaskPhase.RESEALING})
"""Something becomes due in a moment."""


class SparkExecutor:
    """A TableExecutor on one Spark session."""

    def __init__(self, runtime: SparkRuntime, settings: ExecutorSettings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._table = SpanTable(settings.cluster_id)
        source = KafkaConnection(settings.bootstrap, settings.kafka)
        self._lifecycle = SpanLifecycle(self._table, source, settings.log, RowCopier(runtime))
        self._queries = Queries(self._table, self._lifecycle, runtime, settings)
        self._witness = TransactionEndReader(self._table, source, self._queries.is_idle)
        self._control = BackgroundThread(self._run, name="headgate-lanes")
        self._control.start()

    @property
    def cpu(self) -> LaneCpu:
        """What workers have spent so far."""
        return self._queries.batch_coordinator.cpu

    def progress(self) -> LaneProgress:
        """Spark's progress of the lanes' queries: rows that came through them, and how long their steps took."""
        return self._queries.progress()

    @property
    def silent_sinks(self) -> dict[str, float]:
        """The sink servers that do not answer, and for how many seconds they have not."""
        return self._lifecycle.silent_sinks.servers()

    @property
    def lanes(self) -> dict[str, tuple[SpanId, ...]]:
        """The lanes that run and the spans on each, for people and tests."""
        return self._queries.spans_by_lane()

    # --- TableExecutor ----------------------------------------------------------------------------------------

    def add_table(self, task: SpanTask, *, prepare: bool) -> bool:
        """See TableExecutor."""
        if self._table.killed:
            return False
        self._table.add(task, primary=not prepare)
        return self.is_add_table_finished(task.id, prepare=prepare)

    def is_add_table_finished(self, span: SpanId, *, prepare: bool) -> bool:
        """See TableExecutor."""
        found = self._table.get(span)
        state = None if found is None else found.state
        return state is TaskState.REPLICATING or (prepare and state is TaskState.PREPARED)

    def remove_table(self, span: SpanId, *, seal: bool) -> bool:
        """See TableExecutor."""
        found = self._table.apply(span, Remove(seal))
        return found is None or found.phase in OVER

    def close_table(self, task: SpanTask) -> bool:
        """See TableExecutor."""
        found = self._table.close(task)
        return found is not None and found.phase in OVER

    def is_remove_table_finished(self, span: SpanId) -> Positions | None:
        """See TableExecutor."""
        found = self._table.get(span)
        return dict(found.positions) if found is not None and found.phase is TaskPhase.STOPPED else None

    def drop_copy(self, request: str) -> None:
        """See TableExecutor."""
        for span in self._table.all():
            self._table.apply(span.id, DropCopy(request))

    def maintain_table(self, span: SpanId, request: str) -> None:
        """See TableExecutor."""
        self._table.apply(span, MaintainFor(request))

    def forget_table(self, span: SpanId) -> None:
        """See TableExecutor."""
        self._table.apply(span, Forget())

    def all_spans(self) -> tuple[SpanId, ...]:
        """See TableExecutor."""
        return tuple(span.id for span in self._table.all())

    def status(self, span: SpanId) -> TaskStatus | None:
        """See TableExecutor."""
        found = self._table.get(span)
        if found is None:
            return None
        return found.status(
            self._settings.now_ms(),
            time.monotonic(),
            lane_is_idle=self._queries.is_idle(found),
            slowness=self._queries.slowness(found),
        )

    def kill(self) -> None:
        """See TableExecutor. The JVM and its workers die first, then everything else is let go."""
        self._table.killed = True
        self._runtime.kill()
        with self._table.changed:
            self._queries.signal_stop()
            self._table.changed.notify_all()
        self._release()

    def close(self) -> None:
        """Stop every lane in order, without sealing; Spark stays for the next user."""
        with self._table.changed:
            self._table.killed = True
            self._queries.signal_stop()
            lanes = list(self._queries.lanes.values())
            self._table.changed.notify_all()
        # At once: each may have to wait for a sink that does not answer.
        pool = BackgroundPool(max(len(lanes), 1), "headgate-stop")
        wait([pool.submit(lane.stop) for lane in lanes])
        pool.shutdown()
        self._release()

    def _release(self) -> None:
        self._witness.close()
        self._lifecycle.close()
        self._queries.close()
        if threading.current_thread() is not self._control:
            self._control.join(timeout=WATCH_SECONDS * 4)

    def _run(self) -> None:
        watched_at = time.monotonic()
        while self._turn():
            now = time.monotonic()
            if now - watched_at >= WATCH_SECONDS:
                watched_at = now
                self._queries.watch()

    def _turn(self) -> bool:
        with self._table.changed:
            if not self._table.killed:
                self._table.changed.wait(self._pause())
            if not self._table.killed:
                now = time.monotonic()
                self._lifecycle.turn(now)
                self._queries.turn(now)
            return not self._table.killed

    def _pause(self) -> float:
        is_joining = any(lane.taking_over for lane in self._queries.lanes.values())
        waits = is_joining or any(span.phase in WAITING for span in self._table.all())
        return ARRIVAL_SECONDS / 4 if waits else WATCH_SECONDS
