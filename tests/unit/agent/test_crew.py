"""Which spans a lane may write in a batch, what is adopted when it is over, and who leaves the lane then."""

import json

import msgspec
import pytest

from headgate.agent.executor import SpanId
from headgate.agent.lane.alarm import Alarm
from headgate.agent.lane.fleet import (
    Fleet,
)
from headgate.agent.lane.keeper import Board
from headgate.agent.lane.plan import TaskResult
from headgate.agent.lane.span import SpanRun
from headgate.records.control import Positions, TaskState
from lanes_without_spark import (
    NOON,
    Restarts,
    lane_of,
    planned,
    result_of,
    run_on,
    two_on_a_lane,
)


def test_a_claimed_span_is_planned_from_the_sinks_position(fleet: Fleet) -> None:
    lane = lane_of(fleet, "a", {0: 3})
    run = run_on(lane, {0: 5})
    assert planned(fleet, lane) == [{0: 5}]
    assert run.in_batch


@pytest.mark.parametrize("what", ["unclaimed", "stopping", "busy", "failed", "elsewhere"])
def test_a_span_that_may_not_be_written_is_left_out(fleet: Fleet, what: str) -> None:
    lane = lane_of(fleet, "a", {0: 3})
    run = run_on(lane, {0: 5})
    match what:
        case "unclaimed":
            run.claimed = False
        case "stopping":
            run.stop = "seal"
        case "busy":
            run.busy = True
        case "failed":
            run.state = TaskState.FAILED
        case _:
            run.in_batch = True
    plan = fleet.crew.begin_batch(lane)
    assert plan is not None
    assert plan.works == ()


def answer(run: SpanRun, positions: Positions, code: str | None = None, *, retryable: bool = False) -> TaskResult:
    times = {"oldest_append_ms": 100, "newest_source_ms": 90, "visible_ms": 130}
    result = result_of(run, positions=positions, rows=2, error_code=code, error=code, retryable=retryable, **times)
    return TaskResult(seen={"t": positions}, ends={}, spans=(result,))


def test_what_became_visible_is_adopted(fleet: Fleet) -> None:
    lane = lane_of(fleet, "a", {0: 3, 1: 0})
    run = run_on(lane, {0: 5, 1: 0})
    plan = fleet.crew.begin_batch(lane)
    assert plan is not None
    fleet.crew.end_batch(lane, plan, [answer(run, {0: 9})])
    status = run.status()
    assert (status.positions, status.rows, status.lag_ms, run.in_batch) == ({0: 9, 1: 0}, 2, 30, False)
    assert status.seen_ts == 90 << 18


def test_an_error_takes_the_span_off_its_lane(fleet: Fleet) -> None:
    lane = lane_of(fleet, "a", {0: 3})
    run = run_on(lane, {0: 5})
    plan = fleet.crew.begin_batch(lane)
    assert plan is not None
    fleet.crew.end_batch(lane, plan, [answer(run, {}, "sink_fenced")])
    assert (run.state, run.lane, lane.members) == (TaskState.FAILED, None, [])


def test_a_moved_sink_is_looked_at_again_later(fleet: Fleet) -> None:
    lane = lane_of(fleet, "a", {0: 3})
    run = run_on(lane, {0: 5})
    plan = fleet.crew.begin_batch(lane)
    assert plan is not None
    fleet.crew.end_batch(lane, plan, [answer(run, {}, "sink_moved", retryable=True)])
    assert run.state is TaskState.REPLICATING
    assert run.retry_at is not None
    assert not run.writable


def test_a_batch_nobody_knows_about_sends_its_spans_back(fleet: Fleet, keeper: Restarts) -> None:
    lane = lane_of(fleet, "a", {0: 3})
    run_on(lane, {0: 5})
    plan = fleet.crew.begin_batch(lane)
    assert plan is not None
    fleet.crew.end_batch(lane, plan, None)
    assert keeper.restarted == ["the batch ended without an answer"]


