"""A session as one frozen part: the real machine and the real turns around it, over the simulated data plane.

The data plane is stepped by hand, one task at a time; a request to the sink stays with its task until the search lets
it be answered, and what is on its way when its task or its process is gone becomes a request without a caller.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from headgate.agent.core.executor import SpanId, TaskStatus
from headgate.agent.core.machine import PROGRESS_TIMER
from headgate.agent.core.messages import SessionStarted
from headgate.agent.core.state import AgentState, evolve, new_state
from headgate.agent.shell.session import SessionLostError
from headgate.agent.shell.turns import Turns
from headgate.eventlog.log import Delivery, Partition
from headgate.records.base import Fact
from headgate.records.control import Positions, TaskState
from headgate.records.keys import AgentKey
from headgate.runtime.machine import Arrived, TimerFired
from headgate.sinks.contract import Claim, SinkError
from headgate_lab.simulation.executor import Request, SimulatedExecutor, SpanRun
from headgate_lab.simulation.sink_audit import Violation

CLUSTER_ID: Final = "search"

UNTOLD: Final = frozenset(
    {"ties", "executor", "_world", "_session", "_lease", "_write", "_clock", "_wall_ms", "_on_progress", "_decide"}
    | {
        "_timers",
        "_replies",
        "run",
        "_identity",
        "_claim",
        "_state",
        "_executor",
        "retry_at",
        "reported_ms",
        "answered_ms",
        "lives",
        "life",
        "opening",
        "read_to",
        "hangs_until",
    }
)
"""What does not distinguish one session's state from another's: links, the clock's readings, numbers that only have to
be unlike each other, and what is derived (no position rests here, so nothing is read beyond it)."""


class Outcome(msgspec.Struct):
    """What a step of a session left: whether it lives, what it wrote, what it has left on its way to the sink."""

    lives: bool
    facts: list[Fact]
    orphans: list[Request]

    def then(self, later: "Outcome") -> "Outcome":
        """Both, one after the other."""
        return Outcome(later.lives, self.facts + later.facts, self.orphans + later.orphans)


class _Ties:
    """Everything outside a session that it can touch, with the answers chosen by the search."""

    def __init__(self, events: int) -> None:
        self.events = events
        self.written: list[Fact] = []
        self.looked_up: Positions = {}
        self.ends: dict[int, int] = {}
        self.failure = ""

    def write(self, facts: list[Fact]) -> None:
        self.written.extend(facts)

    def clock(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 0

    def on_progress(self, statuses: Sequence[TaskStatus]) -> None:
        pass

    def check(self) -> None:
        pass

    def send(self, request: Request) -> None:
        pass

    def positions(self, claim: Claim) -> Positions:
        return {partition: self.looked_up[partition] for partition in claim.start}

    def source_end(self, topic: str, partition: int) -> int:  # noqa: ARG002
        return self.ends[partition]

    def source_begin(self, topic: str, partition: int) -> int:  # noqa: ARG002
        return 0

    def is_sick(self, table: str) -> bool:  # noqa: ARG002
        return False

    def mark(self, name: str) -> None:
        pass

    def strikes(self, kind: str, weight: float = 1.0) -> bool:  # noqa: ARG002
        return kind == "task_failure" and bool(self.failure)

    def gets_on(self) -> bool:
        return self.failure == "retryable"

    def monotonic(self) -> float:
        return 0.0

    def how_long(self, choices: Sequence[float]) -> float:
        return choices[0]

    def claims(self, session: AgentKey, run: SpanRun) -> None:
        pass


class _SteppedExecutor(SimulatedExecutor):
    def status(self, span: SpanId) -> TaskStatus | None:
        # Without bytes no load is seen, so that no scheduler moves anything by itself: moves are the search's choice.
        found = super().status(span)
        return None if found is None else msgspec.structs.replace(found, bytes=0)

    def step(self, run: SpanRun) -> None:
        self._step(run)

    def settle(self, run: SpanRun, result: Positions | SinkError) -> None:
        if run.request is not None:
            self._adopt(run, run.request, result)


class AgentPart:
    """One session; every method is one step and gives its Outcome."""

    def __init__(self, agent: str, session: str, events: int) -> None:
        self.key = AgentKey(agent, session)
        self.ties = _Ties(events)
        self.state: AgentState = new_state(agent, session, 1)
        self.executor = _SteppedExecutor(self.ties, CLUSTER_ID, self.key)
        self.turns = Turns(
            self.state,
            self.executor,
            cast("Any", self.ties),
            self.ties.write,
            clock=self.ties.clock,
            wall_ms=self.ties.wall_ms,
            on_progress=self.ties.on_progress,
        )
        self.runs = self.executor.runs

    def start(self, records: Sequence[Fact]) -> Outcome:
        """Replay, then answer."""
        for record in records:
            evolve(self.state, record.key, record.value, 0)
        return self._do(lambda: self.turns.turn(deque([SessionStarted()])))

    def read(self, record: Fact) -> Outcome:
        """One record of the log."""
        delivery = Delivery(Partition(record.key.topic, 0), 0, record.key, record.value)
        return self._do(lambda: self.turns.turn(deque([Arrived(delivery)])))

    def observe(self) -> Outcome:
        """Report what has become of the tasks."""
        return self._do(lambda: self.turns.turn(deque(self.turns.changes())))

    def progress(self) -> Outcome:
        """Report how far the tasks are."""
        return self._do(lambda: self.turns.turn(deque([TimerFired(PROGRESS_TIMER)])))

    def step(self, span: SpanId, looked_up: Positions, failure: str = "") -> Outcome:
        """Take one task a step further, or let it fail (``retryable``, or ``final``)."""
        run = self.runs[span]
        self.ties.looked_up, self.ties.failure = looked_up, failure
        self.ties.ends = {partition: min(self.ties.events, at + 1) for partition, at in run.span.positions.items()}
        return self._do(lambda: self.executor.step(run))

    def settle(self, span: SpanId, result: Positions | SinkError) -> Outcome:
        """The sink's answer to a task's request."""
        return self._do(lambda: self.executor.settle(self.runs[span], result))

    def lose(self) -> Outcome:
        """The process ends; what it has sent is on its way."""
        return Outcome(lives=False, facts=[], orphans=[r.request for r in self.runs.values() if r.request])

    def steppable(self) -> list[SpanId]:
        """Tasks that could take a step now."""
        return [span for span, run in sorted(self.runs.items()) if run.request is None and not run.over]

    def waiting(self) -> list[tuple[SpanId, Request]]:
        """Tasks that wait for the sink."""
        return [(span, run.request) for span, run in sorted(self.runs.items()) if run.request is not None]

    def has_news(self) -> bool:
        """Whether a task differs from its last report."""
        told = dict(self.turns._observed)
        # Asking marks the news as reported, so the last report is put back.
        news = self.turns.changes()
        self.turns._observed = told
        return bool(news)

    def replicates(self, span: SpanId, epoch: Any) -> bool:
        """Whether the task runs under this epoch."""
        run = self.runs.get(span)
        return run is not None and run.span.state is TaskState.REPLICATING and run.task.epoch == epoch

    def _do(self, act: Any) -> Outcome:
        before = [(run, run.request) for run in self.runs.values()]
        primaries = [(id(run), run.task.epoch) for run in self.runs.values() if run.span.primary]
        lives = True
        try:
            act()
        except SessionLostError:
            lives = False
        except Exception as error:
            raise Violation(f"session {self.key.agent}/{self.key.session}: {type(error).__name__}: {error}") from error
        for span, run in self.runs.items():
            if run.span.primary and (id(run), run.task.epoch) not in primaries:
                self._check_primary(span, run)
        present = [id(run) for run in self.runs.values()] if lives else []
        orphans = [request for run, request in before if request is not None and id(run) not in present]
        facts, self.ties.written = self.ties.written, []
        self.ties.looked_up, self.ties.failure, self.ties.ends = {}, "", {}
        return Outcome(lives, facts, orphans)

    def _check_primary(self, span: SpanId, run: SpanRun) -> None:
        """An agent claims only under a record in which it is primary."""
        record = self.state.dispatched.get(span)
        role = None if record is None else record.primary
        if role is None or (role.agent, role.session, role.epoch) != (self.key.agent, self.key.session, run.task.epoch):
            who = f"{self.key.agent}/{self.key.session}"
            raise Violation(f"1: {who} sets out to claim {span.span}, whose primary is {role}")
