"""``headgate table``: where each table or part of one runs, and how to pause, move, split, resync or optimize it."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
import typer

from headgate.cli.ages import age
from headgate.cli.changes import ChangeOptions, Destruction, permitted
from headgate.cli.feed_sinks import check_sink_takes
from headgate.cli.lookup import find_agent, find_feed, find_table
from headgate.cli.names import FeedName, complete_agents, complete_feeds, complete_parts, complete_tables
from headgate.cli.options import ClusterOptions, CommandGroup, Format, Watch, connected
from headgate.cli.output import Output, again, note, show_rows, show_value
from headgate.cli.requests import MovesOptions, OutcomeOptions, ask, operation, show_settled
from headgate.cli.row_copies import copy_rows
from headgate.cli.snapshots import read_snapshot
from headgate.cli.span_columns import span_columns
from headgate.cli.table_copies import cancel_copy, check_is_copied, copy_table
from headgate.eventlog.clock import wall_ms
from headgate.records.control import FeedRecorded, OperationKind, OperationRequested
from headgate.records.keys import FeedKey
from headgate.records.name_lists import number_of
from headgate.records.row_copies import RowCopy
from headgate.views.rows import table_rows

app = CommandGroup(help="Inspect, pause, move, split, resync and optimize the tables of feeds.", no_args_is_help=True)

_NOT_COPIED: Final = "rows of feed {feed} cannot be copied to a sink of type {type}, which takes changes only"
_NOT_A_LAKE: Final = "tables of feed {feed} have no files to compact: sinks of type {type} are not lakes"

WholeTable = Annotated[
    str,
    typer.Argument(metavar="TABLE", help="name of the whole table, without partitions", autocompletion=complete_tables),
]


@app.command("list")
def list_tables(
    feed: Annotated[
        str | None, typer.Argument(metavar="FEED", help="only this feed's", autocompletion=complete_feeds)
    ] = None,
    *,
    watch: Watch = None,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """List tables and their parts, with state, agent, epoch, offsets and lag.

    Example: headgate table list shop
    """
    with connected(cluster) as (_, log):

        def show_now() -> None:
            snapshot = read_snapshot(log)
            if feed is not None:
                find_feed(snapshot, feed)
            shown = {key.feed: record for key, record in snapshot.each(FeedKey, FeedRecorded)}
            if feed is not None:
                shown = {feed: shown[feed]}
            rows = [msgspec.to_builtins(row) for name in shown for row in table_rows(snapshot, name)]
            if output is Output.TABLE:
                rows = [{**row, "state": _state(row)} for row in rows]
            show_rows(span_columns(shown.values(), "feed"), rows, output)

        again(show_now, watch)


@app.command("at")
def at_time(
    feed: FeedName,
    table: WholeTable,
    *,
    ts: Annotated[str, typer.Option("--ts", help="a time such as 2026-11-29T10:00:00Z")],
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Find the version of a lake table that has the source's rows as of a time.

    It is the newest version without a change that the connector wrote at that time or later. Delta tables have
    versions, Iceberg tables have snapshots. The command also shows how to read it.

    Example: headgate table at shop-lake public.orders --ts 2026-11-29T10:00:00Z
    """
    from headgate.cli.table_at import lines_of, notes_of, table_at  # noqa: PLC0415 - needed by no other command

    with connected(cluster) as (_, log):
        found = table_at(log, feed, table, ts)
    if output is not Output.TABLE:
        show_value(output, msgspec.to_builtins(found, str_keys=True))
        return
    show_rows(("what", "value"), lines_of(found), output)
    for text in notes_of(found):
        note(text)


