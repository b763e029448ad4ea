"""A data plane without data: a TableExecutor whose tasks are counters, and whose sink is far away.

Each call to the sink is a request on a wire. It may be slow, be lost, stay without an answer, or arrive long after its
sender gave up, was frozen, or died: what a database sees of a killed agent's last transaction. What becomes of a span
is decided by the very machine that lanes have (agent/core/span/machine.py); here is only what performs its effects.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from headgate.agent.core.executor import SpanId, SpanTask, TaskStatus
from headgate.agent.core.span.inputs import (
    Add,
    BatchOver,
    CallFailed,
    Close,
    DropCopy,
    Failed,
    Forget,
    LaneLost,
    MaintainFor,
    Open,
    Opened,
    Placed,
    Planned,
    Remove,
    RetryDue,
    Seal,
    Sealed,
    Served,
    Settle,
    SpanInput,
    SpanResult,
)
from headgate.agent.core.span.machine import decide
from headgate.agent.core.span.states import OVER, Span, Stop, TaskPhase
from headgate.records.control import Positions, TaskState
from headgate.records.keys import AgentKey
from headgate.sinks.contract import Claim, FeedIdentity, OffsetRange, SinkError
from headgate_lab.simulation.sink_audit import end_of, ts_of

FAILURES_MAX: Final = 2
"""Fewer than in a lane, so that failures come to the owner often enough."""

LANE: Final = "lane"
"""A lane is nothing here but a name: batches are requests, and what joins lanes is not simulated."""

HANG_SECONDS: Final = (20.0, 90.0, 200.0)
"""How long a drain hangs: within its limit (coordinator/core/spans/waiting.py), beyond it, beyond the next one's."""

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
    run: "SpanRun | None"
    """The caller that waits for the answer; None if it no longer waits."""
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

    def claims(self, session: AgentKey, run: "SpanRun") -> None:
        """The session is about to send a claim."""
        ...


class SpanRun:
    """One run of one span: its state, the call that its machine has asked for, and the request that is on its way."""

    def __init__(self, executor: "SimulatedExecutor", span: Span) -> None:
        self.executor = executor
        self.span = span
        self.call: Open | Seal | None = None
        self.request: Request | None = None
        self.hangs_until = 0.0
        task = span.task
        self._identity = FeedIdentity(executor.cluster_id, task.feed_id, task.id.feed)

    @property
    def task(self) -> SpanTask:
        """What it runs."""
        return self.span.task

    @property
    def over(self) -> bool:
        """Nothing is running and nothing will be, under this epoch."""
        return self.span.phase in OVER

    @property
    def claim(self) -> Claim:
        """The assignment as the sink sees it."""
        task = self.task
        return Claim(self._identity, task.plan.table, task.plan.topic, task.epoch, task.incarnation, task.plan.start)


