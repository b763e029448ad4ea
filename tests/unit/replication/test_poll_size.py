"""After the JVM ran out of memory polls are small; they grow again, and everybody is told while they are."""

import time

import pytest
from msgspec.structs import replace

from headgate.records.error_codes import MEMORY_SHORT
from headgate.replication import poll_size
from headgate.replication.lane import IDLE_SECONDS, Lane
from headgate.replication.placement import JOIN_SECONDS
from headgate.replication.poll_size import CALM_SECONDS, CALM_SECONDS_MAX, POLL_RECORDS_MAX, PollSize
from headgate.replication.queries import Queries
from headgate.replication.span_table import SpanTable
from support.lanes_without_spark import Restarts, is_on, lane_of, now_is, planned


def test_it_grows_step_by_step_after_calm_stretches() -> None:
    sizes, found = PollSize(), []
    sizes.ran_out_of_memory(0.0)
    sizes.ran_out_of_memory(1.0)
    now = 1.0
    while sizes.is_reduced:
        found.append(sizes.records)
        assert not sizes.turn(now + 2 * CALM_SECONDS - 1)
        now += 2 * CALM_SECONDS
        assert sizes.turn(now)
    assert found == [1, 10, 100, 1000]
    assert sizes.records == POLL_RECORDS_MAX


def test_each_further_time_takes_longer_to_grow_up_to_a_limit() -> None:
    sizes = PollSize()
    sizes.ran_out_of_memory(0.0)
    assert (sizes.records, sizes.calm_seconds) == (20, CALM_SECONDS)
    for _ in range(20):
        sizes.ran_out_of_memory(0.0)
    assert (sizes.records, sizes.calm_seconds, sizes.failures) == (1, CALM_SECONDS_MAX, 21)


def test_after_a_long_time_at_full_size_it_is_forgotten() -> None:
    sizes = PollSize()
    sizes.ran_out_of_memory(0.0)
    sizes.ran_out_of_memory(0.0)
    now = 0.0
    while sizes.is_reduced:
        now += CALM_SECONDS_MAX
        sizes.turn(now)
    assert not sizes.turn(now + CALM_SECONDS_MAX)
    assert sizes.calm_seconds == CALM_SECONDS


def test_both_directions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    sizes = PollSize()
    with caplog.at_level("INFO"):
        sizes.ran_out_of_memory(0.0)
        sizes.turn(CALM_SECONDS)
    assert "polled for 20 records at a time instead of 2000" in caplog.text
    assert "Kafka is polled for 200 records at a time" in caplog.text


@pytest.fixture
def small(queries: Queries, monkeypatch: pytest.MonkeyPatch) -> Lane:
    """A lane that was started after the JVM ran out of memory, in the middle of a backlog."""
    monkeypatch.setattr(queries, "_guarded", lambda _lane, _step: None)
    queries._runtime.poll_size.ran_out_of_memory(time.monotonic())
    lane = lane_of(queries, "l", {0: 0})
    lane.poll_records, lane.batches, lane._latest_rows = 20, 1, 1_000_000
    return lane


def turn(table: SpanTable, queries: Queries, now: float) -> None:
    with table.changed:
        queries.turn(now)


def test_a_table_with_a_backlog_tells_of_small_polls(table: SpanTable, queries: Queries, small: Lane) -> None:
    span = is_on(table, small, {0: 0})
    slowness = queries.slowness(now_is(table, span))
    assert slowness is not None
    assert slowness[0] == MEMORY_SHORT
    assert "reads 20 records at a time instead of 2000" in slowness[1]
    status = now_is(table, span).status(0, 0.0, slowness=slowness)
    assert (status.error_code, status.error, status.retryable) == (*slowness, True)
    small._latest_rows = 0
    assert queries.slowness(now_is(table, span)) is None, "it has nothing to catch up with"
    small._latest_rows, small.poll_records = 1_000_000, POLL_RECORDS_MAX
    assert queries.slowness(now_is(table, span)) is None


def test_a_table_tells_of_small_polls_before_the_first_batch_of_its_lane_is_over(
    table: SpanTable, queries: Queries, small: Lane
) -> None:
    """That batch may take minutes, at one record per poll."""
    small.batches = small._latest_rows = 0
    behind = is_on(table, small, {0: 0}, "behind", backlog=21)
    current = is_on(table, small, {0: 0}, "current", backlog=20)
    told = queries.slowness(now_is(table, behind))
    assert told is not None
    assert told[0] == MEMORY_SHORT
    assert queries.slowness(now_is(table, current)) is None, "one poll brings all of it"
    small.batches = 1
    assert queries.slowness(now_is(table, behind)) is None, "the batch was all of it"
    small.batches, small.started = 0, False
    assert queries.slowness(now_is(table, behind)) is None, "it reads nothing yet"


def test_an_error_of_its_own_is_told_first(table: SpanTable, queries: Queries, small: Lane) -> None:
    span = now_is(table, is_on(table, small, {0: 0}))
    assert (
        replace(span, error=("sink_refused", "no", False)).status(0, 0.0, slowness=(MEMORY_SHORT, "slow")).error_code
        == "sink_refused"
    )


def test_a_lane_with_a_backlog_is_replaced_at_its_next_batch(
    table: SpanTable, queries: Queries, lifecycle: Restarts, small: Lane
) -> None:
    is_on(table, small, {0: 0})
    turn(table, queries, time.monotonic() + CALM_SECONDS)
    assert small.is_outdated
    assert planned(queries, small) == []
    assert lifecycle.restarted == ["its lane polls fewer records than it could by now"]


def test_a_lane_that_has_caught_up_is_replaced_without_a_pause(
    table: SpanTable, queries: Queries, lifecycle: Restarts, small: Lane
) -> None:
    span = is_on(table, small, {0: 0})
    now = time.monotonic() + CALM_SECONDS
    small._latest_rows, small._batch_ended_at = 0, time.monotonic() - IDLE_SECONDS - 1
    small.changed_at = now - JOIN_SECONDS
    turn(table, queries, now)
    (joined,) = [lane for lane in queries.lanes.values() if lane is not small]
    assert joined.taking_over == [span]
    assert lifecycle.restarted == []
    assert queries._runtime.poll_size.records == poll_size.GROWS * 20
