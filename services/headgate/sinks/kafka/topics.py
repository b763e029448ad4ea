"""Topics of a target cluster: what they are, and creating them."""

import time
from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from headgate.databases.address import Target
from headgate.databases.kafka.cluster import check_brokers
from headgate.eventlog.connection import ADMIN_SECONDS_MAX, KafkaConnection, code_of
from headgate.eventlog.log import LogError
from headgate.eventlog.replicas import BROKERS_DEFAULT, too_many_copies
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.kafka.errors import MISSING_CODES
from headgate.sinks.kafka.progress import PARTITIONS

__all__ = ["Topic", "Wanted", "check_cluster", "create", "describe", "ensure_progress_topic", "record_bytes_max"]

Settings = dict[str, str]

SEGMENT_MS: Final = 600_000
SEGMENT_BYTES: Final = 16 << 20
"""A claim reads the progress topic's partition from its beginning once per process. The active segment, which is closed
by age or size, is never compacted."""

PROGRESS_SETTINGS: Final[Settings] = {
    "cleanup.policy": "compact",
    "segment.ms": str(SEGMENT_MS),
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.1",
    "max.compaction.lag.ms": str(SEGMENT_MS),
}

_FEWER_OF_PROGRESS: Final = "set default.replication.factor={copies} at the brokers"

VISIBLE_SECONDS_MAX: Final = 30.0
"""Each broker hears of a new topic by itself: within a second, later where the machine is busy."""

VISIBLE_POLL_SECONDS: Final = 0.05

BATCH_OVERHEAD_BYTES: Final = 256
"""What a record batch adds to the key and value of its only record: a header of 61 bytes, lengths, and offsets."""


class Topic(msgspec.Struct, frozen=True):
    """A topic that exists: Kafka's id of it (None from a broker before 2.8), and how many partitions it has."""

    id: str | None
    partitions: int


def check_cluster(connection: KafkaConnection, at: Target) -> str:
    """The cluster's id, once all its brokers are hosts that this process may use.

    Raises DatabaseRefusedError, LogError.
    """
    found = connection.wait("describing the target cluster", connection.admin.describe_cluster())
    check_brokers(tuple(sorted({str(node.host) for node in found.nodes})), at)
    return str(found.cluster_id)


def describe(connection: KafkaConnection, name: str) -> Topic | None:
    """A topic, None if it does not exist. Raises LogError."""
    future = connection.admin.describe_topics(TopicCollection([name]), request_timeout=ADMIN_SECONDS_MAX)[name]
    try:
        found = connection.wait(f"describing topic {name}", future)
    except LogError as error:
        if _is_missing(error):
            return None
        raise
    topic_id = None if found.topic_id is None else str(found.topic_id)
    return Topic(topic_id, len(found.partitions))


class Wanted(msgspec.Struct, frozen=True):
    """A topic that does not exist, as it must become."""

    partitions: int = BROKERS_DEFAULT
    copies: int = BROKERS_DEFAULT
    settings: Settings = {}
    fewer_copies: str = "set sink.topic.replication_factor to {copies}"
    """How to ask for fewer, with ``{copies}`` for their number."""


def create(connection: KafkaConnection, name: str, wanted: Wanted, *, only_check: bool = False) -> None:
    """Create a topic, unless another process just has, and wait until it can be described.

    ``only_check``: whether brokers would create it. Raises LogError, SinkRefusedError for more copies than brokers.
    """
    topic = NewTopic(name, wanted.partitions, wanted.copies, config=wanted.settings)
    future = connection.admin.create_topics([topic], request_timeout=ADMIN_SECONDS_MAX, validate_only=only_check)[name]
    try:
        connection.wait(f"creating topic {name}", future)
    except LogError as error:
        if code_of(error) != KafkaError.TOPIC_ALREADY_EXISTS:
            if isinstance(error.__cause__, KafkaException) and (
                advice := too_many_copies(connection, wanted.copies, error.__cause__, wanted.fewer_copies)
            ):
                raise SinkRefusedError(f"topic {name} was not created: {advice}") from error
            raise
    if only_check:
        return
    deadline = time.monotonic() + VISIBLE_SECONDS_MAX
    while describe(connection, name) is None:
        if time.monotonic() > deadline:
            raise LogError(f"topic {name} was created, but the brokers do not know it {VISIBLE_SECONDS_MAX:g} s later")
        time.sleep(VISIBLE_POLL_SECONDS)


def ensure_progress_topic(connection: KafkaConnection, name: str) -> None:
    """Create it if it is missing. Raises SinkRefusedError if it is not what Headgate relies on, LogError."""
    found = describe(connection, name)
    if found is None:
        create(connection, name, Wanted(PARTITIONS, settings=PROGRESS_SETTINGS, fewer_copies=_FEWER_OF_PROGRESS))
        found = describe(connection, name)
    if found is not None and found.partitions != PARTITIONS:
        raise SinkRefusedError(
            f"topic {name} on Kafka at {connection.bootstrap_servers} has {found.partitions} partitions "
            f"instead of {PARTITIONS}, so positions would not be found. If no feed has written to this cluster yet, "
            "delete the topic: Headgate creates it"
        )
    policy = _setting(connection, name, "cleanup.policy")
    if policy != "compact":
        raise SinkRefusedError(
            f"topic {name} on Kafka at {connection.bootstrap_servers} has cleanup.policy={policy}, which "
            "would delete positions. Set it to compact"
        )


def record_bytes_max(connection: KafkaConnection, name: str) -> int:
    """The largest key and value, together, that the topic takes as one record. Raises LogError."""
    return int(_setting(connection, name, "max.message.bytes")) - BATCH_OVERHEAD_BYTES


def _setting(connection: KafkaConnection, topic: str, setting: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    future = connection.admin.describe_configs([resource], request_timeout=ADMIN_SECONDS_MAX)[resource]
    return str(connection.wait(f"reading the settings of topic {topic}", future)[setting].value)


def _is_missing(error: LogError) -> bool:
    return code_of(error) in MISSING_CODES
