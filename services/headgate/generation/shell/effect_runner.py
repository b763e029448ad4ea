"""The effects of the owner of generations on Kafka: topics made and looked at, writers fenced, END markers written."""

import secrets
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from headgate.eventlog.connection import ADMIN_SECONDS_MAX
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.leaders import ask_offsets
from headgate.eventlog.log import LogError
from headgate.generation.core.descriptions import wrong_rows
from headgate.generation.core.effects import (
    CheckRows,
    CreateLog,
    EffectFailed,
    EffectRefused,
    EndsMeasured,
    EndsWritten,
    FenceWriter,
    LogSeen,
    LookAtLog,
    MakeTopology,
    MeasureEnds,
    RowsChecked,
    TopologyMade,
    WriteEnds,
    WriterFenced,
)
from headgate.generation.core.rings import topology_for
from headgate.generation.shell.producer import WriterProducer, read_written
from headgate.generation.shell.tail import GenerationTail
from headgate.generation.shell.wire import (
    MESSAGE_BYTES_MAX,
    POSITIONS_PARTITIONS,
    NotOursError,
    end_headers,
    positions_topic,
)

__all__ = ["GenerationEffects"]

_CHANGES: Final[Mapping[str, str]] = {"cleanup.policy": "delete", "max.message.bytes": str(MESSAGE_BYTES_MAX)}
"""Not left to the broker's defaults: compaction would delete changes, and END markers have no key."""

_POSITIONS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "segment.ms": "60000",
    "max.compaction.lag.ms": "60000",
    "min.cleanable.dirty.ratio": "0.1",
}
"""A record per transaction, of which the last counts: a writer that starts reads little more than the last minute's."""

NEW_POLL_SECONDS: Final = 0.05
"""Between two looks at a topic that was just created: brokers hear of it within milliseconds, or are busy."""

ENDS_TIMEOUT_MS: Final = 10_000
"""For all END markers of a switch: thousands take a second; a broker that is away is asked again, by a new effect."""

ENDS_WAITING_MAX: Final = 50_000
"""Markers that wait in the client's queue at most; it has room for twice as many."""

ENDS_POLL_SECONDS: Final = 0.05
"""Between two looks whether there is room again."""

_MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})


