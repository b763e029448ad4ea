"""``headgate generation``: change logs and their generations, shown and changed.

A reader's progress: a feed's positions are those of its checkpoint and its agents. A program that reads with
ChangeReader keeps its own, and reports only up to which switch it has read everything that was closed.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.changes import ChangeOptions, Destruction
from headgate.cli.generation_graphs import graph
from headgate.cli.generation_loads import autoscale, rebalance
from headgate.cli.generation_requests import (
    SetName,
    delete_reader,
    map_of,
    opened,
    record_of,
    request_of,
    settle,
    switch,
    waits_for,
)
from headgate.cli.generation_timestamps import app as timestamps
from headgate.cli.groups import HelpfulGroup
from headgate.cli.names import complete_change_logs, complete_generations, complete_readers
from headgate.cli.options import ClusterOptions, CommandGroup, Format, connected
from headgate.cli.output import Output, show_rows
from headgate.cli.requests import OutcomeOptions
from headgate.cli.snapshots import read_snapshot
from headgate.cli.source_topics import positions_of
from headgate.config.feed import parse_feed
from headgate.eventlog.snapshot import Snapshot
from headgate.generation.changelog.core.bounds import standings_of
from headgate.generation.changelog.core.planning import resize
from headgate.generation.core.ranges import LogStream
from headgate.generation.core.state import GenerationState, current_of, open_switch_of
from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.tokens import token_of_key
from headgate.records.control import FeedRecorded
from headgate.records.generation import GenerationRequestKind, ReaderKey, SetKey, SetRecorded
from headgate.records.keys import FeedKey
from headgate.records.name_lists import number_of
from headgate.records.names import InvalidNameError, check_name
from headgate.sources.change_logs import reader_of_feed


class _Order(HelpfulGroup):
    order = (
        "create",
        "list",
        "show",
        "lookup",
        "graph",
        "lineage",
        "resize",
        "rebalance",
        "autoscale",
        "grow",
        "reader",
        "abort",
        "repair",
        "gc",
        "delete",
        "timestamps",
    )


app = CommandGroup(cls=_Order, help="Create and re-partition change logs.", no_args_is_help=True)

app.command()(rebalance)
app.command()(graph)
app.add_typer(autoscale, name="autoscale")
app.add_typer(timestamps, name="timestamps")

reader = CommandGroup(help="List and delete the readers of a change log.", no_args_is_help=True)
app.add_typer(reader, name="reader")


@reader.command("list")
def list_readers(name: SetName, *, output: Format = Output.TABLE, cluster: ClusterOptions) -> None:
    """List the readers of a change log and their positions.

    For a feed, the list names the streams that it has yet to read.

    Example: headgate generation reader list orders
    """
    with opened(name, cluster) as (log, tail):
        record_of(tail, name)
        found = tail.state.readers.get(name, {})
        snapshot = read_snapshot(log)
    feeds = {reader_of_feed(key.feed): (key.feed, record) for key, record in snapshot.each(FeedKey, FeedRecorded)}
    rows: list[dict[str, Any]] = []
    for reader_name, said in sorted(found.items()):
        told = {"reader": reader_name, "has_read": said.read_epoch, "reported_ms": said.reported_ms}
        streams = (
            [told | each for each in _streams(tail.state, name, snapshot, *feeds[reader_name])]
            if reader_name in feeds
            else []
        )
        rows += streams or [told]
    show_rows(("reader", "has_read", "stream", "partition", "position", "end", "waits_for"), rows, output)


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="LOG", help="name of the new change log")],
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Kafka topic with its changes", show_default="the change log's name")
    ] = None,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="the maximum of streams at once; `grow` adds partitions")
    ],
    streams: Annotated[int, typer.Option("--streams", min=1, help="of the first generation")] = 1,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Create a change log: its topics and its first generation.

    An existing topic must have this number of partitions and cleanup.policy=delete, and belong to no other change log.

    Example: headgate generation create orders --partitions 64 --streams 8
    """
    try:
        check_name("change log", name)
    except InvalidNameError as error:
        raise CommandError(ExitCode.SETTING, str(error)) from error
    with connected(cluster) as (_, log):
        request = request_of(GenerationRequestKind.CREATE, topic=topic or name, partitions=partitions, streams=streams)
        cut = f"{number_of(partitions, 'partition')} and {number_of(streams, 'stream')}"
        what = f"create change log {name} on topic {topic or name} with {cut}"
        settle(log, name, request, what, change, outcome=outcome)


