"""Spans that read the same topic, on one lane: read together, and a position that rests follows in time."""

import time

import msgspec
import pytest

from headgate.agent.executor import SpanId, SpanTask
from headgate.agent.lane.alarm import Alarm
from headgate.agent.lane.crew import SETTLED_MAX
from headgate.agent.lane.fleet import Fleet
from headgate.agent.lane.lane import Lane
from headgate.agent.lane.plan import BatchPlan, SpanResult, TaskResult
from headgate.agent.lane.planner import SMALL_ROWS
from headgate.agent.lane.span import REST_SECONDS, SpanRun, positions_of
from headgate.records.control import Epoch, Positions, SpanPlan, TaskState
from lanes_without_spark import result_of, shared_out

NAMES = [f"a{number:02}" for number in range(20)]
SPEC = msgspec.json.encode(
    {
        "feed": "f",
        "source": {"topics": ["t"], "tables": [f"s.{name}" for name in NAMES]},
        "sink": {"type": "postgresql", "dsn": "", "table": "copy.{table}"},
    }
).decode()


@pytest.fixture
def lane(fleet: Fleet) -> Lane:
    made = fleet.lanes["a"] = Lane("a", fleet.crew, SPEC)
    made.started = True
    return made


def table(lane: Lane, name: str, positions: Positions) -> SpanRun:
    plan = SpanPlan(f"copy.{name}", "t", f"copy.{name}", dict.fromkeys(positions, 0))
    run = SpanRun(SpanTask(SpanId("f", f"copy.{name}"), "0-1", 1, Epoch(1, 1), plan, SPEC), "c", primary=True)
    run.state, run.claimed, run.positions, run.lane = TaskState.REPLICATING, True, positions, lane
    lane.take_on(run)
    return run


def begun(fleet: Fleet, lane: Lane) -> BatchPlan:
    plan = fleet.crew.begin_batch(lane)
    assert plan is not None
    return plan


def read(run: SpanRun, to: Positions, *, positions: Positions | None = None, rows: int = 0) -> SpanResult:
    return result_of(run, positions=positions or {}, rows=rows, bytes=0, read_to=to)


def ended(fleet: Fleet, lane: Lane, plan: BatchPlan, *results: SpanResult) -> None:
    fleet.crew.end_batch(lane, plan, [TaskResult({}, {}, results)])


def test_a_topic_is_read_once_from_where_the_last_of_its_tables_stands(fleet: Fleet, lane: Lane) -> None:
    table(lane, "a00", {0: 7, 1: 50})
    table(lane, "a01", {0: 9, 1: 40}).read_to = {0: 30, 1: 60}
    plan = begun(fleet, lane)
    assert [work.source_table for work in plan.works] == ["s.a00", "s.a01"]
    tasks = shared_out(lane, plan)
    assert [[(one.partition, one.start) for one in share] for share in tasks.readings] == [[(0, 7), (1, 50)]]
    lane.wake({("t", 0): SMALL_ROWS, ("t", 1): 50 + SMALL_ROWS})
    large = shared_out(lane, plan)
    assert sorted((one.partition, one.start) for share in large.readings for one in share) == [(0, 7), (1, 50)]
    assert len(large.readings) == 2, "a partition each, all tables of which are in one task"


def test_what_was_read_without_rows_is_not_read_again_and_is_no_position(fleet: Fleet, lane: Lane) -> None:
    run = table(lane, "a00", {0: 5})
    plan = begun(fleet, lane)
    ended(fleet, lane, plan, read(run, {0: 90}))
    assert (run.positions, run.status().positions) == ({0: 5}, {0: 5})
    (work,) = begun(fleet, lane).works
    assert (work.expected, work.start(0), work.settle) == ({0: 5}, 90, False)
    run.opened({0: 5})
    assert run.work().start(0) == 5, "a new look at the sink begins where the sink is"


def test_a_position_that_rests_follows_in_time_also_when_its_lane_rests(
    fleet: Fleet, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [table(lane, name, {0: 5}) for name in NAMES]
    plan = begun(fleet, lane)
    ended(fleet, lane, plan, *(read(run, {0: 90}) for run in runs))
    lane._rested = lane._wakes
    fleet.turn(time.monotonic())
    assert lane.is_resting, "not yet"
    now = time.monotonic() + REST_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: now)
    fleet.turn(now)
    assert not lane.is_resting, "woken for that alone"
    plan = begun(fleet, lane)
    settled = [work.id.span for work in plan.works if work.settle]
    assert settled == [f"copy.{name}" for name in NAMES[:SETTLED_MAX]], "a few at a time"
    moved = [run for run in runs if run.task.id.span in settled]
    ended(fleet, lane, plan, *(read(run, {0: 90}, positions={0: 90}) for run in moved))
    plan = begun(fleet, lane)
    settled = [work.id.span for work in plan.works if work.settle]
    assert settled == [f"copy.{name}" for name in NAMES[SETTLED_MAX : 2 * SETTLED_MAX]], "then the next ones"


def test_a_table_that_leaves_takes_no_neighbour_out_of_watch(lane: Lane) -> None:
    stays, leaves = table(lane, "a00", {0: 5}), table(lane, "a01", {0: 5})
    assert lane.unwatched == {("t", 0)}
    lane.part_with(leaves)
    assert lane.unwatched == {("t", 0)}
    lane.watch_with(Alarm("b", lane, positions_of([stays, leaves])))
    assert lane.unwatched == set()


def test_an_alarm_begins_where_the_last_of_the_tables_stands(lane: Lane) -> None:
    assert positions_of([table(lane, "a00", {0: 9, 1: 3}), table(lane, "a01", {0: 5, 1: 4})]) == {"t": {0: 5, 1: 3}}
