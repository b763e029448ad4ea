"""What ``headgate migration show`` tells of the way back from a completed change of strategy online."""

from typing import Any

from headgate.eventlog.log import Log, Partition
from headgate.eventlog.sharding import shard_of
from headgate.eventlog.snapshot import read_snapshot
from headgate.migration.strategies.online.way_back import read_way_back
from headgate.records.control import FeedRecorded, FeedState
from headgate.records.keys import FeedKey
from headgate.records.migration import FEED, MigrationRecorded, MigrationState


def way_back_of(log: Log, record: MigrationRecorded) -> dict[str, Any]:
    """``state``, and ``why`` where it is not open; empty for a migration that has none to tell of. Raises LogError."""
    found = read_way_back(record.note) if record.state is MigrationState.COMPLETE else None
    if found is None:
        return {}
    if found.reason:
        return {"state": "none", "why": found.reason}
    if not record.artifacts:
        return {"state": "gone", "why": f"{found.table} was dropped, or is in the table's place again"}
    told = {"table": found.table, "from_offsets": found.offsets}
    for artifact in record.artifacts:
        if artifact.kind == FEED:
            return {**_of_feed(_feed(log, artifact.name), artifact.name), "feed": artifact.name, **told}
    if found.feed:
        return {"state": "ended", "why": "the table was changed again", **told}
    return {"state": "begins with the revert", **told}


def _feed(log: Log, feed: str) -> FeedRecorded | None:
    shard = shard_of(feed, log.shards)
    return read_snapshot(log, [Partition("changefeed", shard)]).get(FeedKey(feed), FeedRecorded)


def _of_feed(record: FeedRecorded | None, feed: str) -> dict[str, Any]:
    if record is None or record.state is FeedState.REMOVED:
        return {"state": "begins with the revert", "why": f"feed {feed} was removed"}
    if record.state is FeedState.NORMAL:
        return {"state": "kept"}
    why = record.error or f"feed {feed} is {record.state.value}"
    return {"state": "stands still", "why": f"{why}; see `headgate why {feed}`"}