_IMPOSSIBLE: Final = frozenset(
    {
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Why a topic cannot be created however often it is tried."""


class _RefusedError(Exception):
    """It cannot be done, and trying again does not help."""


class GenerationEffects:
    """Runs one effect to its end. May be called from several threads."""

    def __init__(self, log: KafkaLog, replication_factor: int) -> None:
        self._log = log
        self._connection = log.connection
        self._cluster = log.cluster
        self._replication_factor = replication_factor

    def run(self, effect: Any) -> Any:
        """The result, of a type that the effect names."""
        try:
            return (
                self._run_for_timestamps(effect) if isinstance(effect, MakeTopology | CheckRows) else self._run(effect)
            )
        except _RefusedError as error:
            return EffectRefused(str(error))
        except (LogError, NotOursError) as error:
            return EffectFailed(str(error))

    def _run(self, effect: Any) -> Any:
        match effect:
            case CreateLog(topic=topic, partitions=partitions):
                self._create(topic, partitions, _CHANGES)
                self._create(positions_topic(topic), POSITIONS_PARTITIONS, _POSITIONS)
                return self._look_at_new(topic)
            case LookAtLog(topic=topic):
                return self._look(topic)
            case FenceWriter(topic=topic, writer=writer):
                self._take(effect.set, writer).close()
                return WriterFenced(read_written(self._connection, topic, writer).ahead)
            case WriteEnds():
                self._write_ends(effect)
                return EndsWritten()
            case MeasureEnds(topic=topic, partitions=partitions):
                return EndsMeasured(self._ends(topic, partitions))
            case _:
                raise TypeError(f"no such effect: {type(effect).__name__}")

    def _run_for_timestamps(self, effect: MakeTopology | CheckRows) -> TopologyMade | RowsChecked:
        """What takes more time than an owner's turn has."""
        if isinstance(effect, MakeTopology):
            return TopologyMade(topology_for(effect.set, effect.timestamp_ms, effect.nodes))
        with closing(GenerationTail(self._log, effect.set, "timestamps-check")) as tail:
            tail.read_to_end()
            return RowsChecked(wrong_rows(tail.state.timestamps, effect.set, effect.rings))

    def _create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        asked = NewTopic(topic, partitions, self._replication_factor, config=dict(config))
        futures = self._connection.admin.create_topics([asked], request_timeout=ADMIN_SECONDS_MAX)
        try:
            futures[topic].result(ADMIN_SECONDS_MAX)
        except KafkaException as error:
            code = error.args[0].code()
            if code in _IMPOSSIBLE:
                raise _RefusedError(
                    f"topic {topic} with {partitions} partitions and {self._replication_factor} replicas cannot be "
                    f"created: {error.args[0].str()}. HEADGATE_REPLICATION_FACTOR is what `serve generation` is given"
                ) from error
            if code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._connection.failed(f"creating topic {topic}", error) from error

    def _look_at_new(self, topic: str) -> LogSeen | EffectRefused:
        """A topic is created when the controller says so; the broker that is asked next may hear of it later."""
        deadline = time.monotonic() + ADMIN_SECONDS_MAX
        while isinstance(seen := self._look(topic), EffectRefused) and time.monotonic() < deadline:
            time.sleep(NEW_POLL_SECONDS)
        return seen

    def _look(self, topic: str) -> LogSeen | EffectRefused:
        admin = self._connection.admin
        future = admin.describe_topics(TopicCollection([topic]), request_timeout=ADMIN_SECONDS_MAX)[topic]
        try:
            described = future.result(ADMIN_SECONDS_MAX)
        except KafkaException as error:
            if error.args[0].code() in _MISSING:
                return EffectRefused(f"topic {topic} does not exist: what it held is gone; create another change log")
            raise self._connection.failed(f"looking at topic {topic}", error) from error
        topic_id = None if described.topic_id is None else str(described.topic_id)
        ends = self._ends(topic, tuple(range(len(described.partitions))))
        return LogSeen(topic_id, ends, secrets.randbits(63))

    def _ends(self, topic: str, partitions: tuple[int, ...]) -> dict[int, int]:
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in partitions}
        answers = ask_offsets(self._connection, asked, f"asking for the ends of {topic}")
        return {at.partition: answer.offset for at, answer in answers.items()}

    def _take(self, name: str, writer: str) -> WriterProducer:
        producer = WriterProducer(self._connection, self._cluster, name, writer)
        producer.init()
        return producer

    def _write_ends(self, effect: WriteEnds) -> None:
        """Acknowledged by all replicas. A marker counts by itself, and may stand there twice.

        So there is no transaction, and no producer's id, for which the first records would wait half a second.
        """
        refused: list[KafkaError] = []

        def note(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                refused.append(error)

        producer: Producer = self._connection.client(
            Producer,
            client_id=f"headgate-ends-{effect.set}",
            acks="all",
            enable_idempotence=False,
            message_timeout_ms=ENDS_TIMEOUT_MS,
            linger_ms=5,
        )
        what = f"writing END markers to {effect.topic}"
        deadline = time.monotonic() + ENDS_TIMEOUT_MS / 1000
        try:
            for writer, position in effect.cuts:
                headers = end_headers(writer, effect.epoch, position)
                for number in effect.partitions:
                    while len(producer) >= ENDS_WAITING_MAX and not refused and time.monotonic() < deadline:
                        producer.poll(ENDS_POLL_SECONDS)
                    producer.produce(effect.topic, partition=number, headers=headers, on_delivery=note)
            left = producer.flush(max(0.0, deadline - time.monotonic()))
        except KafkaException as error:
            raise self._connection.failed(what, error) from error
        except BufferError as error:
            raise LogError(f"{what}: the local queue stays full") from error
        if refused:
            raise self._connection.failed(what, KafkaException(refused[0]))
        if left:
            raise self._connection.unreachable(f"{what}: {left} were not acknowledged")
