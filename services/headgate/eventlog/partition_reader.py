"""Reads partitions of any topics, each from an offset on: the only consumers of the product that belong to no group.

Every reader has the same rules:

- It reads committed records only, unless configured otherwise, and commits nothing.
- An offset that the log does not have is an error (OffsetGoneError), never a jump.
- Errors that librdkafka overcomes by itself are not reported. For all others the client is replaced
  (lasting_reader.py), and errors that the user can act on are raised.
- An error loses nothing: what was fetched before it is returned first, and the next poll raises it.
- A position is the end of what was delivered, or the offset of librdkafka's end-of-partition event, whichever is
  further: transaction markers, aborted records and compaction leave holes, and an empty topic has no record at all.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from headgate.eventlog.connection import ADMIN_SECONDS_MAX, PASSING_CODES, UNREACHABLE_CODES, KafkaConnection
from headgate.eventlog.lasting_reader import LastingReader, OffsetGoneError, PartitionError, ReaderStoppedError
from headgate.eventlog.leaders import LEADER_MOVES, AskedStableEnds
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.replay import read_on_to

__all__ = [
    "BROKER_SILENT_SECONDS_MAX",
    "FETCH_WAIT_MS",
    "QUEUED_KBYTES_MAX",
    "PartitionMissingError",
    "PartitionReader",
    "read_to",
]

BROKER_SILENT_SECONDS_MAX: Final = 20.0
"""How long a reader bears that all brokers are gone before it asks once more and then fails: a broker that restarts
after a crash answers within 12 s, as measured."""

FETCH_WAIT_MS: Final = 100
"""How long the broker may hold a fetch back: decides how soon a standby sees a record."""

QUEUED_KBYTES_MAX: Final = 32 * 1024
"""Records fetched ahead of the user, per reader: twice the largest record."""

_MISSING: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC}
)

_PASSING: Final = UNREACHABLE_CODES | PASSING_CODES | LEADER_MOVES
"""Errors after which librdkafka keeps trying."""

_GONE_CODES: Final = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)
_GONE_REASONS: Final = tuple(KafkaError(code).str() for code in _GONE_CODES)
"""librdkafka reports _AUTO_OFFSET_RESET for a failed lookup and for an offset that the leader does not have. Only the
reason behind it distinguishes them, and it is in the text."""


class PartitionMissingError(PartitionError):
    """The topic, or the partition, does not exist."""

    code = "partition-missing"


class PartitionReader(LastingReader[Message]):
    """Reads its partitions (see the module's docstring). Use it from one thread, and close it."""

    _client: "_Client"

    def __init__(
        self,
        connection: KafkaConnection,
        start: Mapping[Partition, int],
        *,
        client_id: str,
        is_uncommitted: bool = False,
        asks_beginning: bool = False,
        silent_seconds_max: float = BROKER_SILENT_SECONDS_MAX,
        lease_seconds: float | None = None,
        **tuning: int,
    ) -> None:
        """``start``: partition (with its topic's full name) → first offset to read.

        ``asks_beginning``: for offset 0 ask the broker where the log begins, which takes half a second longer; offset 0
        itself may be deleted. ``lease_seconds``: see LastingReader. ``tuning``: librdkafka's properties for fetching,
        with underscores. Raises LogError.
        """
        self._connection = connection
        self._client_id = client_id
        self._zero = OFFSET_BEGINNING if asks_beginning else 0
        self._silent_seconds_max = silent_seconds_max
        self._properties: dict[str, Any] = {
            "isolation_level": "read_uncommitted" if is_uncommitted else "read_committed",
            "fetch_wait_max_ms": FETCH_WAIT_MS,
            "queued_max_messages_kbytes": QUEUED_KBYTES_MAX,
            **tuning,
        }
        self._paused: set[Partition] = set()
        self._reached: dict[Partition, int] = {}
        super().__init__(start, time.monotonic, lease_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_why: object) -> None:
        self.close()

    def take_reached(self) -> Mapping[Partition, int]:
        """Partitions whose end was reached since the last call, behind all that ``poll`` has returned → that end."""
        reached = dict(self._reached)
        self._reached.clear()
        return reached

    def assign(self, start: Mapping[Partition, int]) -> None:
        """Read these, too, or read them from another offset on."""
        self.unassign(start.keys() & self.positions().keys())
        self._client.assign(start)

    def unassign(self, partitions: Collection[Partition]) -> None:
        """Read these no more."""
        self._client.unassign(partitions)
        self._paused.difference_update(partitions)
        self.excuse(self._paused)
        for each in partitions:
            self._reached.pop(each, None)

    def pause(self, partition: Partition) -> None:
        """Fetch no more of a partition until ``resume``."""
        self._paused.add(partition)
        self.excuse(self._paused)
        self._client.pause([partition])

    def resume(self, partition: Partition) -> None:
        """Fetch a paused partition again."""
        self._paused.discard(partition)
        self.excuse(self._paused)
        self._client.resume([partition])

    def _open_client(self, start: Mapping[Partition, int]) -> "_Client":
        client = _Client(
            self._connection,
            start,
            self._reached,
            zero=self._zero,
            silent_seconds_max=self._silent_seconds_max,
            client_id=self._client_id,
            **self._properties,
        )
        client.pause(self._paused)
        return client

    def _ask_ends(self, partitions: Collection[Partition]) -> AskedStableEnds:
        return AskedStableEnds(self._connection, partitions)


class _Client:
    """One consumer, until it stops (see lasting_reader.Client)."""

    def __init__(
        self,
        connection: KafkaConnection,
        start: Mapping[Partition, int],
        reached: dict[Partition, int],
        *,
        zero: int,
        silent_seconds_max: float,
        **properties: Any,
    ) -> None:
        self._connection = connection
        self._reached = reached
        self._zero = zero
        self._silent_seconds_max = silent_seconds_max
        self._silent_since: float | None = None
        self._failures: deque[LogError] = deque()
        self._failed: set[Partition] = set()
        self._positions: dict[Partition, int] = {}
        self._partitions: dict[tuple[str | None, int | None], Partition] = {}
        self._consumer: Consumer | None = connection.client(
            Consumer,
            error_cb=self._note_error,
            group_id="headgate-reader",  # librdkafka wants one; nothing is ever committed to it
            enable_partition_eof=True,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="error",
            **properties,
        )
        self.assign(start)

    def assign(self, start: Mapping[Partition, int]) -> None:
        if not start:
            return
        self._positions |= sorted(start.items())
        self._partitions |= {(p.topic, p.number): p for p in start}
        self._failed -= start.keys()
        self._open().incremental_assign(
            [TopicPartition(p.topic, p.number, offset or self._zero) for p, offset in sorted(start.items())]
        )

    def unassign(self, partitions: Collection[Partition]) -> None:
        if not partitions:
            return
        for each in partitions:
            del self._positions[each], self._partitions[each.topic, each.number]
        self._open().incremental_unassign(_places(partitions))

    def pause(self, partitions: Collection[Partition]) -> None:
        if partitions:
            self._open().pause(_places(partitions))

    def resume(self, partitions: Collection[Partition]) -> None:
        self._open().resume(_places(partitions))

    def poll(self, records_max: int, timeout_seconds: float) -> list[Message]:
        self._raise_failure()
        consumer = self._open()
        try:
            first = consumer.poll(timeout_seconds)
            messages = [] if first is None else [first]
            if messages and records_max > 1:
                messages += consumer.consume(records_max - 1, 0)
        except KafkaException as error:
            raise self._connection.failed("reading records", error) from error
        read = [message for message in messages if self._is_record(message)]
        if not read:
            self._raise_failure()
            self._check_silence()
        return read

    def positions(self) -> Mapping[Partition, int]:
        return dict(self._positions)

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _open(self) -> Consumer:
        if self._consumer is None:
            raise LogError("this reader is closed; make a new one")
        return self._consumer

    def _raise_failure(self) -> None:
        if self._failures:
            raise self._failures.popleft()

    def _is_record(self, message: Message) -> bool:
        """Whether a message is a record. Otherwise it reports an end or an error."""
        partition = self._partitions.get((message.topic(), message.partition()))
        error = message.error()
        if error is None:
            self._silent_since = None
            if partition is None:
                return False  # fetched before it was unassigned
            self._positions[partition] = message.offset() + 1
            return True
        if error.code() != KafkaError._PARTITION_EOF:
            self._judge(partition, error)
            return False
        self._silent_since = None
        if partition is not None:
            self._reached[partition] = self._positions[partition] = max(self._positions[partition], message.offset())
        return False

    def _judge(self, partition: Partition | None, error: KafkaError) -> None:
        """Keep what librdkafka does not overcome by itself, for later: positions have passed what came before it."""
        self._note_error(error)
        if error.code() in _PASSING:
            return
        if partition is None:
            self._failures.append(self._connection.failed("reading records", KafkaException(error)))
        elif partition not in self._failed:  # librdkafka reports a failed lookup twice, with two codes
            self._failed.add(partition)
            self._failures.append(self._failure_of(partition, error))

    def _failure_of(self, partition: Partition, error: KafkaError) -> LogError:
        place, position = f"{partition.topic}/{partition.number}", self._positions[partition]
        if error.code() in _GONE_CODES or any(reason in error.str() for reason in _GONE_REASONS):
            return OffsetGoneError(
                partition,
                f"{place} at offset {position}: that offset is not in the log of Kafka at "
                f"{self._connection.bootstrap_servers} any more; read from the beginning",
            )
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            return ReaderStoppedError(
                f"reading {place} stopped at offset {position}, because looking up where to begin failed: {error.str()}"
            )
        kind = PartitionMissingError if error.code() in _MISSING else PartitionError
        return kind(partition, str(self._connection.failed(f"reading {place}", KafkaException(error))))

    def _note_error(self, error: KafkaError) -> None:
        self._connection.note(error)
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._silent_since is None:
            self._silent_since = time.monotonic()

    def _check_silence(self) -> None:
        """Raise once all brokers are away for too long: librdkafka would retry without limit and report nothing."""
        since = self._silent_since
        if since is None or time.monotonic() - since < self._silent_seconds_max:
            return
        self._connection.broker_cluster_id(min(ADMIN_SECONDS_MAX, self._silent_seconds_max))
        self._silent_since = None


def _places(partitions: Collection[Partition]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.number) for each in sorted(partitions)]


def read_to(
    reader: PartitionReader,
    ends: Mapping[Partition, int],
    stall_seconds_max: float,
    unpin: Callable[[Collection[Partition]], str] | None = None,
) -> Iterator[Message]:
    """Every record below ``ends``, of which some may lie beyond the end of what can be read now.

    ``unpin``: see read_on_to. Raises LogError, also after ``stall_seconds_max`` without any progress.
    """
    for message in read_on_to(reader, ends, stall_seconds_max=stall_seconds_max, unpin=unpin):
        if int(message.offset() or 0) < ends.get(Partition(str(message.topic()), int(message.partition() or 0)), 0):
            yield message
