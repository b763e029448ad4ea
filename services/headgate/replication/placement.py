"""The assignment of spans to lanes, and the joining of lanes.

A query reads the same partitions for as long as it runs. So a span that arrives starts in a small lane; once nothing
has come for a while, one lane for all spans of a feed starts beside the old ones, and takes them over
(batch_coordinator.py).
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.inputs import Placed
from headgate.agent.core.span.states import Span, TaskPhase
from headgate.records.control import TaskState
from headgate.replication.feed_parts import FeedIncarnation
from headgate.replication.lane import Lane
from headgate.replication.span_table import SpanTable

ARRIVAL_SECONDS: Final = 0.05
ARRIVAL_SECONDS_MAX: Final = 2.0
"""Spans that become ready within this time share a lane; a lane of its own for each would cost its fixed work. Longer
while others of the feed are being opened: a whole feed comes at a time. Each start and each move waits for it."""

JOIN_SECONDS: Final = 5.0
"""Lanes of a feed are joined once none has started, and no span has come or left, for so long: a start costs half a
second of a core."""

LOSSES_BORNE: Final = 1
"""How many times in a row spans whose lane was lost come together again (a worker was killed). After that they come in
parts, until the span that cannot be read has a lane to itself."""

PARTS: Final = 4
PARTINGS_MAX: Final = 8
"""A part of 65 536 has one span, as a rule."""

_Group: TypeAlias = tuple[FeedIncarnation, bool, SpanId | None, int]


class Placement:
    """Finds lanes for spans among ``lanes``, by name; ``launch`` starts another one. With the table's lock held."""

    def __init__(
        self, table: SpanTable, lanes: dict[str, Lane], launch: Callable[[Sequence[Span], float], Lane]
    ) -> None:
        self._table = table
        self._lanes = lanes
        self._launch = launch

    def place_ready(self, now: float) -> None:
        """One lane per feed and kind (written, warm, slow, suspect) for what is ready, the first having waited."""
        groups: dict[_Group, list[Span]] = {}
        coming: set[FeedIncarnation] = set()
        for span in self._table.all():
            if span.phase is TaskPhase.WAITING:
                alone = span.id if span.alone_until > now else None
                feed = FeedIncarnation.of_task(span.task)
                groups.setdefault((feed, span.claimed, alone, _part_of(span)), []).append(span)
            elif span.phase is TaskPhase.OPENING:
                coming.add(FeedIncarnation.of_task(span.task))
        for (feed, *_), spans in groups.items():
            waited = now - min(span.since for span in spans)
            if waited >= (ARRIVAL_SECONDS_MAX if feed in coming else ARRIVAL_SECONDS):
                lane = self._launch(spans, now)
                for span in spans:
                    self._table.apply(span.id, Placed(lane.name))

    def join(self, now: float) -> None:
        """One lane for all spans of a feed that have caught up, if they are on several, or on one with strangers.

        Also if they are on a single lane that is outdated.
        """
        taking_over = {span for lane in self._lanes.values() for span in lane.taking_over}
        spans = {span.id: span for span in self._table.all()}
        feeds: dict[FeedIncarnation, list[Lane]] = {}
        for _, lane in sorted(self._lanes.items()):
            is_quiet = taking_over.isdisjoint(lane.members) and all(
                _is_quiet(spans[span], now) for span in lane.members
            )
            if is_quiet and lane.has_caught_up() and not lane.failed:
                feeds.setdefault(lane.feed, []).append(lane)
        for _, lanes in sorted(feeds.items()):
            if any(lane.taking_over or now - lane.changed_at < JOIN_SECONDS for lane in lanes):
                continue
            members = [spans[span] for lane in lanes for span in lane.members]
            is_worth = len(lanes) > 1 or lanes[0].is_outdated or not lanes[0].reads_only(members)
            if members and is_worth:
                self._launch(members, now).taking_over = [span.id for span in members]


def _is_quiet(span: Span, now: float) -> bool:
    is_written = span.phase in {TaskPhase.CLAIMED, TaskPhase.WRITING} and span.state is TaskState.REPLICATING
    return is_written and span.alone_until <= now


def _part_of(span: Span) -> int:
    if span.losses <= LOSSES_BORNE:
        return 0
    parts: int = PARTS ** min(span.losses - LOSSES_BORNE, PARTINGS_MAX)
    return 1 + zlib.crc32(str(span.id).encode()) % parts