@app.command()
def pause(
    feed: FeedName,
    table: WholeTable,
    *,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Pause one table of a running feed. Done when it is not written any more.

    The other tables of the feed continue. The feed's checkpoint does not pass changes that the table has not applied.

    Example: headgate table pause shop public.orders
    """
    request = operation(OperationKind.PAUSE_TABLE, feed, table=table)
    facts = {"operation": request.kind.value}
    _ask_about(request, f"pause table {table} of feed {feed}", change, facts=facts, outcome=outcome, cluster=cluster)


@app.command()
def resume(
    feed: FeedName,
    table: WholeTable,
    *,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Resume a paused table from its checkpoint.

    Example: headgate table resume shop public.orders
    """
    request = operation(OperationKind.RESUME_TABLE, feed, table=table)
    facts = {"operation": request.kind.value}
    _ask_about(request, f"resume table {table} of feed {feed}", change, facts=facts, outcome=outcome, cluster=cluster)


@app.command()
def resync(
    feed: FeedName,
    table: WholeTable,
    *,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help="primary key of a row to copy; may be repeated. A key of several columns is a JSON array, such as "
            "'[1, \"a\"]'. If left out, the whole table is copied",
        ),
    ] = None,
    max_rows_per_second: Annotated[
        int | None, typer.Option(min=1, help="limit the copy of the whole table to this rate")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help="only rows of the source for which this is true, such as \"status = 'open'\" (docs/expressions.md)",
        ),
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="end the copy of the whole table; rows that are copied stay")
    ] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="delete rows in the target that the source does not have")
    ] = False,
    change: Destruction,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Copy one table, or some of its rows, from the source database to the target.

    Without --key the whole table is copied in ranges of its primary key, while its changes are applied. The copy
    continues if this command ends first, and survives restarts. --where has it read whole, too, and writes only the
    rows that the condition keeps. With --key the table is paused until the rows are
    copied. The other tables of the feed continue. The feed must name its source database (source.database). Done when
    the table replicates and every row is copied.

    Example: headgate table resync shop public.orders --key 17 --key 18
    """
    if cancel:
        if key or where is not None or delete or max_rows_per_second is not None:
            raise typer.BadParameter("--cancel ends a copy that runs, and takes no other option of a copy")
        return _cancel(feed, table, change, outcome, cluster)
    if key and max_rows_per_second is not None:
        raise typer.BadParameter("--max-rows-per-second limits the copy of a whole table. Leave out --key")
    keys = tuple(map(_key, key)) if key else None
    rows = RowCopy(keys=keys, delete=delete, rows_per_second=max_rows_per_second, where=_condition(where, key, delete))
    count = "all rows" if keys is None else number_of(len(keys), "row")
    what = f"overwrite {count} of table {table} of feed {feed} with those of the source"
    if where is not None:
        what += f" for which {where} is true"
    if keys is None and delete:
        what += ", and delete the others"
    facts = {"feed": feed, "table": table, "rows": None if keys is None else len(keys), "delete": delete}
    if where is not None:
        facts["where"] = where
    with connected(cluster) as (_, log):
        check_sink_takes(read_snapshot(log), feed, "snapshot", _NOT_COPIED)
        permit = permitted(
            change, what, outcome.output, facts, check=lambda: find_table(read_snapshot(log), feed, table)
        )
        if permit is None:
            return None
        copy = copy_table if keys is None else copy_rows
        settled = copy(log, feed, table, rows, timeout_seconds=outcome.timeout, permit=permit)
    return show_settled(f"{feed}/{table}", facts, settled, outcome.output)


def _cancel(feed: str, table: str, change: Destruction, outcome: OutcomeOptions, cluster: ClusterOptions) -> None:
    what, facts = f"end the copy of table {table} of feed {feed}", {"feed": feed, "table": table}
    with connected(cluster) as (_, log):

        def check() -> None:
            snapshot = read_snapshot(log)
            find_table(snapshot, feed, table)
            check_is_copied(snapshot, feed, table)

        permit = permitted(change.only_if(False), what, outcome.output, facts, check=check)
        if permit is None:
            return
        cancel_copy(log, feed, table, permit)
    reason = "the copy has ended; rows that are copied stay"
    if outcome.output is Output.TABLE:
        note(f"{feed}/{table}: {reason}")
    else:
        show_value(outcome.output, {**facts, "status": "done", "reason": reason})


def _condition(where: str | None, keys: list[str] | None, delete: bool) -> str | None:
    if where is None:
        return None
    if keys:
        raise typer.BadParameter("--where chooses among all rows of the table. Leave out --key")
    if delete:
        raise typer.BadParameter("--delete is about all rows of the table. Leave out --where")
    from headgate.config.expressions import ExpressionError, parse_expression  # noqa: PLC0415 - only for conditions

    try:
        parse_expression(where)
    except ExpressionError as error:
        raise typer.BadParameter(str(error), param_hint="--where") from error
    return where


def _key(text: str) -> tuple[str, ...]:
    """A row's key: a JSON array of its values, or the one value itself."""
    if not text.startswith("["):
        return (text,)
    try:
        values = msgspec.json.decode(text, type=list[str | int])
    except msgspec.MsgspecError as error:
        raise typer.BadParameter(f"{text!r} is not a JSON array of texts and integers: {error}") from error
    return tuple(map(str, values))


