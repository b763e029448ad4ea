"""``headgate deadletter purge``: remove dead letters permanently."""

from typing import Annotated, Any

import typer

from headgate.cli.ages import age, parse_duration
from headgate.cli.changes import Destruction, Permit, agreed
from headgate.cli.deadletter_choice import Code, Letters, Places, Table, Topic, chosen_of
from headgate.cli.lookup import find_feed, place_of
from headgate.cli.names import FeedName
from headgate.cli.options import ClusterOptions, Format, connected
from headgate.cli.output import Output, note, show_rows
from headgate.cli.requests import CLIENT
from headgate.cli.snapshots import read_snapshot
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.dead_letters import DeadLetters, read_dead_letters, remove_dead_letters
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import Log
from headgate.eventlog.sharding import shard_of
from headgate.eventlog.snapshot import all_partitions
from headgate.eventlog.topics import TopicNotCompactedError, why_not_removable
from headgate.records.name_lists import number_of

OlderThan = Annotated[
    str | None,
    typer.Option("--older-than", metavar="AGE", help="only those set aside longer ago, such as 30d, 12h or 90min"),
]


def purge(
    feed: FeedName,
    places: Places = None,
    *,
    table: Table = None,
    topic: Topic = None,
    code: Code = None,
    older_than: OlderThan = None,
    change: Destruction,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Remove dead letters of a feed, so that they cannot be read or replayed.

    Kafka deletes their bytes an hour or two later, when it compacts the topic. The coordinator removes dead letters by
    itself after the feed's deadletter_retention_days. A feed that was deleted may be named.

    Example: headgate deadletter purge shop --older-than 7d --dry-run
    """
    oldest_ms = None if older_than is None else wall_ms() - _milliseconds(older_than)
    with connected(cluster) as (_, log):
        _check_removable(log)
        found = read_dead_letters(log, shard_of(feed, log.shards))
        letters = {key: letter for key, letter in found.current.items() if key.feed == feed}
        if not letters:
            find_feed(read_snapshot(log, all_partitions(log, ("changefeed",))), feed)
        if oldest_ms is not None:
            letters = {key: letter for key, letter in letters.items() if letter.quarantined_ms < oldest_ms}
        chosen = chosen_of(letters, feed, places, table=table, topic=topic, code=code)
        permit = agreed(change, f"remove {number_of(len(chosen), 'dead letter')} of feed {feed}") if chosen else None
        if permit is not None:
            _remove(log, found, chosen, permit)
    _show(feed, chosen, output, is_done=permit is not None)


def _milliseconds(older_than: str) -> int:
    try:
        return parse_duration(older_than)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--older-than") from error


def _check_removable(log: KafkaLog) -> None:
    problem = why_not_removable(log.connection, log.cluster)
    if problem is not None:
        raise TopicNotCompactedError(problem)


def _remove(log: Log, found: DeadLetters, chosen: Letters, _permit: Permit) -> None:
    remove_dead_letters(log, found, chosen, CLIENT)


def _show(feed: str, chosen: Letters, output: Output, *, is_done: bool) -> None:
    now_ms = wall_ms()
    rows: list[dict[str, Any]] = [
        {
            "table": key.table,
            "place": place_of(key),
            "code": letter.error_code,
            "since": age(now_ms, letter.quarantined_ms),
            "quarantined_ms": letter.quarantined_ms,
            "removed": is_done,
        }
        for key, letter in sorted(chosen.items())
    ]
    show_rows(("table", "place", "code", "since"), rows, output)
    if output is not Output.TABLE:
        return
    if is_done:
        note(f"removed {number_of(len(rows), 'dead letter')} of feed {feed}")
    elif rows:
        note(f"would remove {number_of(len(rows), 'dead letter')} of feed {feed}; nothing was changed")
    else:
        note(f"feed {feed} has no matching dead letters; nothing was changed")
