"""What holds a feed's checkpoint: from the records of its shard, the feed's positions, and the ends of its topics.

A feed that reads a change log may have to wait for streams: a stream is applied behind the ends of its parents
(generation/changelog/core/bounds.py). No agent reports that as an error, because it passes once the parents are read.
It is found here from the generations and the feed's positions.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Final

from msgspec.structs import replace

from headgate.cli.lookup import find_feed
from headgate.cli.shard_state import replayed
from headgate.config.feed import parse_feed
from headgate.config.source_spec import SourceSpec
from headgate.coordinator.core.feeds.explain import Explanation, Reason, explain
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.sharding import shard_of
from headgate.eventlog.snapshot import Snapshot
from headgate.generation.changelog.core.bounds import StreamWait, waits_of
from headgate.generation.core.state import current_of
from headgate.generation.shell.tail import GenerationTail
from headgate.records.control import FeedRecorded, Positions, WantedState
from headgate.records.error_codes import FailureStage
from headgate.records.spans import wholes
from headgate.sources.heartbeats import SILENT_SECONDS_MIN, read_heartbeats
from headgate.sources.last_written import last_written
from headgate.sources.offsets import end_offsets

SILENT_ADVICE: Final = "See its status in Kafka Connect, and restart it if it has failed"


def explained_feed(log: KafkaLog, snapshot: Snapshot, feed: str, kept_by: str) -> Explanation:
    """What holds the feed. ``kept_by``: the migration that pauses and resumes it, if there is one.

    Raises CommandError for an unknown feed, LogError, MapError, SourceError.
    """
    record = find_feed(snapshot, feed)
    shard = shard_of(feed, log.shards)
    has_owner = snapshot.owner(shard) is not None
    explanation = explain(replayed(snapshot, shard), feed, has_owner=has_owner, kept_by=kept_by)
    explanation = _without_idle(explanation, snapshot, record, log)
    applied = {at: to for plan in record.spans for at, to in _applied(snapshot, feed, plan.span).items()}
    explanation = _with_more(explanation, _waiting_streams(log, record, applied))
    return replace(explanation, feed_held_by=explanation.feed_held_by + _silent_connectors(log, record))


def _silent_connectors(log: KafkaLog, record: FeedRecorded) -> tuple[str, ...]:
    """A line for each of the connectors that should have sent a heartbeat. No agent misses what is not written.

    A connector that copies tables again sends none, and has not stopped while it writes their rows.

    Raises SourceError.
    """
    source = parse_feed(record.spec).source
    if record.wanted is not WantedState.RUNNING or source.change_log is not None:
        return ()
    found = read_heartbeats(log.connection, {plan.topic for plan in record.spans})
    silent = [why for each in found if (why := each.why_silent(wall_ms()))]
    if silent and _copies_rows(log, record, source):
        return ()
    return tuple(f"its connector seems to have stopped: {why}. {SILENT_ADVICE}" for why in silent)


def _copies_rows(log: KafkaLog, record: FeedRecorded, source: SourceSpec) -> bool:
    """Whether a connector has just written a row of its snapshot. Raises SourceError."""
    topics = {plan.topic: max(plan.start) + 1 for plan in wholes(record.spans)}
    written = last_written(log.connection, source, topics, has_snapshot=False)
    is_fresh = written.append_ms is not None and wall_ms() - written.append_ms <= SILENT_SECONDS_MIN * 1000
    return bool(written.copying) and is_fresh


def _without_idle(explanation: Explanation, snapshot: Snapshot, record: FeedRecorded, log: KafkaLog) -> Explanation:
    """Without tables that have caught up since their last batch, which the control topics do not show.

    Raises SourceError.
    """
    lagging = {reason.span for reason in explanation.reasons if reason.is_late}
    plans = [plan for plan in record.spans if plan.span in lagging]
    ends = end_offsets(log.connection, {plan.topic: max(plan.start) + 1 for plan in plans})
    idle = {
        plan.span
        for plan in plans
        if _applied(snapshot, explanation.feed, plan.span).items()
        >= {partition: ends[plan.topic][partition] for partition in plan.start}.items()
    }
    reasons = tuple(reason for reason in explanation.reasons if reason.span not in idle)
    return replace(explanation, reasons=reasons, held_count=explanation.held_count - len(idle))


def _with_more(explanation: Explanation, reasons: tuple[Reason, ...]) -> Explanation:
    """With ``reasons`` behind its own; a span that has several counts once."""
    spans = {reason.span for reason in reasons} - {reason.span for reason in explanation.reasons}
    return replace(explanation, reasons=explanation.reasons + reasons, held_count=explanation.held_count + len(spans))


def _applied(snapshot: Snapshot, feed: str, span: str) -> Positions:
    dispatched = snapshot.dispatched(feed, span)
    role = dispatched.primary if dispatched is not None else None
    progress = snapshot.progressed(feed, span, role) if role is not None else None
    return progress.positions if progress is not None else {}


def _waiting_streams(log: KafkaLog, record: FeedRecorded, applied: Positions) -> tuple[Reason, ...]:
    """A reason for each stream that has changes and waits. ``applied``: the feed's positions, of all its spans.

    Raises LogError, MapError, SourceError.
    """
    source = parse_feed(record.spec).source
    if source.change_log is None:
        return ()
    with closing(GenerationTail(log, source.change_log, "headgate-cli")) as tail:
        tail.read_what_is_committed()
    found = tail.state.sets.get(source.change_log)
    current = None if found is None else current_of(found)
    if found is None or current is None:
        return ()
    waits = waits_of(tail.state, source.change_log, applied, strict=source.strict_generations)
    ends = end_offsets(log.connection, {found.topic: found.partitions})[found.topic] if waits else {}
    spans = {partition: plan for plan in record.spans for partition in plan.start}
    return tuple(
        Reason(
            span=spans[wait.partition].span,
            table=spans[wait.partition].table,
            stage=FailureStage.SOURCE,
            agent=None,
            since_ms=current.changed_ms,
            detail=_detail(wait),
            advice=_advice(wait),
        )
        for wait in waits
        if wait.partition in spans and _has_changes(wait, applied, ends)
    )


def _has_changes(wait: StreamWait, applied: Positions, ends: Mapping[int, int]) -> bool:
    return ends.get(wait.partition, 0) > max(wait.first, applied.get(wait.partition, 0))


def _detail(wait: StreamWait) -> str:
    upto = "its end is not measured yet" if wait.end is None else f"it ends at {wait.end}"
    return (
        f"partition {wait.partition}: stream {wait.stream} waits for stream {wait.ancestor} of partition "
        f"{wait.read_from}, which is applied up to offset {wait.position}; {upto}"
    )


def _advice(wait: StreamWait) -> str:
    if wait.end is None:
        return "wait: the owner of generations writes its END markers now"
    return "wait: it continues by itself once that stream is applied"
