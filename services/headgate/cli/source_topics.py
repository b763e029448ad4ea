"""``headgate topic list --feed``: what a feed reads, partition by partition, and how far it has come there.

``position`` is the sink's next offset, by the last report of the table's writer; ``lag`` is how many
offsets are behind it, markers of transactions and compacted records among them.
"""

from collections.abc import Mapping
from typing import Any, Final

from headgate.cli.lookup import find_feed
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.snapshot import Snapshot
from headgate.records.control import FeedProgressed, FeedRecorded, Positions, SpanPlan
from headgate.records.keys import FeedProgressKey
from headgate.sources.offsets import TopicMissingError, end_offsets, start_offsets
from headgate.sources.topic_settings import topic_settings
from headgate.sources.topics import present_topics

SOURCE_COLUMNS: Final = (
    "topic",
    "partition",
    "span",
    "first",
    "end",
    "position",
    "lag",
    "retention_ms",
    "cleanup_policy",
    "notices",
)


def source_rows(log: KafkaLog, snapshot: Snapshot, feed: str) -> list[dict[str, Any]]:
    """A row for each partition of each table, or part of one, of the feed.

    ``topic_id`` is Kafka's id of the topic that ``position`` belongs to, None if it is not known.

    Raises CommandError (unknown feed), TopicMissingError, SourceUnreachableError.
    """
    record = find_feed(snapshot, feed)
    plans = sorted(record.spans, key=lambda plan: (plan.topic, min(plan.start, default=0), plan.span))
    counts = {plan.topic: 0 for plan in plans}
    for plan in plans:
        counts[plan.topic] = max(counts[plan.topic], *(partition + 1 for partition in plan.start), 0)
    missing = sorted(set(counts) - set(present_topics(log.connection))) if counts else []
    if missing:
        raise TopicMissingError(
            f"source topic {', '.join(missing)} of feed {feed} no longer exists. Delete the feed, copy the table "
            "again, and create the feed"
        )
    first, end = start_offsets(log.connection, counts, "earliest"), end_offsets(log.connection, counts)
    told, untold = topic_settings(log.connection, counts)
    rows = []
    for plan in plans:
        settings = told.get(plan.topic, {})
        shared = {
            "retention_ms": _number(settings.get("retention.ms")),
            "retention_bytes": _number(settings.get("retention.bytes")),
            "cleanup_policy": settings.get("cleanup.policy"),
            "notices": untold.get(plan.topic),
            "topic_id": plan.topic_id,
        }
        at = positions_of(snapshot, feed, record, plan)
        for partition in sorted(plan.start):
            row = {"feed": feed, "topic": plan.topic, "partition": partition, "span": plan.span, "table": plan.table}
            rows.append(row | _counted(first[plan.topic], end[plan.topic], at, partition) | shared)
    return rows


def _counted(first: Positions, end: Positions, at: Mapping[int, int], partition: int) -> dict[str, int]:
    return {
        "first": first[partition],
        "end": end[partition],
        "position": at[partition],
        "lag": max(0, end[partition] - at[partition]),
    }


def positions_of(snapshot: Snapshot, feed: str, record: FeedRecorded, plan: SpanPlan) -> dict[int, int]:
    """The plan's start, unless a later position is known from the feed's checkpoint or the table's current agent."""
    positions = dict(plan.start)
    progress = snapshot.get(FeedProgressKey(feed), FeedProgressed)
    if progress is not None and (progress.feed_id, progress.incarnation) == (record.feed_id, record.incarnation):
        _forward(positions, progress.positions.get(plan.table, {}))
    dispatched = snapshot.dispatched(feed, plan.span)
    role = dispatched.primary if dispatched is not None else None
    said = snapshot.progressed(feed, plan.span, role) if role is not None else None
    if said is not None:
        _forward(positions, said.positions)
    return positions


def _forward(positions: dict[int, int], known: Mapping[int, int]) -> None:
    positions.update({partition: max(at, known.get(partition, 0)) for partition, at in positions.items()})


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
