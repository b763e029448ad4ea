"""A partition that is stuck is given up, whatever another one of its span does; and what failed always says why."""

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.failures import FAILURES_MAX
from headgate.agent.core.span.inputs import Opened, Placed, RetryDue, SpanResult
from headgate.records.control import TaskState
from headgate.replication.merging import merge_results
from headgate.replication.plan import TaskResult
from headgate.replication.queries import Queries
from headgate.replication.span_table import FAILURES_BORNE, SpanTable
from support.lanes_without_spark import is_on, lane_of, now_is, planned, result_of


def tasks(*results: SpanResult) -> list[TaskResult]:
    return [TaskResult({}, (result,)) for result in results]


def stuck(span: SpanId, partition: int, code: str = "sink_unavailable", *, retryable: bool = True) -> SpanResult:
    return result_of(
        span, positions={}, rows=0, bytes=0, error_code=code, error=f"{code} {partition}", retryable=retryable,
        held=(partition,),
    )  # fmt: skip


def test_a_stuck_partition_is_given_up_while_another_goes_on_in_another_task(
    table: SpanTable, queries: Queries
) -> None:
    lane = lane_of(queries, "a", {0: 0, 1: 0})
    span = is_on(table, lane, {0: 5, 1: 0})
    batches = 0
    while now_is(table, span).state is not TaskState.FAILED and batches <= FAILURES_MAX + 1:
        if batches:
            found = now_is(table, span)
            table.apply(span, RetryDue())
            table.apply(span, Opened(found.task.epoch, True, found.positions))
            table.apply(span, Placed(lane.name))
        planned(queries, lane)
        assert table.work_of(now_is(table, span)).patient == (batches < FAILURES_BORNE)
        batches += 1
        queries.batch_coordinator.end_batch(lane, tasks(stuck(span, 0), result_of(span, positions={1: batches})))
    assert batches == FAILURES_MAX + 1
    status = now_is(table, span).status(0, 0.0)
    assert status.positions == {0: 5, 1: FAILURES_MAX + 1}
    assert (status.state, status.error_code) == (TaskState.FAILED, "sink_unavailable")


def test_a_failure_keeps_its_code_whatever_order_the_tasks_end_in(table: SpanTable, queries: Queries) -> None:
    for results in ([0, 1], [1, 0]):
        lane = lane_of(queries, "a", {0: 0, 1: 0})
        span = is_on(table, lane, {0: 5, 1: 0}, f"s{results[0]}")
        planned(queries, lane)
        both = [stuck(span, 0, "change_undecodable", retryable=False), result_of(span, positions={1: 3})]
        queries.batch_coordinator.end_batch(lane, tasks(*(both[number] for number in results)))
        status = now_is(table, span).status(0, 0.0)
        assert (status.state, status.error_code) == (TaskState.FAILED, "change_undecodable")
        assert status.positions == {0: 5, 1: 3}


def test_results_of_one_span_are_made_one(table: SpanTable, queries: Queries) -> None:
    span = is_on(table, lane_of(queries, "a", {0: 0, 1: 0, 2: 0}), {0: 0, 1: 0, 2: 0})
    (merged,) = merge_results(
        tasks(
            result_of(span, positions={0: 4}, rows=4, oldest_append_ms=20, newest_source_ms=7,
                      wall_ms=30, resolved={0: 9}),
            stuck(span, 2),
            stuck(span, 1, "value_refused", retryable=False),
        ),
        now_ms=0,
    )  # fmt: skip
    assert (merged.positions, merged.rows, merged.oldest_append_ms, merged.newest_source_ms) == ({0: 4}, 4, 20, 7)
    assert (merged.error_code, merged.retryable, merged.held) == ("value_refused", False, (1, 2))
    assert (merged.wall_ms, merged.resolved) == (30, {0: 9})
