"""The outcome of an owner's last transaction, from the broker's own log of transactions.

A broker of Kafka 4 may lose the end of a transaction: it decides, writes the decision down, and then leaves out the
markers of partitions that have no leader at that moment (a broker that is restarted, KAFKA-20734). Readers of committed
records never get past such a transaction, and ``init`` finds nothing to end. The decision is still stored in
``__transaction_state``, a compacted topic whose last minutes are not compacted yet. So a successor can look it up, and
end the transaction as it was decided (``writers.KafkaTransactionalWriter.end_hanging``).
"""

import struct
from collections.abc import Collection, Iterator
from enum import Enum, auto
from typing import Final

from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.leaders import offsets_of
from headgate.eventlog.log import Partition
from headgate.eventlog.partition_reader import PartitionReader, read_to

__all__ = ["Decision", "decided", "last_decision", "transaction_partition"]

TOPIC: Final = "__transaction_state"

RECORDS_MAX: Final = 100_000
"""How far back it is looked: each transaction of all who share the partition has about four records there."""

READ_SECONDS_MAX: Final = 20.0
"""That many records are read in two seconds; a broker that has just been restarted takes its time."""

_KEY_HEAD: Final = struct.Struct(">hh")
"""Version, length of the id."""

_VALUE_HEAD: Final = struct.Struct(">hqhib")
"""Version, producer id, epoch, time-out, status; then come the topics and their partitions."""

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


def decided(
    transactional_id: str, topics: Collection[str], key: bytes | None, value: bytes | None
) -> tuple[Decision, bool] | None:
    """A record's decision on a transaction of the id, and whether that wrote to all of ``topics``.

    None if it decides nothing, is about another id, or has a form that is not known.
    """
    if key is None or value is None or len(key) < _KEY_HEAD.size or len(value) < _VALUE_HEAD.size:
        return None
    key_version, length = _KEY_HEAD.unpack_from(key)
    version, _, _, _, status = _VALUE_HEAD.unpack_from(value)
    if key_version != 0 or key[_KEY_HEAD.size : _KEY_HEAD.size + length] != transactional_id.encode():
        return None
    if version not in {0, 1} or status not in _DECISIONS:
        return None
    rest = value[_VALUE_HEAD.size :]
    return _DECISIONS[status], all(_as_written(topic, version) in rest for topic in topics)


def last_decision(connection: KafkaConnection, transactional_id: str, topics: Collection[str]) -> Decision | None:
    """What was decided of the id's last transaction; None if that is not there any more, or was not of all ``topics``.

    An owner writes to one partition of each topic, so its topics are as good as partitions. Raises LogError, also if
    the topic may not be read.
    """
    last: tuple[Decision, bool] | None = None
    for message in _messages(connection, transactional_id):
        last = decided(transactional_id, topics, message.key(), message.value()) or last
    return None if last is None or not last[1] else last[0]


def _as_written(topic: str, version: int) -> bytes:
    """A topic's name with its length before it: of 16 bits in version 0, in 1 one more in as few bytes as it takes."""
    name = topic.encode()
    if version == 0:
        return struct.pack(">h", len(name)) + name
    length = len(name) + 1
    return (bytes([length]) if length < 0x80 else bytes([length & 0x7F | 0x80, length >> 7])) + name


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
