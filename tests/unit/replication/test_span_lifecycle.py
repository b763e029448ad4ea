"""How calls to source and sink are made for spans, and what becomes of their answers. The pool is a list."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.agent.core.executor import SpanId, SpanTask
from headgate.agent.core.span.inputs import Opened, Placed, Served, Settled
from headgate.agent.core.span.states import TaskPhase
from headgate.records.control import Epoch, Positions, SpanPlan, TaskState
from headgate.replication.queries import Queries
from headgate.replication.span_lifecycle import SpanLifecycle
from headgate.replication.span_table import SpanTable
from headgate.runtime.table import UnknownTransitionError
from headgate.sinks.contract import Claim, SinkUnavailableError
from support.lanes_without_spark import SPEC, lane_of, now_is, queries_of

PLAN = SpanPlan(span="s", topic="t", table="public.s", start={0: 0})


class Calls:
    """A pool that runs what was submitted when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, _server: str, step: Callable[..., None], *arguments: Any) -> None:
        self.waiting.append(lambda: step(*arguments))

    def run(self) -> None:
        self.waiting.pop(0)()


class OneSink:
    """A sink that is lent to everybody, and answers with ``answer``."""

    def __init__(self) -> None:
        self.answer: Positions | Exception = {0: 7}
        self.asked: list[tuple[str, Epoch]] = []

    def are_due(self, _now: float) -> bool:
        return False

    @contextmanager
    def lent(self, _spec: str) -> Iterator[Any]:
        parts = SimpleNamespace(sink=self)
        parts.of_table = lambda _topic, _table: parts
        yield parts

    def _answered(self, what: str, claim: Claim) -> Positions:
        self.asked.append((what, claim.epoch))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def positions(self, claim: Claim) -> Positions:
        return self._answered("positions", claim)

    def claim(self, claim: Claim) -> Positions:
        return self._answered("claim", claim)

    def seal(self, claim: Claim) -> Positions:
        return self._answered("seal", claim)


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def sink() -> OneSink:
    return OneSink()


@pytest.fixture
def lifecycle(table: SpanTable, calls: Calls, sink: OneSink) -> SpanLifecycle:
    made = SpanLifecycle(table, None)  # type: ignore[arg-type]  # nothing here asks a broker
    made._pool, made._sinks = calls, sink  # type: ignore[assignment]
    return made


@pytest.fixture
def queries(table: SpanTable, lifecycle: SpanLifecycle, tmp_path: Any) -> Queries:
    return queries_of(table, lifecycle, tmp_path)


def task(n: int) -> SpanTask:
    return SpanTask(SpanId("f", "s"), "0-1", 1, Epoch(1, n), PLAN, SPEC)


def test_a_span_that_was_never_claimed_is_sealed_by_one_call(
    table: SpanTable, lifecycle: SpanLifecycle, calls: Calls, sink: OneSink
) -> None:
    table.close(task(1))
    calls.run()
    assert sink.asked == [("seal", Epoch(1, 1))]
    found = now_is(table, task(1).id)
    assert (found.state, found.positions, calls.waiting) == (TaskState.STOPPED, {0: 7}, [])


def test_a_seal_is_tried_again_when_it_is_due(
    table: SpanTable, lifecycle: SpanLifecycle, calls: Calls, sink: OneSink
) -> None:
    sink.answer = SinkUnavailableError("away")
    table.close(task(1))
    calls.run()
    found = now_is(table, task(1).id)
    assert (found.phase, found.status(0, 0.0).error_code) == (TaskPhase.RESEALING, "sink_unavailable")
    assert found.retry_at is not None
    lifecycle.turn(found.retry_at - 0.01)
    assert calls.waiting == []
    lifecycle.turn(found.retry_at)
    assert len(calls.waiting) == 1


def test_a_fault_of_ours_is_one_spans_failure(
    table: SpanTable, lifecycle: SpanLifecycle, calls: Calls, sink: OneSink
) -> None:
    sink.answer = RuntimeError("a bug")
    table.close(task(1))
    calls.run()
    assert now_is(table, task(1).id).status(0, 0.0).error_code == "internal"
    assert now_is(table, task(1).id).phase is TaskPhase.FAILED


def test_an_answer_that_cannot_be_is_an_error_of_its_task(
    table: SpanTable, lifecycle: SpanLifecycle, calls: Calls
) -> None:
    table.close(task(1))
    lifecycle._call(now_is(table, task(1).id), lambda _: Settled({}))
    with pytest.raises(UnknownTransitionError):
        calls.waiting.pop()()


def test_an_answer_to_a_run_that_is_over_is_nobodys(
    table: SpanTable, lifecycle: SpanLifecycle, calls: Calls, sink: OneSink
) -> None:
    table.close(task(1))
    table.close(task(2))
    calls.run()
    assert now_is(table, task(2).id).phase is TaskPhase.SEALING, "the first one's seal says nothing of the second"
    calls.run()
    assert now_is(table, task(2).id).phase is TaskPhase.STOPPED
    assert sink.asked[-1] == ("seal", Epoch(1, 2))


def test_an_executor_that_is_killed_calls_nobody(table: SpanTable, lifecycle: SpanLifecycle, calls: Calls) -> None:
    table.killed = True
    table.close(task(1))
    assert calls.waiting == []


def test_a_warm_span_is_looked_at_once_at_a_time(
    table: SpanTable, lifecycle: SpanLifecycle, queries: Queries, calls: Calls, sink: OneSink
) -> None:
    span = task(1).id
    table.add(task(1), primary=False)
    calls.waiting.clear()
    table.apply(span, Opened(Epoch(1, 1), False, {0: 5}))
    table.apply(span, Placed(lane_of(queries, "a", {0: 5}).name))
    table.apply(span, Served())
    for _ in range(3):
        lifecycle.look(now_is(table, span))
    assert len(calls.waiting) == 1, "a slow sink is not asked again"
    calls.run()
    assert now_is(table, span).positions == {0: 7}
    sink.answer = SinkUnavailableError("away")
    lifecycle.look(now_is(table, span))
    calls.run()
    assert (now_is(table, span).positions, now_is(table, span).error) == ({0: 7}, None), "it shows when it is written"
    lifecycle.look(now_is(table, span))
    assert len(calls.waiting) == 1
