"""Which lane a span goes to when it arrives, is slow, or has caught up."""

import time

import msgspec
import pytest

from headgate.agent.executor import SpanId, SpanTask
from headgate.agent.lane.fleet import Fleet
from headgate.agent.lane.keeper import Board
from headgate.agent.lane.lane import IDLE_SECONDS, Lane
from headgate.agent.lane.placement import ARRIVAL_SECONDS, ARRIVAL_SECONDS_MAX, JOIN_SECONDS
from headgate.agent.lane.span import SpanRun
from headgate.records.control import Epoch, SpanPlan
from lanes_without_spark import SPEC, Restarts, ended, lane_of, planned, result_of, run_on, two_on_a_lane


def arrived(board: Board, span: str, *, backlog: int = 0, partition: int = 1) -> SpanRun:
    plan = SpanPlan(span=span, topic="t", table=f"public.{span}", start={partition: 0})
    run = SpanRun(SpanTask(SpanId("f", span), "0-1", 1, Epoch(1, 1), plan, SPEC), "c", primary=True)
    run.opened({partition: 0}, {partition: backlog})
    run.claimed, run.ready_at = True, time.monotonic()
    board.runs[run.task.id] = run
    return run


@pytest.fixture(autouse=True)
def without_spark(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes are launched, and nothing is started."""
    monkeypatch.setattr(fleet, "_guarded", lambda _lane, _step: None)


def turn(board: Board, fleet: Fleet, now: float) -> None:
    with board.changed:
        fleet.turn(now)


def rested(lane: Lane, now: float) -> None:
    lane.started, lane._batch_ended_at, lane.changed_at = True, now - IDLE_SECONDS - 1, now - JOIN_SECONDS


def test_spans_that_arrive_together_share_a_lane_and_those_still_on_their_way_are_waited_for(
    board: Board, fleet: Fleet
) -> None:
    one, other = arrived(board, "one"), arrived(board, "other")
    late = arrived(board, "late")
    late.ready_at, late.busy = None, True
    now = time.monotonic() + ARRIVAL_SECONDS
    turn(board, fleet, now)
    assert fleet.lanes == {}
    turn(board, fleet, now + ARRIVAL_SECONDS_MAX)
    assert one.lane is other.lane is not None
    assert late.lane is None
    assert list(one.lane.delivered.items()) == [(("t", 1), 0)]


def test_a_lane_is_joined_with_its_neighbour_which_goes_on_until_it_is_taken_over(
    board: Board, fleet: Fleet, keeper: Restarts
) -> None:
    old = [lane_of(fleet, "a", {0: 5}), lane_of(fleet, "b", {1: 7})]
    runs = [run_on(old[0], {0: 5}), run_on(old[1], {1: 7})]
    runs[1].task = msgspec.structs.replace(runs[1].task, id=SpanId("f", "other"))
    for run in runs:
        board.runs[run.task.id] = run
    now = time.monotonic()
    for lane in old:
        rested(lane, now)
    turn(board, fleet, now)
    (joined,) = [one for one in fleet.lanes.values() if one not in old]
    assert joined.delivered == {("t", 0): 5, ("t", 1): 7}
    assert planned(fleet, old[0]) == [{0: 5}], "while the joined lane starts"

    joined.started = True
    turn(board, fleet, now)
    assert [run.lane for run in runs] == [old[0], joined], "one is in a batch"
    assert sorted(fleet.lanes) == sorted(["a", joined.name]), "a lane without spans ends"
    ended(fleet, old[0], result_of(runs[0], positions={0: 900}), seen={0: 900})
    assert planned(fleet, joined) == [{1: 7}], "of the other there is nothing more up to there"
    assert (joined.heirs, runs[0].lane, keeper.restarted) == ([], joined, [])
    turn(board, fleet, now)
    assert list(fleet.lanes.values()) == [joined]


def test_a_joined_lane_does_not_take_what_it_has_read_past(
    board: Board, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.agent.lane.crew.HANDOVER_SECONDS_MAX", 0.01)
    old, joined = lane_of(fleet, "a", {0: 5}), lane_of(fleet, "b", {0: 5})
    run = run_on(old, {0: 5})
    board.runs[run.task.id] = run
    assert planned(fleet, old) == [{0: 5}]
    joined.heirs, run.heir = [run], joined
    assert planned(fleet, joined) == [], "the old lane is in the middle of a batch"
    assert (run.lane, run.heir, run.held, joined.heirs) == (old, None, False, []), "joined another time"
    ended(fleet, old, result_of(run, positions={0: 900}), seen={0: 900})
    assert planned(fleet, old) == []
    assert run.reached(0) == 1_000


def test_a_lane_that_reads_for_nobody_any_more_is_made_anew_without_it(board: Board, fleet: Fleet) -> None:
    lane = lane_of(fleet, "a", {0: 5, 1: 5})
    run = run_on(lane, {0: 5})
    board.runs[run.task.id] = run
    now = time.monotonic()
    rested(lane, now)
    turn(board, fleet, now)
    (joined,) = [one for one in fleet.lanes.values() if one is not lane]
    assert joined.delivered == {("t", 0): 5}
    assert joined.heirs == [run]


def test_one_lane_at_rest_is_left_alone(board: Board, fleet: Fleet) -> None:
    lane = lane_of(fleet, "a", {0: 5})
    run = run_on(lane, {0: 5})
    board.runs[run.task.id] = run
    now = time.monotonic()
    rested(lane, now)
    turn(board, fleet, now)
    assert list(fleet.lanes.values()) == [lane]


def test_a_lane_with_a_backlog_is_not_joined(board: Board, fleet: Fleet) -> None:
    lanes = [lane_of(fleet, "a", {0: 5}), lane_of(fleet, "b", {1: 7})]
    runs = [run_on(lanes[0], {0: 5}), run_on(lanes[1], {1: 7})]
    for run in runs:
        board.runs[run.task.id] = run
    now = time.monotonic()
    for lane in lanes:
        rested(lane, now)
    lanes[1]._batch_ended_at, lanes[1]._rows_max = now + 60, 100
    for batches, rows, joins in ((0, 0, False), (3, 100, False), (4, 20, True)):
        lanes[1].batches, lanes[1]._latest_rows = batches, rows
        turn(board, fleet, now)
        assert (len(fleet.lanes) > 2) is joins, rows


def test_spans_of_a_lane_that_is_lost_again_and_again_are_told_apart(board: Board, fleet: Fleet) -> None:
    """One of them cannot be read, and Spark's word for it is that of its query."""
    runs = [arrived(board, str(number)) for number in range(12)]
    now = time.monotonic()
    sizes = []
    for _ in range(5):
        now += 2 * ARRIVAL_SECONDS
        turn(board, fleet, now)
        lanes = {run.lane.name: run.lane for run in runs if run.lane is not None}
        sizes.append(max(len(lane.members) for lane in lanes.values()))
        for run in runs:
            with board.changed:
                fleet._keeper.lost(run, "gone", alone=False)
            run.retry_at, run.ready_at = None, now
        turn(board, fleet, now)
    assert sizes[:2] == [12, 12], "once may be a worker that was killed"
    assert sizes[-1] == 1
    assert [run.failures.worst for run in runs] == [0] * 12, "nobody's own fault yet"


def test_a_slow_span_gets_its_own_lane_and_is_not_joined_at_once(board: Board, fleet: Fleet) -> None:
    lane, slow, quick = two_on_a_lane(board, fleet)
    now = time.monotonic()
    slow.alone_until = now + 30
    with board.changed:
        for run in (slow, quick):
            fleet._keeper.leave(run)
            run.ready_at = now - 1
        del fleet.lanes[lane.name]
        fleet.placement.place_ready(now)
    assert slow.lane is not None
    assert slow.lane.members == [slow]
    assert quick.lane is not slow.lane
    for started in fleet.lanes.values():
        rested(started, now)
    turn(board, fleet, now)
    assert (len(fleet.lanes), slow.heir) == (2, None)
    slow.alone_until = now - 1
    turn(board, fleet, now + JOIN_SECONDS)
    assert slow.heir is quick.heir is not None
