"""Asking an owner for something: a request is a record, and so is its outcome.

The request goes to the changefeed partition of the feed's shard under a fresh id; the shard's owner answers under the
same id. Nothing else is known about the owner, not even where it runs. Whoever asked deletes its request afterwards.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final
from uuid import uuid4

from headgate.cli.exit_codes import CommandError, ExitCode
from headgate.cli.outcomes import requester, require_done
from headgate.cli.output import Output, note, show_value
from headgate.eventlog.log import Delivery, LevelTooLowError, Log, LogReader, Partition, Writer
from headgate.eventlog.sharding import ANNOUNCE, place, shard_of
from headgate.eventlog.snapshot import read_snapshot
from headgate.records.base import Fact, Key
from headgate.records.control import OperationKind, OperationRequested, OutcomeStatus, RequestSettled
from headgate.records.fitting import fitted, is_name
from headgate.records.keys import OutcomeKey, RequestKey

__all__ = [
    "MOVES_SECONDS_DEFAULT",
    "OUTCOME_SECONDS_DEFAULT",
    "ask",
    "ask_shards",
    "operation",
    "show_done",
    "show_settled",
]

OUTCOME_SECONDS_DEFAULT: Final = 30.0
"""A take-over of a lost owner and a slow sink's check fit in; longer work is what --timeout is for."""

MOVES_SECONDS_DEFAULT: Final = 300.0
"""For what moves many tables, some tens at a time, each in seconds."""

WRITE_SECONDS_MAX: Final = 10.0
"""For the broker to acknowledge one small record."""

POLL_SECONDS: Final = 0.5
"""Longest single wait for records, so that the deadline is kept."""

POLL_RECORDS_MAX: Final = 500


def operation(
    kind: OperationKind,
    feed: str,
    *,
    spec: str | None = None,
    table: str | None = None,
    agent: str | None = None,
    parts: int | None = None,
    abandon_sink: bool = False,
) -> OperationRequested:
    """A request in the name of whoever runs this command. Raises CommandError for a name that nothing can write."""
    for name in (feed, table, agent):
        if name is not None and not is_name(name):
            raise CommandError(ExitCode.NOT_FOUND, f"nothing is called {name!r}: that is no text in UTF-8")
    request = OperationRequested(
        kind=kind,
        feed=feed,
        spec=spec,
        table=table,
        agent=agent,
        requested_by=requester(),
        requested_ms=time.time_ns() // 1_000_000,
        parts=parts,
        abandon_sink=abandon_sink,
    )
    return fitted(request)


def ask(log: Log, request: OperationRequested, timeout_seconds: float) -> RequestSettled:
    """Write the request, wait for its final outcome, delete the request; the outcome, which is ``done``.

    Raises CommandError when it was refused, has failed or was not settled in time; LogError.
    """
    shard = shard_of(request.feed, log.shards)
    return ask_shards(log, request, [shard], timeout_seconds)[shard]


def ask_shards(
    log: Log, request: OperationRequested, shards: Sequence[int], timeout_seconds: float
) -> dict[int, RequestSettled]:
    """The same of several shards at once, each by its own owner; the outcomes, which are all ``done``.

    Raises CommandError, with what every shard says, once all have been waited for and one is not done; LogError.
    """
    keys = {shard: RequestKey(uuid4().hex) for shard in shards}
    awaited: dict[Key, int] = {OutcomeKey(key.request): shard for shard, key in keys.items()}
    deadline = time.monotonic() + timeout_seconds
    start = log.end_offsets([Partition("changefeed", shard) for shard in shards])
    with closing(log.reader(start)) as reader, closing(log.writer("headgate-cli")) as writer:
        _write(log, writer, request, keys)
        try:
            outcomes = _await_outcomes(reader, awaited, deadline)
        finally:
            writer.write([place(Fact(key, None), shard) for shard, key in keys.items()], WRITE_SECONDS_MAX)
    done: dict[int, RequestSettled] = {}
    errors: dict[int, CommandError] = {}
    for shard in shards:
        try:
            done[shard] = _done(log, request, shard, outcomes.get(shard), timeout_seconds)
        except CommandError as error:
            errors[shard] = error
    if errors:
        raise _gathered(done, errors)
    return done


def _said_by(outcomes: Mapping[int, RequestSettled]) -> str:
    """What the shards say, one sentence for all that say the same: "…" or "shards 0, 2: …; shard 1: …"."""
    return _by_shards({shard: outcome.reason for shard, outcome in outcomes.items()})


