"""Sends a request to an owner, waits for its outcome, and raises a typed error unless it is done.

A request is a record under a fresh key. Its outcome is a record, too, which the owner of the same partition writes.
Nothing else is known about the owner, not even where it runs. The client deletes the request afterwards.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Final

import msgspec

from headgate.eventlog.log import Delivery, LevelTooLowError, Log, LogReader, Partition, Placed, Writer
from headgate.eventlog.sharding import ANNOUNCE
from headgate.eventlog.snapshot import read_snapshot
from headgate.records.base import Fact, Key, Record
from headgate.records.control import OperationKind, OperationRequested, OutcomeStatus, OwnerAnnounced, RequestSettled
from headgate.records.fitting import fitted, fitted_text
from headgate.records.keys import OutcomeKey, OwnerKey, RequestKey
from headgate.records.refusals import NOT_FOUND, coded
from headgate.records.row_copies import is_by_ranges

WRITE_SECONDS_MAX: Final = 10.0
"""For the broker to acknowledge one small record."""

POLL_SECONDS: Final = 0.5
"""The longest single wait for records, so that deadlines are kept."""

POLL_RECORDS_MAX: Final = 500


OnStatus = Callable[[str], None]
"""Takes what an owner reports about a request that it has accepted."""


def _ignored(_status: str) -> None:
    """The reports of owners are not followed."""


class RequestError(Exception):
    """A request that is not done. The message names it, the reason, and what to do."""


class RequestTimedOutError(RequestError):
    """No final outcome in time: the owner did not answer, or it accepted the request and is still busy with it."""


class RequestRefusedError(RequestError):
    """The owner changed nothing. ``reason`` may begin with a code (records/refusals.py)."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"the request to {what} was refused, nothing was changed: {reason}")
        self.reason = reason


class RequestFailedError(RequestError):
    """The owner accepted the request, and it failed."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request, and the texts of its errors.

    ``what`` names the operation: ``cancel migration m1``. ``partition`` stores the outcome, and the request unless it
    is ``asked_on`` another. ``owner`` is the key on announce of the owner that answers, and ``service`` what `headgate
    serve` calls it. ``if_unfinished`` is the advice for a request that was accepted and is not done in time. Such a
    request is withdrawn unless it ``stays``.
    """

    what: str
    partition: Partition
    key: Key
    record: Record
    outcome: Key
    owner: Key
    service: str
    if_unfinished: str
    stays: bool = False
    asked_on: Partition | None = None

    @property
    def place(self) -> Partition:
        """Where the request is written."""
        return self.asked_on or self.partition


def feed_request(record: OperationRequested, shard: int, request: str) -> Request:
    """A request to the coordinator that owns ``shard``, under the id ``request``."""
    is_copy_by_ranges = record.kind is OperationKind.RESYNC_TABLE and is_by_ranges(record.spec)
    if record.kind in (OperationKind.DRAIN_AGENT, OperationKind.REBALANCE_FEED):
        advice = "it was taken back: no other table moves; ask again with a longer --timeout"
    elif is_copy_by_ranges:
        advice = (
            f"it continues; `headgate why {record.feed}` shows how far it is, and "
            f"`headgate table resync {record.feed} {record.table} --cancel` ends it"
        )
    elif record.kind is OperationKind.RESYNC_TABLE:
        advice = "it was taken back: either all of the rows are copied, or none is; ask again with a longer --timeout"
    elif record.kind is OperationKind.OPTIMIZE_TABLE:
        advice = (
            "the agent completes what it has started, and its log has the result; ask again with a longer --timeout"
        )
    else:
        advice = f"it continues; see `headgate feed show {record.feed}`, or give a longer --timeout"
    return Request(
        what=described(record, shard),
        partition=Partition("changefeed", shard),
        key=RequestKey(request),
        record=record,
        outcome=OutcomeKey(request),
        owner=OwnerKey(shard),
        service="coordinator",
        if_unfinished=advice,
        stays=is_copy_by_ranges,
    )


def withdraw(log: Log, shard: int, requests: Sequence[str], *, client: str) -> None:
    """Delete requests to the coordinator that owns ``shard``, from any client. Raises LogError."""
    if requests:
        partition = Partition("changefeed", shard)
        with closing(log.writer(client)) as writer:
            writer.write([Placed(partition, Fact(RequestKey(each), None)) for each in requests], WRITE_SECONDS_MAX)


