"""The executors that need no services keep the contract of all: the simulation's, and the one of unit tests."""

from collections.abc import Callable

import pytest

from headgate.agent.core.executor import SpanId, SpanTask, TableExecutor
from headgate.records.control import Epoch, Positions, SpanPlan
from headgate.records.keys import AgentKey
from headgate.records.spans import plan_of
from headgate.sinks.contract import Claim, SinkError
from headgate_lab.simulation.executor import Request, SimulatedExecutor, SpanRun
from headgate_lab.simulation.sink import SimulatedSink
from headgate_lab.simulation.sink_audit import SinkAudit
from support.executor_contract import ExecutorContract
from support.remembering_executor import RememberingExecutor

PLANS = (SpanPlan("t", "db.t", "t", {0: 3, 1: 0}), SpanPlan("u", "db.u", "u", {0: 0}))
EVENTS = 12
TURNS_MAX = 100


class Bench:
    """See ExecutorBench."""

    def __init__(self, executor: TableExecutor, work: Callable[[], None]) -> None:
        self.executor = executor
        self._work = work

    def task(self, span: str, n: int) -> SpanTask:
        plan = plan_of(PLANS, span)
        assert plan is not None
        return SpanTask(SpanId("f", span), "0-1", 1, Epoch(1, n), plan, "{}")

    def until(self, fact: Callable[[], bool], what: str) -> None:
        for _ in range(TURNS_MAX):
            if fact():
                return
            self._work()
        pytest.fail(f"never: {what}")


class CalmWorld:
    """Surroundings in which every request is answered and nothing goes wrong."""

    def __init__(self) -> None:
        self.sink = SimulatedSink(SinkAudit())
        self.now = 0.0

    def send(self, request: Request) -> None:
        result: Positions | SinkError
        try:
            if request.kind == "apply":
                result = self.sink.apply(request.claim, request.ranges)
            else:
                result = self.sink.claim(request.claim) if request.kind == "claim" else self.sink.seal(request.claim)
        except SinkError as error:
            result = error
        assert request.run is not None
        request.run.executor.answer(request.run, request, result)

    def positions(self, claim: Claim) -> Positions:
        return self.sink.positions(claim)

    def source_end(self, topic: str, partition: int) -> int:  # noqa: ARG002
        return EVENTS

    def strikes(self, kind: str, weight: float = 1.0) -> bool:  # noqa: ARG002
        return False

    def gets_on(self) -> bool:
        return True

    def source_begin(self, topic: str, partition: int) -> int:  # noqa: ARG002
        return 0

    def mark(self, name: str) -> None:
        pass

    def is_sick(self, table: str) -> bool:  # noqa: ARG002
        return False

    def monotonic(self) -> float:
        self.now += 0.1
        return self.now

    def claims(self, session: AgentKey, run: SpanRun) -> None:
        pass


class TestSimulatedExecutor(ExecutorContract):
    """The simulation's data plane."""

    @pytest.fixture
    def bench(self) -> Bench:
        executor = SimulatedExecutor(CalmWorld(), "c", AgentKey("a1", "s1"))
        return Bench(executor, executor.work)


class TestRememberingExecutor(ExecutorContract):
    """The one that tests of the agent's service use."""

    @pytest.fixture
    def bench(self) -> Bench:
        return Bench(RememberingExecutor(), lambda: None)
