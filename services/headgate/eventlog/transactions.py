"""Transactions of one producer, and what their errors mean: an owner's, a Kafka sink's, a change log's writer's.

See writers.py for what the broker and librdkafka were seen to do, on which this relies.
"""

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException, Producer

from headgate.eventlog.connection import KafkaConnection, is_fenced, reason_of
from headgate.eventlog.log import CommitRefusedError, CommitUncertainError, FencedError, LogError

__all__ = ["ABORT_SECONDS_MAX", "COMMIT_SECONDS_MAX", "TRANSACTION_TIMEOUT_MS", "Transactions"]

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


class Transactions:
    """What one producer with a transactional.id does. ``name`` is who it is, for people."""

    def __init__(
        self,
        connection: KafkaConnection,
        name: str,
        transactional_id: str,
        producer: Callable[[], Producer],
        *,
        seconds: float | None = None,
    ) -> None:
        """``seconds``: how long each may take with its commit, if not COMMIT_SECONDS_MAX.

        It must be less than the producer's transaction timeout.
        """
        self._connection = connection
        self._name = name
        self._transactional_id = transactional_id
        self._producer = producer
        self._seconds = seconds

    def init(self) -> None:
        """Fence the others. Raises FencedError, BrokerUnreachableError or LogError."""
        producer = self._producer()
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

    def run(self, produce: Callable[[float], None]) -> None:
        """One transaction of what ``produce`` hands over, which is given a deadline (monotonic seconds).

        It hands over one record at least. Raises FencedError, CommitRefusedError or CommitUncertainError.
        """
        producer = self._producer()
        deadline = time.monotonic() + (COMMIT_SECONDS_MAX if self._seconds is None else self._seconds)
        try:
            producer.begin_transaction()
            produce(deadline)
        except (KafkaException, BufferError) as error:
            raise self.given_up(error) from error
        try:
            producer.commit_transaction(max(0.0, deadline - time.monotonic()))
        except KafkaException as error:
            raise self._not_committed(error) from error

    def given_up(self, error: KafkaException | BufferError) -> LogError:
        """Before the commit was sent nothing can become visible, whatever went wrong."""
        if isinstance(error, KafkaException) and is_fenced(error):
            return self._fenced(error)
        reason = reason_of(error) if isinstance(error, KafkaException) else "the local queue is full"
        return self._aborted(reason)

    def refused(self, reason: str) -> CommitRefusedError:
        """The transaction was aborted."""
        return CommitRefusedError(
            f"transaction of {self._name} on Kafka at {self._connection.bootstrap_servers} was aborted: {reason}"
        )

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
            self._producer().abort_transaction(ABORT_SECONDS_MAX)
        except KafkaException as error:
            if is_fenced(error):
                return self._fenced(error)
            reason = f"{reason}; the abort was not confirmed: {reason_of(error)}"
        return self.refused(reason)

    def _fenced(self, error: KafkaException) -> FencedError:
        return FencedError(
            f"{self._name} was fenced on Kafka at {self._connection.bootstrap_servers} ({reason_of(error)}): another "
            "process has taken over, or this one paused for longer than a transaction may last. Replay before writing"
        )
