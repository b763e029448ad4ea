"""A writer's transactional.id, for its holder: the writer itself, or the owner that fences it.

Transactions are short, because an open one keeps every reader of its partitions from the records behind it, and a
writer that is killed leaves one open until the broker ends it. Whether an unconfirmed commit took place is never
guessed: the id is taken again, and then the position on the log shows it.
"""

import logging
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import ClassVar, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.connection import ADMIN_SECONDS_MAX, SPARSE_CONNECTIONS, KafkaConnection
from headgate.eventlog.hanging import HangingTransactions, first_hidden
from headgate.eventlog.leaders import offsets_of
from headgate.eventlog.log import CommitRefusedError, CommitUncertainError, LogError, Partition
from headgate.eventlog.partition_reader import PartitionReader, read_to
from headgate.eventlog.producing import hand_over
from headgate.eventlog.proofs import Proofs
from headgate.eventlog.transactions import Transactions
from headgate.generation.changelog.core.outbox import Written
from headgate.generation.changelog.core.pacing import COMMIT_SECONDS, COMMIT_SECONDS_MAX
from headgate.generation.changelog.shell.wire import (
    MESSAGE_BYTES_MAX,
    WRITER,
    decode_written,
    positions_partition,
    positions_topic,
)

__all__ = [
    "CommitTimedOutError",
    "Outgoing",
    "RecordTooLargeError",
    "WriterProducer",
    "ended_lost_changes",
    "read_written",
    "transactional_id",
]

_log = logging.getLogger(__name__)

TRANSACTION_GRACE_SECONDS: Final = 1.0
"""A transaction must be over for its writer before the broker ends it."""

BATCH_SIZE_BYTES: Final = 1_000_000
"""librdkafka's default. A topic that takes less would refuse small records that are sent together."""

BROKER_CHECK_SECONDS: Final = 10.0
"""How often a broker looks for transactions to end (transaction.abort.timed.out.transaction.cleanup.interval.ms)."""

READ_SECONDS_MAX: Final = COMMIT_SECONDS_MAX + 2 * BROKER_CHECK_SECONDS
"""For the positions of one partition: longer than any transaction of a neighbour that was killed stays open."""


class CommitTimedOutError(LogError):
    """A transaction did not end within its time: the link is slow, or no broker answers."""

    code: ClassVar[str] = "commit-timed-out"


class RecordTooLargeError(LogError):
    """A broker refused a record for its size. It does not report which of the records that were sent together."""

    code: ClassVar[str] = "record-too-large"


_TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
"""The client refuses what is larger than its own limit, a broker what is larger than its topic's."""


class Outgoing(msgspec.Struct, frozen=True):
    """One record of a transaction."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def transactional_id(cluster: str, name: str, writer: str) -> str:
    """The id of a writer of a change log: the same for all its incarnations, so each fences the one before."""
    return f"{cluster}.generation.{name}.{writer}"


class _RefusedSizes:
    """Whether a record was refused for its size, according to delivery reports.

    It does not reference the producer: reports that are never served would keep the producer alive permanently.
    """

    def __init__(self) -> None:
        self.are_refused = False

    def note(self, error: KafkaError | None, _message: Message | None) -> None:
        if error is not None and error.code() in _TOO_LARGE:
            self.are_refused = True


class WriterProducer:
    """One holder of a writer's id, from ``init`` until another holder takes it."""

    def __init__(
        self,
        connection: KafkaConnection,
        cluster: str,
        name: str,
        writer: str,
        *,
        seconds: float = COMMIT_SECONDS,
        limit_bytes: int = MESSAGE_BYTES_MAX,
    ) -> None:
        """``seconds``: how long each transaction may take. ``limit_bytes``: the largest batch that the topic takes."""
        self._connection = connection
        self._seconds = seconds
        self._id = transactional_id(cluster, name, writer)
        self._proofs = Proofs(connection, partial(_is_of, writer.encode()))
        timeout_ms = int(1_000 * (seconds + TRANSACTION_GRACE_SECONDS))
        self._producer: Producer = connection.client(
            Producer,
            client_id=self._id,
            transactional_id=self._id,
            enable_sparse_connections=SPARSE_CONNECTIONS,
            transaction_timeout_ms=timeout_ms,
            message_timeout_ms=timeout_ms,
            message_max_bytes=MESSAGE_BYTES_MAX,
            batch_size=min(BATCH_SIZE_BYTES, limit_bytes),
            delivery_report_only_error=True,
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
        )
        self._sizes = _RefusedSizes()
        self._transactions = Transactions(connection, self._id, self._id, lambda: self._producer, seconds=seconds)

    def init(self) -> None:
        """Take the id: every earlier holder can write no more, and its open transaction is ended. Raises LogError."""
        self._transactions.init()

    def commit(self, records: Sequence[Outgoing]) -> None:
        """Write all in one transaction.

        After any error this holder is over: make a new one, and read what was written. Raises RecordTooLargeError,
        CommitTimedOutError, FencedError, LogError.
        """
        places = {Partition(record.topic, record.partition) for record in records}
        self._prove(places)
        deadline = time.monotonic() + self._seconds
        try:
            self._transactions.run(partial(self._produce, records))
        except (CommitRefusedError, CommitUncertainError) as error:
            if self._sizes.are_refused:
                raise RecordTooLargeError(
                    f"{self._id}: Kafka refused a record for {records[0].topic} because of its size"
                ) from error
            if time.monotonic() >= deadline:
                size = sum(len(record.key or b"") + len(record.value or b"") for record in records)
                raise CommitTimedOutError(
                    f"{self._id}: a transaction of {len(records)} records, {size} bytes, took longer than "
                    f"{self._seconds:g} s and was given up. The next one is smaller. Check that Kafka at "
                    f"{self._connection.bootstrap_servers} answers, and how fast the link to it is"
                ) from error
            raise
        self._proofs.committed(dict.fromkeys(places))

    def _prove(self, places: Collection[Partition]) -> None:
        """Raise LogError unless readers get all that was committed to ``places``. Who takes the id next ends it."""
        if self._proofs.lost(places):
            raise CommitUncertainError(
                f"{self._id}: Kafka at {self._connection.bootstrap_servers} has confirmed a transaction that cannot be "
                "read. The id is taken again, which ends it"
            )

    def close(self) -> None:
        """Let go; an open transaction is ended by the next holder or by the broker."""
        self._producer.purge()

    def _produce(self, records: Sequence[Outgoing], deadline: float) -> None:
        try:
            for record in records:
                hand_over(
                    self._producer,
                    deadline,
                    record.topic,
                    partition=record.partition,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                    on_delivery=self._sizes.note,
                )
        except KafkaException as error:
            self._sizes.note(error.args[0], None)
            raise


