"""The log on Kafka: what eventlog.log promises, kept with confluent-kafka.

Readers are assigned their partitions, read committed records only and commit nothing to any group. Where a reader
stands is not the last record's offset plus one: transaction markers, aborted records and compaction leave holes, and
an empty topic has no record at all. So a position is the end of what was delivered, or the offset of librdkafka's
end-of-partition event, whichever is further (tests/integration/eventlog/test_replay.py).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.clock import BrokerClock
from headgate.eventlog.codec import Codec, CodecGarbage
from headgate.eventlog.connection import (
    ADMIN_SECONDS_MAX,
    PASSING_CODES,
    UNREACHABLE_CODES,
    ClusterSettings,
    KafkaConnection,
)
from headgate.eventlog.leaders import LEADER_MOVES, ask_offsets
from headgate.eventlog.log import Delivery, Garbage, LogError, NewerSchemaError, Partition, SchemaLevel
from headgate.eventlog.schema_files import schemas
from headgate.eventlog.topics import CONTROL_TOPICS, check_topics, topic_name
from headgate.eventlog.writers import KafkaTransactionalWriter, KafkaWriter
from headgate.records.base import Key

__all__ = ["KafkaLog", "KafkaReader", "open_log"]

BROKER_SILENT_SECONDS_MAX: Final = 20.0
"""How long a reader bears that all brokers are gone before it asks once more and then fails: a broker that restarts
after a crash answers within 12 s, as measured."""

FETCH_WAIT_MS: Final = 100
"""How long the broker may hold a fetch back: decides how soon a standby sees a record."""

BRIEF_FETCH_WAIT_MS: Final = 10
"""The same for a reader that stops at an end: the broker holds back the answer that says where it is. Such a reader
lives for too short a time to ask often."""

HIDDEN_SECONDS_MAX: Final = 2.0
"""How long a role looks behind an open transaction at most: it does nothing else. A lease is 5 s by default."""

HIDDEN_RECORDS_MAX: Final = 1_000
"""Per poll of such a look."""

QUEUED_KBYTES_MAX: Final = 32 * 1024
"""Records fetched ahead of the role loop, per reader: twice the largest record."""


def open_log(settings: ClusterSettings) -> "KafkaLog":
    """The log of a cluster, after a check that the broker answers and its control topics can hold our state.

    Raises BrokerUnreachableError, PropertyRefusedError, or what check_topics raises.
    """
    connection = KafkaConnection(settings.bootstrap, settings.kafka)
    broker = connection.broker_cluster_id()
    check_topics(settings)
    return KafkaLog(
        connection,
        settings.cluster,
        shards=settings.shards,
        broker_cluster_id=broker,
        cloudevents=settings.cloudevents,
    )


class KafkaLog:
    """A cluster's control topics on Kafka. Made by open_log."""

    def __init__(
        self,
        connection: KafkaConnection,
        cluster: str,
        *,
        shards: int,
        broker_cluster_id: str,
        cloudevents: bool = False,
    ) -> None:
        self.connection = connection
        self.cluster = cluster
        self.clock = BrokerClock()
        """The brokers' time, learnt by whatever this process writes."""
        self._shards = shards
        self._cloudevents = cloudevents
        self._cluster_id = f"{broker_cluster_id}/{cluster}."
        known = schemas()
        self._codec = Codec(known, SchemaLevel(known.level))
        self._partitions = {topic.name: topic.partitions(shards) for topic in CONTROL_TOPICS}

    @property
    def cluster_id(self) -> str:
        """The brokers' cluster id and our topics' prefix: "4L6g3nShT-eMCtK--X86sw/headgate."."""
        return self._cluster_id

    @property
    def shards(self) -> int:
        """Number of partitions of every topic but announce."""
        return self._shards

    @property
    def level(self) -> SchemaLevel:
        """At which schema level this process writes."""
        return self._codec.level

    def end_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The read_uncommitted ends, asked of the brokers now. Raises LogError."""
        return self._ends(partitions, IsolationLevel.READ_UNCOMMITTED)

    def first_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """See the port."""
        return self._ask(partitions, OffsetSpec.earliest(), "asking where the control topics begin")

    def stable_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """See the port."""
        return self._ends(partitions, IsolationLevel.READ_COMMITTED)

    def _ends(self, partitions: Sequence[Partition], isolation: IsolationLevel) -> dict[Partition, int]:
        return self._ask(partitions, OffsetSpec.latest(), "asking for the ends of the control topics", isolation)

    def _ask(
        self,
        partitions: Sequence[Partition],
        spec: OffsetSpec,
        what: str,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[Partition, int]:
        self._check(partitions)
        wanted = {KafkaPartition(topic_name(self.cluster, p.topic), p.number): p for p in partitions}
        answers = ask_offsets(self.connection, dict.fromkeys(wanted, spec), what, isolation)
        return {wanted[partition]: answer.offset for partition, answer in answers.items()}

    def hidden_keys(self, partition: Partition, start: int) -> list[Key]:
        """See the port."""
        end = self.end_offsets([partition])[partition]
        found: list[Key] = []

        def note(key: Key) -> bool:
            # Values are facts, and these are none: nothing of them is decoded.
            found.append(key)
            return True

        deadline = time.monotonic() + HIDDEN_SECONDS_MAX
        with closing(
            KafkaReader(self.connection, self.cluster, self._codec, {partition: start}, uncommitted=True)
        ) as reader:
            reader.pass_over(note)
            while reader.positions()[partition] < end and (left := deadline - time.monotonic()) > 0:
                reader.poll(HIDDEN_RECORDS_MAX, left)
        return found

    def reader(self, start: Mapping[Partition, int], *, is_brief: bool = False) -> "KafkaReader":
        """A reader of these partitions (see the port). Raises LogError for one that the log does not have."""
        self._check(list(start))
        return KafkaReader(self.connection, self.cluster, self._codec, start, is_brief=is_brief)

    def transactional_writer(self, transactional_id: str) -> KafkaTransactionalWriter:
        """An owner's log writer."""
        return KafkaTransactionalWriter(
            self.connection,
            self.cluster,
            self._codec,
            self._check,
            transactional_id,
            cloudevents=self._cloudevents,
            clock=self.clock,
        )

    def writer(self, name: str) -> KafkaWriter:
        """An agent's log writer."""
        return KafkaWriter(
            self.connection,
            self.cluster,
            self._codec,
            self._check,
            name,
            cloudevents=self._cloudevents,
            clock=self.clock,
        )

    def close(self) -> None:
        """Let go of the administrative connection; readers and writers are closed by who made them. Idempotent."""
        self.connection.close()

    def _check(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            count = self._partitions.get(partition.topic, 0)
            if not 0 <= partition.number < count:
                raise LogError(
                    f"{partition.topic}/{partition.number} is no partition of cluster {self.cluster}: "
                    f"{partition.topic} has {count}"
                )


class KafkaReader:
    """Reads assigned partitions (see the port)."""

    def __init__(
        self,
        connection: KafkaConnection,
        cluster: str,
        codec: Codec,
        start: Mapping[Partition, int],
        *,
        silent_seconds_max: float = BROKER_SILENT_SECONDS_MAX,
        is_brief: bool = False,
        uncommitted: bool = False,
    ) -> None:
        self._connection = connection
        self._codec = codec
        self._silent_seconds_max = silent_seconds_max
        self._silent_since: float | None = None
        self._newer: NewerSchemaError | None = None
        self._failed: LogError | None = None
        self._is_known: Callable[[Key], bool] | None = None
        self._positions = dict(sorted(start.items()))
        self._partitions = {(topic_name(cluster, p.topic), p.number): p for p in self._positions}
        self._consumer: Consumer | None = connection.client(
            Consumer,
            client_id="headgate-reader",
            error_cb=self._note_error,
            isolation_level="read_uncommitted" if uncommitted else "read_committed",
            fetch_wait_max_ms=BRIEF_FETCH_WAIT_MS if is_brief else FETCH_WAIT_MS,
            **_READER_PROPERTIES,
        )
        # "From the beginning" is asked of the broker: offset 0 itself may be gone, any other that is gone is an error.
        # (librdkafka asks half a second later, because it knows no leader yet.)
        zero = 0 if is_brief else OFFSET_BEGINNING
        self._consumer.assign(
            [
                KafkaPartition(topic_name(cluster, p.topic), p.number, offset or zero)
                for p, offset in self._positions.items()
            ]
        )

    def poll(self, records_max: int, timeout_seconds: float) -> list[Delivery | Garbage]:
        """See the port. May return nothing before the timeout, when an end was reached."""
        self._raise_failure()
        consumer = self._open()
        try:
            first = consumer.poll(timeout_seconds)
            messages = [] if first is None else [first]
            if messages and records_max > 1:
                messages += consumer.consume(records_max - 1, 0)
        except KafkaException as error:
            raise self._connection.failed("reading the control topics", error) from error
        read = self._receive_all(messages)
        if not read:
            self._raise_failure()
            self._check_silence()
        return read

    def _receive_all(self, messages: Sequence[Message]) -> list[Delivery | Garbage]:
        """What the messages say. An error is kept for later: positions have passed what was read before it."""
        read: list[Delivery | Garbage] = []
        for message in messages:
            try:
                read.extend(self._receive(message))
            except NewerSchemaError as error:
                self._newer = error
                break
            except LogError as error:
                self._failed = self._failed or error
        return read

    def _raise_failure(self) -> None:
        if self._newer is not None:
            raise self._newer
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def positions(self) -> Mapping[Partition, int]:
        """See the port."""
        return dict(self._positions)

    def pass_over(self, is_known: Callable[[Key], bool]) -> None:
        """See the port."""
        self._is_known = is_known

    def close(self) -> None:
        """Let go."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _open(self) -> Consumer:
        if self._consumer is None:
            raise LogError("this reader is closed; make a new one")
        return self._consumer

    def _receive(self, message: Message) -> list[Delivery | Garbage]:
        """What one message says: one record, or only that the end was reached."""
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._judge(message, error)
            return []
        self._silent_since = None
        partition = self._partitions[message.topic(), message.partition()]
        offset = message.offset()
        if error is not None:
            self._positions[partition] = max(self._positions[partition], offset)
            return []
        if self._is_passed_over(partition.topic, message.key()):
            self._positions[partition] = offset + 1
            return []
        try:
            key, value = self._codec.decode(partition.topic, message.key(), message.value())
        except CodecGarbage as garbage:
            read: Delivery | Garbage = Garbage(partition, offset, garbage.reason)
        except NewerSchemaError as newer:
            raise NewerSchemaError(f"{message.topic()}/{partition.number} offset {offset}: {newer}") from newer
        else:
            read = Delivery(partition, offset, key, value)
        self._positions[partition] = offset + 1
        return [read]

    def _is_passed_over(self, topic: str, key: bytes | None) -> bool:
        if self._is_known is None:
            return False
        try:
            return self._is_known(self._codec.decode_key(topic, key))
        except CodecGarbage:
            return False  # Its value tells whether it is rubbish, or a newer Headgate's form of a key.

    def _judge(self, message: Message, error: KafkaError) -> None:
        """Raise what cannot heal; what librdkafka goes on trying is only noted."""
        self._note_error(error)
        if error.code() in UNREACHABLE_CODES | PASSING_CODES | LEADER_MOVES:
            return
        place = f"{message.topic()}/{message.partition()}"
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            partition = self._partitions[message.topic(), message.partition()]
            raise LogError(
                f"{place} at offset {self._positions[partition]}: that offset is not in the log of Kafka at "
                f"{self._connection.bootstrap_servers} any more; read from the beginning"
            )
        raise self._connection.failed(f"reading {place}", KafkaException(error))

    def _note_error(self, error: KafkaError) -> None:
        self._connection.note(error)
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._silent_since is None:
            self._silent_since = time.monotonic()

    def _check_silence(self) -> None:
        """Left alone, librdkafka goes on trying for ever without a word; a role must know that it is blind."""
        since = self._silent_since
        if since is None or time.monotonic() - since < self._silent_seconds_max:
            return
        self._connection.broker_cluster_id(min(ADMIN_SECONDS_MAX, self._silent_seconds_max))
        self._silent_since = None


_READER_PROPERTIES: Final[dict[str, Any]] = {
    "group_id": "headgate-reader",  # librdkafka wants one; nothing is ever committed to it
    "enable_partition_eof": True,
    "enable_auto_commit": False,
    "enable_auto_offset_store": False,
    "auto_offset_reset": "error",
    "queued_max_messages_kbytes": QUEUED_KBYTES_MAX,
}
