"""``headgate table``: where each table, or each part of one, runs; moving, dividing and making whole."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import typer

from headgate.cli.lookup import find_feed
from headgate.cli.options import ClusterOptions, CommandGroup, Format, Timeout, Watch, connected
from headgate.cli.output import Output, again, show_rows
from headgate.cli.requests import OUTCOME_SECONDS_DEFAULT, ask, operation, show_settled
from headgate.eventlog.snapshot import read_snapshot
from headgate.records.control import FeedRecorded, OperationKind
from headgate.records.keys import FeedKey
from headgate.views.rows import table_rows

app = CommandGroup(help="Inspect, move and split the tables of feeds.", no_args_is_help=True)


@app.command("list")
def list_tables(
    feed: Annotated[str | None, typer.Argument(metavar="[FEED]", help="only this feed's")] = None,
    *,
    watch: Watch = None,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """List tables, and the parts of those that are split, with state, agent, epoch, offsets applied and lag."""
    with connected(cluster) as (_, log):

        def look() -> None:
            snapshot = read_snapshot(log)
            if feed is not None:
                find_feed(snapshot, feed)
            rows = [
                msgspec.to_builtins(row)
                for key, _ in snapshot.each(FeedKey, FeedRecorded)
                if feed in (None, key.feed)
                for row in table_rows(snapshot, key.feed)
            ]
            if output is Output.TABLE:
                rows = [{**row, "state": _state(row)} for row in rows]
            show_rows(("feed", "span", "state", "agent", "epoch", "applied", "lag_ms", "error"), rows, output)

        again(look, watch)


def _state(row: Mapping[str, Any]) -> str:
    """The owner's word, and beside it the agent's where that is another one."""
    state, task = row["state"], row.get("task")
    return state if task in (None, state) else f"{state} ({task})"


@app.command()
def move(
    feed: Annotated[str, typer.Argument(metavar="FEED")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="as `headgate table list` shows it")],
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="where to; see `headgate agent list`")],
    *,
    timeout: Timeout = OUTCOME_SECONDS_DEFAULT,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Move a table to another agent. Done when it replicates there.

    Example: headgate table move shop public.orders agent-2
    """
    with connected(cluster) as (_, log):
        outcome = ask(log, operation(OperationKind.MOVE_TABLE, feed, table=table, agent=agent), timeout)
    show_settled(f"{feed}/{table} → {agent}", {"feed": feed, "table": table, "agent": agent}, outcome, output)


@app.command()
def split(
    feed: Annotated[str, typer.Argument(metavar="FEED")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="as a whole, without partitions")],
    *,
    parts: Annotated[
        int | None, typer.Option(min=2, help="into how many; left out: as its load asks, from now on")
    ] = None,
    timeout: Timeout = OUTCOME_SECONDS_DEFAULT,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Split a table by its source partitions, so that several agents share it.

    Example: headgate table split shop public.orders --parts 4
    """
    with connected(cluster) as (_, log):
        outcome = ask(log, operation(OperationKind.SPLIT_TABLE, feed, table=table, parts=parts), timeout)
    show_settled(f"{feed}/{table}", {"feed": feed, "table": table, "parts": parts}, outcome, output)


@app.command()
def merge(
    feed: Annotated[str, typer.Argument(metavar="FEED")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="as a whole, without partitions")],
    *,
    timeout: Timeout = OUTCOME_SECONDS_DEFAULT,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Merge the parts of a split table on one agent. Done when it replicates as one."""
    with connected(cluster) as (_, log):
        outcome = ask(log, operation(OperationKind.MERGE_TABLE, feed, table=table), timeout)
    show_settled(f"{feed}/{table}", {"feed": feed, "table": table, "parts": 1}, outcome, output)
