"""What became of an owner's last transaction, as the broker's own log of transactions tells.

A broker of Kafka 4 may lose the end of a transaction: it decides, writes the decision down, and then leaves out the
markers of partitions that have no leader just then (a broker that is restarted, KAFKA-20734). Readers of committed
records never get past such a transaction, and ``init`` finds nothing to end. What was decided still stands in
``__transaction_state``, a compacted topic whose last minutes nobody has compacted yet; so a successor can look it up,
and end the transaction as it was decided (``writers.KafkaTransactionalWriter.end_hanging``).
"""

import struct
import time
from collections.abc import Collection, Iterator
from enum import Enum, auto
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from headgate.eventlog.connection import PASSING_CODES, KafkaConnection

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
    """What a record of the topic says of a transaction of the id, and whether that wrote to all of ``topics``.

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
    consumer: Consumer = connection.client(
        Consumer,
        client_id="headgate-decisions",
        group_id="headgate-decisions",  # librdkafka wants one; nothing is joined or committed
        enable_auto_commit=False,
        enable_partition_eof=True,
        auto_offset_reset="error",
        isolation_level="read_uncommitted",
    )
    last: tuple[Decision, bool] | None = None
    try:
        for message in _messages(connection, consumer, transactional_id):
            last = decided(transactional_id, topics, message.key(), message.value()) or last
    except KafkaException as error:
        raise connection.failed(f"reading {TOPIC}", error) from error
    finally:
        consumer.close()
    return None if last is None or not last[1] else last[0]


def _as_written(topic: str, version: int) -> bytes:
    """A topic's name with its length before it: of 16 bits in version 0, in 1 one more in as few bytes as it takes."""
    name = topic.encode()
    if version == 0:
        return struct.pack(">h", len(name)) + name
    length = len(name) + 1
    return (bytes([length]) if length < 0x80 else bytes([length & 0x7F | 0x80, length >> 7])) + name


def _messages(connection: KafkaConnection, consumer: Consumer, transactional_id: str) -> Iterator[Message]:
    deadline = time.monotonic() + READ_SECONDS_MAX
    topic = consumer.list_topics(TOPIC, timeout=READ_SECONDS_MAX).topics[TOPIC]
    if topic.error is not None:
        raise KafkaException(topic.error)
    number = transaction_partition(transactional_id, len(topic.partitions))
    low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=READ_SECONDS_MAX)
    start = high - RECORDS_MAX
    consumer.assign([TopicPartition(TOPIC, number, start if start > low else OFFSET_BEGINNING)])
    while time.monotonic() < deadline:
        for message in consumer.consume(1_000, 1.0):
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            elif error.code() not in PASSING_CODES and not error.retriable():
                raise KafkaException(error)
    raise connection.unreachable(f"reading {TOPIC} took longer than {READ_SECONDS_MAX:.0f} s")
