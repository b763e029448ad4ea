"""A span's progress: the sink's position, how far its partitions were read beyond it, and counters.

A value. Everything here follows from what was opened, from the batches' results, and from what was read without rows.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.agent.core.span.inputs import Limited, Opened, SpanResult
from headgate.records.control import Positions
from headgate.records.source_tables import SourceTable, Tail

__all__ = [
    "SpanProgress",
    "adopted",
    "all_applied",
    "completed",
    "limited",
    "opened",
    "passed",
    "quarantined_lately",
    "settled",
    "waiting",
]

QUARANTINE_WINDOW_SECONDS: Final = 3600.0
"""What ``quarantine_per_hour_max`` counts over, per run of a span: to resume a feed is to allow as many again."""


class SpanProgress(msgspec.Struct, frozen=True):
    """``positions`` are the sink's next offsets, by partition.

    ``read_to`` is up to where partitions have been read beyond that, and had nothing of the span: markers, gaps that
    compaction left, changes of other tables of its topic; ``rests_since`` (monotonic seconds) since when the sink has
    been behind that. ``opening`` counts how often it has resumed from the sink's positions, the log's end ``backlog``
    offsets ahead of them; ``topic_id`` is Kafka's id of the topic then. ``known_table`` is the table that the topic's
    events are of. ``resolved``: partition → the newest watermark that all before is at the sink of; ``cut``: partitions
    whose next change was made after the feed's target; ``tail``: the newest transaction applied up to some change.
    ``limits``: below which offset a partition of a change log may be applied by now, where not all of it may,
    by the topic generation up to the offset ``limits_at``.
    ``lag_ms`` is that of the last batch that applied something, ``unapplied_ms`` the append time of the oldest change
    of a batch that failed and has not been applied since. ``waits_since`` (monotonic seconds) is when the first batch
    was planned whose changes are not known to be applied: they are at least that old, before a task has read them.
    ``passed_over`` counts changes of tables not in the feed, since it was opened. ``set_aside``: (monotonic seconds,
    number) of changes that went to quarantine in the last hour.
    """

    positions: Positions = {}
    read_to: Positions = {}
    rests_since: float | None = None
    limits: Positions = {}
    limits_at: int = 0
    opening: int = 0
    backlog: int = 0
    topic_id: str | None = None
    known_table: SourceTable | None = None
    resolved: Positions = {}
    cut: frozenset[int] = frozenset()
    tail: Tail | None = None
    passed_over: int = 0
    passed_over_table: str | None = None
    rows: int = 0
    bytes: int = 0
    lag_ms: int = 0
    unapplied_ms: int | None = None
    waits_since: float | None = None
    seen_ms: int | None = None
    set_aside: tuple[tuple[float, int], ...] = ()

    def reached(self, partition: int) -> int:
        """The first offset that may have something of it that is not at the sink."""
        return max(self.positions[partition], self.read_to.get(partition, 0))


def opened(progress: SpanProgress, seen: Opened) -> SpanProgress:
    """The span resumes from the sink's positions; evidence of time is searched for again."""
    return replace(
        progress,
        positions=seen.positions,
        read_to=_behind(seen.positions, seen.firsts),
        rests_since=None,
        limits=seen.limits,
        limits_at=seen.limits_at,
        opening=progress.opening + 1,
        backlog=seen.backlog,
        topic_id=seen.topic_id,
        known_table=seen.known_table,
        resolved={},
        cut=frozenset(),
        tail=None,
    )


def limited(progress: SpanProgress, now: Limited) -> SpanProgress:
    """What may be applied of a change log by now; what precedes ``firsts`` belongs to no stream, and has been read."""
    read_to = {**progress.read_to, **_behind({p: progress.reached(p) for p in progress.positions}, now.firsts)}
    return replace(progress, read_to=read_to, limits=now.limits, limits_at=now.limits_at)


