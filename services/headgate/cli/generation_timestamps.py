"""``headgate generation timestamps``: timestamp sets, for sources that have nothing but clocks."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.changes import ChangeOptions, Destruction, permitted
from headgate.cli.generation_requests import change_timestamps, delete_reader, opened
from headgate.cli.groups import HelpfulGroup
from headgate.cli.lookup import not_found_generation, not_found_set
from headgate.cli.names import complete_nodes, complete_timestamp_readers, complete_timestamp_sets, complete_timestamps
from headgate.cli.options import ClusterOptions, CommandGroup, Format, connected
from headgate.cli.output import Output, show_rows, show_value
from headgate.cli.requests import OutcomeOptions
from headgate.cli.snapshots import read_snapshot
from headgate.cli.timestamp_rings import IGNORE_MSB, draw_node, read_ring, ring_of, shown_ring, with_node, without_node
from headgate.eventlog.clock import wall_ms
from headgate.generation.core.timestamp_records import TimestampRecords, missing_row, removal_of
from headgate.generation.core.tokens import Sharding, token_of_key
from headgate.generation.core.topology import Topology, TopologyError
from headgate.generation.shell.tail import GenerationTail
from headgate.generation.timestamps.core.descriptions import described_topology
from headgate.generation.timestamps.core.rings import owners_of, same_ring
from headgate.records.name_lists import number_of
from headgate.records.names import InvalidNameError, check_name
from headgate.records.timestamps import (
    RingNode,
    TimestampGeneration,
    TimestampReaderKey,
    TimestampSetKey,
    TimestampSetRecorded,
    TimestampsRequestKind,
)


class _Order(HelpfulGroup):
    order = (
        "create",
        "list",
        "show",
        "ring",
        "lookup",
        "update",
        "reader",
        "repair",
        "gc",
    )


app = CommandGroup(
    cls=_Order,
    help="Manage timestamp sets: streams whose generations begin at times of the source's clock.",
    no_args_is_help=True,
)

SetName = Annotated[
    str, typer.Argument(metavar="SET", help="name of the timestamp set", autocompletion=complete_timestamp_sets)
]
GenerationOf = Annotated[
    int | None,
    typer.Option(
        "--generation", help="its timestamp in ms", show_default="the latest", autocompletion=complete_timestamps
    ),
]
RingFile = Annotated[
    Path | None,
    typer.Option(
        "--ring", help="YAML or JSON, - for standard input: nodes, each with name, shards, tokens (and ignore_msb)"
    ),
]
Vnodes = Annotated[int | None, typer.Option("--vnodes", min=1, help="tokens of each node, drawn")]
Shards = Annotated[int | None, typer.Option("--shards", min=1, help="shards of each node")]
IgnoreMsb = Annotated[int, typer.Option("--ignore-msb", min=0, max=63, help="first bits of a token that do not matter")]


@app.command("list")
def list_timestamps(
    name: Annotated[
        str | None,
        typer.Argument(metavar="SET", help="name of the timestamp set", autocompletion=complete_timestamp_sets),
    ] = None,
    *,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """List timestamp sets, or the generations of one.

    A generation is listed until it is removed, with the time in which it operates and what holds its removal back.

    Example: headgate generation timestamps list
    """
    if name is None:
        _list_sets(output, cluster)
        return
    with opened(name, cluster) as (_, tail):
        record = record_of(tail, name)
        known, now_ms = tail.state.timestamps, wall_ms()
        held = removal_of(known, name, record, now_ms).held
    rows: list[dict[str, Any]] = []
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


@app.command()
def show(
    name: SetName,
    *,
    generation: GenerationOf = None,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Show a generation's streams, range by range and shard by shard.

    Example: headgate generation timestamps show orders
    """
    with opened(name, cluster) as (_, tail):
        topology = _topology(tail, name, _generation(tail, name, generation))
    rows = [
        {"range_end": entry.end, "shard": shard, "stream": str(stream), "token": stream.token}
        for entry in topology.entries
        for shard, stream in enumerate(entry.streams)
    ]
    show_rows(("range_end", "shard", "stream", "token"), rows, output)


@app.command("ring")
def show_ring(
    name: SetName,
    *,
    generation: GenerationOf = None,
    output: Format = Output.YAML,
    cluster: ClusterOptions,
) -> None:
    """Print a generation's ring, in the format of --ring.

    Example: headgate generation timestamps ring orders
    """
    with opened(name, cluster) as (_, tail):
        found = ring_at(tail, name, _generation(tail, name, generation).timestamp_ms)
    show_value(Output.YAML if output is Output.TABLE else output, shown_ring(found))


