"""What an agent's process shares about a target cluster: its only producer there, and what it has read of progress.

The producer's transactional.id is in every progress row that it may write while the row is open (``Row.holder``). That
is the fence: a claimer of the row first takes the id, and this process can commit nothing more under it. So an id is
taken exactly once by its own process, and is not used again after any error but a full queue: what became of its
transaction is found out by the next claim of the row, as it would be by another process.
"""

import logging
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import OffsetSpec

from headgate.config.crash_points import CrashPoint, reach
from headgate.databases import address
from headgate.databases.kafka.cluster import connect
from headgate.eventlog.connection import RIGHTS_CODES, SPARSE_CONNECTIONS, KafkaConnection, code_of
from headgate.eventlog.hanging import HangingTransactions, first_hidden, hidden_of
from headgate.eventlog.leaders import offsets_of
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.partition_reader import PartitionReader
from headgate.eventlog.producing import hand_over_all
from headgate.eventlog.proofs import Proofs
from headgate.eventlog.replay import read_on_to
from headgate.eventlog.transactions import TRANSACTION_TIMEOUT_MS, Transactions
from headgate.formats.debezium_schema import with_head
from headgate.sinks.contract import FeedIdentity
from headgate.sinks.kafka.errors import refusal_of
from headgate.sinks.kafka.pace import TransactionPace
from headgate.sinks.kafka.parts import Part
from headgate.sinks.kafka.progress import (
    PARTITIONS,
    PROGRESS_TOPIC,
    ProgressRecord,
    ProgressScope,
    Row,
    State,
    View,
    holder_id,
    partition_of,
    writers_of,
)
from headgate.sinks.kafka.topics import check_cluster, describe, ensure_progress_topic

__all__ = ["Holder", "Ledger", "TargetCluster", "TargetProducer", "target_of"]

_log = logging.getLogger(__name__)

STALL_SECONDS_MAX: Final = 30.0
"""How long a claim waits for a transaction that another process has open: its timeout (10 s), the broker's round that
ends it (10 s), and a margin."""

BATCH_BYTES: Final = 1_000_000
"""Of one request to one partition, before compression; topics take 1 048 588 by default."""

RECORD_BYTES_MAX: Final = 512 << 20
"""librdkafka's own limit must not be lower than a topic's, by which changes are refused in tasks."""


class TargetProducer:
    """A producer with a transactional.id, for records and for facts about progress. Not thread-safe."""

    def __init__(self, connection: KafkaConnection, transactional_id: str, progress: str) -> None:
        """``progress``: the topic that facts go to."""
        self.id = transactional_id
        self._progress = progress
        self._connection = connection
        self._refused: list[tuple[KafkaError, str]] = []
        self._producer: Producer | None = connection.client(
            Producer,
            client_id="headgate-sink",
            transactional_id=transactional_id,
            enable_sparse_connections=SPARSE_CONNECTIONS,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            compression_type="lz4",
            batch_size=BATCH_BYTES,
            message_max_bytes=RECORD_BYTES_MAX,
            partitioner="murmur2_random",
            delivery_report_only_error=True,
        )
        self._transactions = Transactions(connection, "the Kafka sink", transactional_id, self._open)

    def init(self) -> None:
        """Take the id from any other producer, and end its transaction. Raises LogError."""
        self._transactions.init()

    def commit(self, target: str, parts: Sequence[Part], facts: Iterable[ProgressRecord]) -> None:
        """Records and facts in one transaction. Raises LogError, and SinkRefusedError for what the topic refuses."""
        self._refused.clear()
        try:
            self._transactions.run(partial(self._produce, target, parts, facts))
        except LogError as failed:
            with suppress(KafkaException):  # a producer that was fenced raises here once more what is raised below
                self._open().poll(0)  # why is reported to the callback
            for error, topic in self._refused:
                if (refusal := refusal_of(error, topic, self._connection.bootstrap_servers)) is not None:
                    raise refusal from None
            # librdkafka (2.16) cannot abort a transaction that has no partition yet, which looks like being fenced.
            why = failed.__cause__
            if code_of(failed) in RIGHTS_CODES and isinstance(why, KafkaException):
                refusal = refusal_of(why.args[0], target, self._connection.bootstrap_servers)
                if refusal is not None:
                    raise refusal from failed
            raise

    def _produce(self, target: str, parts: Sequence[Part], facts: Iterable[ProgressRecord], deadline: float) -> None:
        """Raises KafkaException; BufferError if the queue stays full."""
        for head, _, _, records, all_headers in parts:
            whole = records if head is None else ((to, key, with_head(head, value)) for to, key, value in records)
            hand_over_all(self._open(), deadline, target, whole, on_delivery=self._note, all_headers=all_headers)
        if parts:
            reach(CrashPoint.ROWS_SENT)
        hand_over_all(self._open(), deadline, self._progress, facts, on_delivery=self._note)
        if parts:
            reach(CrashPoint.BEFORE_COMMIT)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and len(self._refused) < PARTITIONS:
            self._refused.append((error, str(message.topic())))

    def _open(self) -> Producer:
        if self._producer is None:
            raise LogError("this producer is closed; make a new one")
        return self._producer

    def close(self) -> None:
        """Let go. It is dropped, as the log's writers are (eventlog/log_writer.py). Idempotent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()


class Holder:
    """This process's producer for records, and the open rows that it holds. Used under ``TargetCluster.mutex``."""

    def __init__(self, producer: TargetProducer, proofs: Proofs) -> None:
        self.producer = producer
        self.proofs = proofs
        self.rows: dict[ProgressScope, dict[int, Row]] = {}

    @property
    def id(self) -> str:
        """Its transactional.id."""
        return self.producer.id

    def held(self, place: ProgressScope, partitions: Iterable[int]) -> dict[int, Row]:
        """Those of ``partitions`` that it holds."""
        rows = self.rows.get(place, {})
        return {partition: rows[partition] for partition in partitions if partition in rows}

    def keep(self, place: ProgressScope, rows: Mapping[int, Row]) -> None:
        """What was committed of them: open rows are held, closed ones no more."""
        mine = self.rows.setdefault(place, {})
        for partition, row in rows.items():
            mine.pop(partition, None)
            if not row.closed:
                mine[partition] = row