def _behind(reached: Positions, firsts: Positions) -> Positions:
    return {partition: first for partition, first in firsts.items() if first > reached[partition]}


def passed(
    progress: SpanProgress, topic: str, awaited: Iterable[int], ends: Mapping[tuple[str, int], int], now: float
) -> SpanProgress:
    """Everything below ``ends`` (by topic and partition) is at the sink, even if its positions are behind."""
    read_to = {p: max(ends.get((topic, p), 0), progress.reached(p)) for p in awaited}
    read_to = {**progress.read_to, **read_to}
    is_behind = any(end > progress.positions[partition] for partition, end in read_to.items())
    rests_since = None if not is_behind else now if progress.rests_since is None else progress.rests_since
    return replace(progress, read_to=read_to, rests_since=rests_since)


def settled(progress: SpanProgress, positions: Positions) -> SpanProgress:
    """The sink's positions have followed what was read."""
    return replace(progress, positions={**progress.positions, **positions}, rests_since=None)


def completed(progress: SpanProgress, ts: int, target_ts: int | None) -> SpanProgress:
    """Everything up to ``ts`` is at the sink, as far as the feed wants it."""
    ts = ts if target_ts is None else min(ts, target_ts)
    return replace(progress, resolved={p: max(ts, progress.resolved.get(p, ts)) for p in progress.positions})


def waiting(progress: SpanProgress, now: float) -> SpanProgress:
    """A batch has changes of it from now on."""
    return progress if progress.waits_since is not None else replace(progress, waits_since=now)


def all_applied(progress: SpanProgress) -> SpanProgress:
    """No change of it is known that is not applied."""
    return replace(progress, unapplied_ms=None, waits_since=None)


def adopted(progress: SpanProgress, result: SpanResult, now: float) -> SpanProgress:
    """What a batch has made visible."""
    resolved = {p: max(ts, progress.resolved.get(p, ts)) for p, ts in result.resolved.items()}
    lag_ms = progress.lag_ms
    if result.oldest_append_ms is not None and (result.positions or result.error_code is None):
        lag_ms = max(0, result.visible_ms - result.oldest_append_ms)
    rows = result.rows if result.positions else 0
    newest_ms = result.newest_source_ms if result.positions else None
    return replace(
        progress,
        positions={**progress.positions, **result.positions},
        known_table=result.known_table or progress.known_table,
        resolved={**progress.resolved, **resolved},
        cut=progress.cut.union(result.cut),
        tail=result.tail or progress.tail,
        passed_over=progress.passed_over + result.passed_over,
        passed_over_table=result.passed_over_table or progress.passed_over_table,
        rows=progress.rows + rows,
        bytes=progress.bytes + (result.bytes if result.positions else 0),
        lag_ms=lag_ms,
        unapplied_ms=_unapplied_ms(progress, result),
        waits_since=_waits_since(progress, result, now),
        seen_ms=progress.seen_ms if newest_ms is None else max(newest_ms, progress.seen_ms or 0),
        set_aside=_lately(progress, now) + (((now, result.quarantined),) if result.quarantined else ()),
    )


def _unapplied_ms(progress: SpanProgress, result: SpanResult) -> int | None:
    if result.error_code is None:
        return None if result.positions else progress.unapplied_ms
    return progress.unapplied_ms if result.oldest_append_ms is None else result.oldest_append_ms


def _waits_since(progress: SpanProgress, result: SpanResult, now: float) -> float | None:
    if result.error_code is None:
        return None
    return now if result.positions else progress.waits_since


def quarantined_lately(progress: SpanProgress, now: float) -> int:
    """How many changes were set aside in the last hour."""
    return sum(count for _, count in _lately(progress, now))


def _lately(progress: SpanProgress, now: float) -> tuple[tuple[float, int], ...]:
    since = now - QUARANTINE_WINDOW_SECONDS
    return tuple(each for each in progress.set_aside if each[0] >= since) if progress.set_aside else ()
