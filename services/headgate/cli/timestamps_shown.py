"""``headgate generation timestamps list|show|ring|where``: what stands on the topic about a timestamp set."""

import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.generation_requests import opened
from headgate.cli.options import ClusterOptions, Format
from headgate.cli.output import Output, show_rows, show_value
from headgate.cli.timestamp_rings import shown_ring
from headgate.generation.core.timestamp_records import TimestampRecords, removal_of
from headgate.generation.core.tokens import token_of_key
from headgate.generation.core.topology import Topology, TopologyError
from headgate.generation.shell.tail import GenerationTail
from headgate.generation.timestamps.core.descriptions import described_topology
from headgate.generation.timestamps.core.rings import owners_of
from headgate.records.timestamps import RingNode, TimestampGeneration, TimestampSetRecorded

SetName = Annotated[str, typer.Argument(metavar="SET", help="name of the timestamp set")]
GenerationOf = Annotated[int | None, typer.Option("--generation", help="its timestamp in ms [the latest]")]


def list_timestamps(name: SetName, *, output: Format = Output.TABLE, cluster: ClusterOptions) -> None:
    """List the generations that are not removed: since when each operates, until when, and what holds it back."""
    with opened(name, cluster) as (_, tail):
        record = record_of(tail, name)
        known, now_ms = tail.state.timestamps, time.time_ns() // 1_000_000
        held = removal_of(known, name, record, now_ms).held
    rows = []
    for each in record.generations:
        ring = known.rings.get((name, each.timestamp_ms))
        owners = {} if ring is None else owners_of(ring.nodes)
        rows.append(
            {
                "timestamp": each.timestamp_ms,
                "from": _text(each.timestamp_ms),
                "until": None if each.expired_ms is None else _text(each.expired_ms),
                "state": _state(known, name, each, now_ms),
                "ranges": len(owners),
                "streams": sum(sharding.shards for sharding in owners.values()),
                "held_by": list(held.get(each.timestamp_ms, ())),
                "reason": each.reason,
            }
        )
    show_rows(("timestamp", "from", "until", "state", "ranges", "streams", "held_by", "reason"), rows, output)


def show(
    name: SetName,
    *,
    generation: GenerationOf = None,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Show a generation's streams, range by range and shard by shard."""
    with opened(name, cluster) as (_, tail):
        topology = _topology(tail, name, _generation(tail, name, generation))
    rows = [
        {"range_end": entry.end, "shard": shard, "stream": str(stream), "token": stream.token}
        for entry in topology.entries
        for shard, stream in enumerate(entry.streams)
    ]
    show_rows(("range_end", "shard", "stream", "token"), rows, output)


def show_ring(
    name: SetName,
    *,
    generation: GenerationOf = None,
    output: Format = Output.YAML,
    cluster: ClusterOptions,
) -> None:
    """Print the ring that a generation is made for, as --ring takes it."""
    with opened(name, cluster) as (_, tail):
        found = ring_at(tail, name, _generation(tail, name, generation).timestamp_ms)
    show_value(Output.YAML if output is Output.TABLE else output, shown_ring(found))


def where(
    name: SetName,
    key: Annotated[str, typer.Argument(help="a key, as text")],
    *,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Say which stream a key's writes belong to, in every generation that is not removed."""
    token = token_of_key(key.encode())
    with opened(name, cluster) as (_, tail):
        rows = [
            {
                "generation": each.timestamp_ms,
                "from": _text(each.timestamp_ms),
                "token": token,
                "range_end": topology.range_of(token).end,
                "stream": str(topology.stream_of(token)),
            }
            for each in record_of(tail, name).generations
            for topology in [_topology(tail, name, each)]
        ]
    show_rows(("generation", "from", "token", "range_end", "stream"), rows, output)


def record_of(tail: GenerationTail, name: str) -> TimestampSetRecorded:
    """What is recorded of a timestamp set. Raises CommandError if it is not there."""
    record = tail.state.timestamps.sets.get(name)
    if record is None:
        known = ", ".join(sorted(tail.state.timestamps.sets)) or "none"
        raise CommandError(ExitCode.NOT_FOUND, f"there is no timestamp set {name!r}; known beside it are: {known}")
    return record


def ring_at(tail: GenerationTail, name: str, timestamp_ms: int) -> tuple[RingNode, ...]:
    """The ring that a generation is made for. Raises CommandError."""
    found = tail.state.timestamps.rings.get((name, timestamp_ms))
    if found is None:
        raise CommandError(ExitCode.LOG, f"{name}/ring/{timestamp_ms} is not on the topic generation")
    return found.nodes


def _generation(tail: GenerationTail, name: str, timestamp_ms: int | None) -> TimestampGeneration:
    generations = {each.timestamp_ms: each for each in record_of(tail, name).generations}
    chosen = max(generations) if timestamp_ms is None else timestamp_ms
    if chosen not in generations:
        raise CommandError(ExitCode.NOT_FOUND, f"timestamp set {name!r} has no generation {chosen}, or it is removed")
    return generations[chosen]


def _topology(tail: GenerationTail, name: str, generation: TimestampGeneration) -> Topology:
    at = (name, generation.timestamp_ms)
    try:
        return described_topology(*at, generation.chunks, tail.state.timestamps.descriptions.get(at, {}))
    except TopologyError as error:
        said = f"{error}. It is still being published, or `headgate generation timestamps repair` writes it again"
        raise CommandError(ExitCode.LOG, said) from error


def _state(known: TimestampRecords, name: str, generation: TimestampGeneration, now_ms: int) -> str:
    if (name, generation.timestamp_ms) not in known.published:
        return "being published"
    if generation.timestamp_ms > now_ms:
        return "to come"
    return "over" if generation.expired_ms is not None and generation.expired_ms <= now_ms else "operating"


def _text(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
