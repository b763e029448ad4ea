"""Which spans a lane may write in a batch, and when a joined lane may take one over: no Spark needed."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from headgate.agent.executor import SpanId, SpanTask
from headgate.agent.lane.alarm import Alarm
from headgate.agent.lane.fleet import (
    SETTLE_SECONDS,
    SETTLE_SECONDS_MAX,
    STRANGERS_SECONDS,
    ExecutorSettings,
    Fleet,
)
from headgate.agent.lane.keeper import Board, SpanKeeper
from headgate.agent.lane.lane import IDLE_SECONDS, Lane, LaneSource
from headgate.agent.lane.placement import ARRIVAL_ROWS_MAX, ARRIVAL_SECONDS, JOIN_LAG_MS, JOIN_SECONDS
from headgate.agent.lane.plan import BatchPlan, SpanResult, TaskPlan, TaskResult
from headgate.agent.lane.planner import SMALL_ROWS
from headgate.agent.lane.span import SpanRun
from headgate.agent.lane.spark import RefusedOptionError, SparkOptions, SparkRuntime, check_options
from headgate.records.control import Epoch, Positions, SpanPlan, TaskState

SPEC = '{"feed": "f", "source": {"topics": ["t"]}, "sink": {"type": "postgresql", "dsn": ""}}'


class Restarts(SpanKeeper):
    """A keeper that only remembers who was sent back."""

    def __init__(self, board: Board) -> None:
        super().__init__(board, None)  # type: ignore[arg-type]  # nothing here asks a broker
        self.restarted: list[str] = []

    def restart(self, run: SpanRun, why: str) -> None:
        self.restarted.append(why)
        self.leave(run)


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
def keeper(board: Board) -> Restarts:
    return Restarts(board)


@pytest.fixture
def fleet(board: Board, keeper: Restarts, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    runtime = SparkRuntime(SparkOptions(jars=(), scratch=tmp_path_factory.mktemp("spark")))
    return Fleet(board, keeper, runtime, ExecutorSettings(bootstrap="nowhere:1", cluster_id="c"))


def lane_of(fleet: Fleet, name: str, starts: Mapping[int, int]) -> Lane:
    lane = fleet.lanes[name] = Lane(name, fleet.crew, SPEC)
    lane.started = True
    lane.alarm = Alarm(name, lane, {"t": starts})
    return lane


NOON = 1_795_262_400_000 << 18


def run_on(lane: Lane, positions: Positions, spec: str = SPEC) -> SpanRun:
    plan = SpanPlan(span="s", topic="t", table="public.t", start=dict.fromkeys(positions, 0))
    run = SpanRun(SpanTask(SpanId("f", "s"), "0-1", 1, Epoch(1, 1), plan, spec), "c", primary=True)
    run.state, run.claimed, run.positions, run.lane = TaskState.REPLICATING, True, positions, lane
    lane.take_on(run)
    return run


def shared_out(lane: Lane, batch: BatchPlan) -> TaskPlan:
    return lane.planner.plan(batch, LaneSource("nowhere:1", 1000), 2, lambda _shares: None)


def planned(fleet: Fleet, lane: Lane) -> list[dict[int, int]]:
    plan = fleet.crew.begin_batch(lane)
    assert plan is not None
    return [work.expected for work in plan.works]


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
    result = SpanResult(
        id=run.task.id,
        positions=positions,
        rows=2,
        bytes=9,
        oldest_append_ms=100,
        newest_source_ms=90,
        visible_ms=130,
        error_code=code,
        error=code,
        retryable=retryable,
        decode_cpu_us=1,
        apply_cpu_us=1,
    )
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
            run.adopt(
                msgspec.structs.replace(result_of(run, 1), oldest_append_ms=0, visible_ms=applied_ms_after_append)
            )
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


def test_an_alarm_is_renewed_when_spans_have_come_and_gone_but_not_at_each(fleet: Fleet) -> None:
    lane = lane_of(fleet, "a", {0: 3})
    first = run_on(lane, {0: 5})
    second = run_on(lane, {1: 0})
    assert not fleet._is_alarm_due(lane, lane.changed_at + SETTLE_SECONDS), "it finds something whenever it looks"
    assert fleet._is_alarm_due(lane, lane.changed_at + SETTLE_SECONDS_MAX), "however busy, it does not look for ever"
    lane.looking_since = lane.changed_at
    assert not fleet._is_alarm_due(lane, lane.changed_at)
    assert fleet._is_alarm_due(lane, lane.changed_at + SETTLE_SECONDS)
    lane.watch_with(Alarm("b", lane, {"t": {0: 5, 1: 0}}))
    assert not fleet._is_alarm_due(lane, lane.changed_at + STRANGERS_SECONDS)
    lane.part_with(second)
    assert not fleet._is_alarm_due(lane, lane.changed_at + SETTLE_SECONDS)
    assert fleet._is_alarm_due(lane, lane.changed_at + STRANGERS_SECONDS), "it rings for a span that has left"
    lane.wake()
    assert not fleet._is_alarm_due(lane, lane.changed_at + STRANGERS_SECONDS), "busy, it does not hear it"
    assert lane.members == [first]


@pytest.mark.parametrize("option", ["minPartitions", "maxRecordsPerPartition", "spark.speculation", "failOnDataLoss"])
def test_options_that_break_order_are_refused_by_name(option: str) -> None:
    with pytest.raises(RefusedOptionError, match=option):
        check_options({option: "1"})
    check_options({"spark.executor.memory": "2g"})


def test_a_lane_that_finds_nothing_to_read_has_caught_up(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = lane_of(fleet, "a", {0: 3})
    run = run_on(lane, {0: 5})
    run.lag_ms = 9_000
    assert run.status().lag_ms == 9_000, "before its first batch a lane has not looked"
    lane._rested_at = time.monotonic()
    assert run.status().lag_ms == 9_000, "just after a batch there may be more"
    rested = lane._rested_at
    monkeypatch.setattr("headgate.agent.lane.lane.time.monotonic", lambda: rested + IDLE_SECONDS + 1)
    assert run.status().lag_ms == 0


# --- a feed that is to end ----------------------------------------------------------------------------------

ENDING = json.dumps(
    {
        "feed": "f",
        "source": {"topics": ["t"], "format": "ticdc-canal-json", "target_ts": NOON},
        "sink": {"type": "postgresql", "dsn": "dbname=x"},
    }
)


def resolved(run: SpanRun, by: dict[int, int]) -> None:
    run.adopt(SpanResult(run.task.id, {}, 0, 0, None, None, 0, None, None, False, 0, 0, by))


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


# --- slow spans ------------------------------------------------------------------------------------------------------


def result_of(run: SpanRun, wall_ms: int) -> SpanResult:
    return SpanResult(
        id=run.task.id,
        positions={0: 5},
        rows=1,
        bytes=1,
        oldest_append_ms=None,
        newest_source_ms=None,
        visible_ms=0,
        error_code=None,
        error=None,
        retryable=False,
        decode_cpu_us=0,
        apply_cpu_us=0,
        wall_ms=wall_ms,
    )


def two_on_a_lane(board: Board, fleet: Fleet) -> tuple[Lane, SpanRun, SpanRun]:
    lane = lane_of(fleet, "l", {0: 0})
    slow, quick = run_on(lane, {0: 0}), run_on(lane, {0: 0})
    quick.task = msgspec.structs.replace(quick.task, id=SpanId("f", "quick"))
    for run in (slow, quick):
        board.runs[run.task.id] = run
    return lane, slow, quick


@pytest.mark.parametrize(("slow_ms", "quick_ms", "leaves"), [(1500, 20, True), (900, 20, False), (1500, 1400, True)])
def test_a_span_that_its_neighbours_wait_for_leaves_them(
    board: Board, keeper: Restarts, fleet: Fleet, slow_ms: int, quick_ms: int, *, leaves: bool
) -> None:
    lane, slow, quick = two_on_a_lane(board, fleet)
    plan = fleet.crew.begin_batch(lane)
    assert plan is not None
    fleet.crew.end_batch(lane, plan, [TaskResult({}, {}, (result_of(slow, slow_ms), result_of(quick, quick_ms)))])
    assert lane.members == ([quick] if leaves else [slow, quick])
    assert bool(keeper.restarted) is leaves


def test_nobody_leaves_when_all_take_their_share(board: Board, keeper: Restarts, fleet: Fleet) -> None:
    lane, *runs = two_on_a_lane(board, fleet)
    third = run_on(lane, {0: 0})
    third.task = msgspec.structs.replace(third.task, id=SpanId("f", "third"))
    board.runs[third.task.id] = third
    plan = fleet.crew.begin_batch(lane)
    assert plan is not None
    fleet.crew.end_batch(lane, plan, [TaskResult({}, {}, tuple(result_of(run, 5000) for run in (*runs, third)))])
    assert (len(lane.members), keeper.restarted) == (3, [])


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


class Topics(Restarts):
    """A keeper with a source whose topics are told here."""

    present: Mapping[str, int] = {}

    def present_topics(self) -> Mapping[str, int]:
        return self.present


def test_a_span_whose_topic_is_missing_twice_is_sent_back_and_its_neighbours_stay(board: Board, tmp_path: Path) -> None:
    keeper = Topics(board)
    runtime = SparkRuntime(SparkOptions(jars=(), scratch=tmp_path))
    fleet = Fleet(board, keeper, runtime, ExecutorSettings(bootstrap="nowhere:1", cluster_id="c"))
    lane = lane_of(fleet, "l", {0: 0})
    run_on(lane, {0: 0})
    for present, restarted in (({"t": 1}, 0), ({}, 0), ({"t": 1}, 0), ({}, 0), ({"u": 1}, 1)):
        keeper.present = present
        fleet.look_for_topics()
        assert len(keeper.restarted) == restarted, present
    assert lane.members == []
