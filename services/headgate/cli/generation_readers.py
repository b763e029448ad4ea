"""``headgate generation readers``: how far each reader of a change log is, stream by stream where the log says it.

A feed's positions are those of its checkpoint and its agents. A program that reads with ChangeReader keeps its own; of
it is known what it reports: up to which switch it has read all that was closed.
"""

from collections.abc import Iterator
from typing import Any

from headgate.cli.generation_requests import SetName, opened, record_of
from headgate.cli.options import ClusterOptions, Format
from headgate.cli.output import Output, show_rows
from headgate.cli.source_topics import positions_of
from headgate.config.feed import parse_feed
from headgate.eventlog.snapshot import Snapshot, read_snapshot
from headgate.generation.changelog.core.bounds import standings_of
from headgate.generation.core.state import GenerationState
from headgate.records.control import FeedRecorded
from headgate.records.keys import FeedKey
from headgate.sources.change_logs import reader_of_feed


def readers(name: SetName, *, output: Format = Output.TABLE, cluster: ClusterOptions) -> None:
    """List the readers of a change log, and of each feed the streams that it has yet to read."""
    with opened(name, cluster) as (log, tail):
        record_of(tail, name)
        found = tail.state.readers.get(name, {})
        snapshot = read_snapshot(log)
    feeds = {reader_of_feed(key.feed): (key.feed, record) for key, record in snapshot.each(FeedKey, FeedRecorded)}
    rows: list[dict[str, Any]] = []
    for reader, said in sorted(found.items()):
        told = {"reader": reader, "has_read": said.read_epoch, "reported_ms": said.reported_ms}
        streams = (
            [told | each for each in _streams(tail.state, name, snapshot, *feeds[reader])] if reader in feeds else []
        )
        rows += streams or [told]
    show_rows(("reader", "has_read", "stream", "partition", "position", "end", "waits_for"), rows, output)


def _streams(
    state: GenerationState, name: str, snapshot: Snapshot, feed: str, record: FeedRecorded
) -> Iterator[dict[str, Any]]:
    """What a feed has yet to read."""
    positions: dict[int, int] = {}
    for plan in record.spans:
        positions |= positions_of(snapshot, feed, record, plan)
    is_strict = parse_feed(record.spec).source.strict_generations
    for each in standings_of(state, name, positions, strict=is_strict):
        yield {
            "stream": str(each.stream),
            "partition": each.partition,
            "position": each.position,
            "end": each.end,
            "waits_for": [str(stream) for stream in each.waits_for],
        }
