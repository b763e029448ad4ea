"""Which spans a lane may write in a batch, what is adopted when it is over, and who leaves the lane then."""

import json

import msgspec
import pytest

from headgate.agent.executor import SpanId
from headgate.agent.lane.fleet import Fleet
from headgate.agent.lane.keeper import Board
from headgate.agent.lane.lane import Lane
from headgate.agent.lane.plan import SpanResult
from headgate.agent.lane.span import SpanRun
from headgate.records.control import Positions, TaskState
from lanes_without_spark import (
    NOON,
    Restarts,
    ended,
    ends_of,
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
    assert planned(fleet, lane) == []


def answer(run: SpanRun, positions: Positions, code: str | None = None, *, retryable: bool = False) -> SpanResult:
    times = {"oldest_append_ms": 100, "newest_source_ms": 90, "visible_ms": 130}
    return result_of(run, positions=positions, rows=2, error_code=code, error=code, retryable=retryable, **times)


def test_what_became_visible_is_adopted(fleet: Fleet) -> None:
    lane = lane_of(fleet, "a", {0: 3, 1: 0})
    run = run_on(lane, {0: 5, 1: 0})
    planned(fleet, lane)
    assert ended(fleet, lane, answer(run, {0: 9}), seen={0: 9})
    status = run.status()
    assert (status.positions, status.rows, status.lag_ms, run.in_batch) == ({0: 9, 1: 0}, 2, 30, False)
    assert status.seen_ts == 90 << 18


def test_a_batch_goes_over_gaps_and_the_next_one_is_planned_behind_them(fleet: Fleet, keeper: Restarts) -> None:
    """Markers and what compaction took: the sink's position stays behind the last row, the log goes on elsewhere."""
    lane = lane_of(fleet, "a", {0: 3, 1: 0})
    run = run_on(lane, {0: 5, 1: 0})
    planned(fleet, lane)
    ended(fleet, lane, answer(run, {0: 9}), seen={0: 9})
    assert run.positions == {0: 9, 1: 0}
    assert [run.reached(partition) for partition in (0, 1)] == [1_000, 1_000]
    assert fleet.crew.begin_batch(lane, ends_of(lane, 1_000)) is None, "nothing of it can be there"
    plan = fleet.crew.begin_batch(lane, ends_of(lane, 1_001))
    assert plan is not None
    assert [(work.expected, work.start(0)) for work in plan.works] == [({0: 9, 1: 0}, 1_000)]
    assert keeper.restarted == []


def test_a_lane_that_has_read_ahead_of_a_span_does_not_write_it(fleet: Fleet, keeper: Restarts) -> None:
    lane = lane_of(fleet, "a", {0: 6})
    run = run_on(lane, {0: 5})
    assert planned(fleet, lane) == []
    assert keeper.restarted == ["its lane has read ahead of the sink"]
    assert run.lane is None


def test_what_no_task_has_been_given_counts_as_delivered(fleet: Fleet, keeper: Restarts) -> None:
    lane = lane_of(fleet, "a", {0: 3})
    run = run_on(lane, {0: 5})
    run.claimed, run.busy = False, True
    other = run_on(lane, {0: 2_000})
    assert planned(fleet, lane) == [], "nobody has rows: the batch is not run"
    assert lane.delivered == {("t", 0): 1_000}
    run.claimed, run.busy = True, False
    planned(fleet, lane)
    assert keeper.restarted == ["its lane has read ahead of the sink"]
    assert lane.members == [other]


def test_an_error_takes_the_span_off_its_lane(fleet: Fleet) -> None:
    lane = lane_of(fleet, "a", {0: 3})
    run = run_on(lane, {0: 5})
    planned(fleet, lane)
    ended(fleet, lane, answer(run, {}, "sink_fenced"))
    assert (run.state, run.lane, lane.members) == (TaskState.FAILED, None, [])


def test_a_moved_sink_is_looked_at_again_later(fleet: Fleet) -> None:
    lane = lane_of(fleet, "a", {0: 3})
    run = run_on(lane, {0: 5})
    planned(fleet, lane)
    ended(fleet, lane, answer(run, {}, "sink_moved", retryable=True))
    assert run.state is TaskState.REPLICATING
    assert run.retry_at is not None
    assert not run.writable


def test_a_batch_nobody_knows_about_sends_its_spans_back(fleet: Fleet, keeper: Restarts) -> None:
    lane = lane_of(fleet, "a", {0: 3})
    run_on(lane, {0: 5})
    planned(fleet, lane)
    lane.signal_stop()
    fleet.crew.end_batch(lane, ends_of(lane), None)
    assert keeper.restarted == ["the batch ended without an answer"]


def test_a_batch_that_ends_its_lane_is_said_of_all_who_are_on_it(fleet: Fleet, board: Board) -> None:
    lane, slow, quick = two_on_a_lane(board, fleet)
    planned(fleet, lane)
    lane._broken = "a worker died"
    fleet.crew.end_batch(lane, ends_of(lane), None)
    assert [(run.error, run.lane, run.failures.worst) for run in (slow, quick)] == 2 * [
        (("lane_lost", "a worker died", True), None, 0)
    ]
    alone = lane_of(fleet, "b", {0: 0})
    run = run_on(alone, {0: 0})
    planned(fleet, alone)
    alone._broken = "a worker died"
    fleet.crew.end_batch(alone, ends_of(alone), None)
    assert (run.error, run.failures.worst) == (("lane_lost", "a worker died", True), 1)


def test_a_span_that_has_left_in_the_middle_of_a_batch_is_not_moved_by_it(fleet: Fleet) -> None:
    """Without rows in the batch it need not wait for its end; by then it is another lane's."""
    old, new = lane_of(fleet, "old", {0: 5, 1: 5}), lane_of(fleet, "new", {1: 5})
    with_rows, without = run_on(old, {0: 5}), run_on(old, {1: 1_000})
    assert planned(fleet, old) == [{0: 5}]
    old.part_with(without)
    without.lane = new
    new.take_on(without)
    without.in_batch = True
    ended(fleet, old, answer(with_rows, {0: 9}), seen={0: 9})
    assert (without.in_batch, without.reached(1)) == (True, 1_000)
    assert not with_rows.in_batch


def warm(lane: Lane, positions: Positions) -> SpanRun:
    run = run_on(lane, positions)
    run.claimed, run.primary, run.state = False, False, TaskState.PREPARED
    return run


def test_a_warm_lane_reads_along_and_writes_what_it_has_read_once_it_may(fleet: Fleet, keeper: Restarts) -> None:
    lane = lane_of(fleet, "a", {0: 3})
    run = warm(lane, {0: 9})
    plan = fleet.crew.begin_batch(lane, ends_of(lane))
    assert plan is not None
    assert plan.works == (), "read, and dropped"
    assert ended(fleet, lane, seen={0: 9}), "the present writer is past it"
    assert lane.delivered == {("t", 0): 9}

    assert fleet.crew.begin_batch(lane, ends_of(lane)) is not None
    run.claimed = run.primary = True
    assert not ended(fleet, lane, seen={0: 20}), "promoted meanwhile: the same rows again"
    assert planned(fleet, lane) == [{0: 9}]
    assert keeper.restarted == []


def test_a_warm_span_beside_one_that_is_written_is_warmed_anew(fleet: Fleet, keeper: Restarts) -> None:
    lane = lane_of(fleet, "a", {0: 3, 1: 3})
    run_on(lane, {0: 5})
    left = warm(lane, {1: 5})
    planned(fleet, lane)
    ended(fleet, lane, seen={0: 9, 1: 9})
    planned(fleet, lane)
    assert keeper.restarted == ["its lane reads for others, who may be written"]
    assert left.lane is None


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
    lane.delivered["t", 0] = 7
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
    planned(fleet, lane)
    results = (result_of(slow, wall_ms=slow_ms), result_of(quick, wall_ms=quick_ms))
    ended(fleet, lane, *results)
    assert lane.members == ([quick] if leaves else [slow, quick])
    assert bool(keeper.restarted) is leaves


def test_nobody_leaves_when_all_take_their_share(board: Board, keeper: Restarts, fleet: Fleet) -> None:
    lane, *runs = two_on_a_lane(board, fleet)
    third = run_on(lane, {0: 0})
    third.task = msgspec.structs.replace(third.task, id=SpanId("f", "third"))
    board.runs[third.task.id] = third
    planned(fleet, lane)
    results = tuple(result_of(run, wall_ms=5000) for run in (*runs, third))
    ended(fleet, lane, *results)
    assert (len(lane.members), keeper.restarted) == (3, [])
