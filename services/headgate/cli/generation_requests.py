"""What the commands about change logs share: reading a log's records, and asking its owner."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Annotated, Final, TypeVar
from uuid import uuid4

import typer

from headgate.cli.changes import ChangeOptions, Permit, permitted
from headgate.cli.lookup import not_found, not_found_generation, not_found_set
from headgate.cli.names import complete_change_logs
from headgate.cli.options import ClusterOptions, connected
from headgate.cli.output import Output, note, show_value
from headgate.cli.requests import CLIENT, OutcomeOptions, ask_owner, requester
from headgate.cli.snapshots import reading_topics
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import Log
from headgate.generation.core.ranges import LogMap, Recut
from headgate.generation.core.state import current_of
from headgate.generation.shell.tail import GenerationTail, partition_of_set
from headgate.records.base import Fact
from headgate.records.generation import (
    GenerationOutcomeKey,
    GenerationOwnerKey,
    GenerationRecorded,
    GenerationRequested,
    GenerationRequestKey,
    GenerationRequestKind,
    LoadPolicy,
    PolicyRequested,
    PolicyRequestKey,
    ReaderKey,
    SetKey,
    SetRecorded,
    StreamsRecut,
)
from headgate.records.name_lists import number_of
from headgate.records.timestamps import (
    RingNode,
    TimestampReaderKey,
    TimestampsRequested,
    TimestampsRequestKey,
    TimestampsRequestKind,
)
from headgate.runtime.requests import Request

ReaderT = TypeVar("ReaderT")

SetName = Annotated[
    str, typer.Argument(metavar="LOG", help="name of the change log", autocompletion=complete_change_logs)
]


@contextmanager
def opened(name: str, cluster: ClusterOptions) -> Iterator[tuple[KafkaLog, GenerationTail]]:
    """The records of a change log, read to their end. Raises LogError."""
    with (
        connected(cluster) as (_, log),
        closing(GenerationTail(log, name, CLIENT, reports_of=lambda _writer: True)) as tail,
    ):
        with reading_topics():
            tail.read_to_end()
        yield log, tail


def record_of(tail: GenerationTail, name: str) -> SetRecorded:
    """The record of a change log. Raises CommandError if it does not exist."""
    record = tail.state.sets.get(name)
    if record is None:
        raise not_found_set(SetKey(name), sorted(tail.state.sets))
    return record


def map_of(tail: GenerationTail, name: str, generation: int | None) -> LogMap:
    """The map of a generation, by default of the one in force. Raises CommandError, MapError."""
    record = record_of(tail, name)
    current = current_of(record)
    epoch = generation if generation is not None else (0 if current is None else current.epoch)
    epochs = sorted(each.epoch for each in record.generations)
    if epoch not in epochs:
        raise not_found_generation(f"change log {name!r}", epoch, epochs, "retired")
    return tail.state.map_of(name, epoch)


def waits_for(record: SetRecorded, generation: GenerationRecorded, readers: Mapping[str, int]) -> list[str]:
    """What holds back that a generation is drained; ``readers``: up to which switch each has read."""
    follower = next((each for each in record.generations if each.follows == generation.epoch), None)
    if follower is None or generation.phase.value not in ("closing", "superseded"):
        return []
    if generation.phase.value == "closing":
        return [f"END of {cut.writer}" for cut in follower.cuts if not cut.ended]
    return [f"reader {reader}" for reader, epoch in sorted(readers.items()) if epoch < follower.epoch]


def settle(
    log: Log, name: str, request: GenerationRequested, what: str, change: ChangeOptions, *, outcome: OutcomeOptions
) -> None:
    """Ask for ``what`` if the user agrees, and show the outcome. Raises CommandError, RequestError, LogError."""
    permit = permitted(change, what, outcome.output, {"set": name})
    if permit is not None:
        show_done(outcome.output, name, ask(log, name, request, outcome.timeout, permit))


def show_done(output: Output, name: str, reason: str) -> None:
    """Print the owner's message about a finished request."""
    if output is Output.TABLE:
        note(reason)
    else:
        show_value(output, {"set": name, "status": "done", "reason": reason})


def switch(
    log: Log,
    tail: GenerationTail,
    name: str,
    changes: tuple[Recut, ...],
    change: ChangeOptions,
    *,
    outcome: OutcomeOptions,
) -> None:
    """Ask for a switch that makes these changes, if the user agrees. Raises CommandError, RequestError, LogError."""
    if not changes:
        show_done(outcome.output, name, "nothing to change")
        return
    opened = sum(len(each.cuts) + 1 for each in changes)
    closed = sum(len(each.streams) for each in changes)
    asked = tuple(StreamsRecut(tuple(map(str, each.streams)), each.cuts) for each in changes)
    current = current_of(record_of(tail, name))
    epoch = 0 if current is None else current.epoch
    request = request_of(GenerationRequestKind.SWITCH, epoch=epoch, changes=asked)
    settle(log, name, request, f"close {number_of(closed, 'stream')} and open {opened}", change, outcome=outcome)


