"""The log on Kafka: what eventlog.log promises, kept with confluent-kafka.

Readers are decoders on top of partition_reader.py, which defines what they read and their positions.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Final

from confluent_kafka import IsolationLevel, Message
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.clock import BrokerClock
from headgate.eventlog.codec import Codec, CodecGarbage
from headgate.eventlog.connection import ClusterSettings, KafkaConnection
from headgate.eventlog.leaders import offsets_of
from headgate.eventlog.log import Delivery, Garbage, LogError, NewerSchemaError, Partition, SchemaLevel
from headgate.eventlog.partition_reader import BROKER_SILENT_SECONDS_MAX, FETCH_WAIT_MS, PartitionReader
from headgate.eventlog.schema_files import schemas
from headgate.eventlog.topics import CONTROL_TOPICS, check_topics, topic_name
from headgate.eventlog.writers import KafkaTransactionalWriter, KafkaWriter
from headgate.records.base import Key

__all__ = ["KafkaLog", "KafkaReader", "open_log"]

BRIEF_FETCH_WAIT_MS: Final = 10
"""FETCH_WAIT_MS of a reader that stops at an end: the broker holds back the answer that contains the end. Such a reader
lives for too short a time to ask often."""

HIDDEN_SECONDS_MAX: Final = 2.0
"""How long a role looks behind an open transaction at most: it does nothing else. A lease is 5 s by default."""

HIDDEN_RECORDS_MAX: Final = 1_000
"""Per poll of such a look."""


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
        wanted = {Partition(topic_name(self.cluster, p.topic), p.number): p for p in partitions}
        answers = offsets_of(self.connection, wanted, spec, what, isolation)
        return {wanted[at]: offset for at, offset in answers.items()}

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

    def reader(
        self, start: Mapping[Partition, int], *, is_brief: bool = False, lease_seconds: float | None = None
    ) -> "KafkaReader":
        """A reader of these partitions (see the port). Raises LogError for one that the log does not have."""
        self._check(list(start))
        return KafkaReader(
            self.connection, self.cluster, self._codec, start, is_brief=is_brief, lease_seconds=lease_seconds
        )

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
                    f"{partition.topic}/{partition.number} is not a partition of cluster {self.cluster}: "
                    f"{partition.topic} has {count}"
                )


class KafkaReader:
    """Reads assigned partitions (see the port): what partition_reader.py delivers, decoded."""

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
        lease_seconds: float | None = None,
    ) -> None:
        self._codec = codec
        self._newer: NewerSchemaError | None = None
        self._left_at: dict[Partition, int] = {}
        """Where the records begin that came with ``_newer``, or behind it, and were not delivered."""
        self._is_known: Callable[[Key], bool] | None = None
        self._partitions = {Partition(topic_name(cluster, p.topic), p.number): p for p in sorted(start)}
        self._by_name = {(at.topic, at.number): p for at, p in self._partitions.items()}
        # "From the beginning" is asked of the broker: offset 0 itself may be gone, any other that is gone is an error.
        self._reader = PartitionReader(
            connection,
            {at: start[p] for at, p in self._partitions.items()},
            client_id="headgate-reader",
            is_uncommitted=uncommitted,
            asks_beginning=not is_brief,
            silent_seconds_max=silent_seconds_max,
            lease_seconds=lease_seconds,
            fetch_wait_max_ms=BRIEF_FETCH_WAIT_MS if is_brief else FETCH_WAIT_MS,
        )

    @property
    def stopped(self) -> str | None:
        """See the port."""
        return self._reader.stopped

    @property
    def replacements(self) -> int:
        """How often a client was replaced."""
        return self._reader.replacements

    def poll(self, records_max: int, timeout_seconds: float) -> list[Delivery | Garbage]:
        """See the port. May return nothing before the timeout, when an end was reached."""
        if self._newer is not None:
            raise self._newer
        read: list[Delivery | Garbage] = []
        messages = self._reader.poll(records_max, timeout_seconds)
        for number, message in enumerate(messages):
            try:
                item = self._decoded(message)
            except NewerSchemaError as error:
                self._newer = error  # nothing behind it is read: this reader's user ends
                for left in reversed(messages[number:]):
                    self._left_at[self._by_name[left.topic(), left.partition()]] = int(left.offset() or 0)
                if not read:
                    raise
                break
            if item is not None:
                read.append(item)
        return read

    def positions(self) -> Mapping[Partition, int]:
        """See the port."""
        positions = {self._partitions[at]: position for at, position in self._reader.positions().items()}
        return positions | self._left_at

    def pass_over(self, is_known: Callable[[Key], bool]) -> None:
        """See the port."""
        self._is_known = is_known

    def close(self) -> None:
        """Let go."""
        self._reader.close()

    def _decoded(self, message: Message) -> Delivery | Garbage | None:
        """The content of a record, None if it is skipped. Raises NewerSchemaError."""
        partition, offset = self._by_name[message.topic(), message.partition()], message.offset()
        if self._is_passed_over(partition.topic, message.key()):
            return None
        try:
            key, value = self._codec.decode(partition.topic, message.key(), message.value())
        except CodecGarbage as garbage:
            return Garbage(partition, offset, garbage.reason)
        except NewerSchemaError as newer:
            raise NewerSchemaError(f"{message.topic()}/{partition.number} offset {offset}: {newer}") from newer
        return Delivery(partition, offset, key, value)

    def _is_passed_over(self, topic: str, key: bytes | None) -> bool:
        if self._is_known is None:
            return False
        try:
            return self._is_known(self._codec.decode_key(topic, key))
        except CodecGarbage:
            return False  # Its value shows whether it is rubbish, or a newer Headgate's form of a key.
