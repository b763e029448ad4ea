"""What is made of Spark's words about a query: each is counted once, whatever is read how often."""

from typing import Any

from headgate.replication.progress import LaneProgress, ProgressReader, most_behind


class JavaMap:
    def __init__(self, said: str) -> None:
        self.toString = lambda: said


class Update:
    """One of Spark's, as py4j hands it out."""

    def __init__(self, second: int, rows: int, behind: int | None = 0) -> None:
        self.batchId = lambda: second
        self.timestamp = lambda: f"2026-11-22T10:00:{second:02}.000Z"
        self.numInputRows = lambda: rows
        self.durationMs = lambda: JavaMap("{addBatch=10, walCommit=1}")
        self.metrics = lambda: JavaMap("{}" if behind is None else f"{{maxOffsetsBehindLatest={behind}, min=0}}")
        self.sources = lambda: [self]


class Query:
    """The few of its updates that Spark keeps."""

    def __init__(self) -> None:
        self.kept: list[Update] = []

    @property
    def _jsq(self) -> "Query":
        return self

    def recentProgress(self) -> list[Any]:  # noqa: N802 - Spark's own name
        return self.kept


def test_each_batch_is_counted_once_though_idle_updates_come_between() -> None:
    query, reader = Query(), ProgressReader()
    reader.read(query)
    assert reader.total == LaneProgress()
    query.kept = [Update(1, 5, 30), Update(2, 7, 10)]
    reader.read(query)
    reader.read(query)
    query.kept = [Update(2, 7, 10), Update(12, 0, None), Update(13, 4)]
    reader.read(query)
    assert reader.total == LaneProgress(3, 16, {"addBatch": 40, "walCommit": 4}, 0)
    assert reader.batch == 13


def test_how_far_behind_is_unknown_until_every_query_has_told() -> None:
    query, reader = Query(), ProgressReader()
    assert (reader.total.behind_rows, most_behind([])) == (None, None)
    assert most_behind([4, reader.total.behind_rows, 9]) is None
    query.kept = [Update(1, 5, 30)]
    reader.read(query)
    assert most_behind([4, reader.total.behind_rows, 9]) == 30
    assert most_behind([0, 0]) == 0


def test_what_a_lane_rested_is_no_part_of_its_steps() -> None:
    query, reader = Query(), ProgressReader()
    query.kept = [Update(1, 5), Update(2, 7)]
    reader.rested_ms = {2: 4, 3: 900}
    reader.read(query)
    assert reader.total.step_ms == {"addBatch": 16, "walCommit": 2}
    assert reader.rested_ms == {3: 900}, "Spark has yet to tell of it"
