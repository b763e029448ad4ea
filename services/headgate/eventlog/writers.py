"""The two pens on Kafka: an owner's, which a rival's ``init`` takes away, and an agent's, which nothing takes away.

What the broker and librdkafka were seen to do (anchors/kafka-facts.md §2, §3), and what follows from it here:
- only a returned ``commit_transaction`` means written: a fenced producer's ``produce`` still succeeds locally;
- a fenced producer commits an *empty* transaction without noticing, so one is never begun;
- ``flush`` inside a transaction can lose the error in a callback, so the commit alone pushes the records out;
- fencing is told as _FENCED, or as _FATAL with ``fatal()`` False: both are read;
- a transaction that nobody ends pins every reader, so agents use none.
"""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.eventlog.codec import CONTENT_TYPE, Codec
from headgate.eventlog.connection import KafkaConnection, reason_of
from headgate.eventlog.decisions import Decision, last_decision
from headgate.eventlog.log import (
    CommitRefusedError,
    CommitUncertainError,
    FencedError,
    LogError,
    Partition,
    Placed,
)
from headgate.eventlog.topics import MESSAGE_BYTES_MAX, topic_name

__all__ = ["TRANSACTION_TIMEOUT_MS", "KafkaTransactionalWriter", "KafkaWriter"]

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

QUEUE_FULL_POLL_SECONDS: Final = 0.05
"""How long to serve deliveries before a produce is tried again on a full local queue."""

ACK_POLL_SECONDS: Final = 0.1
"""An acknowledgement may be served to a thread that polls the same producer: look again so often."""

MESSAGE_TIMEOUT_MS: Final = 8_000
"""After which librdkafka gives a record up. At most the transaction's timeout, or the broker would end it first."""

