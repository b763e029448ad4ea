"""The two log writers: an owner's, which a later ``init`` of its name fences, and an agent's, which nothing fences.

What the broker and librdkafka were seen to do (tests/integration/eventlog/test_writers.py), and what follows from it
here:
- only a returned ``commit_transaction`` means written: a fenced producer's ``produce`` still succeeds locally;
- a fenced producer commits an *empty* transaction without noticing, so one is never started;
- ``flush`` inside a transaction can lose the error in a callback, so the commit alone pushes the records out;
- fencing is reported as _FENCED, or as _FATAL with ``fatal()`` False: both are read;
- a transaction that is never ended pins every reader, so agents use none.
"""

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message

from headgate.eventlog.clock import BrokerClock
from headgate.eventlog.codec import Codec
from headgate.eventlog.connection import SPARSE_CONNECTIONS, KafkaConnection
from headgate.eventlog.decisions import Decision, decision_on, decisions_of
from headgate.eventlog.headers import is_of
from headgate.eventlog.log import CommitUncertainError, LogError, Partition, Placed
from headgate.eventlog.log_writer import Check, LogWriter
from headgate.eventlog.proofs import Proofs
from headgate.eventlog.topics import topic_name
from headgate.eventlog.transactions import ABORT_SECONDS_MAX, COMMIT_SECONDS_MAX, TRANSACTION_TIMEOUT_MS, Transactions

_log = logging.getLogger(__name__)


