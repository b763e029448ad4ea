"""``headgate agent``: sessions of agents, alive and dead, and how to drain one before it is stopped."""

from typing import Annotated, Any

import msgspec
import typer

from headgate.cli.ages import age
from headgate.cli.changes import ChangeOptions, permitted
from headgate.cli.lookup import find_agent
from headgate.cli.names import complete_agents
from headgate.cli.options import ClusterOptions, CommandGroup, Format, Watch, connected
from headgate.cli.output import Output, again, show_rows
from headgate.cli.requests import MovesOptions, ask_shards, operation, show_done
from headgate.cli.snapshots import read_snapshot
from headgate.eventlog.clock import wall_ms
from headgate.records.control import OperationKind
from headgate.views.rows import agent_rows

app = CommandGroup(help="List agents and drain them.", no_args_is_help=True)


@app.command("list")
def list_agents(
    *,
    dead: Annotated[bool, typer.Option("--dead", help="also list sessions that have ended")] = False,
    watch: Watch = None,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """List agents with their sessions, tables, load and last heartbeat.

    An agent's own clock stamps its heartbeat, and this machine's clock gives its age. So the age is wrong by as much as
    the two clocks differ.

    Example: headgate agent list --dead
    """
    columns = ("agent", "session", "state", "tables", "capacity", "heartbeat", "version", "address")
    with connected(cluster) as (_, log):

        def show_now() -> None:
            now_ms = wall_ms()
            rows: list[dict[str, Any]] = [
                {**msgspec.to_builtins(row), "heartbeat": f"{age(now_ms, row.announced_ms)} ago"}
                for row in agent_rows(read_snapshot(log))
                if dead or row.state != "dead"
            ]
            show_rows(columns, rows, output)

        again(show_now, watch)


@app.command()
def drain(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="see `headgate agent list`", autocompletion=complete_agents)
    ],
    *,
    change: ChangeOptions,
    outcome: MovesOptions,
    cluster: ClusterOptions,
) -> None:
    """Move every table away from an agent, so that it can be stopped.

    An agent that gets SIGTERM does the same by itself, as far as its shutdown time allows. This takes as long as
    tables leave, and fails if none does for 150 seconds. The agent gets no tables for a minute after that.

    Example: headgate agent drain agent-2
    """
    with connected(cluster) as (_, log):
        facts = {"agent": agent}
        what, output = f"drain agent {agent}", outcome.output
        permit = permitted(change, what, output, facts, check=lambda: find_agent(read_snapshot(log), agent))
        if permit is None:
            return
        asked = operation(OperationKind.DRAIN_AGENT, "", agent=agent)
        outcomes = ask_shards(log, asked, range(log.shards), outcome.timeout, permit)
    show_done(agent, facts, outcomes, output)
