"""Which lane a span goes to when it arrives, is slow, or has caught up."""

import time

import pytest

from headgate.agent.executor import SpanId, SpanTask
from headgate.agent.lane.fleet import (
    Fleet,
)
from headgate.agent.lane.keeper import Board
from headgate.agent.lane.lane import IDLE_SECONDS
from headgate.agent.lane.placement import ARRIVAL_ROWS_MAX, ARRIVAL_SECONDS, JOIN_LAG_MS, JOIN_SECONDS
from headgate.agent.lane.plan import BatchPlan
from headgate.agent.lane.span import SpanRun
from headgate.records.control import Epoch, SpanPlan, TaskState
from lanes_without_spark import SPEC, lane_of, planned, result_of, run_on, two_on_a_lane


def arrived(board: Board, span: str, *, backlog: int = 0, partition: int = 1) -> SpanRun:
    plan = SpanPlan(span=span, topic="t", table=f"public.{span}", start={partition: 0})
    run = SpanRun(SpanTask(SpanId("f", span), "0-1", 1, Epoch(1, 1), plan, SPEC), "c", primary=True)
    run.opened({partition: 0}, {partition: backlog})
    run.claimed, run.ready_at = True, time.monotonic()
    board.runs[run.task.id] = run
    return run


def test_a_span_that_arrives_with_little_to_catch_up_is_in_the_home_lanes_next_batch(
    board: Board, fleet: Fleet
) -> None:
    home = lane_of(fleet, "a", {0: 3})
    run_on(home, {0: 5})
    run = arrived(board, "new", backlog=ARRIVAL_ROWS_MAX)
    with board.changed:
        fleet.turn(time.monotonic())
    assert (run.lane, run.state) == (home, TaskState.REPLICATING)
    assert planned(fleet, home) == [{0: 5}, {1: 0}]
    assert sorted(fleet.lanes) == ["a"]


def test_a_span_with_a_backlog_has_a_lane_beside_the_home_lane_until_it_has_caught_up(
    board: Board, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "_guarded", lambda _lane, _step: None)  # no Spark here
    home = lane_of(fleet, "a", {0: 3})
    for number in range(2):
        board.runs[SpanId("f", str(number))] = run_on(home, {0: 5})
    run = arrived(board, "new", backlog=ARRIVAL_ROWS_MAX + 1)
    now = time.monotonic()
    with board.changed:
        fleet.turn(now + ARRIVAL_SECONDS)
    beside = run.lane
    assert beside is not home
    assert beside is not None
    beside.started, run.state = True, TaskState.REPLICATING
    later = now + ARRIVAL_SECONDS + JOIN_SECONDS
    for applied_ms_after_append, goes in ((None, False), (JOIN_LAG_MS + 1, False), (5, True)):
        if applied_ms_after_append is not None:
            run.adopt(result_of(run, oldest_append_ms=0, visible_ms=applied_ms_after_append))
        assert run.has_caught_up(JOIN_LAG_MS) is goes
        if not goes:
            with board.changed:
                fleet.turn(later)
        assert run.lane is beside, "it still lags, or nobody knows"
    run.positions = {1: 0}
    assert planned(fleet, beside) == [{1: 0}]
    plan = BatchPlan(SPEC, (run.work(),))
    with board.changed:
        fleet.turn(later)
    assert run.lane is beside, "it is in a batch"
    fleet.crew.end_batch(beside, plan, [])
    assert run.lane is home
    assert beside.members == []
    assert len(planned(fleet, home)) == 3
    with board.changed:
        fleet.turn(later)
    assert sorted(fleet.lanes) == ["a"], "a lane without spans ends"


def test_a_slow_span_gets_its_own_lane_and_is_not_joined_at_once(
    board: Board, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "_guarded", lambda _lane, _step: None)  # no Spark here
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
            started.started, started._rested_at = True, now - IDLE_SECONDS - 1
        fleet.placement.join(now)
        assert quick.lane is not slow.lane
        slow.alone_until = now - 1
        fleet.placement.join(now)
        assert slow.lane is quick.lane is not None


def test_lanes_that_all_began_with_a_backlog_are_joined_once_they_have_caught_up(
    board: Board, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "_guarded", lambda _lane, _step: None)  # no Spark here
    runs = []
    now = time.monotonic()
    for name in ("one", "two"):
        runs.append(arrived(board, name, backlog=ARRIVAL_ROWS_MAX + 1))
        with board.changed:
            fleet.turn(now + 2 * ARRIVAL_SECONDS)
    assert len(fleet.lanes) == 2
    for lane in fleet.lanes.values():
        lane.started, lane._rested_at = True, now - IDLE_SECONDS - 1
    for run in runs:
        run.state = TaskState.REPLICATING
    with board.changed:
        fleet.turn(now + 2 * ARRIVAL_SECONDS + JOIN_SECONDS)
    assert [len(lane.members) for lane in fleet.lanes.values()] == [2]