def _state(row: Mapping[str, Any]) -> str:
    """The owner's word, and beside it who has paused the table, or the agent's word where that is another one."""
    state, task = row["state"], row.get("task")
    if row["paused_by"] is not None:
        return f"{state} (paused by {row['paused_by']}, {age(wall_ms(), row['paused_since_ms'])} ago)"
    return state if task in (None, state) else f"{state} ({task})"


@app.command()
def optimize(
    feed: FeedName,
    table: WholeTable,
    *,
    change: ChangeOptions,
    outcome: MovesOptions,
    cluster: ClusterOptions,
) -> None:
    """Compact the files of a lake table and remove old versions.

    The agent that writes the table does it between two batches, as sink.maintenance of the feed asks for. Changes that
    arrive until then wait in their topic. Readers of the table, and of versions that are kept, are not disturbed. Done
    when the table is maintained.

    Example: headgate table optimize shop-lake public.orders
    """
    request = operation(OperationKind.OPTIMIZE_TABLE, feed, table=table)
    what = f"compact the files of table {table} of feed {feed}, and remove versions that are not kept any more"
    facts = {"operation": request.kind.value}
    with connected(cluster) as (_, log):
        check_sink_takes(read_snapshot(log), feed, "maintenance", _NOT_A_LAKE)
    _ask_about(request, what, change, facts=facts, outcome=outcome, cluster=cluster)


@app.command()
def move(
    feed: FeedName,
    table: Annotated[
        str,
        typer.Argument(metavar="TABLE", help="name as `headgate table list` shows it", autocompletion=complete_parts),
    ],
    agent: Annotated[
        str,
        typer.Argument(
            metavar="AGENT", help="the new agent, see `headgate agent list`", autocompletion=complete_agents
        ),
    ],
    *,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Move a table to another agent. Done when it replicates there.

    Example: headgate table move shop public.orders agent-2
    """
    _ask_about(
        operation(OperationKind.MOVE_TABLE, feed, table=table, agent=agent),
        f"move table {table} of feed {feed} to agent {agent}",
        change,
        facts={"agent": agent},
        outcome=outcome,
        cluster=cluster,
    )


@app.command()
def split(
    feed: FeedName,
    table: WholeTable,
    *,
    parts: Annotated[
        int | None, typer.Option(min=2, help="number of parts; if left out, the load decides from now on")
    ] = None,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Split a table by its source partitions, so that several agents share it.

    Example: headgate table split shop public.orders --parts 4
    """
    what = f"split table {table} of feed {feed}" + (f" into {parts} parts" if parts else " by its load")
    request = operation(OperationKind.SPLIT_TABLE, feed, table=table, parts=parts)
    _ask_about(request, what, change, facts={"parts": parts}, outcome=outcome, cluster=cluster)


@app.command()
def merge(
    feed: FeedName,
    table: WholeTable,
    *,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Merge the parts of a split table on one agent. Done when it replicates as one.

    Example: headgate table merge shop public.orders
    """
    request = operation(OperationKind.MERGE_TABLE, feed, table=table)
    what = f"merge the parts of table {table} of feed {feed}"
    _ask_about(request, what, change, facts={"parts": 1}, outcome=outcome, cluster=cluster)


def _ask_about(
    request: OperationRequested,
    what: str,
    change: ChangeOptions,
    *,
    facts: Mapping[str, Any],
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Ask for what changes a table that exists, if the user agrees. ``facts``: what programs are shown beside it."""
    feed, table, agent = request.feed, request.table or "", request.agent
    shown = {"feed": feed, "table": table, **facts}
    with connected(cluster) as (_, log):

        def check() -> None:
            snapshot = read_snapshot(log)
            find_table(snapshot, feed, table)
            if agent is not None:
                find_agent(snapshot, agent)

        permit = permitted(change, what, outcome.output, shown, check=check)
        if permit is None:
            return
        settled = ask(log, request, outcome.timeout, permit)
    show_settled(f"{feed}/{table}" + (f" → {agent}" if agent else ""), shown, settled, outcome.output)
