"""A role that copies rows begins with them, or not at all: the request may come after the dispatch, or never."""

from headgate.agent.core.executor import CopyOrder, SpanId
from headgate.agent.core.machine import decide
from headgate.agent.core.messages import AddTable, DropCopy
from headgate.agent.core.state import AgentState, evolve, new_state
from headgate.eventlog.log import Delivery, Partition
from headgate.records.base import Key, Record
from headgate.records.control import (
    Assignment,
    Epoch,
    OperationKind,
    ReplicationState,
    SpanDispatched,
    SpanPlan,
)
from headgate.records.keys import FeedKey, RequestKey, SpanKey
from headgate.runtime.machine import Arrived, Now
from support import build

PLAN = SpanPlan(span="public.t", topic="shop.public.t", table="public.t", start={0: 3})
ROLE = Assignment("a1", "s1", Epoch(1, 2))
ASKED = build.operation_requested(kind=OperationKind.RESYNC_TABLE, table="public.t", spec='{"keys": [["1"]]}')


def begun(state: AgentState, key: Key, value: Record | None) -> list[CopyOrder | None]:
    """What the tasks copy that the record begins."""
    evolve(state, key, value, 5)
    decision = decide(state, Arrived(Delivery(Partition(key.topic, 0), 5, key, value)), Now(50.0, 1_000))
    return [effect.task.copy for effect in decision.effects if isinstance(effect, AddTable)]


def dispatched(copy: str | None) -> SpanDispatched:
    return build.span_dispatched(state=ReplicationState.COMMIT, primary=ROLE, copy=copy)


def session() -> AgentState:
    state = new_state("a1", "s1", shards=1)
    evolve(state, FeedKey("shop"), build.feed_recorded(spans=(PLAN,)), 1)
    return state


def test_a_role_waits_for_the_request_that_it_names() -> None:
    state = session()
    assert begun(state, SpanKey("shop", "public.t"), dispatched("r1")) == []
    assert begun(state, RequestKey("r2"), ASKED) == []
    assert begun(state, RequestKey("r1"), ASKED) == [CopyOrder("r1", '{"keys": [["1"]]}')]


def test_a_request_that_was_deleted_is_waited_for_until_the_owner_dispatches_without_it() -> None:
    state = session()
    assert begun(state, RequestKey("r1"), ASKED) == []
    assert begun(state, RequestKey("r1"), None) == []
    assert begun(state, SpanKey("shop", "public.t"), dispatched("r1")) == []
    assert begun(state, SpanKey("shop", "public.t"), dispatched(None)) == [None]


def test_a_request_that_is_deleted_is_dropped_by_whatever_copies_for_it() -> None:
    state = session()
    begun(state, RequestKey("r1"), ASKED)
    begun(state, SpanKey("shop", "public.t"), dispatched("r1"))
    evolve(state, RequestKey("r1"), None, 6)
    decision = decide(state, Arrived(Delivery(Partition("changefeed", 0), 6, RequestKey("r1"), None)), Now(50.0, 1_000))
    assert decision.effects == (DropCopy("r1"),)


def test_other_requests_are_not_kept() -> None:
    state = session()
    begun(state, RequestKey("r1"), build.operation_requested(kind=OperationKind.PAUSE_FEED))
    assert state.copies == {}
    assert SpanId("shop", "public.t") not in state.dispatched


def test_a_table_that_an_older_version_named_like_a_slice_is_given_to_the_sink_as_a_table() -> None:
    state = new_state("a1", "s1", shards=1)
    plan = SpanPlan(span="s.o@t=1", topic="x", table="s.o@t=1", start={0: 3})
    evolve(state, FeedKey("shop"), build.feed_recorded(spans=(plan,)), 1)
    key, record = SpanKey("shop", "s.o@t=1"), dispatched(None)
    evolve(state, key, record, 5)
    decision = decide(state, Arrived(Delivery(Partition(key.topic, 0), 5, key, record)), Now(50.0, 1_000))
    tasks = [effect.task for effect in decision.effects if isinstance(effect, AddTable)]
    assert [(task.id.span, task.plan.table) for task in tasks] == [("s.o@t=1", 's."o@t=1"')]
