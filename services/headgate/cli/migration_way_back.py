"""What ``headgate migration show`` reports in ``way_back``: whether a change can be reverted (docs/migrations.md)."""

from enum import StrEnum

from headgate.cli.snapshots import read_snapshot
from headgate.eventlog.log import Log, Partition
from headgate.eventlog.sharding import shard_of
from headgate.records.control import FeedRecorded, FeedState
from headgate.records.keys import FeedKey
from headgate.records.migration import FEED, MigrationRecorded, MigrationState


class WayBackState(StrEnum):
    """Whether a revert is possible. Scripts read these words."""

    KEPT = "kept"
    """The feed into the old table runs."""
    BEGINS_WITH_REVERT = "begins with the revert"
    """No feed has been started: the revert starts it, and it applies all changes since."""
    DOES_NOT_ADVANCE = "does not advance"
    """The feed into the old table has stopped."""
    ENDED = "ended"
    """The table was changed again."""
    GONE = "gone"
    """The old table was dropped, or is in the table's place again."""
    NONE = "none"
    """The change cannot be reverted."""


def way_back_of(log: Log, record: MigrationRecorded) -> dict[str, object]:
    """``state``, and ``why`` where no revert is possible now; empty for a migration without one. Raises LogError."""
    from headgate.migration.strategies.online.way_back import read_way_back  # noqa: PLC0415 - it imports the grammar

    found = read_way_back(record.note) if record.state is MigrationState.COMPLETE else None
    if found is None:
        return {}
    if found.reason:
        return _reported(WayBackState.NONE, why=found.reason)
    if not record.artifacts:
        return _reported(WayBackState.GONE, why=f"{found.table} was dropped, or is in the table's place again")
    read = {"table": found.table, "from_offsets": found.offsets}
    for artifact in record.artifacts:
        if artifact.kind == FEED:
            return {**_of_feed(_feed(log, artifact.name), artifact.name), "feed": artifact.name, **read}
    if found.feed:
        return {**_reported(WayBackState.ENDED, why="the table was changed again"), **read}
    return {**_reported(WayBackState.BEGINS_WITH_REVERT), **read}


def _reported(state: WayBackState, why: str = "") -> dict[str, object]:
    return {"state": state.value, **({"why": why} if why else {})}


def _feed(log: Log, feed: str) -> FeedRecorded | None:
    shard = shard_of(feed, log.shards)
    return read_snapshot(log, [Partition("changefeed", shard)]).get(FeedKey(feed), FeedRecorded)


def _of_feed(record: FeedRecorded | None, feed: str) -> dict[str, object]:
    if record is None or record.state is FeedState.REMOVED:
        return _reported(WayBackState.BEGINS_WITH_REVERT, why=f"feed {feed} was removed")
    if record.state is FeedState.NORMAL:
        return _reported(WayBackState.KEPT)
    why = record.error or f"feed {feed} is {record.state.value}"
    return _reported(WayBackState.DOES_NOT_ADVANCE, why=f"{why}; see `headgate why {feed}`")