def described(record: OperationRequested, shard: int) -> str:
    """What a request to a coordinator asks for, as its errors name it."""
    feed = f"feed {record.feed}" if record.feed else "all feeds"
    table = f"table {record.table} of {feed}"
    return _ASKED[record.kind].format(feed=feed, table=table, agent=f"agent {record.agent}", shard=f"shard {shard}")


_ASKED: Final = {
    OperationKind.CREATE_FEED: "create {feed}",
    OperationKind.UPDATE_FEED: "update {feed}",
    OperationKind.PAUSE_FEED: "pause {feed}",
    OperationKind.RESUME_FEED: "resume {feed}",
    OperationKind.REMOVE_FEED: "delete {feed}",
    OperationKind.REBALANCE_FEED: "rebalance {feed}",
    OperationKind.PAUSE_TABLE: "pause {table}",
    OperationKind.RESUME_TABLE: "resume {table}",
    OperationKind.RESYNC_TABLE: "resync {table}",
    OperationKind.OPTIMIZE_TABLE: "optimize {table}",
    OperationKind.MOVE_TABLE: "move {table} to {agent}",
    OperationKind.SPLIT_TABLE: "split {table}",
    OperationKind.MERGE_TABLE: "merge {table}",
    OperationKind.DRAIN_AGENT: "drain {agent}",
    OperationKind.RESIGN_OWNER: "hand over {shard}",
}


def ask(
    log: Log, request: Request, timeout_seconds: float, *, client: str, on_status: OnStatus = _ignored
) -> RequestSettled:
    """Write the request, wait until it is done, delete it. ``client`` names this process to the broker.

    Raises RequestError, LogError.
    """
    (answer,) = ask_all(log, [request], timeout_seconds, client=client, on_status=on_status)
    if isinstance(answer, RequestError):
        raise answer
    return answer


def ask_all(
    log: Log,
    requests: Sequence[Request],
    timeout_seconds: float,
    *,
    client: str,
    on_status: OnStatus = _ignored,
) -> list[RequestSettled | RequestError]:
    """Ask several owners at once. The answers are in the order of the requests; a settlement is always ``done``.

    Raises RequestError if the requests cannot be written, LogError.
    """
    for request in requests:
        _check_texts(request)
    deadline = time.monotonic() + timeout_seconds
    start = log.end_offsets(sorted({request.partition for request in requests}))
    latest: dict[Key, RequestSettled | None] = {}
    with closing(log.reader(start)) as reader, closing(log.writer(client)) as writer:
        _write(log, writer, requests, deadline, timeout_seconds)
        try:
            _follow(reader, {request.outcome for request in requests}, latest, deadline, on_status)
        finally:
            over = [request for request in requests if not _stays(latest, request)]
            if over:
                writer.write([Placed(each.place, Fact(each.key, None)) for each in over], WRITE_SECONDS_MAX)
    return [
        _withdrawn(request)
        if request.outcome in latest and latest[request.outcome] is None
        else _answer(log, request, latest.get(request.outcome), timeout_seconds)
        for request in requests
    ]


def _check_texts(request: Request) -> None:
    """Refuse a name that UTF-8 cannot encode: nothing can have it, and the record could not be written."""
    try:
        msgspec.json.encode((request.key, fitted(request.record)))
    except UnicodeEncodeError as error:
        raise RequestRefusedError(
            fitted_text(request.what), coded(NOT_FOUND, f"nothing is called {error.object!r}, which is not valid UTF-8")
        ) from error


