"""A partition that is stuck is given up, whatever another one of its span does; and what failed always says why."""

from headgate.agent.lane.failures import Failures
from headgate.agent.lane.fleet import Fleet
from headgate.agent.lane.keeper import FAILURES_MAX
from headgate.agent.lane.merging import merge_results
from headgate.agent.lane.plan import SpanResult, TaskResult
from headgate.agent.lane.span import FAILURES_BORNE, SpanRun
from headgate.records.control import TaskState
from lanes_without_spark import Restarts, ends_of, lane_of, planned, result_of, run_on


def tasks(*results: SpanResult) -> list[TaskResult]:
    return [TaskResult({}, (result,)) for result in results]


def stuck(run: SpanRun, partition: int, code: str = "sink_unavailable", *, retryable: bool = True) -> SpanResult:
    return result_of(
        run, positions={}, rows=0, bytes=0, error_code=code, error=f"{code} {partition}", retryable=retryable,
        held=(partition,),
    )  # fmt: skip


def test_a_stuck_partition_is_given_up_while_another_goes_on_in_another_task(fleet: Fleet) -> None:
    lane = lane_of(fleet, "a", {0: 0, 1: 0})
    run = run_on(lane, {0: 5, 1: 0})
    batches = 0
    while run.state is not TaskState.FAILED and batches <= FAILURES_MAX + 1:
        run.lane, run.retry_at = lane, None
        if run not in lane.members:
            lane.take_on(run)
        planned(fleet, lane)
        assert run.work().patient == (batches < FAILURES_BORNE)
        batches += 1
        fleet.crew.end_batch(lane, ends_of(lane), tasks(stuck(run, 0), result_of(run, positions={1: batches})))
    assert batches == FAILURES_MAX + 1
    assert run.status().positions == {0: 5, 1: FAILURES_MAX + 1}
    assert (run.status().state, run.status().error_code) == (TaskState.FAILED, "sink_unavailable")


def test_a_failure_keeps_its_code_whatever_order_the_tasks_end_in(fleet: Fleet) -> None:
    for results in ([0, 1], [1, 0]):
        lane = lane_of(fleet, "a", {0: 0, 1: 0})
        run = run_on(lane, {0: 5, 1: 0})
        planned(fleet, lane)
        both = [stuck(run, 0, "change_undecodable", retryable=False), result_of(run, positions={1: 3})]
        fleet.crew.end_batch(lane, ends_of(lane), tasks(*(both[number] for number in results)))
        status = run.status()
        assert (status.state, status.error_code) == (TaskState.FAILED, "change_undecodable")
        assert status.positions == {0: 5, 1: 3}


def test_what_arrives_behind_a_failure_does_not_take_its_code_away(fleet: Fleet, keeper: Restarts) -> None:
    lane = lane_of(fleet, "a", {0: 0})
    run = run_on(lane, {0: 5})
    with keeper._board.changed:
        keeper.fail(run, "sink_fenced", "another has it", retryable=False)
    run.adopt(result_of(run, positions={0: 9}))
    assert (run.status().positions, run.status().error_code) == ({0: 9}, "sink_fenced")


def test_a_partition_that_moves_begins_to_count_anew(fleet: Fleet, keeper: Restarts) -> None:
    lane = lane_of(fleet, "a", {0: 0})
    run = run_on(lane, {0: 5})
    with keeper._board.changed:
        for _ in range(3):
            keeper.fail(run, "sink_unavailable", "", retryable=True, held=(0,))
    assert run.failures.worst == 3
    run.adopt(result_of(run, positions={0: 5}))
    assert run.failures.worst == 3, "it stands where it stood"
    run.adopt(result_of(run, positions={0: 6}))
    assert run.failures.worst == 0


def test_failures_of_the_whole_span_end_with_any_progress() -> None:
    failures = Failures()
    failures.count()
    failures.count([2])
    failures.count([2])
    assert failures.worst == 2
    failures.went_on([0])
    failures.count()
    assert failures.worst == 2
    failures.went_on([2])
    assert failures.worst == 0


def test_results_of_one_span_are_made_one(fleet: Fleet) -> None:
    run = run_on(lane_of(fleet, "a", {0: 0, 1: 0, 2: 0}), {0: 0, 1: 0, 2: 0})
    (merged,) = merge_results(
        tasks(
            result_of(run, positions={0: 4}, rows=4, oldest_append_ms=20, newest_source_ms=7,
                      wall_ms=30, resolved={0: 9}),
            stuck(run, 2),
            stuck(run, 1, "value_refused", retryable=False),
        )
    )  # fmt: skip
    assert (merged.positions, merged.rows, merged.oldest_append_ms, merged.newest_source_ms) == ({0: 4}, 4, 20, 7)
    assert (merged.error_code, merged.retryable, merged.held) == ("value_refused", False, (1, 2))
    assert (merged.wall_ms, merged.resolved) == (30, {0: 9})
