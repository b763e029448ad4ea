"""``headgate coordinator``: who owns which shard, and asking an owner to give its throne back."""

import time
from typing import Annotated, Any, Final

import typer

from headgate.cli.options import Bootstrap, Cluster, Format, KafkaProperty, Timeout, connected
from headgate.cli.output import Output, age, note, show_rows, show_value
from headgate.cli.requests import OUTCOME_SECONDS_DEFAULT, ask_shards, operation
from headgate.eventlog.sharding import ANNOUNCE
from headgate.eventlog.snapshot import Snapshot, read_snapshot
from headgate.records.control import MemberAnnounced, OperationKind
from headgate.records.keys import MemberKey

__all__ = ["app"]

HEARD_LEASES_MAX: Final = 2.0
"""A process not heard for so many of its leases is not shown: its clock may differ from ours by one."""

app = typer.Typer(help="Coordinators: who decides, for which shard.", no_args_is_help=True)


@app.command("list")
def list_owners(
    *,
    output: Format = Output.TABLE,
    bootstrap: Bootstrap = None,
    cluster: Cluster = None,
    kafka_property: KafkaProperty = None,
) -> None:
    """List shards with their owners, as last announced (by the owner's own clock), and who else could own them."""
    with connected(bootstrap, cluster, kafka_property) as (_, log):
        snapshot = read_snapshot(log, [ANNOUNCE])
    now_ms = time.time_ns() // 1_000_000
    rows = [_row(snapshot, shard, now_ms) for shard in range(log.shards)]
    show_rows(("shard", "owner", "owner_rev", "heard", "version", "standbys"), rows, output)


@app.command()
def resign(
    *,
    shard: Annotated[int | None, typer.Option("--shard", min=0, help="only this shard's owner [all]")] = None,
    timeout: Timeout = OUTCOME_SECONDS_DEFAULT,
    output: Format = Output.TABLE,
    bootstrap: Bootstrap = None,
    cluster: Cluster = None,
    kafka_property: KafkaProperty = None,
) -> None:
    """Let owners give their shards back: another coordinator takes over at once, tables go on meanwhile.

    The process stays, as a standby. If there is no other, it takes over again itself after a lease.
    """
    with connected(bootstrap, cluster, kafka_property) as (_, log):
        if shard is not None and shard >= log.shards:
            raise typer.BadParameter(f"there are shards 0 to {log.shards - 1}", param_hint="--shard")
        shards = range(log.shards) if shard is None else [shard]
        outcomes = ask_shards(log, operation(OperationKind.RESIGN_OWNER, ""), shards, timeout)
    if output is not Output.TABLE:
        show_value(
            output, {"shards": [{"shard": number, "reason": outcome.reason} for number, outcome in outcomes.items()]}
        )
        return
    for number, outcome in outcomes.items():
        note(f"shard {number}: {outcome.reason}")


def _row(snapshot: Snapshot, shard: int, now_ms: int) -> dict[str, Any]:
    owner = snapshot.owner(shard)
    return {
        "shard": shard,
        "owner": None if owner is None else owner.owner_id,
        "owner_rev": None if owner is None else owner.owner_rev,
        "heard": None if owner is None else f"{age(now_ms, owner.announced_ms)} ago",
        "version": None if owner is None else owner.version,
        "standbys": [name for name in _standing(snapshot, shard, now_ms) if owner is None or name != owner.owner_id],
    }


def _standing(snapshot: Snapshot, shard: int, now_ms: int) -> list[str]:
    """Processes that say they could own the shard. One killed lately is left out by its own clock: this only shows."""
    return [
        key.member
        for key, record in snapshot.each(MemberKey, MemberAnnounced)
        if shard in record.shards and now_ms - record.announced_ms <= HEARD_LEASES_MAX * record.lease_seconds * 1000
    ]
