"""Which lane a span goes to when it arrives, is slow, or has caught up."""

import time

import pytest

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.failures import worst
from headgate.agent.core.span.inputs import LaneLost, Opened, RetryDue, SentBack, Served, Slowed
from headgate.replication.lane import IDLE_SECONDS, Lane
from headgate.replication.placement import ARRIVAL_SECONDS, ARRIVAL_SECONDS_MAX, JOIN_SECONDS
from headgate.replication.queries import Queries
from headgate.replication.span_table import SpanTable
from support.lanes_without_spark import (
    Restarts,
    ended,
    is_on,
    is_open,
    lane_of,
    now_is,
    planned,
    result_of,
    two_on_a_lane,
)


@pytest.fixture(autouse=True)
def without_spark(queries: Queries, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes are launched, and nothing is started."""
    monkeypatch.setattr(queries, "_guarded", lambda _lane, _step: None)


def turn(table: SpanTable, queries: Queries, now: float) -> None:
    with table.changed:
        queries.turn(now)


def rested(lane: Lane, now: float) -> None:
    lane.started, lane._batch_ended_at, lane.changed_at = True, now - IDLE_SECONDS - 1, now - JOIN_SECONDS


def is_opened(table: SpanTable, span: SpanId) -> None:
    """Source and sink stand where it stood."""
    found = now_is(table, span)
    table.apply(span, Opened(found.task.epoch, found.primary, found.positions))


def test_spans_that_arrive_together_share_a_lane_and_those_still_on_their_way_are_waited_for(
    table: SpanTable, queries: Queries
) -> None:
    one, other, late = (is_open(table, {1: 0}, name) for name in ("one", "other", "late"))
    table.apply(late, SentBack("it is opened again"))
    now = time.monotonic() + ARRIVAL_SECONDS
    turn(table, queries, now)
    assert queries.lanes == {}
    turn(table, queries, now + ARRIVAL_SECONDS_MAX)
    (lane,) = queries.lanes.values()
    assert now_is(table, one).lane == now_is(table, other).lane == lane.name
    assert now_is(table, late).lane is None
    assert list(lane.delivered.items()) == [(("t", 1), 0)]


def test_a_lane_is_joined_with_its_neighbour_which_goes_on_until_it_is_taken_over(
    table: SpanTable, queries: Queries, lifecycle: Restarts
) -> None:
    old = [lane_of(queries, "a", {0: 5}), lane_of(queries, "b", {1: 7})]
    spans = [is_on(table, old[0], {0: 5}), is_on(table, old[1], {1: 7}, "other")]
    now = time.monotonic()
    for lane in old:
        rested(lane, now)
    turn(table, queries, now)
    (joined,) = [one for one in queries.lanes.values() if one not in old]
    assert joined.delivered == {("t", 0): 5, ("t", 1): 7}
    assert planned(queries, old[0]) == [{0: 5}], "while the joined lane starts"

    joined.started = True
    turn(table, queries, now)
    assert [now_is(table, span).lane for span in spans] == ["a", joined.name], "one is in a batch"
    assert sorted(queries.lanes) == sorted(["a", joined.name]), "a lane without spans ends"
    ended(queries, old[0], result_of(spans[0], positions={0: 900}), seen={0: 900})
    assert planned(queries, joined) == [{1: 7}], "of the other there is nothing more up to there"
    assert (joined.taking_over, now_is(table, spans[0]).lane, lifecycle.restarted) == ([], joined.name, [])
    turn(table, queries, now)
    assert list(queries.lanes.values()) == [joined]


def test_a_joined_lane_does_not_take_what_it_has_read_past(
    table: SpanTable, queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.replication.batch_coordinator.HANDOVER_SECONDS_MAX", 0.01)
    old, joined = lane_of(queries, "a", {0: 5}), lane_of(queries, "b", {0: 5})
    span = is_on(table, old, {0: 5})
    assert planned(queries, old) == [{0: 5}]
    joined.taking_over = [span]
    assert planned(queries, joined) == [], "the old lane is in the middle of a batch"
    assert (now_is(table, span).lane, queries.batch_coordinator._held, joined.taking_over) == ("a", set(), []), (
        "joined another time"
    )
    ended(queries, old, result_of(span, positions={0: 900}), seen={0: 900})
    assert planned(queries, old) == []
    assert now_is(table, span).reached(0) == 1_000


def test_an_heir_that_has_left_its_lane_is_not_waited_for(table: SpanTable, queries: Queries) -> None:
    old, joined = lane_of(queries, "a", {0: 5}), lane_of(queries, "b", {0: 5})
    span = is_on(table, old, {0: 5})
    joined.taking_over = [span]
    table.apply(span, LaneLost("gone", alone=False))
    queries.batch_coordinator.take_over(joined)
    assert (joined.taking_over, joined.members) == ([], [])


def test_a_lane_that_reads_for_nobody_any_more_is_made_anew_without_it(table: SpanTable, queries: Queries) -> None:
    lane = lane_of(queries, "a", {0: 5, 1: 5})
    span = is_on(table, lane, {0: 5})
    now = time.monotonic()
    rested(lane, now)
    turn(table, queries, now)
    (joined,) = [one for one in queries.lanes.values() if one is not lane]
    assert joined.delivered == {("t", 0): 5}
    assert joined.taking_over == [span]


def test_one_lane_at_rest_is_left_alone(table: SpanTable, queries: Queries) -> None:
    lane = lane_of(queries, "a", {0: 5})
    is_on(table, lane, {0: 5})
    now = time.monotonic()
    rested(lane, now)
    turn(table, queries, now)
    assert list(queries.lanes.values()) == [lane]


def test_a_lane_with_a_backlog_is_not_joined(table: SpanTable, queries: Queries) -> None:
    lanes = [lane_of(queries, "a", {0: 5}), lane_of(queries, "b", {1: 7})]
    is_on(table, lanes[0], {0: 5})
    is_on(table, lanes[1], {1: 7}, "other")
    now = time.monotonic()
    for lane in lanes:
        rested(lane, now)
    lanes[1]._batch_ended_at, lanes[1]._rows_max = now + 60, 100
    for batches, rows, joins in ((0, 0, False), (3, 100, False), (4, 20, True)):
        lanes[1].batches, lanes[1]._latest_rows = batches, rows
        turn(table, queries, now)
        assert (len(queries.lanes) > 2) is joins, rows


def test_spans_of_a_lane_that_is_lost_again_and_again_are_told_apart(table: SpanTable, queries: Queries) -> None:
    """One of them cannot be read, and Spark's word for it is that of its query."""
    spans = [is_open(table, {1: 0}, str(number)) for number in range(12)]
    now = time.monotonic()
    sizes = []
    for _ in range(5):
        now += 2 * ARRIVAL_SECONDS
        turn(table, queries, now)
        sizes.append(max(len(lane.members) for lane in queries.lanes.values()))
        for span in spans:
            table.apply(span, LaneLost("gone", alone=False))
            table.apply(span, RetryDue())
            is_opened(table, span)
        turn(table, queries, now)
    assert sizes[:2] == [12, 12], "once may be a worker that was killed"
    assert sizes[-1] == 1
    assert [worst(now_is(table, span).failures) for span in spans] == [0] * 12, "nobody's own fault yet"


def test_a_slow_span_gets_its_own_lane_and_is_not_joined_at_once(table: SpanTable, queries: Queries) -> None:
    lane, slow, quick = two_on_a_lane(table, queries)
    now = time.monotonic()
    table.apply(slow, Slowed(now + 30))
    for span in (slow, quick):
        table.apply(span, SentBack("it waits for a lane"))
        is_opened(table, span)
    with table.changed:
        del queries.lanes[lane.name]
        queries.placement.place_ready(now + 2 * ARRIVAL_SECONDS)
    assert len(queries.lanes) == 2
    assert [lane.members for lane in queries.lanes.values() if slow in lane.members] == [[slow]]
    for span in (slow, quick):
        table.apply(span, Served())
    for started in queries.lanes.values():
        rested(started, now)
    turn(table, queries, now)
    assert len(queries.lanes) == 2
    table.apply(slow, Slowed(now - 1))
    turn(table, queries, now + 2 * JOIN_SECONDS)
    assert sorted(span for lane in queries.lanes.values() for span in lane.taking_over) == sorted([slow, quick])
