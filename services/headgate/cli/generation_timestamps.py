"""``headgate generation timestamps``: timestamp sets, for sources that have nothing but clocks.

What changes something that is there says first what it would do; ``--yes`` does it.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.generation_requests import Yes, ask_timestamps, forget_reader, opened
from headgate.cli.option_groups import CommandGroup
from headgate.cli.options import ClusterOptions, Format, Timeout, connected
from headgate.cli.output import Output, note, show_value
from headgate.cli.requests import OUTCOME_SECONDS_DEFAULT
from headgate.cli.timestamp_rings import IGNORE_MSB, draw_node, read_ring, ring_of, with_node, without_node
from headgate.cli.timestamps_shown import SetName, list_timestamps, record_of, ring_at, show, show_ring, where
from headgate.generation.core.timestamp_records import TimestampRecords, missing_row, removal_of
from headgate.generation.core.tokens import Sharding
from headgate.generation.shell.tail import GenerationTail
from headgate.generation.timestamps.core.rings import owners_of, same_ring
from headgate.records.names import InvalidNameError, check_name
from headgate.records.timestamps import RingNode, TimestampReaderKey, TimestampSetRecorded, TimestampsRequestKind

app = CommandGroup(help="Streams by time, for sources that have nothing but clocks.", no_args_is_help=True)

app.command("list")(list_timestamps)
app.command()(show)
app.command("ring")(show_ring)
app.command()(where)

RingFile = Annotated[
    Path | None, typer.Option("--ring", help="YAML or JSON: nodes, each with name, shards, tokens (and ignore_msb)")
]
Vnodes = Annotated[int | None, typer.Option("--vnodes", min=1, help="tokens of each node, drawn")]
Shards = Annotated[int | None, typer.Option("--shards", min=1, help="shards of each node")]
IgnoreMsb = Annotated[int, typer.Option("--ignore-msb", min=0, max=63, help="first bits of a token that do not matter")]


@app.command()
def create(
    name: SetName,
    *,
    ring: RingFile = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="without --ring: so many equal nodes")] = 1,
    vnodes: Vnodes = None,
    shards: Shards = None,
    ignore_msb: IgnoreMsb = IGNORE_MSB,
    ring_delay: Annotated[float, typer.Option("--ring-delay", help="seconds until everybody has heard of news")] = 30.0,
    kept: Annotated[float, typer.Option("--kept", help="seconds for which changes are kept; 0: for ever")] = 86_400.0,
    timeout: Timeout = OUTCOME_SECONDS_DEFAULT,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Create a timestamp set: its first generation operates at once."""
    try:
        check_name("timestamp set", name)
    except InvalidNameError as error:
        raise CommandError(ExitCode.SETTING, str(error)) from error
    if (ring is None) == (vnodes is None or shards is None):
        raise CommandError(ExitCode.SETTING, "which ring? give --ring FILE, or --vnodes and --shards (and --nodes)")
    chosen = read_ring(ring) if ring is not None else ring_of(nodes, vnodes or 0, shards or 0, ignore_msb)
    with connected(cluster) as (_, log):
        times = {"ring_delay_ms": round(ring_delay * 1000), "kept_ms": round(kept * 1000)}
        _done(output, name, ask_timestamps(log, name, TimestampsRequestKind.CREATE, timeout, chosen, **times))


