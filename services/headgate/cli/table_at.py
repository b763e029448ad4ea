"""Finds the version of a lake table that has the source's rows as of a time, and how engines read it."""

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import msgspec

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.lookup import find_feed, find_table
from headgate.cli.snapshots import read_snapshot
from headgate.config.feed import FeedSpec, parse_feed
from headgate.config.sink_spec import SinkSpec
from headgate.config.times import NotATimeError, parse_ts, show_ts
from headgate.eventlog.kafka import KafkaLog
from headgate.records.control import Positions
from headgate.records.name_lists import number_of
from headgate.records.spans import wholes
from headgate.sinks.lake.sink import LakeSink
from headgate.sinks.registry import open_sink
from headgate.sources.offsets import offsets_until

__all__ = ["TableAt", "lines_of", "notes_of", "readers_of", "table_at"]


class TableAt(msgspec.Struct, frozen=True, kw_only=True):
    """``version``: Delta's number, or Iceberg's snapshot id. ``missing``: changes before the time that it lacks.

    ``next_version``: the version after it, which has them and may have later ones. ``is_copying``: rows from before the
    feed were just being copied, so it has some of them, as they were later.
    """

    feed: str
    table: str
    ts: str
    version: str
    committed: str
    positions: Positions
    missing: int
    next_version: str | None
    is_copying: bool
    readers: Mapping[str, str]


def table_at(log: KafkaLog, feed: str, table: str, text: str) -> TableAt:
    """Raises CommandError, SourceError, SinkError."""
    try:
        ts = parse_ts(text)
    except NotATimeError as error:
        raise CommandError(ExitCode.USAGE, f"--ts: {error}") from error
    snapshot = read_snapshot(log)
    record = find_feed(snapshot, feed)
    find_table(snapshot, feed, table)
    spec = parse_feed(record.spec)
    (plan,) = (plan for plan in wholes(record.spans) if plan.table == table)
    sink = _lake_sink(feed, spec)
    from headgate.sinks.lake.history import at_positions, reached  # noqa: PLC0415 - needs libraries of lakes

    with closing(sink):
        found = sink.lake().table(table)
        versions = [] if found is None else reached(found.versions(), plan.topic)
        where = sink.lake().where(table)
    ends = offsets_until(log.connection, {plan.topic: max(plan.start) + 1}, ts)[plan.topic]
    at = at_positions(versions, ends)
    if at is None:
        oldest = f"its oldest one is of {_shown(versions[0].version.committed_ms)}" if versions else "it has none"
        raise CommandError(
            ExitCode.NOT_FOUND,
            f"table {table} ({where}) has no version without changes that were written at {show_ts(ts)} or later: "
            f"{oldest}. Use a later time",
        )
    positions = at.found.positions
    return TableAt(
        feed=feed,
        table=table,
        ts=show_ts(ts),
        version=at.found.version.name,
        committed=_shown(at.found.version.committed_ms),
        positions=positions,
        missing=sum(ends[partition] - position for partition, position in positions.items()),
        next_version=None if at.later is None else at.later.version.name,
        is_copying=at.found.is_copying,
        readers=readers_of(spec.sink, table, at.found.version.name, sink.lake().sql_name(table)),
    )


def _lake_sink(feed: str, spec: FeedSpec) -> LakeSink:
    sink = open_sink(spec.sink)
    if isinstance(sink, LakeSink):
        return sink
    sink.close()
    raise CommandError(
        ExitCode.REQUEST_REFUSED,
        f"feed {feed!r} writes to a sink of type {spec.sink.type}, whose tables have no versions. Those of delta and "
        "iceberg do",
    )


def readers_of(sink: SinkSpec, table: str, version: str, sql_name: str) -> dict[str, str]:
    """Engine → how it reads that version."""
    spark = f"SELECT * FROM {sql_name} VERSION AS OF {version}"  # noqa: S608 - is shown, not run
    if sink.type == "delta":
        path = sql_name.removeprefix("delta.").strip("`")
        return {"spark": spark, "polars": f"polars.scan_delta({path!r}, version={version})"}
    return {
        "spark": spark,
        "polars": f"polars.scan_iceberg(catalog.load_table({table!r}), snapshot_id={version})",
        "pyiceberg": f"catalog.load_table({table!r}).scan(snapshot_id={version})",
    }


def _shown(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def lines_of(found: TableAt) -> list[dict[str, Any]]:
    """The answer, for people."""
    return [
        {"what": "version", "value": found.version},
        {"what": "committed", "value": found.committed},
        {"what": "positions", "value": ", ".join(f"{p}: {at}" for p, at in sorted(found.positions.items()))},
        *({"what": engine, "value": text} for engine, text in found.readers.items()),
    ]


def notes_of(found: TableAt) -> list[str]:
    """What the version is not."""
    notes = []
    if found.missing:
        after = (
            "the next commit will have them" if found.next_version is None else f"version {found.next_version} has them"
        )
        notes.append(
            f"{number_of(found.missing, 'record')} of the topic before {found.ts} came with a later commit: {after}"
        )
    if found.is_copying:
        notes.append("rows from before the feed were being copied: the version has some of them, as they were later")
    return notes
