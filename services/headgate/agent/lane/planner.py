"""How a lane shares a batch out among tasks: by how much is known to wait in the log for each of its readings.

How far the log goes a lane is told by its alarm, and hears from readers and from those who open its spans. What is only
heard includes transactions that are still open: worth dividing for, nothing to insist on.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headgate.agent.lane.alarm import LaneSource
from headgate.agent.lane.plan import BatchPlan, SpanWork, TaskPlan, TaskResult
from headgate.agent.lane.shares import Portion, Shares
from headgate.sources.reader import Reading

__all__ = ["SMALL_ROWS", "TaskPlanner"]

SMALL_ROWS: Final = 2_000
"""Up to here a batch is divided by spans, above it by partitions: one small transaction costs less than two."""


class TaskPlanner:
    """What one lane knows of the log. Called on the lane's thread, but for ``tell`` and ``hear``."""

    def __init__(self, lane: str) -> None:
        self._lane = lane
        self._told: dict[tuple[str, int], int] = {}
        self._heard: dict[tuple[str, int], int] = {}
        self._latest: dict[tuple[str, int], int] = {}
        self._shares = Shares()

    def tell(self, ends: Mapping[tuple[str, int], int]) -> None:
        """The log holds something up to ``ends``."""
        self._told.update(ends)

    def hear(self, ends: Mapping[tuple[str, int], int]) -> None:
        """The log goes up to ``ends``; whether there is anything to read nobody says."""
        self._heard.update(ends)

    def plan(self, batch: BatchPlan, source: LaneSource, cores: int, claims: Callable[[int], str | None]) -> TaskPlan:
        """The batch's readings over as many tasks as it is worth; ``claims``: by what so many tasks choose shares."""
        spans = [
            [Reading(*place, start, self._until(place)) for place, start in sorted(starts.items())]
            for starts in _starts(batch.works)
        ]
        if sum(self._rows(one) for readings in spans for one in readings) > SMALL_ROWS:
            spans = [[one] for readings in spans for one in readings]
        portions = [Portion(tuple(readings), sum(map(self._rows, readings))) for readings in spans]
        shares = self._shares.divide(portions, cores)
        rows_max = max(1, source.rows_max // len(shares))
        return TaskPlan(batch, self._lane, source.reader, tuple(map(tuple, shares)), rows_max, claims(len(shares)))

    def learn(self, plan: TaskPlan, results: Sequence[TaskResult]) -> None:
        """What the batch's tasks have read, and how far they say that the log goes."""
        topics = {work.id: work.topic for work in plan.batch.works}
        self._latest = {}
        for span in (span for result in results for span in result.spans):
            for place in [(topics[span.id], partition) for partition in span.read_to or span.positions]:
                self._latest[place] = self._latest.get(place, 0) + span.rows
        for result in results:
            for topic, ends in result.ahead.items():
                self.hear({(topic, partition): end for partition, end in ends.items()})

    def missing(self, plan: TaskPlan, results: Sequence[TaskResult]) -> list[Reading]:
        """Readings of a fruitless batch that it was told hold more, and of which not even the log's end has come."""
        reached = {
            (topic, partition): end
            for result in results
            for found in (result.seen, result.ends)
            for topic, ends in found.items()
            for partition, end in ends.items()
        }
        return [
            one
            for readings in plan.readings
            for one in readings
            if one.start < self._told.get((one.topic, one.partition), 0)
            and reached.get((one.topic, one.partition), -1) <= one.start
        ]

    def _until(self, place: tuple[str, int]) -> int:
        return max(self._told.get(place, 0), self._heard.get(place, 0))

    def _rows(self, reading: Reading) -> int:
        """How many are known to wait, or came the last time."""
        return max(reading.until - reading.start, self._latest.get((reading.topic, reading.partition), 0))


def _starts(works: Sequence[SpanWork]) -> list[dict[tuple[str, int], int]]:
    """Where to read from, for each span; for all tables of a topic together, from where the last of them stands."""
    found: dict[object, dict[tuple[str, int], int]] = {}
    for work in works:
        starts = found.setdefault(work.id if work.source_table is None else work.topic, {})
        for partition in work.expected:
            place, start = (work.topic, partition), work.start(partition)
            starts[place] = min(start, starts.get(place, start))
    return list(found.values())
