"""When a lane rests between two batches: no Spark needed."""

import time
from typing import Any

import pytest

from headgate.replication.feed_parts import FeedIncarnation
from headgate.replication.lane import REST_ROWS_MAX, REST_SECONDS, REST_SETTLED_SECONDS, Lane
from headgate.replication.stream import polling_delay
from support.lanes_without_spark import SPEC


class Waits:
    """In place of the lane's event: how long it was waited for."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return False


@pytest.fixture
def waits() -> Waits:
    return Waits()


def rested(waits: Waits, *, rows: int, began: float = 0.0, **how: Any) -> list[float]:
    """What a lane waits after a batch of ``rows`` that began ``began`` seconds ago."""
    coordinator: Any = None
    lane = Lane("a", coordinator, FeedIncarnation("0-1", 1, SPEC), "group", {("t", 0): 0})
    lane._rests, lane._rows_max, lane._latest_rows = how.get("rests", True), how.get("rows_max", 200_000), rows
    lane.changed_at = time.monotonic() - how.get("settled", REST_SETTLED_SECONDS + 1)
    stopping: Any = waits
    lane.stopping = stopping
    lane._began_at = time.monotonic() - began - how.get("came_in", 3600.0)
    lane._rest(7, time.monotonic() - began)
    assert (7 in lane.progress.rested_ms) == bool(waits.seconds)
    return waits.seconds


def test_after_few_changes_the_next_batch_begins_a_second_after_this_one(waits: Waits) -> None:
    (seconds,) = rested(waits, rows=REST_ROWS_MAX, began=REST_SECONDS / 4)
    assert 0 < seconds <= REST_SECONDS * 3 / 4


@pytest.mark.parametrize(
    "how",
    [
        {"rows": REST_ROWS_MAX + 1},
        {"rows": REST_ROWS_MAX, "came_in": REST_SECONDS / 2},
        {"rows": 1, "began": REST_SECONDS},
        {"rows": 1, "rests": False},
        {"rows": 1, "settled": 0.0},
        {"rows": 2, "rows_max": 3},
    ],
    ids=[
        "many",
        "many for the time",
        "it took longer",
        "the feed does not want it",
        "a table has just come",
        "it is behind",
    ],
)
def test_else_it_does_not_rest(waits: Waits, how: dict[str, Any]) -> None:
    assert rested(waits, **how) == []


def test_at_the_same_few_a_second_it_rests_again_and_again_and_with_more_only_once(waits: Waits) -> None:
    coordinator: Any = None
    stopping: Any = waits
    lane = Lane("a", coordinator, FeedIncarnation("0-1", 1, SPEC), "group", {("t", 0): 0})
    lane._rests, lane._rows_max, lane.stopping = True, 200_000, stopping
    lane.changed_at = time.monotonic() - REST_SETTLED_SECONDS - 10
    begin = time.monotonic() - REST_SECONDS / 10
    for batch, (rows, seconds) in enumerate([(1, 60.0), (8, 1.0), (8, 1.0), (100, 1.0), (10, 0.1), (10, 0.1)]):
        lane._latest_rows, lane._began_at = rows, begin - seconds
        lane._rest(batch, begin)
    assert sorted(lane.progress.rested_ms) == [0, 1, 2]


@pytest.mark.parametrize(
    ("partitions", "rests", "milliseconds"),
    [(1, False, 25), (5, False, 26), (1, True, 100), (300, True, 100), (1_000, True, 275), (1_000, False, 275)],
)
def test_a_lane_that_rests_asks_more_seldom_too(partitions: int, rests: bool, milliseconds: int) -> None:
    assert polling_delay(partitions, rests=rests) == f"{milliseconds}ms"
