"""A data plane without data: a TableExecutor whose tasks are counters, and whose sink is far away.

Each call to the sink is a request on a wire. It may be slow, be lost, be answered by nobody, or arrive long after its
sender gave up, was frozen, or died: what a database sees of a killed agent's last transaction. Tasks follow the life
that the lanes give theirs (agent/lane/keeper.py): open, claim, write, come back through the same door after a
failure, drain and seal.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from headgate.agent.executor import SpanId, SpanTask, TaskStatus
from headgate.records.control import Positions, TaskState
from headgate.records.keys import AgentKey
from headgate.simulation.sink_audit import end_of, ts_of
from headgate.sinks.contract import Claim, FeedIdentity, OffsetRange, SinkError

__all__ = ["EXPIRED", "Request", "Run", "SimulatedExecutor", "Surroundings"]

RETRY_SECONDS_MIN: Final = 0.25
RETRY_SECONDS_MAX: Final = 2.0
FAILURES_MAX: Final = 2
"""Fewer than in a lane, so that failures come to the owner often enough."""

HANG_SECONDS: Final = (20.0, 90.0, 200.0)
"""How long a drain hangs: within its deadline (coordinator/patience.py), beyond it, and beyond that of the next one."""

BATCH_EVENTS_MAX: Final = 5

EXPIRED: Final = "source_offset_expired"
"""The code of records/error_codes.py for changes that were deleted before they were applied."""


class _Spec(msgspec.Struct):
    target_ts: int | None = None


def target_of(spec: str) -> int | None:
    """Where a feed of the operator's is to end."""
    return msgspec.json.decode(spec, type=_Spec).target_ts


class Request(msgspec.Struct, eq=False):
    """One call to the sink, on its way: ``kind`` is claim, apply or seal."""

    kind: str
    claim: Claim
    ranges: dict[int, OffsetRange]
    run: "Run | None"
    """Who waits for the answer; None once nobody does."""
    arrives_at: float = 0.0
    """Not before this time of the world's clock."""


class Surroundings(Protocol):
    """What a data plane needs of the world."""

    def send(self, request: Request) -> None:
        """Put a request on the wire."""
        ...

    def positions(self, claim: Claim) -> Positions:
        """A quick look at the sink."""
        ...

    def source_end(self, topic: str, partition: int) -> int:
        """How far the source has been written."""
        ...

    def source_begin(self, topic: str, partition: int) -> int:
        """The first change that the source still has."""
        ...

    def mark(self, name: str) -> None:
        """A rare state was reached."""
        ...

    def is_sick(self, table: str) -> bool:
        """Whether no step of the table's tasks succeeds now."""
        ...

    def strikes(self, kind: str, weight: float = 1.0) -> bool:
        """Whether a fault of this kind happens now; ``weight`` makes up for occasions that are rare."""
        ...

    def gets_on(self) -> bool:
        """Whether a task takes its next step now."""
        ...

    def monotonic(self) -> float:
        """Seconds of the world's clock."""
        ...

    def how_long(self, choices: Sequence[float]) -> float:
        """One of some durations, in seconds."""
        ...

    def claims(self, session: AgentKey, run: "Run") -> None:
        """The session is about to send a claim."""
        ...


class Run:
    """One run of one span under one role; fields as in agent/lane/span.py."""

    def __init__(self, executor: "SimulatedExecutor", task: SpanTask, *, primary: bool) -> None:
        self.executor = executor
        self.task = task
        self.primary = primary
        self.state = TaskState.PREPARING
        self.claimed = False
        self.stop = ""
        self.request: Request | None = None
        self.retry_at: float | None = None
        self.failures = 0
        self.positions: Positions = {}
        self.rows = 0
        self.seen_ts: int | None = None
        self.resolved: dict[int, int] = {}
        self.target_ts = target_of(task.spec)
        self.error: tuple[str, str, bool] | None = None
        self._identity = FeedIdentity(executor.cluster_id, task.feed_id, task.id.feed)
        self._claim: Claim | None = None

    @property
    def over(self) -> bool:
        """Nothing is running and nothing will be, under this epoch."""
        return self.state is TaskState.STOPPED or self.state is TaskState.FAILED

    @property
    def claim(self) -> Claim:
        """The assignment as the sink sees it."""
        task = self.task
        if self._claim is None or self._claim.epoch != task.epoch:
            self._claim = Claim(
                self._identity, task.plan.table, task.plan.topic, task.epoch, task.incarnation, task.plan.start
            )
        return self._claim

    def status(self) -> TaskStatus:
        """How it stands."""
        code, text, retryable = self.error or (None, None, False)
        return TaskStatus(
            id=self.task.id,
            feed_id=self.task.feed_id,
            epoch=self.task.epoch,
            state=self.state,
            positions=dict(self.positions),
            seen_ts=self.seen_ts,
            rows=self.rows,
            bytes=self.rows * 100,
            lag_ms=0,
            error_code=code,
            error=text,
            retryable=retryable,
            resolved_ts=min(self.resolved.values()) if self.resolved.keys() == self.positions.keys() != set() else None,
        )