@app.command()
def grow(
    name: SetName,
    *,
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="the new number of partitions")],
    change: Destruction,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Add partitions to a change log's topic, for more streams.

    Its streams stay where they are. The next switch can use the new partitions, and no key moves until then. Kafka
    cannot remove partitions again.

    Example: headgate generation grow orders --partitions 128
    """
    with opened(name, cluster) as (log, tail):
        record = record_of(tail, name)
        what = f"grow topic {record.topic} from {record.partitions} to {number_of(partitions, 'partition')}"
        request = request_of(GenerationRequestKind.GROW, partitions=partitions)
        settle(log, name, request, what, change, outcome=outcome)


@app.command()
def delete(
    name: SetName,
    *,
    change: Destruction,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Delete a change log with its topics and all changes in them.

    Delete its readers first. The name and the topic's name can be used again.

    Example: headgate generation delete orders --dry-run
    """
    with opened(name, cluster) as (log, tail):
        record = record_of(tail, name)
        writers = [each.writer for each in record.writers if not each.is_over]
        what = (
            f"delete change log {name} with {len(record.generations)} generations, its topic {record.topic} and all "
            f"changes in it (writers: {', '.join(writers) or 'none'})"
        )
        settle(log, name, request_of(GenerationRequestKind.DELETE), what, change, outcome=outcome)


