"""A session's turns: facts before effects, and no word about a task that an effect of the same turn contradicts."""

from collections import deque

import pytest

from headgate.agent.core.executor import SpanId, SpanTask
from headgate.agent.core.messages import AgentInput
from headgate.agent.core.state import new_state
from headgate.agent.shell.session import Lease
from headgate.agent.shell.turns import Turns
from headgate.eventlog.log import Delivery, Partition
from headgate.records.base import Fact, Key, Record
from headgate.records.control import (
    Assignment,
    Epoch,
    ReplicationState,
    SpanPlan,
    TaskReported,
    TaskState,
    WantedState,
)
from headgate.records.keys import FeedKey, SpanKey
from headgate.runtime.machine import Arrived
from support import build
from support.remembering_executor import RememberingExecutor

SPAN = SpanId("shop", "public.goods")
PLAN = SpanPlan(span="public.goods", topic="shop.public.goods", table="public.goods", start={0: 3})
TURNS_MAX = 5


class Session:
    """A session whose every word about a task is compared with its executor when it is written."""

    def __init__(self) -> None:
        self.executor = RememberingExecutor()
        self.said: list[tuple[TaskState, Epoch]] = []
        self.turns = Turns(
            new_state("a1", "s1", shards=1),
            self.executor,
            Lease(60.0, lambda: 0.0),
            self._write,
            clock=lambda: 0.0,
            wall_ms=lambda: 0,
            on_progress=lambda _statuses: None,
        )

    def _write(self, facts: list[Fact]) -> None:
        for fact in facts:
            if isinstance(fact.value, TaskReported):
                self.said.append((fact.value.state, fact.value.epoch))

    def turn(self, *records: tuple[Key, Record | None]) -> None:
        """As agent/shell/service.py has it: what was read, then what has changed."""
        arrived = [Arrived(Delivery(Partition(key.topic, 0), 5, key, value)) for key, value in records]
        inputs: deque[AgentInput] = deque(arrived)
        inputs.extend(self.turns.changes())
        self.turns.turn(inputs)

    def settle(self) -> None:
        for _ in range(TURNS_MAX):
            self.turn()


def feed(*, abandoned: bool) -> tuple[Key, Record]:
    record = build.feed_recorded(
        feed_id="0-7",
        spans=(PLAN,),
        wanted=WantedState.REMOVED if abandoned else WantedState.RUNNING,
        abandoned=abandoned,
    )
    return FeedKey("shop"), record


def role(state: ReplicationState, n: int) -> tuple[Key, Record]:
    record = build.span_dispatched(feed_id="0-7", state=state, primary=Assignment("a1", "s1", Epoch(1, n)))
    return SpanKey("shop", "public.goods"), record


@pytest.mark.parametrize("turns_between", [0, 1])
def test_a_feed_abandoned_right_after_a_role_was_given_is_called_stopped_once_it_is(turns_between: int) -> None:
    session = Session()
    begun = (feed(abandoned=False), role(ReplicationState.COMMIT, 6))
    ended = (feed(abandoned=True), role(ReplicationState.REMOVING, 6))
    if turns_between:
        session.turn(*begun)
        session.turn(*ended)
    else:
        session.turn(*begun, *ended)
    session.settle()
    states = [state for state, _ in session.said]
    assert states[-1] is TaskState.STOPPED
    assert states.count(TaskState.STOPPED) == 1, f"stopped was said of what ran: {session.said}"
    assert session.executor.tasks[SPAN].state is TaskState.STOPPED


def test_a_role_in_an_abandoned_feed_that_never_ran_is_called_stopped() -> None:
    session = Session()
    session.turn(feed(abandoned=True), role(ReplicationState.REMOVING, 6))
    session.settle()
    assert session.said == [(TaskState.STOPPED, Epoch(1, 6))]
    assert session.executor.tasks == {}


def test_a_role_that_follows_one_that_has_stopped_is_called_stopped_as_well() -> None:
    session = Session()
    session.turn(feed(abandoned=False), role(ReplicationState.COMMIT, 5))
    session.settle()
    session.executor.close_table(SpanTask(SPAN, "0-7", 1, Epoch(1, 5), PLAN, "{}"))
    session.settle()
    session.turn(feed(abandoned=True), role(ReplicationState.REMOVING, 6))
    session.settle()
    assert session.said[-2:] == [(TaskState.STOPPED, Epoch(1, 5)), (TaskState.STOPPED, Epoch(1, 6))]
