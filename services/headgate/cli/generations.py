"""``headgate generation``: change logs and their generations, shown and changed.

What changes something says first what it would do; ``--yes`` does it. A request is a record on the topic generation,
and so is its outcome, as with feeds.
"""

import getpass
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any, Final
from uuid import uuid4

import typer
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headgate.cli.exit_codes import CommandError, ExitCode
from headgate.cli.options import ClusterOptions, CommandGroup, Format, Timeout, connected
from headgate.cli.output import Output, note, show_rows
from headgate.cli.requests import OUTCOME_SECONDS_DEFAULT
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.leaders import ask_offsets
from headgate.generation.core.planning import Load, Policy, Recut, plan, resize
from headgate.generation.core.ranges import LogMap, LogStream
from headgate.generation.core.state import current_of
from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.tokens import token_of_key
from headgate.generation.shell.tail import GenerationTail
from headgate.records.base import Fact
from headgate.records.control import OutcomeStatus, RequestSettled
from headgate.records.generation import (
    GenerationOutcomeKey,
    GenerationRecorded,
    GenerationRequested,
    GenerationRequestKey,
    GenerationRequestKind,
    ReaderKey,
    SetRecorded,
    StreamsRecut,
)
from headgate.records.names import InvalidNameError, check_name

__all__ = ["app"]

app = CommandGroup(help="Change logs: re-partitioned without breaking any key's order.", no_args_is_help=True)

SetName = Annotated[str, typer.Argument(metavar="SET", help="name of the change log")]
Yes = Annotated[bool, typer.Option("--yes", help="do it; without this, only say what would be done")]

SAMPLE_MESSAGES: Final = 2_000
"""Of a stream's last messages, that tell which keys its load has."""


@app.command()
def create(
    name: SetName,
    *,
    topic: Annotated[str | None, typer.Option("--topic", help="Kafka topic [the set's name]")] = None,
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="as many streams as it can ever have at once")],
    streams: Annotated[int, typer.Option("--streams", min=1, help="of the first generation")] = 1,
    timeout: Timeout = OUTCOME_SECONDS_DEFAULT,
    cluster: ClusterOptions,
) -> None:
    """Create a change log: its topics and its first generation."""
    try:
        check_name("change log", name)
    except InvalidNameError as error:
        raise CommandError(ExitCode.SETTING, str(error)) from error
    with _opened(name, cluster) as (_, tail):
        request = _request(GenerationRequestKind.CREATE, topic=topic or name, partitions=partitions, streams=streams)
        note(_ask(tail, name, request, timeout))


@app.command("list")
def list_generations(name: SetName, *, output: Format = Output.TABLE, cluster: ClusterOptions) -> None:
    """List the generations that are not retired, and what holds back the retirement of each."""
    with _opened(name, cluster) as (_, tail):
        record = _record(tail, name)
        readers = tail.state.readers.get(name, {})
        rows = [
            {
                "generation": each.epoch,
                "phase": each.phase.value,
                "streams": len(tail.state.map_of(name, each.epoch).streams),
                "writers": [f"{cut.writer}={cut.position}" for cut in each.cuts],
                "waits_for": _waits_for(record, each, {reader: said.read_epoch for reader, said in readers.items()}),
                "reason": each.reason,
            }
            for each in record.generations
        ]
    show_rows(("generation", "phase", "streams", "writers", "waits_for", "reason"), rows, output)


