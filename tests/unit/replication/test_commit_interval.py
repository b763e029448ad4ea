"""How long a lane holds its next batch back for its sink's commit interval: no Spark needed."""

import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from headgate.replication.commit_interval import BYTES_MAX, LOOK_SECONDS, CommitInterval
from headgate.replication.feed_parts import FeedIncarnation
from headgate.replication.lane import IDLE_SECONDS, Lane
from support.lanes_without_spark import SPEC

ROWS_MAX = 1_000


class Stopping(threading.Event):
    """Remembers how long it was waited for, and is set the ``ends_after``-th time."""

    def __init__(self, ends_after: int) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._ends_after = ends_after

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.seconds.append(timeout)
        return len(self.seconds) >= self._ends_after


def waited(
    interval: CommitInterval, waiting: Iterable[int], *, ends_after: int = 100, awaited: Iterable[bool] = ()
) -> list[float]:
    stopping, rows, by_somebody = Stopping(ends_after), iter(waiting), iter(awaited)
    has_waited = interval.wait(
        stopping, rows_max=ROWS_MAX, waiting=lambda: next(rows), is_awaited=lambda: next(by_somebody, False)
    )
    assert has_waited == bool(stopping.seconds)
    assert interval.rows_waiting == 0, "no batch is held back any more"
    return stopping.seconds


@pytest.fixture
def interval() -> CommitInterval:
    made = CommitInterval()
    made.seconds = 60.0
    return made


def test_the_first_batch_of_a_lane_is_not_held_back(interval: CommitInterval) -> None:
    assert waited(interval, []) == []


def test_nor_the_next_one_where_the_sink_has_no_interval() -> None:
    interval = CommitInterval()
    interval.committed(time.monotonic(), 1, 1)
    assert waited(interval, []) == []


def test_nor_after_the_interval_has_passed(interval: CommitInterval) -> None:
    interval.committed(time.monotonic() - 60, 1, 1)
    assert waited(interval, []) == []


def test_else_it_looks_for_rows_until_there_is_a_full_batch(interval: CommitInterval) -> None:
    interval.committed(time.monotonic(), 1, 1)
    assert waited(interval, [0, 5, ROWS_MAX - 1, ROWS_MAX]) == [LOOK_SECONDS] * 3


def test_large_rows_make_a_full_batch_earlier(interval: CommitInterval) -> None:
    interval.committed(time.monotonic(), 4, BYTES_MAX)
    assert waited(interval, [3, 4]) == [LOOK_SECONDS]
    interval.committed(time.monotonic(), 1, 2 * BYTES_MAX)
    assert waited(interval, [0, 1]) == [LOOK_SECONDS], "a row that is larger is a batch too"


def test_it_does_not_look_beyond_the_interval(interval: CommitInterval) -> None:
    interval.committed(time.monotonic() - 60 + LOOK_SECONDS / 2, 1, 1)
    (seconds,) = waited(interval, [0] * 9, ends_after=1)
    assert 0 < seconds <= LOOK_SECONDS / 2


def test_it_ends_with_its_lane(interval: CommitInterval) -> None:
    interval.committed(time.monotonic(), 1, 1)
    assert len(waited(interval, [0] * 9, ends_after=2)) == 2


def test_it_ends_as_soon_as_somebody_waits(interval: CommitInterval) -> None:
    interval.committed(time.monotonic(), 1, 1)
    assert waited(interval, [1] * 9, awaited=[False, True]) == [LOOK_SECONDS]


def test_a_lane_with_rows_that_wait_is_not_idle() -> None:
    coordinator: Any = None
    lane = Lane("a", coordinator, FeedIncarnation("0-1", 1, SPEC), "group", {("t", 0): 0})
    lane._batch_ended_at = time.monotonic() - IDLE_SECONDS - 1
    assert lane.is_idle()
    lane._interval.rows_waiting = 1
    assert not lane.is_idle()


def test_a_lane_that_cannot_look_leaves_it_to_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise Py4JNetworkError("the JVM is gone")

    monkeypatch.setattr("headgate.replication.lane.log_ends", gone)
    coordinator: Any = None
    session: SparkSession = None  # type: ignore[assignment]
    lane = Lane("a", coordinator, FeedIncarnation("0-1", 1, SPEC), "group", {("t", 0): 0})
    lane._interval.seconds = 60.0
    lane._interval.committed(time.monotonic(), 1, 1)
    lane._await_interval(session, 7)
    assert lane.failure() is None, "the query finds out for itself"
