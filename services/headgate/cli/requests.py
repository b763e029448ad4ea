"""Requests to the coordinators that own feeds, agents and shards, and what commands print about their outcomes."""

import getpass
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from msgspec.structs import replace

from headgate.app.exit_codes import CommandError, ExitCode, exit_code_of
from headgate.cli.candidates import with_candidates
from headgate.cli.changes import Permit
from headgate.cli.options import Format, OptionGroup, Timeout
from headgate.cli.output import Output, note, show_value
from headgate.cli.waiting import waiting
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.log import Log
from headgate.eventlog.sharding import shard_of
from headgate.records.control import FeedRecorded, OperationKind, OperationRequested, RequestSettled, WantedState
from headgate.runtime import requests as services
from headgate.runtime.requests import Request, RequestError, ask_all, feed_request

CLIENT: Final = "headgate-cli"
"""The name of every command at the brokers."""

OUTCOME_SECONDS_DEFAULT: Final = 30.0
"""A take-over of a lost owner and a slow sink's check fit in; longer work is what --timeout is for."""

MOVES_SECONDS_DEFAULT: Final = 300.0
"""For what moves many tables, some tens at a time, each in seconds."""


class OutcomeOptions(OptionGroup, frozen=True):
    """How long to wait for a request's outcome, and how to show it."""

    timeout: Timeout = OUTCOME_SECONDS_DEFAULT
    output: Format = Output.TABLE


class MovesOptions(OutcomeOptions, frozen=True):
    """The same for requests that move many tables."""

    timeout: Timeout = MOVES_SECONDS_DEFAULT


def requester() -> str:
    """Who runs this command, as ``user@host``. A user without a passwd entry is shown as its numeric id."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())  # `docker run --user 12345` gives ids that no passwd entry names
    return f"{user}@{socket.gethostname()}"


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
    """A request in the name of the user who runs this command."""
    return OperationRequested(
        kind=kind,
        feed=feed,
        spec=spec,
        table=table,
        agent=agent,
        requested_by=requester(),
        requested_ms=wall_ms(),
        parts=parts,
        abandon_sink=abandon_sink,
    )


def ask(log: Log, request: OperationRequested, timeout_seconds: float, permit: Permit) -> RequestSettled:
    """Ask the owner of the feed's shard, and wait until it is done. Raises RequestError, LogError."""
    shard = shard_of(request.feed, log.shards)
    return ask_shards(log, request, [shard], timeout_seconds, permit)[shard]


def ask_owner(log: Log, request: Request, timeout_seconds: float, _permit: Permit) -> RequestSettled:
    """Send any service a request, and wait until it is done. Raises RequestError, LogError."""
    try:
        with waiting(_awaited(request)) as on_status:
            return services.ask(log, request, timeout_seconds, client=CLIENT, on_status=on_status)
    except RequestError as error:
        (found,) = with_candidates(log, [(request, error)])
        raise found from error


def _awaited(request: Request) -> str:
    return f"the {request.service} service to {request.what}"


def ask_while_paused(
    log: Log, feed: FeedRecorded, request: OperationRequested, timeout_seconds: float, permit: Permit
) -> RequestSettled:
    """Ask for what only a paused feed can be given: pause it if it runs, and resume it whatever comes of the request.

    Returns the request's outcome, whose reason also shows what the feed does now. Raises RequestError, CommandError,
    LogError.
    """
    if feed.wanted is not WantedState.RUNNING:
        outcome = ask(log, request, timeout_seconds, permit)
        return replace(outcome, reason=f"{outcome.reason}; still {feed.wanted.value}: see headgate feed resume")
    may_be_paused, first = True, None
    try:
        try:
            ask(log, operation(OperationKind.PAUSE_FEED, request.feed), timeout_seconds, permit)
        except CommandError as error:
            # The owner may still stop a feed whose pause timed out. It changes nothing after a refusal.
            may_be_paused = error.code in _MAY_BE_DONE
            raise
        outcome = ask(log, request, timeout_seconds, permit)
    except CommandError as error:
        first = error
        raise
    finally:
        if may_be_paused:
            resumed = _resumed(log, request.feed, timeout_seconds, permit, first)
    return replace(outcome, reason=f"{outcome.reason}; {resumed.reason}")