@app.command()
def show(
    name: SetName,
    *,
    generation: Annotated[int | None, typer.Option("--generation", help="its number [the one in force]")] = None,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Show a generation's streams: ranges, partitions, parents."""
    with _opened(name, cluster) as (_, tail):
        log = _map(tail, name, generation)
    show_rows(
        ("stream", "share", "partition", "from_offset", "opened_in", "parents"),
        [_shown(stream) for stream in log.streams],
        output,
    )


@app.command()
def where(
    name: SetName,
    key: Annotated[str, typer.Argument(help="a key, as text")],
    *,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Say which stream a key's changes go to, in every generation that is not retired."""
    token = token_of_key(key.encode())
    with _opened(name, cluster) as (_, tail):
        rows = [
            {"generation": each.epoch, "token": token, **_shown(tail.state.map_of(name, each.epoch).stream_of(token))}
            for each in _record(tail, name).generations
        ]
    show_rows(("generation", "token", "stream", "partition", "from_offset"), rows, output)


@app.command()
def lineage(name: SetName, *, output: Format = Output.TABLE, cluster: ClusterOptions) -> None:
    """Show every known stream with its parents and its children."""
    with _opened(name, cluster) as (_, tail):
        streams: dict[StreamId, LogStream] = {}
        for each in _record(tail, name).generations:
            streams |= tail.state.map_of(name, each.epoch).by_id
    children: dict[StreamId, list[str]] = {}
    for stream in streams.values():
        for parent in stream.parents:
            children.setdefault(parent, []).append(str(stream.id))
    rows = [{**_shown(stream), "children": children.get(stream.id, [])} for stream in streams.values()]
    show_rows(("stream", "opened_in", "partition", "parents", "children"), rows, output)


@app.command("plan")
def show_plan(
    name: SetName,
    *,
    split_above: Annotated[float, typer.Option("--split-above", help="changes per second of one stream")],
    merge_below: Annotated[float, typer.Option("--merge-below", help="changes per second of neighbours together")] = 0,
    streams_max: Annotated[int, typer.Option("--streams-max", min=1)] = 64,
    streams_min: Annotated[int, typer.Option("--streams-min", min=1)] = 1,
    seconds: Annotated[float, typer.Option("--seconds", min=0.5, help="for how long the load is measured")] = 5.0,
    yes: Yes = False,
    timeout: Timeout = OUTCOME_SECONDS_DEFAULT,
    cluster: ClusterOptions,
) -> None:
    """Measure the load of each stream, and say which to split or merge; with --yes, do it."""
    policy = Policy(split_above, merge_below, streams_max, streams_min, settle_seconds=0)
    with _opened(name, cluster) as (log, tail):
        known = _map(tail, name, None)
        made = plan(policy, known, _loads(log, _record(tail, name).topic, known, seconds))
        for change in made.changes:
            what = "merge" if not change.cuts else f"cut behind {', '.join(map(str, change.cuts))}"
            note(f"{what}: {', '.join(map(str, change.streams))} ({change.why})")
        for left in made.left:
            note(f"left: {left}")
        _commit(tail, name, made.changes, yes=yes, timeout=timeout)


@app.command("commit")
def commit_streams(
    name: SetName,
    *,
    streams: Annotated[int, typer.Option("--streams", min=1, help="equal ranges from then on")],
    yes: Yes = False,
    timeout: Timeout = OUTCOME_SECONDS_DEFAULT,
    cluster: ClusterOptions,
) -> None:
    """Switch to a generation of so many equal ranges; ranges that are so already keep their streams."""
    with _opened(name, cluster) as (_, tail):
        _commit(tail, name, resize(_map(tail, name, None), streams), yes=yes, timeout=timeout)


@app.command()
def abort(name: SetName, *, timeout: Timeout = OUTCOME_SECONDS_DEFAULT, cluster: ClusterOptions) -> None:
    """Take back a switch that is prepared and not committed."""
    with _opened(name, cluster) as (_, tail):
        note(_ask(tail, name, _request(GenerationRequestKind.ABORT), timeout))


@app.command()
def repair(name: SetName, *, timeout: Timeout = OUTCOME_SECONDS_DEFAULT, cluster: ClusterOptions) -> None:
    """Check the topic and every generation's chunks, and take up what stands still."""
    with _opened(name, cluster) as (_, tail):
        note(_ask(tail, name, _request(GenerationRequestKind.REPAIR), timeout))


@app.command()
def gc(name: SetName, *, yes: Yes = False, timeout: Timeout = OUTCOME_SECONDS_DEFAULT, cluster: ClusterOptions) -> None:
    """Retire the generations that every reader has left."""
    with _opened(name, cluster) as (_, tail):
        drained = [str(each.epoch) for each in _record(tail, name).generations if each.phase.value == "drained"]
        if not yes:
            note(f"would retire: {', '.join(drained) or 'none'} (--yes does it)")
            return
        note(_ask(tail, name, _request(GenerationRequestKind.RETIRE), timeout))


@app.command()
def forget(
    name: SetName,
    reader: Annotated[str, typer.Argument(help="a reader that is gone for good, as `generation list` names it")],
    *,
    yes: Yes = False,
    cluster: ClusterOptions,
) -> None:
    """Wait no more for a reader. If it comes back, it may find that streams were retired before it has read them."""
    with _opened(name, cluster) as (_, tail):
        _record(tail, name)
        readers = tail.state.readers.get(name, {})
        if reader not in readers:
            known = ", ".join(sorted(readers)) or "none"
            raise CommandError(ExitCode.NOT_FOUND, f"change log {name!r} has no reader {reader!r}, but {known}")
        if not yes:
            read_epoch = readers[reader].read_epoch
            note(
                f"would forget reader {reader}, which has read what switches up to {read_epoch} closed (--yes does it)"
            )
            return
        tail.say(Fact(ReaderKey(name, reader), None))
        note(f"reader {reader} is forgotten: nothing waits for it")


# --- how ---


@contextmanager
def _opened(name: str, cluster: ClusterOptions) -> Iterator[tuple[KafkaLog, GenerationTail]]:
    with connected(cluster) as (_, log), closing(GenerationTail(log, name, "headgate-cli")) as tail:
        tail.read_to_end()
        yield log, tail


def _record(tail: GenerationTail, name: str) -> SetRecorded:
    record = tail.state.sets.get(name)
    if record is None:
        known = ", ".join(sorted(tail.state.sets)) or "none"
        raise CommandError(ExitCode.NOT_FOUND, f"there is no change log {name!r}; known beside it are: {known}")
    return record


def _map(tail: GenerationTail, name: str, generation: int | None) -> LogMap:
    record = _record(tail, name)
    current = current_of(record)
    epoch = generation if generation is not None else (0 if current is None else current.epoch)
    if epoch not in {each.epoch for each in record.generations}:
        raise CommandError(ExitCode.NOT_FOUND, f"change log {name!r} has no generation {epoch}, or it is retired")
    return tail.state.map_of(name, epoch)


def _shown(stream: LogStream) -> dict[str, Any]:
    return {
        "stream": str(stream.id),
        "share": f"{(stream.end - stream.start) / 2**64:.4%}",
        "partition": stream.partition,
        "from_offset": stream.start_offset,
        "opened_in": stream.generation,
        "parents": [str(parent) for parent in stream.parents],
    }


def _waits_for(record: SetRecorded, generation: GenerationRecorded, readers: dict[str, int]) -> list[str]:
    follower = next((each for each in record.generations if each.follows == generation.epoch), None)
    if follower is None or generation.phase.value not in ("closing", "superseded"):
        return []
    if generation.phase.value == "closing":
        return [f"END of {cut.writer}" for cut in follower.cuts if not cut.ended]
    return [f"reader {reader}" for reader, epoch in sorted(readers.items()) if epoch < follower.epoch]


def _commit(tail: GenerationTail, name: str, changes: tuple[Recut, ...], *, yes: bool, timeout: float) -> None:
    if not changes:
        note("nothing is to be changed")
        return
    if not yes:
        opened = sum(len(change.cuts) + 1 for change in changes)
        note(f"would close {sum(len(change.streams) for change in changes)} streams and open {opened} (--yes does it)")
        return
    asked = tuple(StreamsRecut(tuple(map(str, change.streams)), change.cuts) for change in changes)
    current = current_of(_record(tail, name))
    epoch = 0 if current is None else current.epoch
    note(_ask(tail, name, _request(GenerationRequestKind.SWITCH, epoch=epoch, changes=asked), timeout))


def _request(
    kind: GenerationRequestKind,
    *,
    topic: str = "",
    partitions: int = 0,
    streams: int = 0,
    epoch: int = 0,
    changes: tuple[StreamsRecut, ...] = (),
) -> GenerationRequested:
    who = f"{getpass.getuser()}@{socket.gethostname()}"
    return GenerationRequested(kind, topic, partitions, streams, epoch, changes, who, time.time_ns() // 1_000_000)


def _ask(tail: GenerationTail, name: str, request: GenerationRequested, timeout: float) -> str:
    """Write a request, wait for what becomes of it, delete it. Raises CommandError."""
    key = GenerationRequestKey(name, uuid4().hex)
    outcome = GenerationOutcomeKey(name, key.request)
    deadline = time.monotonic() + timeout
    tail.say(Fact(key, request))
    try:
        settled = _await(tail, outcome, deadline)
    finally:
        tail.say(Fact(key, None))
    if settled is None or settled.status is OutcomeStatus.ACCEPTED:
        said = "no owner has answered: is `headgate serve generation` running?" if settled is None else settled.reason
        raise CommandError(ExitCode.REQUEST_TIMED_OUT, f"not settled within {timeout:g} s: {said}")
    if settled.status is not OutcomeStatus.DONE:
        raise CommandError(ExitCode.REQUEST_REFUSED, settled.reason)
    return settled.reason


def _await(tail: GenerationTail, outcome: GenerationOutcomeKey, deadline: float) -> RequestSettled | None:
    while True:
        settled = tail.state.outcomes.get(outcome)
        if settled is not None and settled.status is not OutcomeStatus.ACCEPTED:
            return settled
        if time.monotonic() >= deadline:
            return settled
        tail.follow(0.2)


def _loads(log: KafkaLog, topic: str, known: LogMap, seconds: float) -> dict[StreamId, Load]:
    """What each stream bears now, by how far its partition's end moves; and which keys its last changes had."""
    before = _ends(log, topic, known)
    time.sleep(seconds)
    after = _ends(log, topic, known)
    loads = {}
    for stream in known.streams:
        moved = after[stream.partition] - before[stream.partition]
        sample = _sample(log, topic, stream, after[stream.partition]) if moved else ()
        loads[stream.id] = Load(moved / seconds, seconds, sample)
    return loads


def _ends(log: KafkaLog, topic: str, known: LogMap) -> dict[int, int]:
    asked = {TopicPartition(topic, stream.partition): OffsetSpec.latest() for stream in known.streams}
    return {at.partition: answer.offset for at, answer in ask_offsets(log.connection, asked, "measuring load").items()}


def _sample(log: KafkaLog, topic: str, stream: LogStream, end: int) -> tuple[tuple[int, float], ...]:
    consumer: Any = log.connection.client(
        Consumer, client_id="headgate-sample", group_id="headgate-reader", enable_auto_commit=False
    )
    counted: dict[int, float] = {}
    try:
        first = max(stream.start_offset, end - SAMPLE_MESSAGES)
        consumer.assign([TopicPartition(topic, stream.partition, first)])
        for message in consumer.consume(SAMPLE_MESSAGES, 2.0):
            if message.error() is None and message.key() is not None:
                token = token_of_key(message.key())
                counted[token] = counted.get(token, 0.0) + 1.0
    finally:
        consumer.close()
    return tuple(sorted(counted.items()))
