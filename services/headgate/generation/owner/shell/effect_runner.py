"""The effects of the owner of generations on Kafka: topics (log_topics.py), fences of writers, END markers."""

import time
from contextlib import closing
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import LogError
from headgate.generation.changelog.shell.log_topics import LogTopics, TopicRefusedError
from headgate.generation.changelog.shell.producer import WriterProducer, read_written
from headgate.generation.changelog.shell.wire import (
    NotOursError,
    end_headers,
)
from headgate.generation.core.effects import (
    CheckRows,
    CreateLog,
    DeleteLog,
    EffectRefused,
    EndsMeasured,
    EndsWritten,
    FenceWriter,
    GrowLog,
    LogDeleted,
    LogSeen,
    LookAtLog,
    MakeTopology,
    MeasureEnds,
    RowsChecked,
    TopologyMade,
    WriteEnds,
    WriterFenced,
)
from headgate.generation.shell.tail import GenerationTail
from headgate.generation.timestamps.core.descriptions import wrong_rows
from headgate.generation.timestamps.core.rings import topology_for
from headgate.runtime.machine import EffectFailed

__all__ = ["GenerationEffects"]

ENDS_TIMEOUT_MS: Final = 10_000
"""For the END markers of one effect (changelog/core/switching.py MARKERS_MAX): thousands take a second.

If the time is too short, the machine asks for the markers of this effect again."""

ENDS_WAITING_MAX: Final = 50_000
"""Markers that wait in the client's queue at most; it has room for twice as many."""

ENDS_POLL_SECONDS: Final = 0.05
"""Between two looks whether there is room again."""


class GenerationEffects:
    """Runs one effect to its end. May be called from several threads."""

    def __init__(self, log: KafkaLog, replication_factor: int) -> None:
        self._log = log
        self._connection = log.connection
        self._cluster = log.cluster
        self._topics = LogTopics(log, replication_factor)

    def run(self, effect: Any) -> Any:
        """The result, of a type that the effect names."""
        try:
            return (
                self._run_for_timestamps(effect) if isinstance(effect, MakeTopology | CheckRows) else self._run(effect)
            )
        except TopicRefusedError as error:
            return EffectRefused(str(error))
        except (LogError, NotOursError) as error:
            return EffectFailed(str(error))

    def _run(self, effect: Any) -> Any:
        match effect:
            case CreateLog() | GrowLog() | DeleteLog() | LookAtLog():
                return self._run_on_topic(effect)
            case FenceWriter(topic=topic, writer=writer):
                self._take(effect.set, writer).close()
                written = read_written(self._connection, self._cluster, effect.set, topic, writer)
                return WriterFenced(written.ahead)
            case WriteEnds():
                self._write_ends(effect)
                return EndsWritten()
            case MeasureEnds(topic=topic, partitions=partitions):
                return EndsMeasured(self._topics.ends(topic, partitions))
            case _:
                raise TypeError(f"unknown effect: {type(effect).__name__}")

    def _run_on_topic(
        self, effect: CreateLog | GrowLog | DeleteLog | LookAtLog
    ) -> LogSeen | LogDeleted | EffectRefused:
        match effect:
            case CreateLog():
                return self._topics.create(effect)
            case GrowLog():
                return self._topics.grow(effect)
            case DeleteLog():
                for writer in effect.writers:
                    self._take(effect.set, writer).close()
                return self._topics.delete(effect)
            case LookAtLog():
                return self._topics.check(effect) if effect.is_check else self._topics.look(effect.topic)

    def _run_for_timestamps(self, effect: MakeTopology | CheckRows) -> TopologyMade | RowsChecked:
        """Effects that would take too much of an owner's turn."""
        if isinstance(effect, MakeTopology):
            return TopologyMade(topology_for(effect.set, effect.timestamp_ms, effect.nodes))
        with closing(GenerationTail(self._log, effect.set, "timestamps-check")) as tail:
            tail.read_to_end()
            return RowsChecked(wrong_rows(tail.state.timestamps, effect.set, effect.rings))

    def _take(self, name: str, writer: str) -> WriterProducer:
        producer = WriterProducer(self._connection, self._cluster, name, writer)
        producer.init()
        return producer

    def _write_ends(self, effect: WriteEnds) -> None:
        """Write the markers, acknowledged by all replicas. A marker counts by itself, and may be written twice.

        So this needs no transaction, and no producer's id, for which the first records would wait half a second.
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
