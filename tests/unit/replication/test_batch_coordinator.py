"""Which spans a lane may write in a batch, what is adopted when it is over, and who leaves the lane then."""

import json

import pytest
from msgspec.structs import replace

from headgate.agent.core.executor import CopyOrder, SpanId
from headgate.agent.core.span.failures import worst
from headgate.agent.core.span.inputs import (
    Add,
    BatchOver,
    Failed,
    MaintainFor,
    Opened,
    Passed,
    Placed,
    Planned,
    Remove,
    Served,
    Settled,
    SettleDue,
    SpanInput,
    SpanResult,
)
from headgate.agent.core.span.states import Span, TaskPhase
from headgate.records.control import Epoch, Positions, TaskState
from headgate.replication.plan import TaskResult
from headgate.replication.queries import Queries
from headgate.replication.span_table import SpanTable
from support.lanes_without_spark import (
    NOON,
    NOW_MS,
    Restarts,
    ended,
    ends_of,
    is_on,
    lane_of,
    now_is,
    planned,
    result_of,
    two_on_a_lane,
)


def test_a_claimed_span_is_planned_from_the_sinks_position(table: SpanTable, queries: Queries) -> None:
    lane = lane_of(queries, "a", {0: 3})
    span = is_on(table, lane, {0: 5})
    assert planned(queries, lane) == [{0: 5}]
    assert now_is(table, span).phase is TaskPhase.WRITING


@pytest.mark.parametrize(
    "what", [Remove(seal=True), SettleDue(), Failed("", "", retryable=False), Planned(), None], ids=str
)
def test_a_span_that_may_not_be_written_is_left_out(
    table: SpanTable, queries: Queries, monkeypatch: pytest.MonkeyPatch, what: SpanInput | None
) -> None:
    monkeypatch.setattr("headgate.replication.batch_coordinator.BUSY_SECONDS_MAX", 0.01)
    lane = lane_of(queries, "a", {0: 3})
    span = is_on(table, lane, {0: 5}, primary=what is not None)
    if what is not None:
        table.apply(span, what)
    assert planned(queries, lane) == []


def answer(span: SpanId, positions: Positions, code: str | None = None, *, retryable: bool = False) -> SpanResult:
    times = {"oldest_append_ms": NOW_MS - 30, "newest_source_ms": 90, "visible_ms": NOW_MS}
    return result_of(span, positions=positions, rows=2, error_code=code, error=code, retryable=retryable, **times)


def test_what_became_visible_is_adopted(table: SpanTable, queries: Queries) -> None:
    lane = lane_of(queries, "a", {0: 3, 1: 0})
    span = is_on(table, lane, {0: 5, 1: 0})
    planned(queries, lane)
    assert ended(queries, lane, answer(span, {0: 9}), seen={0: 9})
    status = now_is(table, span).status(NOW_MS, 0.0)
    assert (status.positions, status.rows, status.lag_ms) == ({0: 9, 1: 0}, 2, 30)
    assert (now_is(table, span).phase, status.seen_ts) == (TaskPhase.CLAIMED, 90 << 18)


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 0, 30_000])
def test_a_lag_is_by_the_brokers_clock_whatever_that_of_the_worker_says(
    table: SpanTable, queries: Queries, ahead_ms: int
) -> None:
    """What became visible 50 ms before the task was over had been logged 200 ms before that."""
    lane = lane_of(queries, "a", {0: 3})
    span = is_on(table, lane, {0: 5})
    planned(queries, lane)
    seen_ms = NOW_MS - 50 + ahead_ms
    told = result_of(span, positions={0: 9}, rows=2, oldest_append_ms=NOW_MS - 250, visible_ms=seen_ms)
    queries.batch_coordinator.end_batch(lane, [TaskResult({"t": {0: 9}}, (told,), ended_ms=seen_ms + 50)])
    assert now_is(table, span).status(NOW_MS, 0.0).lag_ms == 200


def test_a_batch_goes_over_gaps_and_the_next_one_is_planned_behind_them(
    table: SpanTable, queries: Queries, lifecycle: Restarts
) -> None:
    """Markers and what compaction took: the sink's position stays behind the last row, the log goes on elsewhere."""
    lane = lane_of(queries, "a", {0: 3, 1: 0})
    span = is_on(table, lane, {0: 5, 1: 0})
    planned(queries, lane)
    ended(queries, lane, answer(span, {0: 9}), seen={0: 9})
    assert now_is(table, span).positions == {0: 9, 1: 0}
    assert [now_is(table, span).reached(partition) for partition in (0, 1)] == [1_000, 1_000]
    assert queries.batch_coordinator.begin_batch(lane, ends_of(lane, 1_000)) is None, "nothing of it can be there"
    plan = queries.batch_coordinator.begin_batch(lane, ends_of(lane, 1_001))
    assert plan is not None
    assert [(work.expected, work.start(0)) for work in plan.works] == [({0: 9, 1: 0}, 1_000)]
    assert lifecycle.restarted == []


