"""Spark's progress reports of a lane's query: input rows, duration of its steps, and how far it is behind."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

RESTED_IN: Final = frozenset({"addBatch", "triggerExecution"})
"""Steps by Spark's names that have the lane's rest in them."""


class LaneProgress(msgspec.Struct):
    """Of one query so far. ``rows`` is the sum of ``numInputRows``, ``batches`` counts those with rows.

    ``step_ms`` is by Spark's names (triggerExecution, addBatch, latestOffset, walCommit, …), all batches together;
    ``behind_rows`` how many offsets the partition that was furthest behind had left after the latest one; ``None``
    while Spark has not reported it, which is not the same as 0.
    """

    batches: int = 0
    rows: int = 0
    step_ms: dict[str, int] = {}
    behind_rows: int | None = None

    def add(self, other: "LaneProgress") -> None:
        """What another query did counts, too; how far behind it is does not."""
        self.batches += other.batches
        self.rows += other.rows
        for step, ms in other.step_ms.items():
            self.step_ms[step] = self.step_ms.get(step, 0) + ms


class ProgressReader:
    """Sums up the progress of one query. A listener would be called with each batch, and cost a dozen calls of it.

    Spark's JSON report names every partition three times, so these few numbers are read one by one.
    """

    def __init__(self) -> None:
        self.total = LaneProgress()
        self.batch = -1
        """The number of the latest batch that Spark has reported."""
        self.rested_ms: dict[int, int] = {}
        """How long the lane rested in batches that Spark has not reported yet, which is not part of their steps."""
        self._seen = ""

    def read(self, query: Any) -> None:
        """Take over what has been added since. Raises Py4JError, OSError."""
        fresh = []
        told = query._jsq.recentProgress()
        for place in reversed(range(len(told))):  # one by one: each is a call, and most have been read before
            update = told[place]
            at = str(update.timestamp())
            if at <= self._seen:
                break
            number, rows = int(update.batchId()), int(update.numInputRows())
            fresh.append((at, number, rows, _pairs(update.durationMs()), update.sources()))
        for at, number, rows, steps, sources in reversed(fresh):
            self._seen, self.batch = at, number
            rested = self.rested_ms.pop(number, 0)
            step_ms = {step: int(ms) - rested * (step in RESTED_IN) for step, ms in steps.items()}
            self.total.add(LaneProgress(int(rows > 0), rows, step_ms))
            # An update of a query that found nothing to read leaves it out.
            behind = [int(_pairs(source.metrics()).get("maxOffsetsBehindLatest", 0)) for source in sources]
            self.total.behind_rows = max(behind, default=0)


def most_behind(said: Iterable[int | None]) -> int | None:
    """The largest value of all queries; unknown if a query has not reported one, or without queries."""
    most = None
    for each in said:
        if each is None:
            return None
        most = max(most or 0, each)
    return most


def _pairs(java_map: Any) -> dict[str, str]:
    """A map of words or numbers, in one call instead of one per entry."""
    return dict(pair.split("=", 1) for pair in java_map.toString().strip("{}").split(", ") if pair)
