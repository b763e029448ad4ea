"""A mark in every partition of the topic, so that what came before it in that partition is known to be there.

A connector writes one table's changes in their order, but partitions fill independently of each other: an event may be
seen in one while an older one of another is still on its way. So one mark proves nothing about the other partitions.
Which partition a row's changes go to is the connector's decision; it is learned from where the events of marks are
seen.
"""

import itertools
import time
from collections.abc import Iterator
from typing import Final

from headgate.migration.strategies.online.lane import Lane, Marked, Row, TopicTail
from headgate.migration.strategies.online.lane_plan import LanePlan

ROWS_PER_PARTITION: Final = 20
"""Rows that are tried: with keys that are spread evenly, that one of 64 partitions has none of 1 280 happens once in
ten million times."""

ROWS_AT_ONCE: Final = 3
"""For each partition that is still without a mark: each mark is seen by all who read the topic, so no more are set."""


class TopicMarks:
    """See lane.Marks."""

    def __init__(self, lane: Lane, plan: LanePlan, partitions: frozenset[int]) -> None:
        self.rows: dict[int, Row] = {}
        self.partitions = partitions
        self._lane, self._plan = lane, plan

    def set(self, tail: TopicTail, seconds: float) -> Marked:
        """See Marks."""
        deadline = time.monotonic() + seconds
        reached: dict[int, int] = {}
        rows: list[Row | None] = [*self.rows.values()] or [None]
        more: Iterator[Row] | None = None
        while rows:
            marks = [mark for row in rows if (mark := self._lane.mark(self._plan, row)) is not None]
            found = tail.find([mark.change for mark in marks], max(0.0, deadline - time.monotonic()))
            for mark, places in zip(marks, found, strict=True):
                for place in places:
                    reached[place.partition] = max(place.offset + 1, reached.get(place.partition, 0))
                    self.rows[place.partition] = mark.row
            missing = len(self.partitions) - len(reached)
            if not all(found) or (missing and time.monotonic() >= deadline):
                return Marked(reached, True, tail.topic_id)
            if more is None:
                more = iter(self._lane.rows(self._plan, ROWS_PER_PARTITION * len(self.partitions)) if missing else ())
            rows = [*itertools.islice(more, ROWS_AT_ONCE * missing)]
        return Marked(reached, False, tail.topic_id)
