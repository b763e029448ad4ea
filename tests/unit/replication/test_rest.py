"""When a lane rests between two batches: no Spark needed."""

import time
from typing import Any

import pytest

from headgate.replication.lane import REST_ROWS_MAX, REST_SECONDS, REST_SETTLED_SECONDS, Lane
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
    lane = Lane("a", coordinator, SPEC, {("t", 0): 0})
    lane._rests, lane._rows_max, lane._latest_rows = how.get("rests", True), how.get("rows_max", 200_000), rows
    lane.changed_at = time.monotonic() - how.get("settled", REST_SETTLED_SECONDS + 1)
    stopping: Any = waits
    lane.stopping = stopping
    lane._rest(7, time.monotonic() - began)
    assert (7 in lane.progress.rested_ms) == bool(waits.seconds)
    return waits.seconds


def test_after_few_changes_the_next_batch_begins_a_second_after_this_one(waits: Waits) -> None:
    (seconds,) = rested(waits, rows=REST_ROWS_MAX, began=REST_SECONDS / 4)
    assert seconds == pytest.approx(REST_SECONDS * 3 / 4, abs=REST_SECONDS / 8)


@pytest.mark.parametrize(
    "how",
    [
        {"rows": REST_ROWS_MAX + 1},
        {"rows": 1, "began": REST_SECONDS},
        {"rows": 1, "rests": False},
        {"rows": 1, "settled": 0.0},
        {"rows": 2, "rows_max": 3},
    ],
    ids=["many", "it took longer", "the feed does not want it", "a table has just come", "it is behind"],
)
def test_else_it_does_not_rest(waits: Waits, how: dict[str, Any]) -> None:
    assert rested(waits, **how) == []