class Ledger:
    """The progress topic, read on from where the last call has come to. Thread-safe."""

    def __init__(self, connection: KafkaConnection, progress: str) -> None:
        self._connection = connection
        self._progress = progress
        self._lock = threading.Lock()
        self._reader: PartitionReader | None = None
        self._state = State()

    def read(self, target: str | None) -> View:
        """All about one target topic, or all there is, as it is now. Raises LogError, SinkConflictError.

        The end is the one before open transactions, so nothing committed is missed; the wait for them has a limit.
        """
        numbers = range(PARTITIONS) if target is None else (partition_of(target),)
        with self._lock:
            try:
                self._read_on(numbers)
            except BaseException:
                self._drop()  # what was polled and not folded is lost
                raise
            return self._state.view(target)

    def holders(self, identity: FeedIdentity) -> set[str]:
        """Who holds open rows of a feed now, whether it is removed or not. Raises as ``read`` does."""
        self.read(None)
        with self._lock:
            return self._state.holders(identity.cluster_id, identity.feed_id)

    def _read_on(self, numbers: Iterable[int]) -> None:
        if self._reader is None:
            self._state = State()
            everything = {Partition(self._progress, number): 0 for number in range(PARTITIONS)}
            self._reader = PartitionReader(self._connection, everything, client_id="headgate-sink-progress")
        wanted = [Partition(self._progress, number) for number in numbers]
        ends = offsets_of(self._connection, wanted, OffsetSpec.latest(), "asking for the ends of sink progress")
        for message in read_on_to(self._reader, ends, stall_seconds_max=STALL_SECONDS_MAX, unpin=self._unpin):
            where = f"{message.topic()}/{message.partition()} at offset {message.offset()}"
            self._state.fold(message.key(), message.value(), where)

    def _unpin(self, pinned: Collection[Partition]) -> str:
        """End what hides records of these, if a broker has lost its end. Why they stay hidden. Raises LogError."""
        writers = [
            writer
            for first in first_hidden(self._connection, pinned)
            for writer in writers_of(self._progress, first.key(), first.value())
        ]
        return HangingTransactions(self._connection).end(writers, pinned)

    def _drop(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def close(self) -> None:
        """Let go. Idempotent."""
        with self._lock:
            self._drop()


class TargetCluster:
    """One target cluster, for all sinks of this process that write to it. Thread-safe."""

    def __init__(self, at: address.Target, progress: str = PROGRESS_TOPIC) -> None:
        """``progress``: the topic for it, whose name begins all transactional.ids. Raises DatabaseRefusedError."""
        self._at = at
        self.connection = connect(at)
        self.progress = progress
        self.ledger = Ledger(self.connection, progress)
        self.mutex = threading.RLock()
        """Of the holder: who has it commits, or changes what the holder holds."""
        self.pace = TransactionPace()
        self._holder: Holder | None = None
        self._cluster_id: str | None = None
        self._checking = threading.Lock()
        self._guards = threading.Lock()
        self._claims: dict[str, threading.Lock] = {}

    @property
    def cluster_id(self) -> str:
        """The cluster's own id, once it is known that this process may use it. Raises SinkRefusedError, LogError."""
        with self._checking:
            if self._cluster_id is None:
                cluster_id = check_cluster(self.connection, self._at)
                ensure_progress_topic(self.connection, self.progress)
                self._cluster_id = cluster_id
            return self._cluster_id

    @property
    def bootstrap(self) -> str:
        """Its brokers, for messages."""
        return self.connection.bootstrap_servers

    @property
    def holder(self) -> Holder:
        """The producer for records, made and taken if there is none. Under ``mutex``. Raises LogError."""
        if self._holder is None:
            producer = self._producer(holder_id(self.progress))
            producer.init()  # before any row names it: what was fenced under it must stay so
            self._holder = Holder(producer, Proofs(self.connection, partial(self._may_be_of, producer.id)))
        return self._holder

    def retire(self) -> None:
        """Use the present holder no more: its rows are taken over by another, which the next use makes."""
        with self.mutex:
            holder, self._holder = self._holder, None
            if holder is not None:
                holder.producer.close()

    def end(self, holder: str) -> None:
        """Take another process's id, so that it commits nothing any more. Raises LogError."""
        with closing(self._producer(holder)) as producer:
            producer.init()

    def may_write(self, partitions: Collection[Partition]) -> bool:
        """Whether the present holder may: not where a broker has lost the end of its last commit (see Proofs).

        Under ``mutex``. Raises LogError if that is not known.
        """
        lost = self.holder.proofs.lost(partitions)
        return not lost or not self._has_lost(lost)

    def _has_lost(self, hidden: Collection[Partition]) -> bool:
        """Whether a successor of the present holder could end what is ``hidden``: only then its id is given up."""
        try:
            return HangingTransactions(self.connection).is_suspect(self.holder.id, hidden)
        except LogError as error:
            _log.warning("readers of Kafka at %s are held up, and the cause cannot be read: %s", self.bootstrap, error)
            return False

    def _may_be_of(self, holder: str, first: Message) -> bool:
        """Whether a holder may have written a record. Those of a target topic do not name theirs."""
        is_progress = first.topic() == self.progress
        return not is_progress or holder in writers_of(self.progress, first.key(), first.value())

    def _hidden_in(self, topic: str) -> dict[Partition, int]:
        """Raises LogError."""
        found = describe(self.connection, topic)
        partitions = [] if found is None else [Partition(topic, number) for number in range(found.partitions)]
        return hidden_of(self.connection, partitions)

    def unpin(self, topic: str, ended: Collection[str]) -> None:
        """Where a broker has lost the end of a transaction of holders that were ``ended``, end it. Raises LogError.

        Its readers would be held up without limit.
        """
        hidden = self._hidden_in(topic)
        if hidden and (why := HangingTransactions(self.connection).end(sorted(ended), hidden)):
            _log.warning("readers of topic %s on Kafka at %s are held up: %s", topic, self.bootstrap, why)

    @contextmanager
    def claiming(self, claimer: str) -> Iterator[TargetProducer]:
        """A producer beside which no other that has its id, in any process, can commit. Raises LogError."""
        with self._guards:
            guard = self._claims.setdefault(claimer, threading.Lock())
        with guard, closing(self._producer(claimer)) as producer:
            producer.init()
            yield producer

    def _producer(self, transactional_id: str) -> TargetProducer:
        return TargetProducer(self.connection, transactional_id, self.progress)

    def close(self) -> None:
        """Let go of all connections. Idempotent."""
        self.retire()
        self.ledger.close()
        self.connection.close()


_targets: dict[address.Target, TargetCluster] = {}
_making = threading.Lock()


def target_of(at: address.Target) -> TargetCluster:
    """The process's one of these brokers and this user. Raises DatabaseRefusedError.

    It is kept: its producer is in the rows that this process holds.
    """
    with _making:
        found = _targets.get(at)
        if found is None:
            found = _targets[at] = TargetCluster(at)
        return found