@app.command("list")
def list_generations(
    name: Annotated[
        str | None,
        typer.Argument(metavar="LOG", help="name of the change log", autocompletion=complete_change_logs),
    ] = None,
    *,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """List change logs, or the generations of one.

    A generation is listed until it is retired, with what holds its retirement back.

    Example: headgate generation list orders
    """
    if name is None:
        _list_change_logs(output, cluster)
        return
    with opened(name, cluster) as (_, tail):
        record = record_of(tail, name)
        readers = tail.state.readers.get(name, {})
        rows = [
            {
                "generation": each.epoch,
                "phase": each.phase.value,
                "streams": len(tail.state.map_of(name, each.epoch).streams),
                "writers": [f"{cut.writer}={cut.position}" for cut in each.cuts],
                "waits_for": waits_for(record, each, {key: said.read_epoch for key, said in readers.items()}),
                "reason": each.reason,
            }
            for each in record.generations
        ]
    show_rows(("generation", "phase", "streams", "writers", "waits_for", "reason"), rows, output)


@app.command()
def show(
    name: SetName,
    *,
    generation: Annotated[
        int | None,
        typer.Option(
            "--generation",
            help="number of the generation",
            show_default="the one in force",
            autocompletion=complete_generations,
        ),
    ] = None,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Show a generation's streams: ranges, partitions, parents.

    Example: headgate generation show orders
    """
    with opened(name, cluster) as (_, tail):
        log = map_of(tail, name, generation)
    show_rows(
        ("stream", "share", "partition", "from_offset", "opened_in", "parents"),
        [_shown(stream) for stream in log.streams],
        output,
    )


@app.command()
def lookup(
    name: SetName,
    key: Annotated[str, typer.Argument(metavar="KEY", help="a key, as text")],
    *,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Show which stream a key's changes go to, in every generation that is not retired.

    Example: headgate generation lookup orders 17
    """
    token = token_of_key(key.encode())
    with opened(name, cluster) as (_, tail):
        rows = [
            {"generation": each.epoch, "token": token, **_shown(tail.state.map_of(name, each.epoch).stream_of(token))}
            for each in record_of(tail, name).generations
        ]
    show_rows(("generation", "token", "stream", "partition", "from_offset"), rows, output)


@app.command()
def lineage(name: SetName, *, output: Format = Output.TABLE, cluster: ClusterOptions) -> None:
    """Show every known stream with its parents and its children.

    Example: headgate generation lineage orders
    """
    with opened(name, cluster) as (_, tail):
        streams: dict[StreamId, LogStream] = {}
        for each in record_of(tail, name).generations:
            streams |= tail.state.map_of(name, each.epoch).by_id
    children: dict[StreamId, list[str]] = {}
    for stream in streams.values():
        for parent in stream.parents:
            children.setdefault(parent, []).append(str(stream.id))
    rows = [{**_shown(stream), "children": children.get(stream.id, [])} for stream in streams.values()]
    show_rows(("stream", "opened_in", "partition", "parents", "children"), rows, output)


@app.command("resize")
def resize_streams(
    name: SetName,
    *,
    streams: Annotated[int, typer.Option("--streams", min=1, help="number of equal ranges")],
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Switch to a generation with another number of streams, of equal ranges.

    A stream whose range stays as it is stays open.

    Example: headgate generation resize orders --streams 16 --dry-run
    """
    with opened(name, cluster) as (log, tail):
        switch(log, tail, name, resize(map_of(tail, name, None), streams), change, outcome=outcome)


@app.command()
def abort(
    name: SetName,
    *,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Abort a switch that is prepared and not committed.

    Example: headgate generation abort orders
    """
    with opened(name, cluster) as (log, tail):
        record_of(tail, name)
        request = request_of(GenerationRequestKind.ABORT)
        settle(log, name, request, f"abort the prepared switch of {name}", change, outcome=outcome)


@app.command()
def repair(
    name: SetName,
    *,
    change: ChangeOptions,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Check the topic and every generation, show why a switch does not proceed, and resume it.

    Example: headgate generation repair orders
    """
    with opened(name, cluster) as (log, tail):
        record_of(tail, name)
        settle(log, name, request_of(GenerationRequestKind.REPAIR), f"repair {name}", change, outcome=outcome)


@app.command()
def gc(
    name: SetName,
    *,
    change: Destruction,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Retire the generations that every reader has left.

    Example: headgate generation gc orders --dry-run
    """
    with opened(name, cluster) as (log, tail):
        drained = [str(each.epoch) for each in record_of(tail, name).generations if each.phase.value == "drained"]
        what = f"retire the generations of {name} that every reader has left ({', '.join(drained) or 'none'})"
        settle(log, name, request_of(GenerationRequestKind.RETIRE), what, change, outcome=outcome)


@reader.command("delete")
def delete_log_reader(
    name: SetName,
    reader_name: Annotated[
        str,
        typer.Argument(metavar="READER", help="as `generation reader list` names it", autocompletion=complete_readers),
    ],
    *,
    change: Destruction,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Delete a reader, so that it no longer holds back the retirement of streams.

    If it comes back, streams that it has not read may have been retired.

    Example: headgate generation reader delete orders billing --dry-run
    """
    with opened(name, cluster) as (_, tail):
        record_of(tail, name)
        delete_reader(
            tail,
            ReaderKey(name, reader_name),
            tail.state.readers.get(name, {}),
            lambda said: f"read what switches up to {said.read_epoch} closed",
            change,
            output=output,
        )


# --- how ---


def _list_change_logs(output: Output, cluster: ClusterOptions) -> None:
    with connected(cluster) as (_, log):
        found = list(read_snapshot(log).each(SetKey, SetRecorded))
    rows = [change_log_row(key.set, record) for key, record in found if record.topic]
    show_rows(("set", "topic", "partitions", "generation", "generations", "writers", "switching"), rows, output)


def change_log_row(name: str, record: SetRecorded) -> dict[str, Any]:
    """One change log, in the list of all."""
    current, opening = current_of(record), open_switch_of(record)
    return {
        "set": name,
        "topic": record.topic,
        "partitions": record.partitions,
        "generation": None if current is None else current.epoch,
        "generations": len(record.generations),
        "writers": len(record.writers),
        "switching": opening is not None,
    }


def _shown(stream: LogStream) -> dict[str, Any]:
    return {
        "stream": str(stream.id),
        "share": f"{(stream.end - stream.start) / 2**64:.4%}",
        "partition": stream.partition,
        "from_offset": stream.start_offset,
        "opened_in": stream.generation,
        "parents": [str(parent) for parent in stream.parents],
    }


def _streams(
    state: GenerationState, name: str, snapshot: Snapshot, feed: str, record: FeedRecorded
) -> Iterator[dict[str, Any]]:
    """What a feed has yet to read."""
    positions: dict[int, int] = {}
    for plan in record.spans:
        positions |= positions_of(snapshot, feed, record, plan)
    is_strict = parse_feed(record.spec).source.strict_generations
    for each in standings_of(state, name, positions, strict=is_strict):
        yield {
            "stream": str(each.stream),
            "partition": each.partition,
            "position": each.position,
            "end": each.end,
            "waits_for": [str(stream) for stream in each.waits_for],
        }
