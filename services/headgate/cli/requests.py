"""Asking an owner for something: a request is a record, and so is its outcome.

The request goes to the changefeed partition of the feed's shard under a fresh id; the shard's owner answers under the
same id. Nothing else is known about the owner, not even where it runs. Whoever asked deletes its request afterwards.
"""

import getpass
import os
import socket
import time
from contextlib import closing
from typing import Final
from uuid import uuid4

from headgate.cli.exit_codes import CommandError, ExitCode
from headgate.eventlog.log import Delivery, Log, LogReader, Partition
from headgate.eventlog.sharding import ANNOUNCE, place, shard_of
from headgate.eventlog.snapshot import read_snapshot
from headgate.records.control import OperationKind, OperationRequested, OutcomeStatus, RequestSettled
from headgate.records.keys import Fact, OutcomeKey, RequestKey

__all__ = ["OUTCOME_SECONDS_DEFAULT", "ask", "operation"]

OUTCOME_SECONDS_DEFAULT: Final = 30.0
"""A take-over of a lost owner and a slow sink's check fit in; longer work is what --timeout is for."""

WRITE_SECONDS_MAX: Final = 10.0
"""For the broker to acknowledge one small record."""

POLL_SECONDS: Final = 0.5
"""Longest single wait for records, so that the deadline is kept."""

POLL_RECORDS_MAX: Final = 500


def operation(
    kind: OperationKind, feed: str, *, spec: str | None = None, table: str | None = None, agent: str | None = None
) -> OperationRequested:
    """A request in the name of whoever runs this command."""
    return OperationRequested(
        kind=kind,
        feed=feed,
        spec=spec,
        table=table,
        agent=agent,
        requested_by=f"{_user()}@{socket.gethostname()}",
        requested_ms=time.time_ns() // 1_000_000,
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # a container's user often has no name


def ask(log: Log, request: OperationRequested, timeout_seconds: float) -> RequestSettled:
    """Write the request, wait for its final outcome, delete the request; the outcome, which is ``done``.

    Raises CommandError when it was refused, has failed or was not settled in time; LogError.
    """
    shard = shard_of(request.feed, log.shards)
    partition = Partition("changefeed", shard)
    key = RequestKey(uuid4().hex)
    deadline = time.monotonic() + timeout_seconds
    start = log.end_offsets([partition])
    with closing(log.reader(start)) as reader, closing(log.writer("headgate-cli")) as writer:
        writer.write([place(Fact(key, request), shard)], WRITE_SECONDS_MAX)
        try:
            outcome = _await_outcome(reader, OutcomeKey(key.request), deadline)
        finally:
            writer.write([place(Fact(key, None), shard)], WRITE_SECONDS_MAX)
    what = f"{request.kind.value} of {request.feed}"
    if outcome is None:
        raise CommandError(ExitCode.REQUEST_TIMED_OUT, _why_no_outcome(log, shard, what, timeout_seconds))
    if outcome.status is OutcomeStatus.REFUSED:
        raise CommandError(ExitCode.REQUEST_REFUSED, f"{what} was refused, nothing was changed: {outcome.reason}")
    if outcome.status is OutcomeStatus.FAILED:
        raise CommandError(ExitCode.REQUEST_FAILED, f"{what} has failed: {outcome.reason}")
    if outcome.status is OutcomeStatus.ACCEPTED:
        raise CommandError(
            ExitCode.REQUEST_TIMED_OUT,
            f"{what} was accepted and is under way, but not done within {timeout_seconds:g} s: {outcome.reason}; "
            f"look with `headgate feed show {request.feed}`, or give a longer --timeout",
        )
    return outcome


def _await_outcome(reader: LogReader, key: OutcomeKey, deadline: float) -> RequestSettled | None:
    """The final outcome, or the last one seen when the deadline has passed."""
    latest: RequestSettled | None = None
    while (remaining := deadline - time.monotonic()) > 0:
        for read in reader.poll(POLL_RECORDS_MAX, min(POLL_SECONDS, remaining)):
            if isinstance(read, Delivery) and read.key == key and isinstance(read.value, RequestSettled):
                latest = read.value
                if latest.status is not OutcomeStatus.ACCEPTED:
                    return latest
    return latest


def _why_no_outcome(log: Log, shard: int, what: str, timeout_seconds: float) -> str:
    owner = read_snapshot(log, [ANNOUNCE]).owner(shard)
    if owner is None:
        return (
            f"{what}: shard {shard} has no owner, so nobody answered within {timeout_seconds:g} s; the request was "
            "withdrawn. Start one with `headgate serve coordinator`"
        )
    heard = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(owner.announced_ms / 1000))
    return (
        f"{what}: the owner of shard {shard}, {owner.owner_id}, did not answer within {timeout_seconds:g} s; it was "
        f"heard last at {heard}. The request was withdrawn. Is that process alive? See its /readyz and its log, "
        "or start another with `headgate serve coordinator`"
    )
