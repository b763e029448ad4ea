"""``headgate feed create`` and ``update``: what is asked for by a file."""

from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.changes import ChangeOptions, Permit, agreed
from headgate.cli.dry_run import rehearse
from headgate.cli.lookup import find_feed
from headgate.cli.options import ClusterOptions, connected
from headgate.cli.requests import OutcomeOptions, ask, ask_while_paused, operation, show_settled
from headgate.cli.snapshots import read_snapshot
from headgate.config.feed import FeedSpec, load_feed
from headgate.eventlog.log import Log
from headgate.records.control import OperationKind, RequestSettled
from headgate.records.names import check_name
from headgate.sinks.registry import same_sink
from headgate.sources.database import same_source


def create(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="the feed's YAML, or - for standard input; see docs/configuration.md")
    ],
    *,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Create a feed from a file.

    Its owner checks topics, tables and rights first, and refuses the feed with what is missing. --dry-run makes the
    same checks from this machine.

    Example: headgate feed create shop.yaml --dry-run
    """
    _propose(OperationKind.CREATE_FEED, file, change, outcome=outcome, cluster=cluster)


def update(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="the feed's new YAML, under the same name, or - for standard input")
    ],
    *,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Change a feed: its limits, its password file, or more tables.

    A feed that runs is paused for the change and resumed; one that is paused stays paused. What defines the feed cannot
    be changed: the format and the start of its source, and the address, the names of tables and the mode of its sink.

    Example: headgate feed update shop.yaml --dry-run
    """
    _propose(OperationKind.UPDATE_FEED, file, change, outcome=outcome, cluster=cluster)


def _propose(
    kind: OperationKind, file: Path, change: ChangeOptions, *, outcome: OutcomeOptions, cluster: ClusterOptions
) -> None:
    """Ask for the feed of ``file``, or for a dry run only check it from here."""
    spec = load_feed(file)
    name = check_name("feed", spec.feed)
    # Refused here, a password does not even get into a request.
    same_sink(spec.sink)
    same_source(spec)
    with connected(cluster) as (settings, log):
        permit = agreed(change, f"change feed {name}")
        if permit is None:
            rehearse(log, settings.prefix, kind, spec, outcome.output)
        else:
            settled = ask_for(log, kind, spec, outcome.timeout, permit)
            show_settled(name, {"feed": name, "operation": kind.value}, settled, outcome.output)


def ask_for(log: Log, kind: OperationKind, spec: FeedSpec, timeout: float, permit: Permit) -> RequestSettled:
    """Ask for a new feed, or for a change of one, which is paused meantime. Raises RequestError, CommandError."""
    request = operation(kind, spec.feed, spec=spec.to_json())
    if kind is OperationKind.UPDATE_FEED:
        return ask_while_paused(log, find_feed(read_snapshot(log), spec.feed), request, timeout, permit)
    return ask(log, request, timeout, permit)
