"""When lanes are at rest, and which options they refuse: no Spark needed."""

import time

import pytest

from headgate.agent.core.span.inputs import BatchOver, Planned
from headgate.replication.feed_parts import FeedIncarnation
from headgate.replication.lane import IDLE_SECONDS
from headgate.replication.queries import Queries
from headgate.replication.span_table import SpanTable
from headgate.replication.spark_options import RefusedOptionError, check_options
from support.lanes_without_spark import NOW_MS, SPEC, is_on, lane_of, now_is, result_of


@pytest.mark.parametrize("option", ["minPartitions", "maxRecordsPerPartition", "spark.speculation", "failOnDataLoss"])
def test_options_that_break_order_are_refused_by_name(option: str) -> None:
    with pytest.raises(RefusedOptionError, match=option):
        check_options({option: "1"})
    check_options({"spark.executor.memory": "2g"})


def test_a_lane_that_finds_nothing_to_read_has_caught_up(
    table: SpanTable, queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = lane_of(queries, "a", {0: 3})
    span = is_on(table, lane, {0: 5})
    table.apply(span, Planned())
    table.apply(span, BatchOver(result_of(span, oldest_append_ms=1_000, visible_ms=10_000), {}))

    def lag_ms() -> int:
        found = now_is(table, span)
        return found.status(NOW_MS, 0.0, lane_is_idle=queries.is_idle(found)).lag_ms

    assert lag_ms() == 9_000, "before its first batch a lane has not looked"
    lane._batch_ended_at = time.monotonic()
    assert lag_ms() == 9_000, "just after a batch there may be more"
    rested = lane._batch_ended_at
    monkeypatch.setattr("headgate.replication.lane.time.monotonic", lambda: rested + IDLE_SECONDS + 1)
    assert lag_ms() == 0


def test_when_the_last_lane_of_a_feed_has_ended_workers_close_their_sessions_for_it(
    queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[FeedIncarnation]] = []
    monkeypatch.setattr(queries._runtime, "close_unused", asked.append)
    before, updated = SPEC, SPEC.replace('"t"', '"t", "u"')
    lanes = [lane_of(queries, "a", {0: 0}, before), lane_of(queries, "b", {1: 0}, before)]
    other = lane_of(queries, "c", {0: 0}, updated)
    for lane in lanes:
        del queries.lanes[lane.name]
        queries._ending.append(lane)
    queries._end(lanes[0])
    assert asked == [], "another lane of the feed still ends"
    queries._end(lanes[1])
    assert asked == [{other.feed}], "an update is another description of the feed"