class SimulatedExecutor:
    """See the module's docstring. ``work`` is what its threads would do; calls only note what is wanted."""

    def __init__(self, world: Surroundings, cluster_id: str, session: AgentKey) -> None:
        self._world = world
        self._session = session
        self.cluster_id = cluster_id
        self.runs: dict[SpanId, Run] = {}
        self.killed = False
        self._replies: list[tuple[Run, Request, Positions | SinkError]] = []

    # --- TableExecutor ----------------------------------------------------------------------------------------

    def add_table(self, task: SpanTask, *, prepare: bool) -> bool:
        """See TableExecutor."""
        run = self.runs.get(task.id)
        if run is not None and task.epoch < run.task.epoch:
            raise ValueError(f"{task.id}: epoch {task.epoch} is below {run.task.epoch}, which has run here")
        warm = run is not None and run.state is TaskState.PREPARED and not run.stop
        if run is None or (task.epoch > run.task.epoch and not warm):
            self.runs[task.id] = Run(self, task, primary=not prepare)
            return False
        if warm:
            run.task = task
        if not prepare and not run.over:
            run.primary = True
        return self.is_add_table_finished(task.id, prepare=prepare)

    def is_add_table_finished(self, span: SpanId, *, prepare: bool) -> bool:
        """See TableExecutor."""
        run = self.runs.get(span)
        return run is not None and (run.state is TaskState.REPLICATING or (prepare and run.state is TaskState.PREPARED))

    def remove_table(self, span: SpanId, *, seal: bool) -> bool:
        """See TableExecutor."""
        run = self.runs.get(span)
        if run is None or run.over:
            return True
        if not run.stop:
            run.stop = "seal" if seal else "plain"
            run.state = TaskState.STOPPING
            run.retry_at = None
        elif not seal and run.stop == "seal":
            run.stop, run.retry_at = "plain", None
        return False

    def close_table(self, task: SpanTask) -> bool:
        """See TableExecutor."""
        run = self.runs.get(task.id)
        if run is not None and run.task.epoch == task.epoch:
            if run.over and (run.state is TaskState.STOPPED or run.stop):
                return True
            if not run.over:
                return self.remove_table(task.id, seal=True)
        self.runs[task.id] = Run(self, task, primary=True)
        return self.remove_table(task.id, seal=True)

    def is_remove_table_finished(self, span: SpanId) -> Positions | None:
        """See TableExecutor."""
        run = self.runs.get(span)
        return dict(run.positions) if run is not None and run.state is TaskState.STOPPED else None

    def forget_table(self, span: SpanId) -> None:
        """See TableExecutor."""
        run = self.runs.get(span)
        if run is not None and run.over:
            del self.runs[span]

    def all_spans(self) -> tuple[SpanId, ...]:
        """See TableExecutor."""
        return tuple(sorted(self.runs))

    def status(self, span: SpanId) -> TaskStatus | None:
        """See TableExecutor."""
        run = self.runs.get(span)
        return None if run is None else run.status()

    def kill(self) -> None:
        """See TableExecutor. What is on the wire stays there."""
        self.killed = True

    # --- its threads ------------------------------------------------------------------------------------------

    def answer(self, run: Run, request: Request, result: Positions | SinkError) -> None:
        """The sink's answer has come; it is read when the process next runs."""
        self._replies.append((run, request, result))

    def work(self) -> None:
        """Read answers, and take each task a step further, or not."""
        if self.killed:
            return
        replies, self._replies = self._replies, []
        for run, request, result in replies:
            if run.request is request:
                run.request = None
                if isinstance(result, SinkError):
                    self._fail(run, result.code, str(result), retryable=result.retryable)
                else:
                    self._adopt(run, request, result)
        now = self._world.monotonic()
        for run in list(self.runs.values()):
            is_due = run.request is None and not run.over and (run.retry_at is None or run.retry_at <= now)
            if is_due and self._world.gets_on():
                self._step(run)

    def _step(self, run: Run) -> None:
        run.retry_at = None
        if self._world.is_sick(run.task.plan.table) and not run.stop:
            self._fail(run, "source_unreachable", "the source does not answer", retryable=True)
        elif self._world.strikes("task_failure"):
            self._fail(run, "source_gone", "the source does not answer", retryable=self._world.gets_on())
        elif run.stop == "plain":
            run.state = TaskState.STOPPED
            run.error = None
        elif run.stop and self._world.strikes("drain_hung"):
            self._world.mark("a drain hung")
            run.retry_at = self._world.monotonic() + self._world.how_long(HANG_SECONDS)
        elif run.stop:
            self._send(run, "seal" if run.claimed else "claim")
        elif not run.primary:
            if run.state is TaskState.PREPARING:
                run.positions = self._world.positions(run.claim)
                if not self._has_expired(run):
                    run.state = TaskState.PREPARED
        elif not run.claimed:
            self._send(run, "claim")
        elif self._has_expired(run):
            pass
        elif run.state is not TaskState.REPLICATING:
            run.state = TaskState.REPLICATING
        else:
            self._write(run)

    def _has_expired(self, run: Run) -> bool:
        """What is to be read next is not there any more: an error for a person, never a skip (sources/offsets.py)."""
        begins = {p: self._world.source_begin(run.task.plan.topic, p) for p in run.positions}
        gone = [partition for partition, at in sorted(run.positions.items()) if at < begins[partition]]
        if gone:
            text = f"offset {run.positions[gone[0]]} has expired, the source begins at {begins[gone[0]]}"
            self._fail(run, EXPIRED, text, retryable=False)
            self._world.mark("a span was stopped by retention")
        return bool(gone)

    def _write(self, run: Run) -> None:
        ranges = {}
        for partition, begin in sorted(run.positions.items()):
            written = self._world.source_end(run.task.plan.topic, partition)
            end = min(written, begin + BATCH_EVENTS_MAX)
            if run.target_ts is not None:
                cap = max(begin, end_of(run.target_ts))
                if begin == cap < written:
                    run.resolved[partition] = run.target_ts  # what follows in the log is after the target
                end = min(end, cap)
            if end > begin:
                ranges[partition] = OffsetRange(begin, end)
        if ranges:
            self._send(run, "apply", ranges)

    def _send(self, run: Run, kind: str, ranges: dict[int, OffsetRange] | None = None) -> None:
        if kind == "claim":
            self._world.claims(self._session, run)
        run.request = Request(kind, run.claim, ranges or {}, run)
        self._world.send(run.request)

    def _adopt(self, run: Run, request: Request, positions: Positions) -> None:
        if request.claim.epoch != run.task.epoch:
            return
        if request.kind != "seal" or run.positions:
            run.positions = {**run.positions, **positions}
        if request.kind == "claim":
            run.claimed, run.resolved = True, {}
        elif request.kind == "apply":
            run.failures, run.error = 0, None
            run.rows += sum(part.next - part.expected for part in request.ranges.values())
            if run.target_ts is not None:
                for partition, part in request.ranges.items():
                    run.resolved[partition] = ts_of(part.next - 1)
            newest = max(ts_of(part.next - 1) for part in request.ranges.values())
            run.seen_ts = newest if run.seen_ts is None else max(newest, run.seen_ts)
        else:
            run.positions = dict(positions)
            run.state = TaskState.STOPPED
            run.error = None

    def _fail(self, run: Run, code: str, text: str, *, retryable: bool) -> None:
        """Back through the door, or to the owner; a seal is tried for as long as it may succeed."""
        run.failures += 1
        run.error = (code, text, retryable)
        run.claimed = False
        if retryable and (run.stop or run.failures <= FAILURES_MAX):
            delay = min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2 ** (run.failures - 1))
            run.retry_at = self._world.monotonic() + delay
        else:
            run.state = TaskState.FAILED
