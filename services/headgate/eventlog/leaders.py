"""Requests for the first and last offsets of partitions, also while a leader moves.

A client asks with the leader epoch it has remembered, and would do so until the next refresh of its metadata, minutes
later, although the broker answers that the epoch is over (seen with a broker fenced under load: docs/bugs.md, B5). A
client that has once found no partition with a leader keeps reporting that. A new client looks it up again. This module
asks for control topics and source topics alike.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.connection import ADMIN_SECONDS_MAX, FUTURE_GRACE_SECONDS, KafkaConnection
from headgate.eventlog.log import Partition

__all__ = ["LEADER_MOVES", "LEADER_POLL_SECONDS", "LEADER_SECONDS_MAX", "AskedStableEnds", "ask_offsets", "offsets_of"]

LEADER_SECONDS_MAX: Final = 10.0
"""How long a partition may be without a leader: topics just created, and brokers that restart or hand over."""

LEADER_POLL_SECONDS: Final = 0.1
"""Between two attempts in the meantime."""

LEADER_MOVES: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
"""A broker's errors for a partition that it does not lead yet, or no longer, or again (an epoch later)."""


REMEMBERED: Final = frozenset(
    {KafkaError._NOENT, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}
)
"""Errors for what a client has learnt earlier: a topic that was not there yet, with fewer partitions, elsewhere."""


def _answer(future: "Future[Any]", at: TopicPartition, timeout_seconds: float) -> Any:
    """The answer of the leader of ``at``. Raises KafkaException, TimeoutError.

    librdkafka (2.16) returns OFFSET_INVALID and no error for the partitions of a leader that it could not ask. Taken
    for an offset it lies below every position, so a reader would be at its end before it has read anything.
    """
    answer = future.result(timeout_seconds)
    if answer.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"the leader of {at.topic}[{at.partition}] is away"))
    return answer


def ask_offsets(
    connection: KafkaConnection,
    asked: Mapping[TopicPartition, OffsetSpec],
    what: str,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, Any]:
    """What each leader answers: ``offset``, -1 if it has none, and its ``timestamp``. ``isolation`` applies to ends.

    Raises LogError; ``what`` describes the operation; BrokerUnreachableError if no broker answered.
    """
    if not asked:
        return {}
    deadline = time.monotonic() + LEADER_SECONDS_MAX
    is_new = False
    while True:
        asker = connection.take_asker(is_new=is_new)
        futures = asker.list_offsets(dict(asked), isolation_level=isolation, request_timeout=ADMIN_SECONDS_MAX)
        moved = False
        answers: dict[TopicPartition, Any] = {}
        for at, future in futures.items():
            try:
                answers[at] = _answer(future, at, ADMIN_SECONDS_MAX + FUTURE_GRACE_SECONDS)
            except KafkaException as error:
                code = error.args[0].code()
                # A new client that finds none either may be right: the topic may not exist.
                passes = code in LEADER_MOVES and time.monotonic() < deadline
                if not passes and (code not in REMEMBERED or is_new):
                    connection.drop(asker)
                    raise connection.failed(f"{what}: {at.topic}[{at.partition}]", error) from error
                moved = True
            except TimeoutError as error:
                connection.drop(asker)
                raise connection.unreachable(what) from error
        if not moved:
            connection.give_back(asker)
            return answers
        connection.drop(asker)
        is_new = True
        time.sleep(LEADER_POLL_SECONDS)


def offsets_of(
    connection: KafkaConnection,
    partitions: Iterable[Partition],
    spec: OffsetSpec,
    what: str,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[Partition, int]:
    """The same for partitions with their topics' full names, and only the offsets."""
    wanted = {TopicPartition(p.topic, p.number): p for p in partitions}
    answers = ask_offsets(connection, dict.fromkeys(wanted, spec), what, isolation)
    return {wanted[at]: answer.offset for at, answer in answers.items()}


class AskedStableEnds:
    """Up to where partitions can be read, asked of the brokers in the background (see lasting_reader.AskedEnds)."""

    def __init__(self, connection: KafkaConnection, partitions: Collection[Partition]) -> None:
        self._connection = connection
        self._wanted = {TopicPartition(p.topic, p.number): p for p in sorted(partitions)}
        self._ends: Mapping[Partition, int] | None = None if self._wanted else {}
        self._futures: Mapping[TopicPartition, Future[Any]] = {}
        if self._wanted:
            self._asker = connection.take_asker()
            self._futures = self._asker.list_offsets(
                dict.fromkeys(self._wanted, OffsetSpec.latest()),
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=ADMIN_SECONDS_MAX,
            )

    def answer(self) -> Mapping[Partition, int] | None:
        """The ends by partition, None until all have answered. Raises LogError."""
        if self._ends is not None or not all(future.done() for future in self._futures.values()):
            return self._ends
        try:
            self._ends = {self._wanted[at]: _answer(future, at, 0).offset for at, future in self._futures.items()}
        except KafkaException as error:
            self._connection.drop(self._asker)
            raise self._connection.failed("asking for the ends of partitions", error) from error
        self._connection.give_back(self._asker)
        return self._ends
