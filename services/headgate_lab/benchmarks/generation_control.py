"""Why change logs exist, as a comparison under the same load.

A topic grows from 1 to 16 partitions, and a change log is switched from 1 to 16 streams. A reader with a backlog reads
both; counted is what comes behind a later change of its key.
The plain topic is read in the usual way: by a consumer of a group, which takes what its fetches bring.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import NewPartitions, NewTopic

from headgate.cli.changes import Permit
from headgate.cli.generation_requests import ask, request_of
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.kafka import KafkaLog
from headgate.generation import ChangeReader, ChangeWriter
from headgate.generation.changelog.core.planning import resize
from headgate.generation.shell.tail import GenerationTail
from headgate.records.generation import GenerationRequestKind, StreamsRecut
from headgate_lab.benchmarks.parts import BenchError

KEYS: Final = 200
CHANGES: Final = 20_000
"""Before and after the growth, each."""

VALUE: Final = b"x" * 200
STREAMS: Final = 16
WAIT_SECONDS: Final = 180.0
SET: Final = "compared"


class Compared(msgspec.Struct, frozen=True):
    """How many changes were read, how many of them behind a later one of their key, and of how many keys."""

    read: int
    reordered: int
    keys: int


def compare(bootstrap: str, log: KafkaLog, tail: GenerationTail) -> tuple[Compared, Compared]:
    """The plain topic, and the change log; an owner serves. Raises BenchError, LogError."""
    return _plain(bootstrap, f"{log.cluster}.plain"), _change_log(log, tail)


def _plain(bootstrap: str, topic: str) -> Compared:
    admin = KafkaConnection(bootstrap).admin
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    _produce(bootstrap, topic, 0)
    admin.create_partitions([NewPartitions(topic, STREAMS)])[topic].result(30)
    _produce(bootstrap, topic, CHANGES)
    consumer: Any = KafkaConnection(bootstrap).client(Consumer, group_id=f"{topic}.group", auto_offset_reset="earliest")
    consumer.subscribe([topic])
    try:
        return _count(lambda: [(m.key(), int(m.headers()[0][1])) for m in consumer.consume(500, 0.2) if not m.error()])
    finally:
        consumer.close()


def _produce(bootstrap: str, topic: str, first: int) -> None:
    with KafkaConnection(bootstrap).client(Producer, partitioner="murmur2_random", acks="all") as producer:
        for number in range(first, first + CHANGES):
            producer.produce(topic, VALUE, _key(number), headers=[("position", str(number).encode())])
            producer.poll(0)
        if producer.flush(WAIT_SECONDS):
            raise BenchError(f"topic {topic} does not take the load")


def _key(number: int) -> bytes:
    return b"key-%d" % (number % KEYS)


def _change_log(log: KafkaLog, tail: GenerationTail) -> Compared:
    topic = f"{log.cluster}.compared"
    create = request_of(GenerationRequestKind.CREATE, topic=topic, partitions=STREAMS + 1, streams=1)
    ask(log, SET, create, WAIT_SECONDS, Permit())
    with ChangeWriter(log, SET, "w", wait_seconds=WAIT_SECONDS) as writer:
        for number in range(CHANGES):
            writer.write(_key(number), VALUE, number)
        tail.read_to_end()
        recut = resize(tail.state.map_of(SET, 1), STREAMS)
        changes = tuple(StreamsRecut(tuple(map(str, change.streams)), change.cuts) for change in recut)
        ask(log, SET, request_of(GenerationRequestKind.SWITCH, epoch=1, changes=changes), WAIT_SECONDS, Permit())
        for number in range(CHANGES, 2 * CHANGES):
            writer.write(_key(number), VALUE, number)
    with closing(ChangeReader(log, SET, "late")) as reader:
        return _count(lambda: [(change.key or b"", change.position) for change in reader.poll(0.2)])


def _count(read: Callable[[], list[tuple[bytes, int]]]) -> Compared:
    """Read all there is. Raises BenchError."""
    latest: dict[bytes, int] = defaultdict(lambda: -1)
    late: dict[bytes, int] = defaultdict(int)
    seen: set[int] = set()
    deadline = time.monotonic() + WAIT_SECONDS
    while len(seen) < 2 * CHANGES:
        if time.monotonic() > deadline:
            raise BenchError(f"only {len(seen)} of {2 * CHANGES} changes have come")
        for key, position in read():
            seen.add(position)
            late[key] += position < latest[key]
            latest[key] = max(latest[key], position)
    return Compared(len(seen), sum(late.values()), sum(count > 0 for count in late.values()))
