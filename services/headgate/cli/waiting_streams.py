"""``headgate why`` of a feed that reads a change log: which streams may not be read yet, and what they wait for.

A stream is applied behind the ends of its parents (generation/changelog/core/bounds.py). No agent reports that as an
error, because it passes by itself once the parents are read. This module finds it from the generations and the feed's
positions.
"""

from collections.abc import Mapping
from contextlib import closing

from headgate.config.feed import parse_feed
from headgate.coordinator.core.feeds.explain import Reason
from headgate.eventlog.kafka import KafkaLog
from headgate.generation.changelog.core.bounds import Wait, waits_of
from headgate.generation.core.state import current_of
from headgate.generation.shell.tail import GenerationTail
from headgate.records.control import FeedRecorded, Positions
from headgate.records.error_codes import Stage
from headgate.sources.offsets import end_offsets


def waiting_streams(log: KafkaLog, record: FeedRecorded, applied: Positions) -> tuple[Reason, ...]:
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
            stage=Stage.SOURCE,
            agent=None,
            since_ms=current.changed_ms,
            detail=_detail(wait),
            advice=_advice(wait),
        )
        for wait in waits
        if wait.partition in spans and _has_changes(wait, applied, ends)
    )


def _has_changes(wait: Wait, applied: Positions, ends: Mapping[int, int]) -> bool:
    return ends.get(wait.partition, 0) > max(wait.first, applied.get(wait.partition, 0))


def _detail(wait: Wait) -> str:
    upto = "its end is not measured yet" if wait.end is None else f"it ends at {wait.end}"
    return (
        f"partition {wait.partition}: stream {wait.stream} waits for stream {wait.ancestor} of partition "
        f"{wait.read_from}, which is applied up to offset {wait.position}; {upto}"
    )


def _advice(wait: Wait) -> str:
    if wait.end is None:
        return "wait: the owner of generations writes its END markers now"
    return "wait: it goes on by itself once that stream is applied"