def show_settled(what: str, facts: Mapping[str, Any], outcome: RequestSettled, output: Output) -> None:
    """Say what has become of a request about ``what``; to programs with ``facts``, the request's own words."""
    if output is not Output.TABLE:
        show_value(output, {**facts, "status": outcome.status.value, "reason": outcome.reason})
    else:
        note(f"{what}: {outcome.status.value}" + (f": {outcome.reason}" if outcome.reason else ""))


def show_done(what: str, facts: Mapping[str, Any], outcomes: Mapping[int, RequestSettled], output: Output) -> None:
    """The same of a request to several shards, which is done in all of them."""
    if output is not Output.TABLE:
        shards = [{"shard": shard, "reason": outcome.reason} for shard, outcome in outcomes.items()]
        show_value(output, {**facts, "status": "done", "reason": _said_by(outcomes), "shards": shards})
    else:
        note(f"{what}: done: {_said_by(outcomes)}")


def _by_shards(texts: Mapping[int, str]) -> str:
    shards_of: dict[str, list[int]] = {}
    for shard, text in sorted(texts.items()):
        shards_of.setdefault(text, []).append(shard)
    if len(shards_of) == 1:
        return next(iter(shards_of))
    return "; ".join(
        f"shard{'s' * (len(shards) > 1)} {', '.join(map(str, shards))}: {text}" for text, shards in shards_of.items()
    )


def _gathered(done: Mapping[int, RequestSettled], errors: Mapping[int, CommandError]) -> CommandError:
    """One error for all shards. It is a refusal only if nothing was changed anywhere."""
    codes = {error.code for error in errors.values()}
    code = ExitCode.REQUEST_FAILED
    if ExitCode.REQUEST_TIMED_OUT in codes:
        code = ExitCode.REQUEST_TIMED_OUT
    elif len(codes) == 1 and not done:
        code = min(codes)
    texts = {shard: f"done: {outcome.reason}" for shard, outcome in done.items()}
    return CommandError(code, _by_shards(texts | {shard: str(error) for shard, error in errors.items()}))


def _write(log: Log, writer: Writer, request: OperationRequested, keys: Mapping[int, RequestKey]) -> None:
    """The request, as soon as everybody alive can read it (docs/adr/0008)."""
    placed = [place(Fact(key, request), shard) for shard, key in keys.items()]
    try:
        writer.write(placed, WRITE_SECONDS_MAX)
    except LevelTooLowError:
        # A command begins at the first level; what it reads tells it the present one.
        snapshot = read_snapshot(log, [ANNOUNCE])
        try:
            writer.write(placed, WRITE_SECONDS_MAX)
        except LevelTooLowError as error:
            waits_for = ", ".join(snapshot.reading_less_than(log.level.reads)) or "the owner, who raises the level soon"
            raise CommandError(
                ExitCode.REQUEST_REFUSED,
                f"{request.kind.value} was not asked for, nothing was changed: it waits for the upgrade of {waits_for} "
                f"(the log is written at schema level {log.level.writes}, this needs {log.level.reads})",
            ) from error


def _done(
    log: Log, request: OperationRequested, shard: int, outcome: RequestSettled | None, timeout_seconds: float
) -> RequestSettled:
    what = f"{request.kind.value} of {request.feed or request.agent or f'shard {shard}'}"
    return require_done(
        what,
        outcome,
        timeout_seconds,
        unanswered=lambda: _why_no_outcome(log, shard, what, timeout_seconds),
        next_step=_what_now(request),
    )


def _what_now(request: OperationRequested) -> str:
    """What has become of a request that was under way when nobody waited for it any more."""
    if request.kind in (OperationKind.DRAIN_AGENT, OperationKind.REBALANCE_FEED):
        return "it was taken back: no other table moves; ask again with a longer --timeout"
    return f"it goes on; look with `headgate feed show {request.feed}`, or give a longer --timeout"


def _await_outcomes(reader: LogReader, keys: Mapping[Key, int], deadline: float) -> dict[int, RequestSettled]:
    """By shard, the final outcomes, or the last ones seen when the deadline has passed."""
    latest: dict[int, RequestSettled] = {}
    while (remaining := deadline - time.monotonic()) > 0:
        for read in reader.poll(POLL_RECORDS_MAX, min(POLL_SECONDS, remaining)):
            if isinstance(read, Delivery) and read.key in keys and isinstance(read.value, RequestSettled):
                latest[keys[read.key]] = read.value
        final = [outcome for outcome in latest.values() if outcome.status is not OutcomeStatus.ACCEPTED]
        if len(final) == len(keys):
            break
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
