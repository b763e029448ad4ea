"""``headgate feed pause``, ``resume``, ``delete`` and ``rebalance``."""

from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from headgate.cli.changes import ChangeOptions, Destruction, Permit, permitted
from headgate.cli.lookup import find_feed
from headgate.cli.names import FeedName, complete_feeds
from headgate.cli.options import ClusterOptions, connected
from headgate.cli.requests import (
    MovesOptions,
    OutcomeOptions,
    ask,
    ask_shards,
    operation,
    show_done,
    show_settled,
)
from headgate.cli.snapshots import read_snapshot
from headgate.config.given_files import given_bytes, shown_name
from headgate.config.start_offsets import StartOffsetsError, as_json, parse_start_offsets
from headgate.config.times import NotATimeError, parse_ts
from headgate.config.wording import did_you_mean, nearest
from headgate.eventlog.log import Log
from headgate.records.control import OperationKind


def pause(
    feed: FeedName,
    *,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Pause a feed. Done when none of its tables is written any more.

    Example: headgate feed pause shop
    """
    with connected(cluster) as (_, log):
        _change(log, OperationKind.PAUSE_FEED, feed, change, outcome=outcome)


def resume(
    feed: FeedName,
    *,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="earliest|latest|TIME|FILE",
            help="position to resume from, while the feed is stopped. TIME: RFC 3339 or a ts, for feeds with "
            "resolved_ts. FILE: JSON with offsets by topic and partition, or - for standard input",
            show_default="its checkpoint",
        ),
    ] = None,
    change: Destruction,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Resume a paused or failed feed, from its checkpoint or from another position (--from).

    An earlier position applies changes again: tables go back in time and catch up. A later position leaves changes out.
    Both need --yes where no terminal can be asked.
    FILE has an offset for every partition: {"shop.public.orders": {"0": 17}}. With the topic's id, as `headgate topic
    list --feed FEED -o json` shows it, offsets of a topic that was re-created since are refused:
    {"shop.public.orders": {"topic_id": "aN1…", "offsets": {"0": 17}}}.

    Example: headgate feed resume shop
    """
    spec = None if start is None else _start_json(start)
    with connected(cluster) as (_, log):
        _change(
            log,
            OperationKind.RESUME_FEED,
            feed,
            change.only_if(spec is not None),
            outcome=outcome,
            spec=spec,
            start=start,
        )


def _start_json(start: str) -> str:
    """The position to resume from, as the request has it. Raises typer.BadParameter."""
    if start in ("earliest", "latest"):
        return msgspec.json.encode(start).decode()
    try:
        return str(parse_ts(start))
    except NotATimeError as error:
        not_a_time = error
    try:
        return as_json(parse_start_offsets(given_bytes(Path(start))))
    except OSError as error:
        question = did_you_mean(nearest(start, ("earliest", "latest")))
        hint = f" ({question})" if question else ""
        raise typer.BadParameter(
            f"{start!r} is not earliest or latest{hint}, and not a file that can be read "
            f"({error.strerror}); {not_a_time}",
            param_hint="--from",
        ) from error
    except StartOffsetsError as error:
        raise typer.BadParameter(
            f"{shown_name(Path(start))} is not a valid list of offsets: {error}. Write JSON like "
            '{"shop.public.orders": {"0": 17}}',
            param_hint="--from",
        ) from error


def delete(
    feed: FeedName,
    *,
    abandon_sink: Annotated[
        bool,
        typer.Option(
            "--abandon-sink",
            help="the sink no longer exists: delete the feed without it, once every agent has stopped. You "
            "guarantee that nothing writes there",
        ),
    ] = False,
    change: Destruction,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Delete a feed and its positions in the sink. Its tables keep their rows.

    Example: headgate feed delete shop --dry-run
    """
    with connected(cluster) as (_, log):
        _change(log, OperationKind.REMOVE_FEED, feed, change, outcome=outcome, abandon_sink=abandon_sink)


def rebalance(
    feed: Annotated[
        str | None,
        typer.Argument(
            metavar="FEED",
            help="name of the feed",
            show_default="every feed that runs",
            autocompletion=complete_feeds,
        ),
    ] = None,
    *,
    change: ChangeOptions,
    outcome: MovesOptions,
    cluster: ClusterOptions,
) -> None:
    """Spread each feed's tables evenly over the agents, with the fewest moves.

    Example: headgate feed rebalance shop
    """
    with connected(cluster) as (_, log):
        if feed is not None:
            return _change(log, OperationKind.REBALANCE_FEED, feed, change, outcome=outcome)
        permit = permitted(change, "rebalance all feeds", outcome.output)
        if permit is None:
            return None
        outcomes = ask_shards(
            log, operation(OperationKind.REBALANCE_FEED, ""), range(log.shards), outcome.timeout, permit
        )
    return show_done("all feeds", {}, outcomes, outcome.output)


_VERBS: Final = {
    OperationKind.PAUSE_FEED: "pause",
    OperationKind.RESUME_FEED: "resume",
    OperationKind.REMOVE_FEED: "delete",
    OperationKind.REBALANCE_FEED: "rebalance",
}
"""What each operation is called on the command line."""


def _change(
    log: Log,
    kind: OperationKind,
    feed: str,
    change: ChangeOptions,
    *,
    outcome: OutcomeOptions,
    spec: str | None = None,
    start: str | None = None,
    abandon_sink: bool = False,
) -> None:
    """Ask for an operation on a feed that exists, if the user agrees."""
    what = f"{_VERBS[kind]} feed {feed}" + (f" from {start}" if start else "")
    facts = {"feed": feed, "operation": kind.value}
    permit = permitted(change, what, outcome.output, facts, check=lambda: find_feed(read_snapshot(log), feed))
    if permit is not None:
        _settle(log, kind, feed, permit, outcome=outcome, spec=spec, abandon_sink=abandon_sink)


def _settle(
    log: Log,
    kind: OperationKind,
    feed: str,
    permit: Permit,
    *,
    outcome: OutcomeOptions,
    spec: str | None = None,
    abandon_sink: bool = False,
) -> None:
    settled = ask(log, operation(kind, feed, spec=spec, abandon_sink=abandon_sink), outcome.timeout, permit)
    show_settled(feed, {"feed": feed, "operation": kind.value}, settled, outcome.output)