def _write(log: Log, writer: Writer, requests: Sequence[Request], deadline: float, timeout_seconds: float) -> None:
    """Write the requests as soon as every live process can read them (docs/adr/0008)."""
    placed = [Placed(each.place, Fact(each.key, fitted(each.record))) for each in requests]
    waits_for: list[str] = []
    while True:
        try:
            writer.write(placed, WRITE_SECONDS_MAX)
        except LevelTooLowError as error:
            if not waits_for and time.monotonic() < deadline:
                before = log.level.writes
                # A process starts at the first level; reading the announcements raises it to the present one.
                waits_for = read_snapshot(log, [ANNOUNCE]).reading_less_than(log.level.reads)
                if log.level.writes == before:
                    time.sleep(POLL_SECONDS)
                continue
            if not waits_for and _owner(log, requests[0]) is None:
                raise _unanswered(log, requests[0], timeout_seconds) from error
            raise RequestRefusedError(
                requests[0].what,
                f"it waits for the upgrade of {', '.join(waits_for) or 'the owner, who raises the level soon'} (the "
                f"log is written at schema level {log.level.writes}, this needs {log.level.reads})",
            ) from error
        else:
            return


def _follow(
    reader: LogReader,
    awaited: set[Key],
    latest: dict[Key, RequestSettled | None],
    deadline: float,
    on_status: OnStatus,
) -> None:
    """Keep the latest outcome of each request until all are final or the deadline has passed.

    The owner deletes an outcome once its request is deleted: None is the outcome of one that another client has ended.
    """
    while (remaining := deadline - time.monotonic()) > 0:
        for read in reader.poll(POLL_RECORDS_MAX, min(POLL_SECONDS, remaining)):
            if not isinstance(read, Delivery) or read.key not in awaited:
                continue
            if isinstance(read.value, RequestSettled) or read.key in latest:
                latest[read.key] = outcome = read.value if isinstance(read.value, RequestSettled) else None
                if outcome is not None and _is_accepted(outcome):
                    on_status(outcome.reason)
        if sum(not _is_accepted(outcome) for outcome in latest.values()) == len(awaited):
            return


def _is_accepted(outcome: RequestSettled | None) -> bool:
    return outcome is not None and outcome.status is OutcomeStatus.ACCEPTED


def _stays(latest: Mapping[Key, RequestSettled | None], request: Request) -> bool:
    """Whether the request is not to be deleted: it outlives its client, or it is deleted already."""
    if request.outcome not in latest:
        return False
    outcome = latest[request.outcome]
    return outcome is None or (request.stays and _is_accepted(outcome))


def _withdrawn(request: Request) -> RequestFailedError:
    return RequestFailedError(
        f"the request to {request.what} was cancelled: another command has deleted it before it was done. What was "
        "done until then stays. Send it again if it is still wanted"
    )


def _answer(
    log: Log, request: Request, outcome: RequestSettled | None, timeout_seconds: float
) -> RequestSettled | RequestError:
    """The outcome if it is ``done``, or the error that it means: the only place where a status is given a meaning."""
    if outcome is None:
        return _unanswered(log, request, timeout_seconds)
    match outcome.status:
        case OutcomeStatus.DONE:
            return outcome
        case OutcomeStatus.ACCEPTED:
            return RequestTimedOutError(
                f"the request to {request.what} was accepted, but is not done after {timeout_seconds:g} s: "
                f"{outcome.reason}; {request.if_unfinished}"
            )
        case OutcomeStatus.REFUSED:
            return RequestRefusedError(request.what, outcome.reason)
        case OutcomeStatus.FAILED:
            return RequestFailedError(f"the request to {request.what} failed: {outcome.reason}")


def _owner(log: Log, request: Request) -> OwnerAnnounced | None:
    """The owner as last announced, None if there is none or it has resigned."""
    found = read_snapshot(log, [ANNOUNCE]).get(request.owner, OwnerAnnounced)
    return found if found is not None and found.lease_seconds > 0 else None


def _unanswered(log: Log, request: Request, timeout_seconds: float) -> RequestTimedOutError:
    owner, shard = _owner(log, request), request.partition.number
    if owner is None:
        return RequestTimedOutError(
            f"the request to {request.what} was not answered within {timeout_seconds:g} s, because shard {shard} has "
            f"no owner. The request was withdrawn. Start an owner with `headgate serve {request.service}`"
        )
    heard = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(owner.announced_ms / 1000))
    return RequestTimedOutError(
        f"the request to {request.what} was not answered within {timeout_seconds:g} s by {owner.owner_id}, the owner "
        f"of shard {shard}, which was last heard at {heard}. The request was withdrawn. Check that process (/readyz "
        f"and its log), or start another with `headgate serve {request.service}`"
    )
