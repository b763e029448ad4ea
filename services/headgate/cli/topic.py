"""``headgate topic``: the control topics, decoded; and the topics that a feed reads."""

import time
from contextlib import closing
from typing import Annotated, Any, Final

import msgspec
import typer

from headgate.app.cluster import settings_for_command
from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.changes import ChangeOptions, Permit, permitted
from headgate.cli.groups import HelpfulGroup
from headgate.cli.names import complete_feeds
from headgate.cli.options import ClusterOptions, CommandGroup, Format, cluster_flags, connected, waiting_for_kafka
from headgate.cli.output import Output, note, show_rows, show_value
from headgate.cli.rights import grant, rights
from headgate.cli.snapshots import read_snapshot
from headgate.cli.source_topics import SOURCE_COLUMNS, source_rows
from headgate.cli.topic_register import register_schemas
from headgate.config.settings import Settings, with_variable
from headgate.config.wording import one_of
from headgate.eventlog.log import Delivery, Garbage, Log, Partition
from headgate.eventlog.snapshot import all_partitions
from headgate.eventlog.topics import create_topics
from headgate.records.name_lists import number_of
from headgate.records.registry import KEY_FORMS


class _Order(HelpfulGroup):
    order = (
        "create",
        "list",
        "show",
        "tail",
        "rights",
        "grant",
        "register",
    )


app = CommandGroup(cls=_Order, help="Create and inspect the control topics.", no_args_is_help=True)

POLL_SECONDS: Final = 0.5
POLL_RECORDS_MAX: Final = 500

app.command("rights")(rights)
app.command("grant")(grant)

TopicName = Annotated[
    str | None,
    typer.Argument(
        metavar="TOPIC",
        help=f"one of {', '.join(KEY_FORMS)}; default all",
        autocompletion=lambda incomplete: [name for name in KEY_FORMS if name.startswith(incomplete)],
    ),
]


