"""What was perhaps meant by a name that an owner does not know: its refusal, with the names on the control topics.

Owners know the names of their own shard. The topics have all of them.
"""

from collections.abc import Iterator
from typing import Final

from headgate.app.exit_codes import CommandError
from headgate.cli.lookup import find_agent, find_feed, find_migration, find_set, find_table
from headgate.cli.snapshots import read_snapshot
from headgate.eventlog.log import Log, LogError, Partition
from headgate.eventlog.sharding import ANNOUNCE
from headgate.eventlog.snapshot import Snapshot
from headgate.records.base import Record
from headgate.records.control import OperationKind, OperationRequested
from headgate.records.generation import (
    GenerationRequested,
    GenerationRequestKey,
    GenerationRequestKind,
    PolicyRequestKey,
    SetKey,
)
from headgate.records.migration import MigrationRequested, MigrationRequestKind
from headgate.records.refusals import NOT_FOUND, code_in, coded
from headgate.records.timestamps import (
    TimestampSetKey,
    TimestampsRequested,
    TimestampsRequestKey,
    TimestampsRequestKind,
)
from headgate.runtime.requests import Request, RequestError, RequestRefusedError

__all__ = ["with_candidates"]


def with_candidates(log: Log, request: Request, error: RequestError) -> RequestError:
    """The error, which names the nearest name if it is about one that does not exist."""
    if not isinstance(error, RequestRefusedError) or code_in(error.reason) != NOT_FOUND or _creates(request.record):
        return error
    try:
        _find(read_snapshot(log, _partitions(log, request)), request)
    except CommandError as found:
        return RequestRefusedError(request.what, coded(NOT_FOUND, str(found)))
    except LogError:  # the refusal itself is what counts
        return error
    return error


def _creates(record: Record) -> bool:
    """Whether the request's own name is a new one. What it does not find is named in its description."""
    if not isinstance(record, OperationRequested | GenerationRequested | TimestampsRequested | MigrationRequested):
        return False
    return record.kind in _CREATING


_CREATING: Final = frozenset(
    {
        OperationKind.CREATE_FEED,
        GenerationRequestKind.CREATE,
        TimestampsRequestKind.CREATE,
        MigrationRequestKind.SUBMIT,
        MigrationRequestKind.REVERT,
    }
)


def _partitions(log: Log, request: Request) -> Iterator[Partition]:
    """The control topics that have names of the kind that the request has."""
    if isinstance(request.record, OperationRequested):
        yield ANNOUNCE
    for number in range(1 if request.partition.topic == "migration" else log.shards):
        yield Partition(request.partition.topic, number)


def _find(snapshot: Snapshot, request: Request) -> None:
    """Raise CommandError for the first name of the request that does not exist."""
    match request.record, request.key:
        case OperationRequested() as record, _:
            if record.feed:
                find_feed(snapshot, record.feed)
            if record.feed and record.table:
                find_table(snapshot, record.feed, record.table)
            if record.agent:
                find_agent(snapshot, record.agent)
        case MigrationRequested() as record, _:
            find_migration(snapshot, record.migration)
        case _, GenerationRequestKey() | PolicyRequestKey() as key:
            find_set(snapshot, SetKey(key.set))
        case _, TimestampsRequestKey() as key:
            find_set(snapshot, TimestampSetKey(key.set))