_FENCED_CODES: Final = frozenset(
    {KafkaError._FENCED, KafkaError._FATAL, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
)

Check = Callable[[Sequence[Partition]], None]
"""Raises LogError for a partition that the log does not have."""


class _Pen:
    """What both writers share: a producer, and how a placed fact becomes a message."""

    def __init__(
        self, connection: KafkaConnection, cluster: str, codec: Codec, check: Check, name: str, **fixed: Any
    ) -> None:
        self._connection = connection
        self._cluster = cluster
        self._codec = codec
        self._check = check
        self._name = name
        self._producer: Producer | None = connection.client(
            Producer,
            client_id=name,
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            message_max_bytes=MESSAGE_BYTES_MAX,
            message_timeout_ms=MESSAGE_TIMEOUT_MS,
            **fixed,
        )

    def close(self) -> None:
        """Let go: what was not acknowledged by now is not waited for.

        The producer is dropped, not closed: its own ``close`` would flush, would abort where the outcome is
        uncertain, and fails on a fenced instance (SystemError, confluent-kafka 2.16.0).
        """
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _open(self) -> Producer:
        if self._producer is None:
            raise LogError(f"writer {self._name} is closed; make a new one")
        return self._producer

    def _encode(self, placed: Sequence[Placed]) -> list[tuple[bytes, bytes | None]]:
        """Keys and values. Raises ValueError for facts that cannot stand where they are placed, or LogError."""
        self._check([each.partition for each in placed])
        for each in placed:
            if each.partition.topic != each.fact.key.topic:
                raise ValueError(
                    f"key {each.fact.key.text()} belongs to {each.fact.key.topic}, not to {each.partition.topic}"
                )
        return [self._codec.encode(each.fact) for each in placed]

    def _produce(
        self, placed: Placed, message: tuple[bytes, bytes | None], report: Callable[..., None], deadline: float
    ) -> None:
        """Hand one message to librdkafka. Raises KafkaException; BufferError if the queue stays full."""
        producer = self._open()
        key, value = message
        headers = [("writer", self._name.encode()), ("content-type", CONTENT_TYPE.encode())]
        while True:
            try:
                producer.produce(
                    topic_name(self._cluster, placed.partition.topic),
                    partition=placed.partition.number,
                    key=key,
                    value=value,
                    headers=headers if value is not None else headers[:1],
                    on_delivery=report,
                )
            except BufferError:
                if time.monotonic() >= deadline:
                    raise
                producer.poll(QUEUE_FULL_POLL_SECONDS)
            else:
                return


class KafkaTransactionalWriter(_Pen):
    """One owner's pen (see the port). ``name`` is the transactional.id."""

    def __init__(self, connection: KafkaConnection, cluster: str, codec: Codec, check: Check, name: str) -> None:
        # Two clusters on one Kafka must not fence each other.
        self._transactional_id = transactional_id = f"{cluster}.{name}"
        super().__init__(
            connection,
            cluster,
            codec,
            check,
            name,
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
                if _is_fenced(error):
                    raise self._fenced(error) from error
                if not error.args[0].retriable() or time.monotonic() >= deadline:
                    raise self._connection.failed(f"taking transactional.id {self._name}", error) from error
            else:
                return

    def commit(self, placed: Sequence[Placed]) -> list[int]:
        """One transaction; the offsets. Raises as the port says, ValueError for what cannot be written at all."""
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
        deadline = time.monotonic() + COMMIT_SECONDS_MAX
        reports: list[KafkaError | None] = []
        try:
            producer.begin_transaction()
            for each, message in zip(placed, messages, strict=True):
                self._produce(each, message, partial(_note_report, reports), deadline)
            while len(reports) < len(placed) and (left := deadline - time.monotonic()) > 0:
                producer.poll(min(left, ACK_POLL_SECONDS))
            producer.abort_transaction(ABORT_SECONDS_MAX)
        except (KafkaException, BufferError) as error:
            raise self._given_up(error) from error

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
        if isinstance(error, KafkaException) and _is_fenced(error):
            return self._fenced(error)
        reason = reason_of(error) if isinstance(error, KafkaException) else "the local queue is full"
        return self._aborted(reason)

    def _not_committed(self, error: KafkaException) -> LogError:
        if _is_fenced(error):
            return self._fenced(error)
        if error.args[0].txn_requires_abort():
            return self._aborted(reason_of(error))
        return CommitUncertainError(
            f"commit of {self._name} on Kafka at {self._connection.bootstrap_servers} may or may not have happened "
            f"({reason_of(error)}): use a new writer and read the log"
        )

    def _aborted(self, reason: str) -> LogError:
        """Abort; if that does not get through, the broker will, and nobody commits meanwhile."""
        try:
            self._open().abort_transaction(ABORT_SECONDS_MAX)
        except KafkaException as error:
            if _is_fenced(error):
                return self._fenced(error)
            reason = f"{reason}; the abort was not confirmed: {reason_of(error)}"
        return CommitRefusedError(
            f"transaction of {self._name} on Kafka at {self._connection.bootstrap_servers} was aborted: {reason}"
        )

    def _fenced(self, error: KafkaException) -> FencedError:
        return FencedError(
            f"{self._name} was fenced on Kafka at {self._connection.bootstrap_servers} ({reason_of(error)}): another "
            "process has taken over, or this one paused for longer than a transaction may last. Replay before writing"
        )


class KafkaWriter(_Pen):
    """An agent's pen (see the port): idempotent, every in-sync replica acknowledges."""

    def write(self, placed: Sequence[Placed], timeout_seconds: float) -> None:
        """Write all and wait. After a LogError some may still arrive: records are whole states, write again."""
        deadline = time.monotonic() + timeout_seconds
        messages = self._encode(placed)
        producer = self._open()
        reports: list[KafkaError | None] = []
        try:
            for each, message in zip(placed, messages, strict=True):
                self._produce(each, message, partial(_note_report, reports), deadline)
            while len(reports) < len(placed) and (left := deadline - time.monotonic()) > 0:
                producer.poll(min(left, ACK_POLL_SECONDS))
        except (KafkaException, BufferError) as error:
            reason = reason_of(error) if isinstance(error, KafkaException) else "the local queue is full"
            raise LogError(
                f"{self._name} cannot write to Kafka at {self._connection.bootstrap_servers}: {reason}"
            ) from (error)
        if len(reports) < len(placed):
            raise self._connection.unreachable(
                f"{len(placed) - len(reports)} of {len(placed)} records of {self._name} were not acknowledged within "
                f"{timeout_seconds:g} s"
            )
        for report in reports:
            if report is not None:
                raise self._connection.failed(f"writing records of {self._name}", KafkaException(report))


def _note_offset(offsets: dict[int, int], index: int, error: KafkaError | None, message: Message) -> None:
    if error is None:
        offsets[index] = message.offset()


def _note_report(reports: list[KafkaError | None], error: KafkaError | None, _: Message) -> None:
    reports.append(error)


def _is_fenced(error: KafkaException) -> bool:
    """Whether this producer is over. _FENCED does not prove a rival: its own timeout looks the same."""
    kafka_error = error.args[0]
    return bool(kafka_error.fatal()) or kafka_error.code() in _FENCED_CODES
