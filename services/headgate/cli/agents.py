"""``headgate agent``: sessions of agents, alive and lately dead."""

import time
from collections import Counter
from typing import Annotated, Any

import typer

from headgate.cli.options import Bootstrap, Cluster, Format, KafkaProperty, connected
from headgate.cli.output import Output, age, show_rows
from headgate.eventlog.snapshot import Snapshot, read_snapshot
from headgate.records.control import AgentAnnounced, SpanDispatched
from headgate.records.keys import AgentKey, SpanKey

__all__ = ["agent_rows", "app"]

app = typer.Typer(help="Agents: who runs tables.", no_args_is_help=True)


@app.command("list")
def list_agents(
    *,
    dead: Annotated[bool, typer.Option("--dead", help="also sessions that are over")] = False,
    output: Format = Output.TABLE,
    bootstrap: Bootstrap = None,
    cluster: Cluster = None,
    kafka_property: KafkaProperty = None,
) -> None:
    """List agents: session, state, tables, load, last heartbeat (by the agent's own clock)."""
    with connected(bootstrap, cluster, kafka_property) as (_, log):
        snapshot = read_snapshot(log)
    now_ms = time.time_ns() // 1_000_000
    rows = [row for row in agent_rows(snapshot, now_ms) if dead or row["state"] != "dead"]
    show_rows(("agent", "session", "state", "tables", "capacity", "heartbeat", "version", "address"), rows, output)


def agent_rows(snapshot: Snapshot, now_ms: int) -> list[dict[str, Any]]:
    """One row per session, sorted by agent. ``state`` is what the log says; a silent one is its owner's to judge."""
    tables = Counter(
        (record.primary.agent, record.primary.session)
        for _, record in snapshot.each(SpanKey, SpanDispatched)
        if record.primary is not None
    )
    rows: list[dict[str, Any]] = []
    for key, record in snapshot.each(AgentKey, AgentAnnounced):
        ended = snapshot.ended(key.agent, key.session)
        rows.append(
            {
                "agent": key.agent,
                "session": key.session,
                "state": "dead" if ended else record.liveness.value,
                "reason": ended.reason if ended else None,
                "tables": tables[key.agent, key.session],
                "capacity": record.capacity_spans,
                "load_bytes_per_s": record.load_bytes_per_s,
                "heartbeat": f"{age(now_ms, record.announced_ms)} ago",
                "heartbeats": record.heartbeat,
                "announced_ms": record.announced_ms,
                "version": record.version,
                "address": record.address,
            }
        )
    return rows
