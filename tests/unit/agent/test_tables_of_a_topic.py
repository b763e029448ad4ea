"""Spans that read the same topic, on one lane: read together, and a position that rests follows in time."""

import time

import msgspec
import pytest

from headgate.agent.executor import SpanId, SpanTask
from headgate.agent.lane.crew import SETTLED_MAX
from headgate.agent.lane.fleet import Fleet
from headgate.agent.lane.lane import Lane
from headgate.agent.lane.plan import BatchPlan, SpanResult
from headgate.agent.lane.span import REST_SECONDS, SpanRun, positions_of
from headgate.records.control import Epoch, Positions, SpanPlan, TaskState
from lanes_without_spark import Restarts, ended, ends_of, result_of

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
    made = fleet.lanes["a"] = Lane("a", fleet.crew, SPEC, {("t", 0): 0, ("t", 1): 0})
    made.started = True
    return made


def table(lane: Lane, name: str, positions: Positions) -> SpanRun:
    plan = SpanPlan(f"copy.{name}", "t", f"copy.{name}", dict.fromkeys(positions, 0))
    run = SpanRun(SpanTask(SpanId("f", f"copy.{name}"), "0-1", 1, Epoch(1, 1), plan, SPEC), "c", primary=True)
    run.state, run.claimed, run.positions, run.lane = TaskState.REPLICATING, True, positions, lane
    lane.take_on(run)
    return run


def begun(fleet: Fleet, lane: Lane, end: int = 90) -> BatchPlan:
    plan = fleet.crew.begin_batch(lane, ends_of(lane, end))
    assert plan is not None
    return plan


def read(run: SpanRun, *, positions: Positions | None = None, rows: int = 0) -> SpanResult:
    return result_of(run, positions=positions or {}, rows=rows, bytes=0)


def test_a_lane_begins_where_the_last_of_the_tables_stands(lane: Lane) -> None:
    runs = [table(lane, "a00", {0: 9, 1: 3}), table(lane, "a01", {0: 5, 1: 4})]
    assert positions_of(runs) == {("t", 0): 5, ("t", 1): 3}
    runs[1].pass_to({("t", 0): 7})
    assert positions_of(runs) == {("t", 0): 7, ("t", 1): 3}, "what has been read without rows is not read again"


def test_what_was_read_without_rows_is_no_position(fleet: Fleet, lane: Lane, keeper: Restarts) -> None:
    run = table(lane, "a00", {0: 5})
    begun(fleet, lane)
    ended(fleet, lane, read(run), seen={0: 1_000})
    assert (run.positions, run.status().positions) == ({0: 5}, {0: 5})
    (work,) = begun(fleet, lane, 2_000).works
    assert (work.expected, work.start(0), work.settle, work.source_table) == ({0: 5}, 1_000, False, "s.a00")
    run.opened({0: 5})
    assert run.work().start(0) == 5, "a new look at the sink begins where the sink is"
    assert keeper.restarted == []


def test_a_position_that_rests_follows_in_time_with_a_batch_or_without(
    fleet: Fleet, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [table(lane, name, {0: 5}) for name in NAMES]
    begun(fleet, lane)
    ended(fleet, lane, *(read(run) for run in runs), seen={0: 1_000})
    moved: list[str] = []
    monkeypatch.setattr(fleet._keeper, "submit", lambda run, _step: moved.append(run.task.id.span))
    fleet.turn(time.monotonic())
    assert moved == [], "not yet"
    now = time.monotonic() + REST_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: now)
    plan = begun(fleet, lane, 2_000)
    settled = [work.id.span for work in plan.works if work.settle]
    assert settled == [f"copy.{name}" for name in NAMES[:SETTLED_MAX]], "a few at a time"
    of_these = [run for run in runs if run.task.id.span in settled]
    ended(fleet, lane, *(read(run, positions={0: 1_000}) for run in of_these), seen={0: 1_000})
    fleet.turn(now)
    assert moved == [f"copy.{name}" for name in NAMES[SETTLED_MAX : 2 * SETTLED_MAX]], "then the next ones"