class SimulatedExecutor:
    """See the module's docstring. ``work`` is what its threads would do; calls only give the machine what is wanted."""

    def __init__(self, world: Surroundings, cluster_id: str, session: AgentKey) -> None:
        self._world = world
        self._session = session
        self.cluster_id = cluster_id
        self.runs: dict[SpanId, SpanRun] = {}
        self.lives = 0
        self.killed = False
        self._replies: list[tuple[SpanRun, Request, Positions | SinkError]] = []

    def _apply(self, span: SpanId, given: SpanInput) -> Span | None:
        run = self.runs.get(span)
        step = decide(None if run is None else run.span, given, self._world.monotonic())
        if step.span is None:
            self.runs.pop(span, None)
            return None
        if run is None or run.span.life != step.span.life:
            run = self.runs[span] = SpanRun(self, step.span)
        run.span = step.span
        for effect in step.effects:
            if isinstance(effect, Open | Seal):
                run.call = effect
            elif isinstance(effect, Settle):
                raise TypeError("no position rests here: every change is the span's")
        return step.span

    # --- TableExecutor ----------------------------------------------------------------------------------------

    def add_table(self, task: SpanTask, *, prepare: bool) -> bool:
        """See TableExecutor."""
        self.lives += 1
        self._apply(task.id, Add(task, not prepare, self.lives, FAILURES_MAX))
        return self.is_add_table_finished(task.id, prepare=prepare)

    def is_add_table_finished(self, span: SpanId, *, prepare: bool) -> bool:
        """See TableExecutor."""
        run = self.runs.get(span)
        state = None if run is None else run.span.state
        return state is TaskState.REPLICATING or (prepare and state is TaskState.PREPARED)

    def remove_table(self, span: SpanId, *, seal: bool) -> bool:
        """See TableExecutor."""
        found = self._apply(span, Remove(seal))
        return found is None or found.phase in OVER

    def close_table(self, task: SpanTask) -> bool:
        """See TableExecutor."""
        self.lives += 1
        found = self._apply(task.id, Close(task, self.lives))
        return found is not None and found.phase in OVER

    def is_remove_table_finished(self, span: SpanId) -> Positions | None:
        """See TableExecutor."""
        run = self.runs.get(span)
        return dict(run.span.positions) if run is not None and run.span.phase is TaskPhase.STOPPED else None

    def drop_copy(self, request: str) -> None:
        """See TableExecutor."""
        for span in sorted(self.runs):
            self._apply(span, DropCopy(request))

    def maintain_table(self, span: SpanId, request: str) -> None:
        """See TableExecutor."""
        self._apply(span, MaintainFor(request))

    def forget_table(self, span: SpanId) -> None:
        """See TableExecutor."""
        self._apply(span, Forget())

    def all_spans(self) -> tuple[SpanId, ...]:
        """See TableExecutor."""
        return tuple(sorted(self.runs))

    def status(self, span: SpanId) -> TaskStatus | None:
        """See TableExecutor."""
        run = self.runs.get(span)
        # Changes have no time here but their ts, so batches have that in place of milliseconds.
        return None if run is None else replace(run.span.status(0, 0.0), seen_ts=run.span.progress.seen_ms)

    def kill(self) -> None:
        """See TableExecutor. What is on the wire stays there."""
        self.killed = True

    # --- its threads ------------------------------------------------------------------------------------------

    def answer(self, run: SpanRun, request: Request, result: Positions | SinkError) -> None:
        """The sink's answer has come; it is read when the process next runs."""
        self._replies.append((run, request, result))

    def work(self) -> None:
        """Read answers, and take each task a step further, or not."""
        if self.killed:
            return
        replies, self._replies = self._replies, []
        for run, request, result in replies:
            if run.request is request and self.runs.get(run.task.id) is run:
                self._adopt(run, request, result)
        now = self._world.monotonic()
        for run in list(self.runs.values()):
            waits_until = max(run.span.retry_at or now, run.hangs_until)
            if run.request is None and not run.over and waits_until <= now and self._world.gets_on():
                self._step(run)

    def _step(self, run: SpanRun) -> None:
        if run.span.retry_at is not None:
            self._apply(run.task.id, RetryDue())
        is_ending = run.span.stop is not Stop.NOT
        if run.over:
            return
        if self._world.is_sick(run.task.plan.table) and not is_ending:
            self._fail(run, "source_unreachable", "the source does not answer", retryable=True)
        elif self._world.strikes("task_failure"):
            self._fail(run, "source_gone", "the source does not answer", retryable=self._world.gets_on())
        elif is_ending and self._world.strikes("drain_hung"):
            self._world.mark("a drain hung")
            run.hangs_until = self._world.monotonic() + self._world.how_long(HANG_SECONDS)
        elif run.call is not None:
            self._call(run, run.call)
        else:
            self._go_on(run)

    def _call(self, run: SpanRun, call: Open | Seal) -> None:
        match call:
            case Open(primary=False):
                self._opened(run, self._world.positions(run.claim), primary=False)
            case Open():
                self._send(run, "claim")
            case Seal():
                self._send(run, "seal")

    def _opened(self, run: SpanRun, positions: Positions, *, primary: bool, claim: Claim | None = None) -> None:
        if self._has_expired(run, positions):
            return
        run.call = None
        epoch = (claim or run.claim).epoch
        self._apply(run.task.id, Opened(epoch, primary, positions, target_ts=target_of(run.task.spec)))

    def _go_on(self, run: SpanRun) -> None:
        match run.span.phase:
            case TaskPhase.WAITING:
                self._apply(run.task.id, Placed(LANE))
            case TaskPhase.READING | TaskPhase.CLAIMED if run.span.state is TaskState.PREPARING:
                self._apply(run.task.id, Served())
            case TaskPhase.CLAIMED if not self._has_expired(run, run.span.positions):
                self._write(run)

    def _has_expired(self, run: SpanRun, positions: Positions) -> bool:
        """The next record does not exist any more: an error for a person, never a skip (sources/offsets.py)."""
        begins = {p: self._world.source_begin(run.task.plan.topic, p) for p in positions}
        gone = [partition for partition, at in sorted(positions.items()) if at < begins[partition]]
        if gone:
            text = f"offset {positions[gone[0]]} has expired, the source begins at {begins[gone[0]]}"
            self._fail(run, EXPIRED, text, retryable=False)
            self._world.mark("a span was stopped by retention")
        return bool(gone)

    def _write(self, run: SpanRun) -> None:
        ranges, target_ts = {}, run.span.target_ts
        for partition, begin in sorted(run.span.awaited.items()):
            written = self._world.source_end(run.task.plan.topic, partition)
            end = min(written, begin + BATCH_EVENTS_MAX)
            if target_ts is not None:
                cap = max(begin, end_of(target_ts))
                if begin == cap < written:
                    self._rest(run, partition, target_ts)  # what follows in the log is after the target
                end = min(end, cap)
            if end > begin:
                ranges[partition] = OffsetRange(begin, end)
        if ranges:
            self._apply(run.task.id, Planned())
            self._send(run, "apply", ranges)

    def _rest(self, run: SpanRun, partition: int, target_ts: int) -> None:
        self._apply(run.task.id, Planned())
        self._apply(run.task.id, BatchOver(_result(run, {}, resolved={partition: target_ts}), {}))

    def _send(self, run: SpanRun, kind: str, ranges: dict[int, OffsetRange] | None = None) -> None:
        if kind == "claim":
            self._world.claims(self._session, run)
        run.request = Request(kind, run.claim, ranges or {}, run)
        self._world.send(run.request)

    def _adopt(self, run: SpanRun, request: Request, result: Positions | SinkError) -> None:
        run.request = None
        if isinstance(result, SinkError):
            self._fail(run, result.code, str(result), retryable=result.retryable)
        elif request.kind == "apply":
            self._apply(run.task.id, BatchOver(_result(run, request.ranges), {}))
        elif request.kind == "seal":
            run.call = None
            self._apply(run.task.id, Sealed(result))
        else:
            self._opened(run, result, primary=True, claim=request.claim)

    def _fail(self, run: SpanRun, code: str, text: str, *, retryable: bool) -> None:
        """Of the call or the batch under way, or of its lane."""
        span, call, run.call = run.task.id, run.call, None
        if call is not None:
            self._apply(span, CallFailed(code, text, retryable))
        elif run.span.phase in {TaskPhase.WRITING, TaskPhase.DRAINING}:
            failed = replace(_result(run, {}), error_code=code, error=text, retryable=retryable)
            self._apply(span, BatchOver(failed, {}))
        elif retryable and run.span.lane is not None and not self._world.is_sick(run.task.plan.table):
            self._apply(span, LaneLost(text, alone=self._world.gets_on()))
        else:
            self._apply(span, Failed(code, text, retryable))


def _result(run: SpanRun, ranges: dict[int, OffsetRange], resolved: dict[int, int] | None = None) -> SpanResult:
    """What a batch over ``ranges`` has made visible."""
    rows = sum(part.next - part.expected for part in ranges.values())
    if run.span.target_ts is not None:
        resolved = {**(resolved or {}), **{p: ts_of(part.next - 1) for p, part in ranges.items()}}
    return SpanResult(
        id=run.task.id,
        positions={partition: part.next for partition, part in ranges.items()},
        rows=rows,
        bytes=rows * 100,
        oldest_append_ms=None,
        newest_source_ms=max((ts_of(part.next - 1) for part in ranges.values()), default=None),
        visible_ms=0,
        error_code=None,
        error=None,
        retryable=False,
        decode_cpu_us=0,
        apply_cpu_us=0,
        resolved=resolved or {},
    )