def test_a_lane_looks_by_itself_as_long_as_its_alarm_does_not_watch_all_of_its_spans(fleet: Fleet) -> None:
    lane = lane_of(fleet, "a", {0: 3})
    run_on(lane, {0: 5})
    plan = fleet.crew.begin_batch(lane)
    assert plan is not None
    assert not plan.waiting
    newcomer = run_on(lane, {1: 0})
    plan = fleet.crew.begin_batch(lane)
    assert plan is not None
    assert plan.waiting
    assert lane.watch_with(Alarm("b", lane, {"t": {0: 5, 1: 0}})) is not None
    assert lane.unwatched == set()
    lane.part_with(newcomer)
    assert lane.unwatched == set()


ENDING = json.dumps(
    {
        "feed": "f",
        "source": {"topics": ["t"], "format": "ticdc-canal-json", "target_ts": NOON},
        "sink": {"type": "postgresql", "dsn": "dbname=x"},
    }
)


def resolved(run: SpanRun, by: dict[int, int]) -> None:
    run.adopt(result_of(run, positions={}, rows=0, bytes=0, resolved=by))


def test_a_partition_at_the_target_is_not_read_any_further_its_neighbours_are(fleet: Fleet, keeper: Restarts) -> None:
    lane = lane_of(fleet, "one", {0: 0, 1: 0})
    run = run_on(lane, {0: 5, 1: 5}, ENDING)
    resolved(run, {0: NOON - 1, 1: NOON})
    assert run.status().resolved_ts == NOON - 1
    assert planned(fleet, lane) == [{0: 5}], "of partition 1 nothing more is wanted"
    assert keeper.restarted == []


def test_a_span_at_the_target_is_in_no_batch_and_its_lane_reads_on(fleet: Fleet, keeper: Restarts) -> None:
    lane = lane_of(fleet, "one", {0: 0})
    run = run_on(lane, {0: 5}, ENDING)
    resolved(run, {0: NOON})
    assert planned(fleet, lane) == []
    assert (run.status().resolved_ts, keeper.restarted) == (NOON, [])


def test_evidence_is_looked_for_anew_after_a_restart(fleet: Fleet) -> None:
    run = run_on(lane_of(fleet, "one", {0: 0, 1: 0}), {0: 5, 1: 5}, ENDING)
    resolved(run, {0: NOON})
    assert run.status().resolved_ts is None, "a partition has said nothing"
    resolved(run, {1: NOON})
    run.opened({0: 5, 1: 5})
    assert run.status().resolved_ts is None


@pytest.mark.parametrize(("slow_ms", "quick_ms", "leaves"), [(1500, 20, True), (900, 20, False), (1500, 1400, True)])
def test_a_span_that_its_neighbours_wait_for_leaves_them(
    board: Board, keeper: Restarts, fleet: Fleet, slow_ms: int, quick_ms: int, *, leaves: bool
) -> None:
    lane, slow, quick = two_on_a_lane(board, fleet)
    plan = fleet.crew.begin_batch(lane)
    assert plan is not None
    results = (result_of(slow, wall_ms=slow_ms), result_of(quick, wall_ms=quick_ms))
    fleet.crew.end_batch(lane, plan, [TaskResult({}, {}, results)])
    assert lane.members == ([quick] if leaves else [slow, quick])
    assert bool(keeper.restarted) is leaves


def test_nobody_leaves_when_all_take_their_share(board: Board, keeper: Restarts, fleet: Fleet) -> None:
    lane, *runs = two_on_a_lane(board, fleet)
    third = run_on(lane, {0: 0})
    third.task = msgspec.structs.replace(third.task, id=SpanId("f", "third"))
    board.runs[third.task.id] = third
    plan = fleet.crew.begin_batch(lane)
    assert plan is not None
    results = tuple(result_of(run, wall_ms=5000) for run in (*runs, third))
    fleet.crew.end_batch(lane, plan, [TaskResult({}, {}, results)])
    assert (len(lane.members), keeper.restarted) == (3, [])