@app.command("list")
def list_topics(
    *,
    feed: Annotated[
        str | None,
        typer.Option(
            "--feed",
            metavar="FEED",
            help="the topics that FEED reads, and its positions",
            autocompletion=complete_feeds,
        ),
    ] = None,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """List the control topics, or the source topics of a feed.

    Example: headgate topic list --feed shop
    """
    with connected(cluster) as (settings, log):
        if feed is not None:
            show_rows(SOURCE_COLUMNS, source_rows(log, read_snapshot(log), feed), output)
            return
        partitions = all_partitions(log, KEY_FORMS)
        ends = log.end_offsets(partitions)
        snapshot = read_snapshot(log, partitions)
    standing = snapshot.standing()
    rows = [
        {
            "topic": settings.prefix + topic,
            "partitions": sum(partition.topic == topic for partition in partitions),
            "end_offsets": sum(end for partition, end in ends.items() if partition.topic == topic),
            "keys": sum(read.partition.topic == topic for read in standing),
            "garbage": snapshot.garbage_counts[topic],
        }
        for topic in KEY_FORMS
    ]
    show_rows(("topic", "partitions", "end_offsets", "keys", "garbage"), rows, output)


@app.command()
def show(
    topic: TopicName = None,
    *,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Show the current record of every key, decoded.

    Records that cannot be understood are shown as garbage, the newest 1 000 of them. The others are counted.

    Example: headgate topic show announce
    """
    topics = _topics(topic)
    with connected(cluster) as (_, log):
        snapshot = read_snapshot(log, all_partitions(log, topics))
    read: list[Delivery | Garbage] = [*snapshot.standing(), *snapshot.garbage]
    rows = [_row(each) for each in read]
    if output is Output.TABLE:
        rows = [row | {"record": _text(row)} for row in rows]
    show_rows(("topic", "partition", "offset", "key", "record"), rows, output)
    if left_out := snapshot.garbage_left_out:
        note(
            f"{left_out} older records that cannot be understood are not shown. See all of them with "
            f"`headgate topic tail {topic or ''}".rstrip()
            + " --from-beginning`"
        )


@app.command()
def tail(
    topic: TopicName = None,
    *,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="start with the oldest record that the topic still has")
    ] = False,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.1, help="stop after this time")] = None,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Print records as they are committed, until Ctrl-C.

    Each record is one line; with -o json each line is one object.

    Example: headgate topic tail dispatch --from-beginning
    """
    topics = _topics(topic)
    deadline = time.monotonic() + seconds if seconds is not None else None
    with connected(cluster) as (_, log):
        partitions = all_partitions(log, topics)
        start = dict.fromkeys(partitions, 0) if from_beginning else log.end_offsets(partitions)
        _follow(log, start, deadline, output)


def _follow(log: Log, start: dict[Partition, int], deadline: float | None, output: Output) -> None:
    with closing(log.reader(start)) as reader:
        while deadline is None or time.monotonic() < deadline:
            for read in reader.poll(POLL_RECORDS_MAX, POLL_SECONDS):
                row = _row(read)
                if output is not Output.TABLE:
                    # An object per line; as an item of a list it is YAML as well.
                    typer.echo(("- " if output is Output.YAML else "") + msgspec.json.encode(row).decode())
                else:
                    typer.echo(f"{row['topic']}[{row['partition']}]@{row['offset']} {row['key'] or '-'} {_text(row)}")


@app.command()
def create(
    *,
    shards: Annotated[
        int | None,
        typer.Option("--shards", help=with_variable("number of shards of a new cluster", "shards")),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            help=with_variable("copies of each topic, at most one per broker", "replication_factor"),
        ),
    ] = None,
    change: ChangeOptions,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Create the control topics that are missing, with the settings they need, and check the others.

    A cluster that exists keeps its number of shards, and another number is refused.

    Example: headgate topic create --bootstrap broker:9092 --replication-factor 1
    """
    flags = {**cluster_flags(cluster), "shards": shards, "replication_factor": replication_factor}
    with waiting_for_kafka(flags):
        settings = settings_for_command(flags)
    facts = {"prefix": settings.prefix, "bootstrap": settings.bootstrap, "shards": settings.shards}
    what = f"create the control topics {settings.prefix}… that are missing on {settings.bootstrap}"
    permit = permitted(change, f"{what}, for {number_of(settings.shards, 'shard')}", output, facts)
    if permit is None:
        return
    with waiting_for_kafka(flags):
        created = _created(settings, permit)
    if output is Output.TABLE:
        count = number_of(settings.shards, "shard")
        note(f"the control topics {settings.prefix}… exist on {settings.bootstrap}, {count}")
    else:
        show_value(output, {**facts, "status": "done", "created": created})


app.command("register")(register_schemas)


def _created(settings: Settings, _permit: Permit) -> list[str]:
    return create_topics(settings)


def _topics(topic: str | None) -> tuple[str, ...]:
    if topic is None:
        return tuple(KEY_FORMS)
    name = topic.rpartition(".")[2]
    if name not in KEY_FORMS:
        raise CommandError(ExitCode.NOT_FOUND, f"control topic {one_of(topic, tuple(KEY_FORMS))}")
    return (name,)


def _row(read: Delivery | Garbage) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": read.partition.topic,
        "partition": read.partition.number,
        "offset": read.offset,
    }
    if isinstance(read, Garbage):
        return row | {"key": None, "type": None, "value": None, "garbage": read.reason}
    kind = type(read.value).__name__ if read.value is not None else "tombstone"
    value = msgspec.to_builtins(read.value, str_keys=True) if read.value is not None else None
    return row | {"key": read.key.text(), "type": kind, "value": value, "garbage": None}


def _text(row: dict[str, Any]) -> str:
    if row["garbage"] is not None:
        return f"GARBAGE: {row['garbage']}"
    if row["value"] is None:
        return "(deleted)"
    return f"{row['type']} {msgspec.json.encode(row['value']).decode()}"
