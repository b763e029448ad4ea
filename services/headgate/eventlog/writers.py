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
from collections.abc import Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message

from headgate.eventlog.clock import BrokerClock
from headgate.eventlog.codec import Codec
from headgate.eventlog.connection import KafkaConnection, is_fenced, reason_of
from headgate.eventlog.decisions import Decision, last_decision
from headgate.eventlog.log import (
    CommitRefusedError,
    CommitUncertainError,
    FencedError,
    LogError,
    Placed,
)
from headgate.eventlog.log_writer import Check, LogWriter
from headgate.eventlog.topics import topic_name

_log = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS: Final = 10_000
"""After which the broker ends a transaction of an owner that died in it, if no successor has: as long as readers can
be held up (measured 10.4 s; librdkafka's default would be 60 s)."""

COMMIT_SECONDS_MAX: Final = 8.0
"""One commit takes 3 ms; beyond this its owner has long lost its lease. Shorter than the transaction's own timeout."""

INIT_SECONDS_MAX: Final = 30.0
"""Fencing takes 0.05 to 1 s, in 500 ms steps; a broker that is starting loads its transaction log first."""

INIT_ATTEMPT_SECONDS: Final = 5.0
"""One call of init_transactions; it may be repeated as long as the error is retriable."""

ABORT_SECONDS_MAX: Final = 3.0
"""If an abort does not get through, the broker does it: by the next ``init`` or the transaction's timeout."""


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
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        self._over: LogError | None = None

    def init(self) -> None:
        """Fence the others. Raises FencedError, BrokerUnreachableError or LogError."""
        producer = self._open()
        deadline = time.monotonic() + INIT_SECONDS_MAX
        while True:
            try:
                producer.init_transactions(INIT_ATTEMPT_SECONDS)
            except KafkaException as error:
                if is_fenced(error):
                    raise self._fenced(error) from error
                if not error.args[0].retriable() or time.monotonic() >= deadline:
                    raise self._connection.failed(f"taking transactional.id {self._transactional_id}", error) from error
            else:
                return

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
        topics = {topic_name(self._cluster, placed.partition.topic) for placed in harmless}
        try:
            decision = last_decision(self._connection, self._transactional_id, topics)
        except LogError as error:
            _log.warning("what became of the last transaction of %s cannot be found out: %s", self._name, error)
            return False
        match decision:
            case Decision.COMMIT:
                self.commit(harmless)
            case Decision.ABORT:
                self._withdraw(harmless)
        return decision is not None

    def _withdraw(self, placed: Sequence[Placed]) -> None:
        """Write all in one transaction and abort it. Only what has reached a partition brings the marker there."""
        messages = self._encode(placed)
        producer = self._open()
        try:
            producer.begin_transaction()
            late = self._deliver(placed, messages, time.monotonic() + COMMIT_SECONDS_MAX)
            producer.abort_transaction(ABORT_SECONDS_MAX)
        except (KafkaException, BufferError) as error:
            raise self._given_up(error) from error
        if late:
            raise self._refused(f"{late} of {len(placed)} records had not reached their partitions")

    def _commit(self, placed: Sequence[Placed], messages: Sequence[tuple[bytes, bytes | None]]) -> list[int]:
        producer = self._open()
        offsets: dict[int, int] = {}
        deadline = time.monotonic() + COMMIT_SECONDS_MAX
        try:
            producer.begin_transaction()
            for index, (each, message) in enumerate(zip(placed, messages, strict=True)):
                self._produce(each, message, partial(_note_offset, offsets, index), deadline)
        except (KafkaException, BufferError) as error:
            raise self._given_up(error) from error
        try:
            producer.commit_transaction(max(0.0, deadline - time.monotonic()))
        except KafkaException as error:
            raise self._not_committed(error) from error
        return self._offsets(offsets, len(placed))

    def _offsets(self, offsets: dict[int, int], count: int) -> list[int]:
        if len(offsets) < count:
            self._open().poll(0)
        if len(offsets) < count:
            raise CommitUncertainError(
                f"transaction of {self._name} was committed, but of its {count} offsets {count - len(offsets)} were "
                "not reported: read them from the log"
            )
        return [offsets[index] for index in range(count)]

    def _given_up(self, error: KafkaException | BufferError) -> LogError:
        """Before the commit was sent nothing can become visible, whatever went wrong."""
        if isinstance(error, KafkaException) and is_fenced(error):
            return self._fenced(error)
        reason = reason_of(error) if isinstance(error, KafkaException) else "the local queue is full"
        return self._aborted(reason)

    def _not_committed(self, error: KafkaException) -> LogError:
        if is_fenced(error):
            return self._fenced(error)
        if error.args[0].txn_requires_abort():
            return self._aborted(reason_of(error))
        return CommitUncertainError(
            f"commit of {self._name} on Kafka at {self._connection.bootstrap_servers} may or may not have happened "
            f"({reason_of(error)}): use a new writer and read the log"
        )

    def _aborted(self, reason: str) -> LogError:
        """Abort; if that does not get through, the broker will, and no writer commits until then."""
        try:
            self._open().abort_transaction(ABORT_SECONDS_MAX)
        except KafkaException as error:
            if is_fenced(error):
                return self._fenced(error)
            reason = f"{reason}; the abort was not confirmed: {reason_of(error)}"
        return self._refused(reason)

    def _refused(self, reason: str) -> CommitRefusedError:
        return CommitRefusedError(
            f"transaction of {self._name} on Kafka at {self._connection.bootstrap_servers} was aborted: {reason}"
        )

    def _fenced(self, error: KafkaException) -> FencedError:
        return FencedError(
            f"{self._name} was fenced on Kafka at {self._connection.bootstrap_servers} ({reason_of(error)}): another "
            "process has taken over, or this one paused for longer than a transaction may last. Replay before writing"
        )


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