def delete_reader(
    tail: GenerationTail,
    key: ReaderKey | TimestampReaderKey,
    known: Mapping[str, ReaderT],
    has_read: Callable[[ReaderT], str],
    change: ChangeOptions,
    *,
    output: Output,
) -> None:
    """Delete what a reader has reported, if the user agrees. Raises CommandError, LogError."""
    if key.reader not in known:
        raise not_found(f"reader {key.reader!r}", sorted(known), f"{key.set} has no registered readers")
    what = f"delete reader {key.reader} of {key.set}, which has {has_read(known[key.reader])}"
    permit = permitted(change, what, output, {"set": key.set, "reader": key.reader})
    if permit is not None:
        _deleted(tail, key, permit)
        show_done(output, key.set, f"reader {key.reader} is deleted: nothing waits for it")


def _deleted(tail: GenerationTail, key: ReaderKey | TimestampReaderKey, _permit: Permit) -> None:
    tail.say(Fact(key, None))


def request_of(
    kind: GenerationRequestKind,
    *,
    topic: str = "",
    partitions: int = 0,
    streams: int = 0,
    epoch: int = 0,
    changes: tuple[StreamsRecut, ...] = (),
) -> GenerationRequested:
    """A request of this user, now."""
    return GenerationRequested(kind, topic, partitions, streams, epoch, changes, requester(), wall_ms())


def ask(log: Log, name: str, request: GenerationRequested, timeout: float, permit: Permit) -> str:
    """Write a request, wait until it is done, delete it, return the owner's message. Raises RequestError, LogError.

    A request about a whole change log stays once the owner has accepted it, because work that was started with Kafka's
    topics must be finished. The owner deletes such a request a day after it is settled.
    """
    key = GenerationRequestKey(name, uuid4().hex)
    what = f"{_VERBS[request.kind]} change log"
    return _ask(log, what, key, request, timeout=timeout, permit=permit, stays=request.kind in _WHOLE_LOG)


def ask_policy(log: Log, name: str, policy: LoadPolicy | None, timeout: float, permit: Permit) -> str:
    """Set the policy of autoscaling, or disable it. Raises RequestError, LogError."""
    request = PolicyRequested(policy, requester(), wall_ms())
    key = PolicyRequestKey(name, uuid4().hex)
    return _ask(log, "change the autoscaling of change log", key, request, timeout=timeout, permit=permit)


def change_timestamps(
    log: Log,
    name: str,
    kind: TimestampsRequestKind,
    permit: Permit,
    nodes: Sequence[RingNode] = (),
    *,
    outcome: OutcomeOptions,
    based_on_ms: int = 0,
    ring_delay_ms: int = 0,
    kept_ms: int = 0,
) -> None:
    """Ask for a change of a timestamp set, wait until it is done, show the outcome. Raises RequestError, LogError."""
    now_ms = wall_ms()
    request = TimestampsRequested(kind, tuple(nodes), based_on_ms, ring_delay_ms, kept_ms, requester(), now_ms)
    key = TimestampsRequestKey(name, uuid4().hex)
    what = f"{kind.value} timestamp set"
    reason = _ask(log, what, key, request, timeout=outcome.timeout, permit=permit)
    show_done(outcome.output, name, reason)


_VERBS: Final = {
    GenerationRequestKind.CREATE: "create",
    GenerationRequestKind.SWITCH: "switch streams of",
    GenerationRequestKind.ABORT: "abort the switch of",
    GenerationRequestKind.REPAIR: "repair",
    GenerationRequestKind.RETIRE: "retire generations of",
    GenerationRequestKind.GROW: "add partitions to",
    GenerationRequestKind.DELETE: "delete",
}
"""What each request asks for, before the words "change log"."""

_WHOLE_LOG: Final = (GenerationRequestKind.CREATE, GenerationRequestKind.GROW, GenerationRequestKind.DELETE)


def _ask(
    log: Log,
    what: str,
    key: GenerationRequestKey | PolicyRequestKey | TimestampsRequestKey,
    record: GenerationRequested | PolicyRequested | TimestampsRequested,
    *,
    timeout: float,
    permit: Permit,
    stays: bool = False,
) -> str:
    partition = partition_of_set(log, key.set)
    request = Request(
        what=f"{what} {key.set}",
        partition=partition,
        key=key,
        record=record,
        outcome=GenerationOutcomeKey(key.set, key.request),
        owner=GenerationOwnerKey(partition.number),
        service="generation",
        if_unfinished="it may still finish: see `headgate generation list`, or give a longer --timeout",
        stays=stays,
    )
    return ask_owner(log, request, timeout, permit).reason
