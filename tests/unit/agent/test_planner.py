"""How much of the log a lane knows of, and how it divides a batch by that."""

from headgate.agent.lane.fleet import (
    Fleet,
)
from headgate.agent.lane.plan import BatchPlan, TaskResult
from headgate.agent.lane.planner import SMALL_ROWS
from lanes_without_spark import SPEC, lane_of, run_on, shared_out


def test_a_backlog_is_shared_from_the_first_batch_on_and_an_open_transaction_is_insisted_on_by_nobody(
    fleet: Fleet,
) -> None:
    lane = lane_of(fleet, "a", {})
    run = run_on(lane, {0: 0, 1: 0})
    lane.part_with(run)
    run.opened({0: 0, 1: 0}, {0: SMALL_ROWS, 1: SMALL_ROWS})
    lane.take_on(run)
    plan = BatchPlan(SPEC, (run.work(),))
    tasks = shared_out(lane, plan)
    assert sorted([(one.partition, one.until) for one in share] for share in tasks.readings) == [
        [(0, SMALL_ROWS)],
        [(1, SMALL_ROWS)],
    ], "a partition each: how much there is was seen when the span was opened"
    nothing = [TaskResult({}, {"t": {0: 0, 1: 0}}, ())]
    assert lane.planner.missing(tasks, nothing) == [], "what has been heard is not promised"
    lane.wake({("t", 0): 7})
    assert [one.partition for one in lane.planner.missing(shared_out(lane, plan), nothing)] == [0]


def test_a_lane_hears_from_its_readers_how_much_is_left(fleet: Fleet) -> None:
    lane = lane_of(fleet, "a", {})
    run = run_on(lane, {0: 0})
    batch = BatchPlan(SPEC, (run.work(),))
    lane.planner.learn(shared_out(lane, batch), [TaskResult({}, {}, (), {"t": {0: 900}})])
    (share,) = shared_out(lane, batch).readings
    assert [one.until for one in share] == [900]
