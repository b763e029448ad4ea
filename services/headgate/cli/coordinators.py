"""``headgate coordinator``: who owns which shard, and asking an owner to resign."""

from typing import Annotated, Any

import msgspec
import typer

from headgate.cli.ages import age
from headgate.cli.changes import ChangeOptions, permitted
from headgate.cli.options import ClusterOptions, CommandGroup, Format, connected
from headgate.cli.output import Output, note, show_rows, show_value
from headgate.cli.requests import OutcomeOptions, ask_shards, operation
from headgate.cli.snapshots import read_snapshot
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.sharding import ANNOUNCE
from headgate.records.control import OperationKind
from headgate.views.rows import owner_rows

app = CommandGroup(help="List coordinators and hand over their shards.", no_args_is_help=True)


@app.command("list")
def list_owners(*, output: Format = Output.TABLE, cluster: ClusterOptions) -> None:
    """List shards with their owners and standbys.

    An owner's own clock stamps its announcement, and this machine's clock gives its age.

    Example: headgate coordinator list
    """
    with connected(cluster) as (_, log):
        snapshot = read_snapshot(log, [ANNOUNCE])
    now_ms = wall_ms()
    rows: list[dict[str, Any]] = [
        {
            **msgspec.to_builtins(row),
            "heard": None if row.announced_ms is None else f"{age(now_ms, row.announced_ms)} ago",
        }
        for row in owner_rows(snapshot, log.shards, now_ms)
    ]
    show_rows(("shard", "owner", "owner_rev", "heard", "version", "standbys"), rows, output)


@app.command()
def resign(
    *,
    shard: Annotated[
        int | None, typer.Option("--shard", min=0, help="only the owner of this shard", show_default="all")
    ] = None,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Hand over shards: another coordinator takes over at once, and tables continue.

    The process stays, as a standby. Without another standby it takes over again after a lease.

    Example: headgate coordinator resign --shard 3
    """
    with connected(cluster) as (_, log):
        if shard is not None and shard >= log.shards:
            raise typer.BadParameter(f"there are shards 0 to {log.shards - 1}", param_hint="--shard")
        shards = range(log.shards) if shard is None else [shard]
        what = "hand over " + ("all shards" if shard is None else f"shard {shard}")
        permit = permitted(change, what, outcome.output, {"shards": list(shards)})
        if permit is None:
            return
        outcomes = ask_shards(log, operation(OperationKind.RESIGN_OWNER, ""), shards, outcome.timeout, permit)
    if outcome.output is not Output.TABLE:
        rows = [{"shard": number, "reason": settled.reason} for number, settled in outcomes.items()]
        show_value(outcome.output, {"shards": rows})
        return
    for number, settled in outcomes.items():
        note(f"shard {number}: {settled.reason}")