_MAY_BE_DONE: Final = (ExitCode.REQUEST_TIMED_OUT, ExitCode.REQUEST_FAILED)


def _resumed(log: Log, feed: str, timeout_seconds: float, permit: Permit, first: CommandError | None) -> RequestSettled:
    """Resume the feed. Raises CommandError, which also names the error that came ``first``, and LogError."""
    try:
        return ask(log, operation(OperationKind.RESUME_FEED, feed), timeout_seconds, permit)
    except CommandError as error:
        before = f"{first}. Then " if first else ""
        if error.code in _MAY_BE_DONE:
            advice = f"Feed {feed!r} may stay paused: run `headgate feed resume {feed}`"
            raise CommandError(error.code, f"{before}{error}. {advice}") from error
        # Such as a feed that runs already, because it was not paused.
        raise CommandError(first.code if first else error.code, f"{before}{error}") from error


def ask_shards(
    log: Log, request: OperationRequested, shards: Sequence[int], timeout_seconds: float, _permit: Permit
) -> dict[int, RequestSettled]:
    """Ask the owners of several shards at once. Returns their outcomes, which are all ``done``.

    Raises RequestError or CommandError, with what every shard answered, if any of them is not done; LogError.
    """
    requests = [feed_request(request, shard, uuid4().hex) for shard in shards]
    done: dict[int, RequestSettled] = {}
    refused: dict[int, tuple[Request, RequestError]] = {}
    with waiting(_awaited(requests[0])) as on_status:
        answers = ask_all(log, requests, timeout_seconds, client=CLIENT, on_status=on_status)
    for shard, request_of_shard, answer in zip(shards, requests, answers, strict=True):
        if isinstance(answer, RequestError):
            refused[shard] = request_of_shard, answer
        else:
            done[shard] = answer
    if refused:
        raise _gathered(done, dict(zip(refused, with_candidates(log, [*refused.values()]), strict=True)))
    return done


def _said_by(outcomes: Mapping[int, RequestSettled]) -> str:
    """The reasons of the shards, equal ones once: "…" or "shards 0, 2: …; shard 1: …"."""
    return _by_shards({shard: outcome.reason for shard, outcome in outcomes.items()})


def show_settled(what: str, facts: Mapping[str, Any], outcome: RequestSettled, output: Output) -> None:
    """Print the outcome of a request about ``what``. Programs get the fields of the request, ``facts``, too."""
    if output is not Output.TABLE:
        show_value(output, {**facts, "status": outcome.status.value, "reason": outcome.reason})
    else:
        note(f"{what}: {outcome.status.value}" + (f": {outcome.reason}" if outcome.reason else ""))


def show_done(what: str, facts: Mapping[str, Any], outcomes: Mapping[int, RequestSettled], output: Output) -> None:
    """Print the outcomes of a request to several shards, which is done in all of them."""
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


def _gathered(done: Mapping[int, RequestSettled], errors: Mapping[int, RequestError]) -> CommandError:
    """One error for all shards. It is a refusal only if no shard changed anything."""
    codes = {exit_code_of(error) or ExitCode.BUG for error in errors.values()}
    code = ExitCode.REQUEST_FAILED
    if ExitCode.REQUEST_TIMED_OUT in codes:
        code = ExitCode.REQUEST_TIMED_OUT
    elif len(codes) == 1 and not done:
        code = min(codes)
    texts = {shard: f"done: {outcome.reason}" for shard, outcome in done.items()}
    return CommandError(code, _by_shards(texts | {shard: str(error) for shard, error in errors.items()}))
