"""The age of the oldest change that a table has not applied, whether or not anything is being applied.

A position below the end of its partition proves little by itself: a table that makes progress is always a little
behind, and the records behind a position may be transaction markers only. So a partition counts once it is behind at
the same place for the second time. Then the first record at that place is read, for its time, once.
"""

import threading
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from confluent_kafka import IsolationLevel, Message
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.leaders import offsets_of
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.partition_reader import PartitionReader
from headgate.records.control import Positions, SpanPlan
from headgate.records.spans import table_of
from headgate.sources.brief_read import read_briefly
from headgate.sources.offsets import SourceUnreachableError, end_offsets

__all__ = ["SourceLook", "UnappliedWatch"]

Place = tuple[str, int]
"""Topic and partition."""

READ_SECONDS_MAX: Final = 5.0
"""For the first records of all partitions that have stalled. What has not come by then is asked for the next time."""

READ_PARTITIONS_MAX: Final = 1_000
"""Partitions whose first record is read at a time; the others follow the next time."""

FEEDS_MAX: Final = 10_000
"""Feeds that are remembered; a feed that was removed is not asked about again, and goes first."""

FETCH_BYTES: Final = 64 * 1024
"""Of a partition: one record is enough, and a broker always sends at least one batch."""


class _Stalled(msgspec.Struct, frozen=True):
    """A partition at a place: its end when the record was looked for, and the record's time (None: no record)."""

    position: int
    end: int
    append_ms: int | None


class SourceLook(msgspec.Struct, frozen=True):
    """What a look has found: spans that do not get on, and spans that have applied everything.

    ``unapplied``: span → append time (ms since 1970) of its oldest change that is not applied.
    """

    unapplied: dict[str, int]
    complete: tuple[str, ...]


class UnappliedWatch:
    """Remembers, per feed, which partitions were behind. May be asked from several threads, about a feed by one."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._behind: dict[str, dict[Place, int]] = {}
        self._stalled: dict[str, dict[Place, _Stalled]] = {}

    def look(self, feed_id: str, spans: Iterable[SpanPlan], reached: Mapping[str, Positions]) -> SourceLook:
        """Compare the positions of ``spans`` with the ends of their partitions.

        ``reached``: table → partition → next offset to apply; where nothing is known, a span's start counts.
        Raises SourceError.
        """
        plans = list(spans)
        at = {(plan.topic, p): _reached(plan, p, reached) for plan in plans for p in plan.start}
        ends = end_offsets(self._connection, {plan.topic: max(plan.start) + 1 for plan in plans if plan.start})
        behind = {place: position for place, position in at.items() if ends[place[0]].get(place[1], 0) > position}
        with self._lock:
            before = self._behind.pop(feed_id, {})
            known = self._stalled.pop(feed_id, {})
        found: dict[Place, _Stalled] = {}
        for place, position in behind.items():
            if before.get(place) == position:
                end, last = ends[place[0]][place[1]], known.get(place)
                is_known = last is not None and last.position == position
                if last is not None and is_known and (last.append_ms is not None or last.end == end):
                    found[place] = last
        unread = [p for p, position in behind.items() if before.get(p) == position and p not in found]
        times = _first_times(self._connection, {p: behind[p] for p in unread[:READ_PARTITIONS_MAX]})
        for place, append_ms in times.items():
            found[place] = _Stalled(behind[place], ends[place[0]][place[1]], append_ms)
        with self._lock:
            self._behind[feed_id], self._stalled[feed_id] = behind, found
            while len(self._behind) > FEEDS_MAX:
                oldest = next(iter(self._behind))
                del self._behind[oldest]
                self._stalled.pop(oldest, None)
        waiting = {place for place in behind if place not in found or found[place].append_ms is not None}
        complete = (plan.span for plan in plans if not any((plan.topic, p) in waiting for p in plan.start))
        return SourceLook(_by_span(plans, found), tuple(complete))


def _reached(plan: SpanPlan, partition: int, reached: Mapping[str, Positions]) -> int:
    return max(plan.start[partition], reached.get(table_of(plan.span), {}).get(partition, 0))


def _by_span(plans: Iterable[SpanPlan], stalled: Mapping[Place, _Stalled]) -> dict[str, int]:
    oldest: dict[str, int] = {}
    for plan in plans:
        found = (stalled.get((plan.topic, partition)) for partition in plan.start)
        times = [each.append_ms for each in found if each is not None and each.append_ms is not None]
        if times:
            oldest[plan.span] = min(times)
    return oldest


def _first_times(connection: KafkaConnection, places: Mapping[Place, int]) -> dict[Place, int | None]:
    """Of each place the time of the first committed record there or behind it; None where there is none.

    What could not be read in time, or has no time, is left out. Raises SourceError.
    """
    if not places:
        return {}
    start = {Partition(*place): offset for place, offset in places.items()}
    what = "asking how far source topics can be read"
    try:
        ends = offsets_of(connection, start, OffsetSpec.latest(), what, IsolationLevel.READ_COMMITTED)
    except LogError as error:
        raise SourceUnreachableError(str(error)) from error
    waiting = {at: offset for at, offset in start.items() if offset < ends[at]}
    found: dict[Place, int | None] = {(at.topic, at.number): None for at in start.keys() - waiting.keys()}

    def take(at: Partition, message: Message) -> None:
        found.setdefault((at.topic, at.number), message.timestamp()[1])

    with PartitionReader(
        connection, waiting, client_id="headgate-unapplied", fetch_message_max_bytes=FETCH_BYTES
    ) as reader:
        read_briefly(
            reader,
            {at: ends[at] for at in waiting},
            READ_SECONDS_MAX,
            take,
            lambda at: (at.topic, at.number) in found,
        )
        for at, position in reader.positions().items():
            if position >= ends[at]:
                found.setdefault((at.topic, at.number), None)
    return found