def read_written(connection: KafkaConnection, cluster: str, name: str, topic: str, writer: str) -> Written:
    """A writer's position on the log. Read it after taking its id, else it may move. Raises LogError, NotOursError.

    Its record may follow a transaction of another writer that is still open: then this waits for that one, or ends it
    if a broker has lost its end. ``name`` is the change log's.
    """
    at = Partition(positions_topic(topic), positions_partition(writer))
    # The end behind all open transactions: what readers can reach now may lack the writer's last position.
    start, end = (
        offsets_of(connection, [at], which, f"asking for the end of {at.topic}")[at]
        for which in (OffsetSpec.earliest(), OffsetSpec.latest())
    )

    def unpin(pinned: Collection[Partition]) -> str:
        writers = {message.key() or b"" for message in first_hidden(connection, pinned)}
        ids = [transactional_id(cluster, name, key.decode(errors="replace")) for key in sorted(writers)]
        return HangingTransactions(connection).end(ids, pinned)

    value: bytes | None = None
    with PartitionReader(connection, {at: start}, client_id="headgate-positions", fetch_wait_max_ms=50) as reader:
        for message in read_to(reader, {at: end}, READ_SECONDS_MAX, unpin):
            if message.key() == writer.encode():
                value = message.value()
    return decode_written(value)


def ended_lost_changes(connection: KafkaConnection, cluster: str, name: str, topic: str, writer: str) -> bool:
    """End the writer's last transaction where a broker has lost its end, which fences who has the writer's id.

    Call it after taking the id: then nothing of the writer is open that the brokers know of. Returns whether anything
    was ended. Raises LogError.
    """
    found = connection.wait(
        f"describing topic {topic}",
        connection.admin.describe_topics(TopicCollection([topic]), request_timeout=ADMIN_SECONDS_MAX)[topic],
    )
    written = [Partition(topic, number) for number in range(len(found.partitions))]
    written.append(Partition(positions_topic(topic), positions_partition(writer)))
    pinned = [
        Partition(str(message.topic()), int(message.partition() or 0))
        for message in first_hidden(connection, written)
        if _is_of(writer.encode(), message)
    ]
    if not pinned:
        return False
    why = HangingTransactions(connection).end([transactional_id(cluster, name, writer)], pinned)
    if why:
        _log.warning("readers of change log %s are held up behind changes of writer %s: %s", name, writer, why)
    return not why


def _is_of(writer: bytes, message: Message) -> bool:
    """Whether a change, or a position, is the writer's."""
    headers = dict(message.headers() or ())
    return headers.get(WRITER) == writer if headers else message.key() == writer
