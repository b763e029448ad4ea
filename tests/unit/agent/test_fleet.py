"""When lanes get another alarm, or are at rest: no Spark needed."""

import time

import pytest

from headgate.agent.lane.alarm import Alarm
from headgate.agent.lane.fleet import (
    SETTLE_SECONDS,
    SETTLE_SECONDS_MAX,
    STRANGERS_SECONDS,
    Fleet,
)
from headgate.agent.lane.lane import IDLE_SECONDS
from headgate.agent.lane.spark import RefusedOptionError, check_options
from lanes_without_spark import lane_of, run_on


def test_an_alarm_is_renewed_when_spans_have_come_and_gone_but_not_at_each(fleet: Fleet) -> None:
    lane = lane_of(fleet, "a", {0: 3})
    first = run_on(lane, {0: 5})
    second = run_on(lane, {1: 0})
    assert not fleet._is_alarm_due(lane, lane.changed_at + SETTLE_SECONDS), "it finds something whenever it looks"
    assert fleet._is_alarm_due(lane, lane.changed_at + SETTLE_SECONDS_MAX + 1), "busy or not, it does not look for ever"
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
