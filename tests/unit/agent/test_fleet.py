"""When lanes are at rest, and which options they refuse: no Spark needed."""

import time

import pytest

from headgate.agent.lane.fleet import Fleet
from headgate.agent.lane.lane import IDLE_SECONDS
from headgate.agent.lane.spark import RefusedOptionError, check_options
from lanes_without_spark import lane_of, run_on


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
    lane._batch_ended_at = time.monotonic()
    assert run.status().lag_ms == 9_000, "just after a batch there may be more"
    rested = lane._batch_ended_at
    monkeypatch.setattr("headgate.agent.lane.lane.time.monotonic", lambda: rested + IDLE_SECONDS + 1)
    assert run.status().lag_ms == 0
