"""Adds the nearest known name to the refusal of a request whose name does not exist.

Owners know the names of their own shard. The topics have all of them.
"""

from collections.abc import Sequence
from typing import Final

from headgate.app.exit_codes import CommandError
from headgate.cli.lookup import find_agent, find_feed, find_migration, find_set, find_table
from headgate.cli.snapshots import read_snapshot
from headgate.eventlog.log import Log, LogError
from headgate.eventlog.sharding import ANNOUNCE
from headgate.eventlog.snapshot import Snapshot, all_partitions
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


def with_candidates(log: Log, refused: Sequence[tuple[Request, RequestError]]) -> list[RequestError]:
    """The errors in the same order, with the nearest name in those about a name that does not exist.

    The control topics are read once for all of them.
    """
    unknown = [request for request, error in refused if _is_of_a_name(request, error)]
    if not unknown:
        return [error for _, error in refused]
    try:
        snapshot = read_snapshot(
            log, all_partitions(log, sorted({topic for each in unknown for topic in _topics(each)}))
        )
    except LogError:  # the refusal itself is what counts
        return [error for _, error in refused]
    return [
        _with_candidate(snapshot, request, error) if _is_of_a_name(request, error) else error
        for request, error in refused
    ]


def _is_of_a_name(request: Request, error: RequestError) -> bool:
    """Whether the error is that a name does not exist, which the request itself does not create."""
    is_unknown = isinstance(error, RequestRefusedError) and code_in(error.reason) == NOT_FOUND
    return is_unknown and not _creates(request.record)


def _with_candidate(snapshot: Snapshot, request: Request, error: RequestError) -> RequestError:
    try:
        _find(snapshot, request)
    except CommandError as found:
        return RequestRefusedError(request.what, coded(NOT_FOUND, str(found)))
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


def _topics(request: Request) -> tuple[str, ...]:
    """The control topics that have names of the kind that the request has."""
    topic = request.partition.topic
    return (ANNOUNCE.topic, topic) if isinstance(request.record, OperationRequested) else (topic,)


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
