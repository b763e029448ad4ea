"""Spans that read the same topic, on one lane: read together, and a position that rests follows in time."""

import time

import msgspec
import pytest

from headgate.agent.core.executor import SpanId, SpanTask
from headgate.agent.core.span.errands import SETTLED_MAX
from headgate.agent.core.span.inputs import Opened, Passed, Placed, SentBack, Served, SpanResult
from headgate.agent.core.span.states import REST_SECONDS
from headgate.records.control import Epoch, Positions, SpanPlan
from headgate.replication.lane import Lane
from headgate.replication.plan import BatchPlan
from headgate.replication.queries import Queries, positions_of
from headgate.replication.span_table import SpanTable
from support.lanes_without_spark import Restarts, ended, ends_of, lane_of, now_is, result_of

NAMES = [f"a{number:02}" for number in range(20)]
SPEC = msgspec.json.encode(
    {
        "feed": "f",
        "source": {"topics": ["t"], "tables": [f"s.{name}" for name in NAMES]},
        "sink": {"type": "postgresql", "dsn": "dbname=x", "table": "copy.{table}"},
    }
).decode()


@pytest.fixture
def lane(queries: Queries) -> Lane:
    return lane_of(queries, "a", {0: 0, 1: 0}, SPEC)


def span_of(table: SpanTable, lane: Lane, name: str, positions: Positions) -> SpanId:
    plan = SpanPlan(f"copy.{name}", "t", f"copy.{name}", dict.fromkeys(positions, 0))
    task = SpanTask(SpanId("f", f"copy.{name}"), "0-1", 1, Epoch(1, 1), plan, SPEC)
    table.add(task, primary=True)
    table.apply(task.id, Opened(task.epoch, True, positions))
    table.apply(task.id, Placed(lane.name))
    table.apply(task.id, Served())
    return task.id


def begun(queries: Queries, lane: Lane, end: int = 90) -> BatchPlan:
    plan = queries.batch_coordinator.begin_batch(lane, ends_of(lane, end))
    assert plan is not None
    return plan


def read(span: SpanId, *, positions: Positions | None = None, rows: int = 0) -> SpanResult:
    return result_of(span, positions=positions or {}, rows=rows, bytes=0)


def test_a_lane_begins_where_the_last_of_the_tables_stands(table: SpanTable, lane: Lane) -> None:
    spans = [span_of(table, lane, "a00", {0: 9, 1: 3}), span_of(table, lane, "a01", {0: 5, 1: 4})]
    assert positions_of(table.members(spans)) == {("t", 0): 5, ("t", 1): 3}
    table.apply(spans[1], Passed({("t", 0): 7}))
    assert positions_of(table.members(spans)) == {("t", 0): 7, ("t", 1): 3}, "what has been read is not read again"


def test_what_was_read_without_rows_is_no_position(
    table: SpanTable, queries: Queries, lane: Lane, lifecycle: Restarts
) -> None:
    span = span_of(table, lane, "a00", {0: 5})
    begun(queries, lane, 1_000)
    ended(queries, lane, read(span), seen={0: 1_000})
    assert now_is(table, span).status(0, 0.0).positions == {0: 5}
    (work,) = begun(queries, lane, 2_000).works
    assert (work.expected, work.start(0), work.settle, work.source_table) == ({0: 5}, 1_000, False, "s.a00")
    assert lifecycle.restarted == []
    table.apply(span, SentBack("it is opened again"))
    table.apply(span, Opened(Epoch(1, 1), True, {0: 5}))
    assert table.work_of(now_is(table, span)).start(0) == 5, "a new look at the sink begins where the sink is"


def test_a_position_that_rests_follows_in_time_with_a_batch_or_without(
    table: SpanTable, queries: Queries, lane: Lane, lifecycle: Restarts, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = [span_of(table, lane, name, {0: 5}) for name in NAMES]
    begun(queries, lane, 1_000)
    ended(queries, lane, *(read(span) for span in spans), seen={0: 1_000})
    lifecycle.called.clear()
    queries.turn(time.monotonic())
    assert lifecycle.called == [], "not yet"
    now = time.monotonic() + REST_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: now)
    plan = begun(queries, lane, 2_000)
    settled = [work.id.span for work in plan.works if work.settle]
    assert settled == [f"copy.{name}" for name in NAMES[:SETTLED_MAX]], "a few at a time"
    of_these = [span for span in spans if span.span in settled]
    ended(queries, lane, *(read(span, positions={0: 2_000}) for span in of_these), seen={0: 2_000})
    queries.turn(now)
    assert lifecycle.called == [f"copy.{name}" for name in NAMES[SETTLED_MAX : 2 * SETTLED_MAX]], "then the next ones"