def test_a_lane_that_has_read_ahead_of_a_span_does_not_write_it(
    table: SpanTable, queries: Queries, lifecycle: Restarts
) -> None:
    lane = lane_of(queries, "a", {0: 6})
    span = is_on(table, lane, {0: 5})
    assert planned(queries, lane) == []
    assert lifecycle.restarted == ["its lane has read ahead of the sink"]
    assert (now_is(table, span).lane, lane.members) == (None, [])


def test_what_no_task_has_been_given_counts_as_delivered(
    table: SpanTable, queries: Queries, lifecycle: Restarts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.replication.batch_coordinator.BUSY_SECONDS_MAX", 0.01)
    lane = lane_of(queries, "a", {0: 3})
    span = is_on(table, lane, {0: 5})
    table.apply(span, SettleDue())
    other = is_on(table, lane, {0: 2_000}, "other")
    assert planned(queries, lane) == [], "nobody has rows: the batch is not run"
    assert lane.delivered == {("t", 0): 1_000}
    table.apply(span, Settled({}))
    planned(queries, lane)
    assert lifecycle.restarted == ["its lane has read ahead of the sink"]
    assert lane.members == [other]


def test_an_error_takes_the_span_off_its_lane(table: SpanTable, queries: Queries) -> None:
    lane = lane_of(queries, "a", {0: 3})
    span = is_on(table, lane, {0: 5})
    planned(queries, lane)
    ended(queries, lane, answer(span, {}, "sink_fenced"))
    assert (now_is(table, span).state, now_is(table, span).lane, lane.members) == (TaskState.FAILED, None, [])


def test_a_moved_sink_is_looked_at_again_later(table: SpanTable, queries: Queries) -> None:
    lane = lane_of(queries, "a", {0: 3})
    span = is_on(table, lane, {0: 5})
    planned(queries, lane)
    ended(queries, lane, answer(span, {}, "sink_moved", retryable=True))
    found = now_is(table, span)
    assert (found.phase, found.state) == (TaskPhase.RETRYING, TaskState.REPLICATING)
    assert found.retry_at is not None


def test_a_batch_nobody_knows_about_sends_its_spans_back(
    table: SpanTable, queries: Queries, lifecycle: Restarts
) -> None:
    lane = lane_of(queries, "a", {0: 3})
    is_on(table, lane, {0: 5})
    planned(queries, lane)
    lane.signal_stop()
    queries.batch_coordinator.end_batch(lane, None)
    assert lifecycle.restarted == ["the batch ended without an answer"]


def test_a_batch_that_ends_its_lane_is_said_of_all_who_are_on_it(table: SpanTable, queries: Queries) -> None:
    lane, *spans = two_on_a_lane(table, queries)
    planned(queries, lane)
    lane._broken = "a worker died"
    queries.batch_coordinator.end_batch(lane, None)
    found = table.members(spans)
    assert [(span.error, span.lane, worst(span.failures)) for span in found] == [
        (("lane_lost", f"{said(span)}: a worker died", True), None, 0) for span in found
    ]
    alone = lane_of(queries, "b", {0: 0})
    single = is_on(table, alone, {0: 0})
    planned(queries, alone)
    alone._broken = "a worker died"
    queries.batch_coordinator.end_batch(alone, None)
    span = now_is(table, single)
    assert (span.error, worst(span.failures)) == (("lane_lost", f"{said(span)}: a worker died", True), 1)


def said(span: Span) -> str:
    plan, ((partition, offset),) = span.task.plan, span.positions.items()
    return f"{plan.table}: topic {plan.topic}, partition {partition} from offset {offset} on"


def test_a_span_that_is_told_to_stop_in_a_batch_is_sealed_behind_what_the_batch_wrote(
    table: SpanTable, queries: Queries, lifecycle: Restarts
) -> None:
    lane = lane_of(queries, "a", {0: 3})
    span = is_on(table, lane, {0: 5})
    planned(queries, lane)
    calls = len(lifecycle.called)
    table.apply(span, Remove(seal=True))
    assert (now_is(table, span).phase, len(lifecycle.called)) == (TaskPhase.DRAINING, calls)
    ended(queries, lane, answer(span, {0: 9}, "sink_unavailable", retryable=True), seen={0: 9})
    found = now_is(table, span)
    assert (found.phase, found.positions, lane.members, len(lifecycle.called)) == (
        TaskPhase.SEALING,
        {0: 9},
        [],
        calls + 1,
    )


def test_a_span_that_has_left_in_the_middle_of_a_batch_is_not_moved_by_it(table: SpanTable, queries: Queries) -> None:
    """Without rows in the batch it need not wait for its end; by then it is another lane's."""
    old, new = lane_of(queries, "old", {0: 5, 1: 5}), lane_of(queries, "new", {1: 5})
    with_rows, without = is_on(table, old, {0: 5}), is_on(table, old, {1: 1_000}, "without")
    assert planned(queries, old) == [{0: 5}]
    table.apply(without, Placed(new.name))
    table.apply(without, Planned())
    ended(queries, old, answer(with_rows, {0: 9}), seen={0: 9})
    assert (now_is(table, without).phase, now_is(table, without).reached(1)) == (TaskPhase.WRITING, 1_000)
    assert now_is(table, with_rows).phase is TaskPhase.CLAIMED


def promote(table: SpanTable, span: SpanId) -> None:
    task = now_is(table, span).task
    table.apply(span, Add(task, primary=True, life=99))
    table.apply(span, Opened(task.epoch, True, now_is(table, span).positions))


def test_a_warm_lane_reads_along_and_writes_what_it_has_read_once_it_may(
    table: SpanTable, queries: Queries, lifecycle: Restarts
) -> None:
    lane = lane_of(queries, "a", {0: 3})
    span = is_on(table, lane, {0: 9}, primary=False)
    plan = queries.batch_coordinator.begin_batch(lane, ends_of(lane))
    assert plan is not None
    assert plan.works == (), "read, and dropped"
    assert ended(queries, lane, seen={0: 9}), "the present writer is past it"
    assert lane.delivered == {("t", 0): 9}

    assert queries.batch_coordinator.begin_batch(lane, ends_of(lane)) is not None
    promote(table, span)
    assert not ended(queries, lane, seen={0: 20}), "promoted meanwhile: the same rows again"
    assert planned(queries, lane) == [{0: 9}]
    assert lifecycle.restarted == []


def test_a_warm_span_beside_one_that_is_written_is_warmed_anew(
    table: SpanTable, queries: Queries, lifecycle: Restarts
) -> None:
    lane = lane_of(queries, "a", {0: 3, 1: 3})
    is_on(table, lane, {0: 5})
    left = is_on(table, lane, {1: 5}, "left", primary=False)
    planned(queries, lane)
    ended(queries, lane, seen={0: 9, 1: 9})
    planned(queries, lane)
    assert lifecycle.restarted == ["its lane reads for others, who may be written"]
    assert now_is(table, left).lane is None


ENDING = json.dumps(
    {
        "feed": "f",
        "source": {"topics": ["t"], "format": "ticdc-canal-json", "target_ts": NOON},
        "sink": {"type": "postgresql", "dsn": "dbname=x"},
    }
)


def resolved(table: SpanTable, span: SpanId, by: dict[int, int]) -> None:
    table.apply(span, Planned())
    table.apply(span, BatchOver(result_of(span, positions={}, rows=0, bytes=0, resolved=by), {}))


def test_a_partition_at_the_target_is_not_read_any_further_its_neighbours_are(
    table: SpanTable, queries: Queries, lifecycle: Restarts
) -> None:
    lane = lane_of(queries, "one", {0: 0, 1: 0})
    span = is_on(table, lane, {0: 5, 1: 5}, spec=ENDING, target_ts=NOON)
    resolved(table, span, {0: NOON - 1, 1: NOON})
    assert now_is(table, span).status(0, 0.0).resolved_ts == NOON - 1
    assert planned(queries, lane) == [{0: 5}], "of partition 1 nothing more is wanted"
    assert lifecycle.restarted == []


def test_a_span_at_the_target_is_in_no_batch_and_its_lane_reads_on(
    table: SpanTable, queries: Queries, lifecycle: Restarts
) -> None:
    lane = lane_of(queries, "one", {0: 0})
    span = is_on(table, lane, {0: 5}, spec=ENDING, target_ts=NOON)
    lane.delivered["t", 0] = 7
    resolved(table, span, {0: NOON})
    assert planned(queries, lane) == []
    assert (now_is(table, span).status(0, 0.0).resolved_ts, lifecycle.restarted) == (NOON, [])


@pytest.mark.parametrize(("slow_ms", "quick_ms", "leaves"), [(1500, 20, True), (900, 20, False), (1500, 1400, True)])
def test_a_span_that_its_neighbours_wait_for_leaves_them(
    table: SpanTable, lifecycle: Restarts, queries: Queries, slow_ms: int, quick_ms: int, *, leaves: bool
) -> None:
    lane, slow, quick = two_on_a_lane(table, queries)
    planned(queries, lane)
    ended(queries, lane, result_of(slow, wall_ms=slow_ms), result_of(quick, wall_ms=quick_ms))
    assert lane.members == ([quick] if leaves else [slow, quick])
    assert bool(lifecycle.restarted) is leaves


def test_nobody_leaves_when_all_take_their_share(table: SpanTable, lifecycle: Restarts, queries: Queries) -> None:
    lane, *spans = two_on_a_lane(table, queries)
    spans.append(is_on(table, lane, {0: 0}, "third"))
    planned(queries, lane)
    ended(queries, lane, *(result_of(span, wall_ms=5000) for span in spans))
    assert (len(lane.members), lifecycle.restarted) == (3, [])


def test_a_lane_is_awaited_as_soon_as_one_of_its_spans_is(table: SpanTable, queries: Queries) -> None:
    lane = lane_of(queries, "a", {0: 5})
    is_on(table, lane, {0: 5}, "s")
    is_on(table, lane, {0: 5}, "later", target_ts=(NOW_MS + 1) << 18)
    assert not queries.batch_coordinator.is_awaited(lane)
    is_on(table, lane, {0: 5}, "now", target_ts=NOW_MS << 18)
    assert queries.batch_coordinator.is_awaited(lane)


def test_a_table_that_is_to_be_maintained_is_not_planned_and_only_one_at_a_time(
    table: SpanTable, queries: Queries
) -> None:
    lane, first, second = two_on_a_lane(table, queries)
    for span in (first, second):
        table.apply(span, Served())
        table.apply(span, MaintainFor("m1"))
    assert len(planned(queries, lane)) == 1
    assert sorted(now_is(table, span).phase for span in (first, second)) == [TaskPhase.OPENING, TaskPhase.WRITING]
    assert [now_is(table, span).lane for span in (first, second)].count(None) == 1


@pytest.fixture
def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has to wait before it is due."""
    monkeypatch.setattr("headgate.agent.core.span.states.REST_SECONDS", 0.0)
    monkeypatch.setattr("headgate.agent.core.span.states.CATCH_UP_SECONDS_MAX", 0.0)
    monkeypatch.setattr("headgate.replication.batch_coordinator.BUSY_SECONDS_MAX", 0.01)


def passes(table: SpanTable, span: SpanId, end: int) -> None:
    """Everything below ``end`` has been read, and nothing of it was the span's."""
    table.apply(span, Passed({("t", partition): end for partition in now_is(table, span).positions}))


@pytest.mark.usefixtures("at_rest")
def test_what_is_due_is_begun_with_a_batch_and_does_not_need_a_moment_between_two(
    table: SpanTable, queries: Queries, lifecycle: Restarts
) -> None:
    """A busy lane has hardly one."""
    lane = lane_of(queries, "busy", {0: 0, 1: 2_000, 2: 2_000, 3: 2_000})
    written = is_on(table, lane, {0: 0}, "written")
    settled, copied, kept_up = (is_on(table, lane, {at: 2_000}, f"s{at}") for at in (1, 2, 3))
    passes(table, settled, 2_001)
    task = now_is(table, copied).task
    table.add(replace(task, epoch=Epoch(1, 2), copy=CopyOrder("r", "")), primary=True)
    table.apply(copied, Opened(Epoch(1, 2), True, {2: 2_000}, copying="some rows"))
    table.apply(copied, Placed(lane.name))
    for span in (copied, kept_up):
        table.apply(span, Served())
    table.apply(kept_up, MaintainFor("m1"))
    assert planned(queries, lane) == [{0: 0}]
    phases = [now_is(table, span).phase for span in (written, settled, copied, kept_up)]
    assert phases == [TaskPhase.WRITING, TaskPhase.SETTLING, TaskPhase.OPENING, TaskPhase.OPENING]
    assert (now_is(table, kept_up).is_maintained, lifecycle.restarted) == (True, [])


@pytest.mark.usefixtures("at_rest")
def test_positions_of_a_table_with_rows_move_with_these(table: SpanTable, queries: Queries) -> None:
    lane = lane_of(queries, "busy", {0: 0})
    span = is_on(table, lane, {0: 5})
    passes(table, span, 9)
    plan = queries.batch_coordinator.begin_batch(lane, ends_of(lane))
    assert plan is not None
    assert [work.settle for work in plan.works] == [True]
