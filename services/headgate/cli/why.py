"""``headgate why``: what holds a feed's checkpoint, since when, and what to do about it.

A feed that reads a change log may have to wait for streams: a stream is applied behind the ends of its parents
(generation/changelog/core/bounds.py). No agent reports that as an error, because it passes once the parents are read.
It is found here from the generations and the feed's positions.
"""

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import replace

from headgate.app.exit_codes import ExitCode
from headgate.cli.lookup import find_feed, replayed
from headgate.cli.options import ClusterOptions, Format, Watch, connected
from headgate.cli.output import Output, again, age, note, show_rows, show_value
from headgate.config.feed import parse_feed
from headgate.coordinator.core.feeds.explain import Explanation, Reason, explain
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.sharding import shard_of
from headgate.eventlog.snapshot import Snapshot, read_snapshot
from headgate.generation.changelog.core.bounds import Wait, waits_of
from headgate.generation.core.state import current_of
from headgate.generation.shell.tail import GenerationTail
from headgate.records.control import FeedRecorded, FeedState, Positions
from headgate.records.error_codes import Stage
from headgate.sources.offsets import end_offsets


def why(
    feed: Annotated[str, typer.Argument(metavar="FEED")],
    *,
    watch: Watch = None,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Explain what holds a feed back, and what to do about it.

    Shows the table, the stage, the agent, since when, and advice. Exit code 0 only if nothing holds the feed.

    Example: headgate why shop
    """
    held = False
    with connected(cluster) as (_, log):

        def look() -> None:
            nonlocal held
            snapshot = read_snapshot(log)
            record = find_feed(snapshot, feed)
            explanation = _explain(snapshot, shard_of(feed, log.shards), feed)
            explanation = _without_idle(explanation, snapshot, record, log)
            applied = {at: to for plan in record.spans for at, to in _applied(snapshot, feed, plan.span).items()}
            waiting = waiting_streams(log, record, applied)
            held = _show(_with_more(explanation, waiting), output)

        again(look, watch)
    if held:
        raise typer.Exit(int(ExitCode.HELD))


def _show(explanation: Explanation, output: Output) -> bool:
    """Print it; whether anything holds the feed."""
    feed = explanation.feed
    held = bool(explanation.feed_held_by or explanation.reasons)
    if output is not Output.TABLE:
        show_value(output, {**msgspec.to_builtins(explanation), "held": held})
    else:
        for line in explanation.feed_held_by:
            note(f"{feed}: {line}")
        now_ms = time.time_ns() // 1_000_000
        rows: list[dict[str, Any]] = [
            {**msgspec.to_builtins(reason), "since": age(now_ms, reason.since_ms)} for reason in explanation.reasons
        ]
        if rows:
            show_rows(("span", "stage", "agent", "since", "detail", "advice"), rows, output)
        shown = len({reason.span for reason in explanation.reasons})
        if explanation.held_count > shown:
            note(f"and {explanation.held_count - shown} more tables")
        if not held:
            doing = "finished" if explanation.state is FeedState.FINISHED else "replicating"
            note(f"{feed}: nothing holds it, all of its {explanation.table_count} tables are {doing}")
    return held


def _without_idle(explanation: Explanation, snapshot: Snapshot, record: FeedRecorded, log: KafkaLog) -> Explanation:
    """Without tables that lagged in their last batch and have applied everything since: the log cannot tell them apart.

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


def _explain(snapshot: Snapshot, shard: int, feed: str) -> Explanation:
    return explain(replayed(snapshot, shard), feed, has_owner=snapshot.owner(shard) is not None)


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