@app.command()
def switch(
    name: SetName,
    *,
    ring: RingFile = None,
    add_node: Annotated[str | None, typer.Option("--add-node", help="a node that joins: --vnodes, --shards")] = None,
    remove_node: Annotated[str | None, typer.Option("--remove-node", help="a node that leaves")] = None,
    vnodes: Vnodes = None,
    shards: Shards = None,
    ignore_msb: IgnoreMsb = IGNORE_MSB,
    yes: Yes = False,
    timeout: Timeout = OUTCOME_SECONDS_DEFAULT,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Switch to a generation for another ring: a node joins or leaves, or the ring is as a file says."""
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
        if not yes:
            _would(output, name, present, wanted)
            return
        based_on = record.generations[-1].timestamp_ms
        kind = TimestampsRequestKind.SWITCH
        _done(output, name, ask_timestamps(log, name, kind, timeout, wanted, based_on_ms=based_on))


@app.command()
def repair(
    name: SetName,
    *,
    ring: RingFile = None,
    yes: Yes = False,
    timeout: Timeout = OUTCOME_SECONDS_DEFAULT,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Check every row, and the latest generation against a ring; write again what is wrong, switch where it differs.

    Requests at the same time make one generation.
    """
    with opened(name, cluster) as (log, tail):
        record, present = _latest(tail, name)
        wanted = () if ring is None else read_ring(ring)
        if not yes:
            problems = _problems(tail.state.timestamps, name, record) or ["every row is there"]
            _would(output, name, present, wanted or present, *problems)
            return
        _done(output, name, ask_timestamps(log, name, TimestampsRequestKind.REPAIR, timeout, wanted))


@app.command()
def gc(
    name: SetName,
    *,
    yes: Yes = False,
    timeout: Timeout = OUTCOME_SECONDS_DEFAULT,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Remove the generations that nobody needs any more, as the owner does by itself; say what holds the others."""
    with opened(name, cluster) as (log, tail):
        record = record_of(tail, name)
        if not yes:
            removal = removal_of(tail.state.timestamps, name, record, time.time_ns() // 1_000_000)
            would = f"would remove: {', '.join(map(str, removal.due)) or 'none'}"
            held = {str(ms): list(why) for ms, why in removal.held.items()}
            _say(
                output,
                {"set": name, "done": False, "due": list(removal.due), "held_by": held},
                f"{would} (--yes does it)",
            )
            return
        _done(output, name, ask_timestamps(log, name, TimestampsRequestKind.CLEAN, timeout))


@app.command()
def forget(
    name: SetName,
    reader: Annotated[str, typer.Argument(help="a reader that is gone for good, as `timestamps list` names it")],
    *,
    yes: Yes = False,
    cluster: ClusterOptions,
) -> None:
    """Wait no more for a reader."""
    with opened(name, cluster) as (_, tail):
        record_of(tail, name)
        forget_reader(
            tail,
            TimestampReaderKey(name, reader),
            tail.state.timestamps.readers.get(name, {}),
            "timestamp set",
            lambda said: f"left {said.left_ms}",
            yes=yes,
        )


# --- how ---


def _latest(tail: GenerationTail, name: str) -> tuple[TimestampSetRecorded, tuple[RingNode, ...]]:
    record = record_of(tail, name)
    return record, ring_at(tail, name, record.generations[-1].timestamp_ms)


def _problems(known: TimestampRecords, name: str, record: TimestampSetRecorded) -> list[str]:
    """Rows that are seen to be missing; what they say is checked by the owner."""
    missing = (missing_row(known, name, each) for each in record.generations)
    return [f"{key.text()} is not there" for key in missing if key is not None]


def _would(
    output: Output, name: str, present: tuple[RingNode, ...], wanted: tuple[RingNode, ...], *further: str
) -> None:
    owners = owners_of(wanted)
    streams = sum(sharding.shards for sharding in owners.values())
    if same_ring(present, wanted):
        text = "no generation is needed: the latest one is for this ring"
    else:
        text = f"would make a generation of {len(owners)} ranges and {streams} streams"
    found = [text, *further]
    _say(output, {"set": name, "done": False, "would": found}, f"{'; '.join(found)} (--yes does it)")


def _done(output: Output, name: str, said: str) -> None:
    _say(output, {"set": name, "done": True, "said": said}, said)


def _say(output: Output, facts: Mapping[str, Any], text: str) -> None:
    if output is Output.TABLE:
        note(text)
    else:
        show_value(output, facts)