class KafkaTransactionalWriter(LogWriter):
    """One owner's log writer (see the port). ``name`` is the transactional.id."""

    def __init__(
        self,
        connection: KafkaConnection,
        cluster: str,
        codec: Codec,
        check: Check,
        name: str,
        *,
        cloudevents: bool = False,
        clock: BrokerClock | None = None,
    ) -> None:
        # Two clusters on one Kafka must not fence each other.
        self._transactional_id = transactional_id = f"{cluster}.{name}"
        super().__init__(
            connection,
            cluster,
            codec,
            check,
            name,
            cloudevents=cloudevents,
            clock=clock,
            transactional_id=transactional_id,
            enable_sparse_connections=SPARSE_CONNECTIONS,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        self._transactions = Transactions(connection, name, transactional_id, self._open)
        self._proofs = Proofs(connection, partial(is_of, name))
        self._over: LogError | None = None

    def init(self) -> None:
        """Fence the others. Raises FencedError, BrokerUnreachableError or LogError."""
        self._transactions.init()

    def seen(self, positions: Mapping[Partition, int]) -> None:
        """See the port."""
        self._proofs.seen({self._named(partition): position for partition, position in positions.items()})

    def commit(self, placed: Sequence[Placed]) -> list[int]:
        """Write one transaction; return the offsets. Raises as the port does, and ValueError for unwritable records."""
        if not placed:
            raise ValueError("a transaction needs at least one record: an empty one is committed even when fenced")
        messages = self._encode(placed)
        if self._over is not None:
            # librdkafka, asked again, answers with conflicts of state that hide what happened.
            raise type(self._over)(f"{self._over}. This writer is over: make a new one")
        try:
            return self._commit(placed, messages)
        except LogError as error:
            self._over = error
            raise

    def end_hanging(self, harmless: Sequence[Placed]) -> bool:
        """See the port. A marker ends all that this producer id has open in a partition, whichever owner wrote it."""
        by_place = {self._named(placed.partition): placed for placed in harmless}
        try:
            found = decision_on(decisions_of(self._connection, self._transactional_id).found, by_place)
        except LogError as error:
            _log.warning("what became of the last transaction of %s cannot be found out: %s", self._name, error)
            return False
        if found is None:
            return False
        ending = [by_place[partition] for partition in sorted(found.partitions)]
        match found.decision:
            case Decision.COMMIT:
                self.commit(ending)
            case Decision.ABORT:
                self._withdraw(ending)
        return True

    def _withdraw(self, placed: Sequence[Placed]) -> None:
        """Write all in one transaction and abort it. Only what has reached a partition brings the marker there."""
        messages = self._encode(placed)
        producer = self._open()
        try:
            producer.begin_transaction()
            late = self._deliver(placed, messages, time.monotonic() + COMMIT_SECONDS_MAX)
            producer.abort_transaction(ABORT_SECONDS_MAX)
        except (KafkaException, BufferError) as error:
            raise self._transactions.given_up(error) from error
        if late:
            raise self._transactions.refused(f"{late} of {len(placed)} records had not reached their partitions")

    def _commit(self, placed: Sequence[Placed], messages: Sequence[tuple[bytes, bytes | None]]) -> list[int]:
        offsets: dict[int, int] = {}

        def produce(deadline: float) -> None:
            for index, (each, message) in enumerate(zip(placed, messages, strict=True)):
                self._produce(each, message, partial(_note_offset, offsets, index), deadline)

        self._prove({self._named(each.partition) for each in placed})
        self._transactions.run(produce)
        found = self._offsets(offsets, len(placed))
        # Of each partition the last one counts: offsets rise in the order in which records were handed over.
        self._proofs.committed(
            {self._named(each.partition): offset + 1 for each, offset in zip(placed, found, strict=True)}
        )
        return found

    def _prove(self, places: Collection[Partition]) -> None:
        """Raise LogError unless readers get all that this writer has committed to ``places``."""
        if lost := self._proofs.lost(places):
            where = ", ".join(f"{each.topic}/{each.number}" for each in sorted(lost))
            raise self._transactions.refused(
                f"a broker has lost the end of the last one in {where} (docs/bugs.md, B20). The next owner ends it"
            )

    def _named(self, partition: Partition) -> Partition:
        return Partition(topic_name(self._cluster, partition.topic), partition.number)

    def _offsets(self, offsets: dict[int, int], count: int) -> list[int]:
        if len(offsets) < count:
            with suppress(KafkaException):  # the producer may have been fenced since, which it reports to its poller
                self._open().poll(0)
        if len(offsets) < count:
            raise CommitUncertainError(
                f"transaction of {self._name} was committed, but of its {count} offsets {count - len(offsets)} were "
                "not reported: read them from the log"
            )
        return [offsets[index] for index in range(count)]


class KafkaWriter(LogWriter):
    """An agent's log writer (see the port): idempotent, every in-sync replica acknowledges.

    A producer that has met a fatal error (no right to write, for example) accepts nothing any more. Nothing fences this
    writer, so the next call is given a new producer.
    """

    def write(self, placed: Sequence[Placed], timeout_seconds: float) -> None:
        """Write all and wait. After a LogError some may still arrive: records are whole states, write again."""
        messages = self._encode(placed)
        try:
            late = self._deliver(placed, messages, time.monotonic() + timeout_seconds)
        except KafkaException as error:
            raise self._failed(error) from error
        except BufferError as error:
            raise LogError(
                f"{self._name} cannot write to Kafka at {self._connection.bootstrap_servers}: the local queue is full"
            ) from error
        if late:
            raise self._connection.unreachable(
                f"{late} of {len(placed)} records of {self._name} were not acknowledged within {timeout_seconds:g} s"
            )

    def _failed(self, error: KafkaException) -> LogError:
        producer, told = self._open(), error
        try:
            producer.poll(0)  # why an error is fatal is reported outside of the answers, or raised, to the poller
        except KafkaException as fatal:
            told = fatal
        if told.args[0].fatal() or told.args[0].code() == KafkaError._FATAL:
            producer.purge()
            self._producer = self._made()
        return self._connection.failed(f"writing records of {self._name}", told)


def _note_offset(offsets: dict[int, int], index: int, error: KafkaError | None, message: Message) -> None:
    if error is None:
        offsets[index] = message.offset()