@app.command()
def lookup(
    name: SetName,
    key: Annotated[str, typer.Argument(metavar="KEY", help="a key, as text")],
    *,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Show which stream a key's writes belong to, in every generation that is not removed.

    Example: headgate generation timestamps lookup shop 17
    """
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


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="SET", help="name of the new timestamp set")],
    *,
    ring: RingFile = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="without --ring: number of equal nodes")] = 1,
    vnodes: Vnodes = None,
    shards: Shards = None,
    ignore_msb: IgnoreMsb = IGNORE_MSB,
    ring_delay: Annotated[
        float, typer.Option("--ring-delay", help="seconds until every process knows a new generation")
    ] = 30.0,
    kept: Annotated[
        float, typer.Option("--kept", help="seconds for which changes are kept; 0: without limit")
    ] = 86_400.0,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Create a timestamp set: its first generation operates at once.

    Example: headgate generation timestamps create shop --nodes 3 --vnodes 256 --shards 8
    """
    try:
        check_name("timestamp set", name)
    except InvalidNameError as error:
        raise CommandError(ExitCode.SETTING, str(error)) from error
    if (ring is None) == (vnodes is None or shards is None):
        raise CommandError(
            ExitCode.SETTING, "the ring is missing. Give --ring FILE, or --vnodes and --shards (and --nodes)"
        )
    chosen = read_ring(ring) if ring is not None else ring_of(nodes, vnodes or 0, shards or 0, ignore_msb)
    with connected(cluster) as (_, log):
        what = f"create timestamp set {name} with {_described(chosen)}"
        permit = permitted(change, what, outcome.output, {"set": name})
        if permit is None:
            return
        times = {"ring_delay_ms": round(ring_delay * 1000), "kept_ms": round(kept * 1000)}
        kind = TimestampsRequestKind.CREATE
        change_timestamps(log, name, kind, permit, chosen, outcome=outcome, **times)


@app.command()
def update(
    name: SetName,
    *,
    ring: RingFile = None,
    add_node: Annotated[str | None, typer.Option("--add-node", help="a node that joins: --vnodes, --shards")] = None,
    remove_node: Annotated[
        str | None, typer.Option("--remove-node", help="a node that leaves", autocompletion=complete_nodes)
    ] = None,
    vnodes: Vnodes = None,
    shards: Shards = None,
    ignore_msb: IgnoreMsb = IGNORE_MSB,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Change a timestamp set's ring, which begins a new generation.

    Example: headgate generation timestamps update shop --add-node node4 --vnodes 256 --shards 8
    """
    if sum(each is not None for each in (ring, add_node, remove_node)) != 1:
        raise CommandError(ExitCode.SETTING, "give one of --ring, --add-node and --remove-node")
    if add_node is not None and (vnodes is None or shards is None):
        raise CommandError(ExitCode.SETTING, "--add-node needs --vnodes and --shards")
    with opened(name, cluster) as (log, tail):
        record, present = _latest(tail, name)
        if ring is not None:
            wanted = read_ring(ring)
        elif add_node is not None:
            wanted = with_node(present, draw_node(present, add_node, vnodes or 0, Sharding(shards or 0, ignore_msb)))
        else:
            wanted = without_node(present, remove_node or "")
        permit = permitted(change, _would(present, wanted), outcome.output, {"set": name})
        if permit is None:
            return
        based_on = record.generations[-1].timestamp_ms
        kind = TimestampsRequestKind.SWITCH
        change_timestamps(log, name, kind, permit, wanted, outcome=outcome, based_on_ms=based_on)


@app.command()
def repair(
    name: SetName,
    *,
    ring: RingFile = None,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Check every row of a timestamp set, and rewrite those that are wrong.

    With --ring, the latest generation is compared with a ring as well, and a new one begins if it differs. Requests at
    the same time make one generation.

    Example: headgate generation timestamps repair orders
    """
    with opened(name, cluster) as (log, tail):
        record, present = _latest(tail, name)
        wanted = () if ring is None else read_ring(ring)
        problems = _problems(tail.state.timestamps, name, record) or ["every row exists"]
        what = f"{_would(present, wanted or present)} ({'; '.join(problems)})"
        permit = permitted(change, what, outcome.output, {"set": name, "problems": problems})
        if permit is not None:
            change_timestamps(log, name, TimestampsRequestKind.REPAIR, permit, wanted, outcome=outcome)


@app.command()
def gc(
    name: SetName,
    *,
    change: Destruction,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Remove the generations that are no longer needed.

    The owner also does it by itself after a while.

    Example: headgate generation timestamps gc orders --dry-run
    """
    with opened(name, cluster) as (log, tail):
        record = record_of(tail, name)
        removal = removal_of(tail.state.timestamps, name, record, wall_ms())
        what = f"remove the generations of {name} that no process needs ({', '.join(map(str, removal.due)) or 'none'})"
        held = {str(ms): list(why) for ms, why in removal.held.items()}
        permit = permitted(change, what, outcome.output, {"set": name, "due": list(removal.due), "held_by": held})
        if permit is not None:
            change_timestamps(log, name, TimestampsRequestKind.CLEAN, permit, outcome=outcome)


reader = CommandGroup(help="List and delete the readers of a timestamp set.", no_args_is_help=True)
app.add_typer(reader, name="reader")


@reader.command("list")
def list_readers(name: SetName, *, output: Format = Output.TABLE, cluster: ClusterOptions) -> None:
    """List the readers of a timestamp set and their positions.

    Example: headgate generation timestamps reader list orders
    """
    with opened(name, cluster) as (_, tail):
        record_of(tail, name)
        found = tail.state.timestamps.readers.get(name, {})
    rows = [
        {"reader": each, "left": _text(said.left_ms), "left_ms": said.left_ms} for each, said in sorted(found.items())
    ]
    show_rows(("reader", "left"), rows, output)


@reader.command("delete")
def delete_set_reader(
    name: SetName,
    reader_name: Annotated[
        str,
        typer.Argument(
            metavar="READER", help="as `timestamps reader list` names it", autocompletion=complete_timestamp_readers
        ),
    ],
    *,
    change: Destruction,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Delete a reader, so that it no longer holds back the removal of generations.

    If it comes back, generations that it has not read may have been removed.

    Example: headgate generation timestamps reader delete orders billing --dry-run
    """
    with opened(name, cluster) as (_, tail):
        record_of(tail, name)
        delete_reader(
            tail,
            TimestampReaderKey(name, reader_name),
            tail.state.timestamps.readers.get(name, {}),
            lambda said: f"left {said.left_ms}",
            change,
            output=output,
        )


# --- how ---


def _list_sets(output: Output, cluster: ClusterOptions) -> None:
    with connected(cluster) as (_, log):
        found = list(read_snapshot(log).each(TimestampSetKey, TimestampSetRecorded))
    rows = [
        {"set": key.set, "generations": len(record.generations), "latest": _text(record.generations[-1].timestamp_ms)}
        for key, record in found
        if record.generations
    ]
    show_rows(("set", "generations", "latest"), rows, output)


def _latest(tail: GenerationTail, name: str) -> tuple[TimestampSetRecorded, tuple[RingNode, ...]]:
    record = record_of(tail, name)
    return record, ring_at(tail, name, record.generations[-1].timestamp_ms)


def _problems(known: TimestampRecords, name: str, record: TimestampSetRecorded) -> list[str]:
    """Rows that are missing. The owner checks their content."""
    missing = (missing_row(known, name, each) for each in record.generations)
    return [f"{key.text()} does not exist" for key in missing if key is not None]


def _would(present: tuple[RingNode, ...], wanted: tuple[RingNode, ...]) -> str:
    if same_ring(present, wanted):
        return "start no generation: the latest one is for this ring"
    return f"start a generation of {_described(wanted)}"


def _described(ring: tuple[RingNode, ...]) -> str:
    owners = owners_of(ring)
    streams = sum(sharding.shards for sharding in owners.values())
    return f"{number_of(len(owners), 'range')} and {number_of(streams, 'stream')}"


def record_of(tail: GenerationTail, name: str) -> TimestampSetRecorded:
    """What is recorded of a timestamp set. Raises CommandError if it is not there."""
    record = tail.state.timestamps.sets.get(name)
    if record is None:
        raise not_found_set(TimestampSetKey(name), sorted(tail.state.timestamps.sets))
    return record


def ring_at(tail: GenerationTail, name: str, timestamp_ms: int) -> tuple[RingNode, ...]:
    """The ring that a generation is made for. Raises CommandError."""
    found = tail.state.timestamps.rings.get((name, timestamp_ms))
    if found is None:
        raise CommandError(ExitCode.LOG, f"{name}/ring/{timestamp_ms} does not exist on the topic generation")
    return found.nodes


def _generation(tail: GenerationTail, name: str, timestamp_ms: int | None) -> TimestampGeneration:
    generations = {each.timestamp_ms: each for each in record_of(tail, name).generations}
    chosen = max(generations) if timestamp_ms is None else timestamp_ms
    if chosen not in generations:
        raise not_found_generation(f"timestamp set {name!r}", chosen, sorted(generations), "removed")
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
