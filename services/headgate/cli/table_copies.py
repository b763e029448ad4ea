"""Requests to copy a whole table from its source: they outlive the command, so they can be found and cancelled."""

from collections.abc import Iterator

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.changes import Permit
from headgate.cli.requests import CLIENT, ask, operation
from headgate.cli.snapshots import read_snapshot
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.sharding import shard_of
from headgate.eventlog.snapshot import Snapshot
from headgate.records.control import OperationKind, OperationRequested, RequestSettled, is_unsettled
from headgate.records.keys import OutcomeKey, RequestKey
from headgate.records.row_copies import RowCopy, is_by_ranges, shown_row_copy
from headgate.runtime.requests import withdraw

__all__ = ["cancel_copy", "check_is_copied", "copy_table"]


def copy_table(
    log: KafkaLog, feed: str, table: str, rows: RowCopy, *, timeout_seconds: float, permit: Permit
) -> RequestSettled:
    """Have the whole table copied, and wait for it. Raises RequestError, LogError."""
    snapshot = read_snapshot(log)
    over = [request for request in _copies(snapshot, feed, table) if not _is_under_way(snapshot, request)]
    withdraw(log, shard_of(feed, log.shards), over, client=CLIENT)
    request = operation(OperationKind.RESYNC_TABLE, feed, table=table, spec=shown_row_copy(rows))
    return ask(log, request, timeout_seconds, permit)


def check_is_copied(snapshot: Snapshot, feed: str, table: str) -> list[str]:
    """The requests that copy the whole table now. Raises CommandError if there is none."""
    found = [request for request in _copies(snapshot, feed, table) if _is_under_way(snapshot, request)]
    if not found:
        raise CommandError(ExitCode.NOT_FOUND, f"table {table!r} of feed {feed!r} is not being copied as a whole")
    return found


def cancel_copy(log: KafkaLog, feed: str, table: str, _permit: Permit) -> None:
    """End the copy of a whole table; rows that are copied stay. Raises CommandError, LogError."""
    requests = check_is_copied(read_snapshot(log), feed, table)
    withdraw(log, shard_of(feed, log.shards), requests, client=CLIENT)


def _copies(snapshot: Snapshot, feed: str, table: str) -> Iterator[str]:
    for key, request in snapshot.each(RequestKey, OperationRequested):
        is_of_table = (request.kind, request.feed, request.table) == (OperationKind.RESYNC_TABLE, feed, table)
        if is_of_table and is_by_ranges(request.spec):
            yield key.request


def _is_under_way(snapshot: Snapshot, request: str) -> bool:
    return is_unsettled(snapshot.get(OutcomeKey(request), RequestSettled))
