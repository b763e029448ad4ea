"""``headgate why``: what holds a feed's checkpoint, since when, and what to do about it."""

import time
from typing import Annotated, Any

import msgspec
import typer

from headgate.cli.exit_codes import ExitCode
from headgate.cli.feed import find_feed
from headgate.cli.options import Bootstrap, Cluster, Format, KafkaProperty, connected
from headgate.cli.output import Output, age, note, show_json, show_rows
from headgate.coordinator.explain import explain
from headgate.coordinator.state import CoordinatorState, evolve, new_state
from headgate.eventlog.sharding import shard_of
from headgate.eventlog.snapshot import Snapshot, read_snapshot
from headgate.records.control import FeedRecorded, FeedState, WantedState

__all__ = ["why"]


def why(
    feed: Annotated[str, typer.Argument(metavar="FEED")],
    *,
    output: Format = Output.TABLE,
    bootstrap: Bootstrap = None,
    cluster: Cluster = None,
    kafka_property: KafkaProperty = None,
) -> None:
    """Say what holds FEED's checkpoint: table, stage, agent, since when, what to do; exit 0 only if nothing does."""
    with connected(bootstrap, cluster, kafka_property) as (_, log):
        snapshot = read_snapshot(log)
        shard = shard_of(feed, log.shards)
    record = find_feed(snapshot, feed)
    explanation = explain(_replayed(snapshot, shard), feed)
    whole = _whole(snapshot, shard, feed, record)
    held = bool(whole or explanation.reasons)
    if output is Output.JSON:
        show_json({**msgspec.to_builtins(explanation), "held": held, "feed_held_by": whole})
    else:
        for line in whole:
            note(f"{feed}: {line}")
        now_ms = time.time_ns() // 1_000_000
        rows: list[dict[str, Any]] = [
            {**msgspec.to_builtins(reason), "since": age(now_ms, reason.since_ms)} for reason in explanation.reasons
        ]
        if rows:
            show_rows(("table", "stage", "agent", "since", "detail", "advice"), rows, output)
        if explanation.held_count > len(rows):
            note(f"and {explanation.held_count - len(rows)} more tables")
        if not held:
            note(f"{feed}: nothing holds it, all of its {explanation.table_count} tables are replicating")
    if held:
        raise typer.Exit(int(ExitCode.HELD))


def _whole(snapshot: Snapshot, shard: int, feed: str, record: FeedRecorded) -> list[str]:
    """What holds the feed as a whole: each says what, and what to do."""
    lines = []
    if snapshot.owner(shard) is None:
        lines.append(f"its shard {shard} has no owner; start one: `headgate serve coordinator`")
    if record.state is FeedState.FAILED:
        lines.append(f"it has failed: {record.error}; remove the cause, then `headgate feed resume {feed}`")
    elif record.wanted is not WantedState.RUNNING:
        lines.append(f"an operator wants it {record.wanted.value}; `headgate feed resume {feed}` lets it go on")
    return lines


def _replayed(snapshot: Snapshot, shard: int) -> CoordinatorState:
    """The state an owner of the shard would have, made by the coordinator's own evolve."""
    state = new_state(shard)
    for read in snapshot.standing():
        if read.partition.topic == "announce" or read.partition.number == shard:
            evolve(state, read.key, read.value, read.offset)
    return state
