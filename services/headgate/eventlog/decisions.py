"""The outcome of a transaction, from the broker's own log of transactions.

A broker of Kafka 4 may lose the end of a transaction: it decides, writes the decision down, and then leaves out the
markers of partitions that have no leader at that moment (a broker that is restarted, KAFKA-20734). Readers of committed
records never get past such a transaction, and ``init`` finds nothing to end. The decision is still stored in
``__transaction_state``, a compacted topic whose last minutes are not compacted yet. So a successor can look it up, and
end the transaction as it was decided (an owner: ``writers.KafkaTransactionalWriter.end_hanging``; others: hanging.py).
"""

import struct
from collections.abc import Collection, Iterable, Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.leaders import offsets_of
from headgate.eventlog.log import Partition
from headgate.eventlog.partition_reader import PartitionReader, read_to

__all__ = [
    "Decided",
    "Decision",
    "Decisions",
    "decided",
    "decision_on",
    "decisions_of",
    "transaction_partition",
]

TOPIC: Final = "__transaction_state"

RECORDS_MAX: Final = 100_000
"""How far back it is looked: each transaction of all who share the partition has about four records there."""

READ_SECONDS_MAX: Final = 20.0
"""That many records are read in two seconds; a broker that has just been restarted takes its time."""

_KEY_HEAD: Final = struct.Struct(">hh")
"""Version, length of the id."""

_VALUE_HEAD: Final = struct.Struct(">hqhib")
"""Version, producer id, epoch, time-out, status; then come the topics and their partitions."""

_OVER: Final = frozenset({0, 4, 5})
"""Empty, CompleteCommit, CompleteAbort: the broker will do no more about the id's last transaction."""

_JAVA_MASK: Final = 0xFFFF_FFFF


class Decision(Enum):
    """How a transaction is to end."""

    COMMIT = auto()
    ABORT = auto()


_DECISIONS: Final = {2: Decision.COMMIT, 3: Decision.ABORT}
"""PrepareCommit and PrepareAbort. What follows them repeats the decision without the partitions."""


def transaction_partition(transactional_id: str, partitions: int) -> int:
    """Where the broker keeps the id's state: by Java's hash of the text."""
    encoded = transactional_id.encode("utf-16-be")
    code = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        code = (31 * code + unit) & _JAVA_MASK
    signed = code - (1 << 32) if code >> 31 else code
    return abs(signed) % partitions if signed != -(1 << 31) else 0


class Decided(NamedTuple):
    """A decision, and the partitions that the transaction wrote to."""

    decision: Decision
    partitions: frozenset[Partition]


class _State(NamedTuple):
    """A record about an id: of which form, and in which state its transaction is."""

    version: int
    status: int


def decided(transactional_id: str, key: bytes | None, value: bytes | None) -> Decided | None:
    """The decision that a record has on a transaction of the id.

    None if it decides nothing, is about another id, or has a form that is not known.
    """
    state = _state(transactional_id, key, value)
    if value is None or state is None or state.status not in _DECISIONS:
        return None
    try:
        return Decided(_DECISIONS[state.status], frozenset(_partitions(value, is_compact=state.version == 1)))
    except (struct.error, IndexError, UnicodeDecodeError):
        return None


def _state(transactional_id: str, key: bytes | None, value: bytes | None) -> _State | None:
    """None for a record about another id, or of a form that is not known."""
    if key is None or value is None or len(key) < _KEY_HEAD.size or len(value) < _VALUE_HEAD.size:
        return None
    key_version, length = _KEY_HEAD.unpack_from(key)
    version, _, _, _, status = _VALUE_HEAD.unpack_from(value)
    if key_version != 0 or key[_KEY_HEAD.size : _KEY_HEAD.size + length] != transactional_id.encode():
        return None
    return _State(version, status) if version in {0, 1} else None


class Decisions(NamedTuple):
    """What is stored of an id: its decisions in their order, and whether the broker is done with the last one."""

    found: tuple[Decided, ...]
    is_over: bool


def decision_on(found: Iterable[Decided], hidden: Collection[Partition]) -> Decided | None:
    """How what an id has open in ``hidden`` is to end, from its decisions in their order.

    The decision is that of the latest transaction that wrote to one of them; the partitions are those of ``hidden``
    that it wrote to. None if there is none, or if a later transaction that shares a partition with it was decided
    otherwise: its marker may have ended a part of the earlier one there, and how that part ended cannot be found out
    here. One that shares none has ended nothing of it.
    """
    last: Decided | None = None
    for each in found:
        if each.partitions.intersection(hidden):
            last = each
        elif last is not None and last.decision is not each.decision and last.partitions & each.partitions:
            return None
    return None if last is None else Decided(last.decision, last.partitions.intersection(hidden))


def decisions_of(connection: KafkaConnection, transactional_id: str) -> Decisions:
    """All that is still stored of an id. Raises LogError, also if the topic may not be read."""
    found, is_over = [], True
    for message in _messages(connection, transactional_id):
        key, value = message.key(), message.value()
        state = _state(transactional_id, key, value)
        if state is not None:
            is_over = state.status in _OVER
            each = decided(transactional_id, key, value)
            found += [] if each is None else [each]
    return Decisions(tuple(found), is_over)


def _partitions(value: bytes, *, is_compact: bool) -> Iterator[Partition]:
    """From a value's arrays: with 32 bits for each length (16 for a name's), or with lengths as varints, plus one."""
    at = _VALUE_HEAD.size
    topics, at = _length(value, at, ">i", is_compact=is_compact)
    for _ in range(topics):
        size, at = _length(value, at, ">h", is_compact=is_compact)
        name, at = value[at : at + size].decode(), at + size
        count, at = _length(value, at, ">i", is_compact=is_compact)
        for number in struct.unpack_from(f">{count}i", value, at):
            yield Partition(name, number)
        at += 4 * count + is_compact  # an empty list of tagged fields follows


def _length(value: bytes, at: int, form: str, *, is_compact: bool) -> tuple[int, int]:
    """A length, 0 for null, and where the next field begins. Raises struct.error, IndexError."""
    if not is_compact:
        return max(0, struct.unpack_from(form, value, at)[0]), at + struct.calcsize(form)
    found = shift = 0
    while True:
        byte, at = value[at], at + 1
        found |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return max(0, found - 1), at


def _messages(connection: KafkaConnection, transactional_id: str) -> Iterator[Message]:
    """The last records of the partition that the id's state is in. Raises LogError."""
    try:
        topic = connection.admin.list_topics(TOPIC, timeout=READ_SECONDS_MAX).topics[TOPIC]
    except KafkaException as error:
        raise connection.failed(f"reading {TOPIC}", error) from error
    if topic.error is not None:
        raise connection.failed(f"reading {TOPIC}", KafkaException(topic.error))
    at = Partition(TOPIC, transaction_partition(transactional_id, len(topic.partitions)))
    low, end = (
        offsets_of(connection, [at], which, f"reading {TOPIC}")[at]
        for which in (OffsetSpec.earliest(), OffsetSpec.latest())
    )
    start = {at: max(low, end - RECORDS_MAX)}
    with PartitionReader(connection, start, client_id="headgate-decisions", is_uncommitted=True) as reader:
        yield from read_to(reader, {at: end}, READ_SECONDS_MAX)
