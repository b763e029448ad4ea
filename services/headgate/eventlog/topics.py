"""The control topics: one table of what they are, created from it and checked against it at every start.

A control topic is state: the newest record of each key, kept for ever by compaction. On a topic with any other clean-up
policy that state silently disappears; with another number of partitions the same feed has two homes. Both look fine
until they do not, so a process refuses to start on them. The number of shards is fixed when a cluster is created: the
partitions of its topics are the record of it, every process says the number it was configured with, and a difference
is refused.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from headgate.eventlog.connection import ADMIN_SECONDS_MAX, ClusterSettings, KafkaConnection, code_of
from headgate.eventlog.log import LogError

__all__ = [
    "CONTROL_TOPICS",
    "ControlTopic",
    "TopicMissingError",
    "TopicNotCompactedError",
    "TopicPartitionsError",
    "TopicSettingError",
    "check_topics",
    "clock_advice",
    "create_topics",
    "delete_topics",
    "topic_name",
]

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""A feed's record lists all its spans: 131 072 of them, at a hundred bytes, are 13 MB."""

HEARTBEAT_SEGMENT_MS: Final = 60_000
"""Topics that grow every second: replay reads at most about this much more than one record per key. The active segment
is never compacted, and it is closed by age or size only."""

STATE_SEGMENT_MS: Final = 3_600_000
"""Topics that change when something happens."""

SEGMENT_BYTES: Final = 32 * 1024 * 1024
"""At least two of the largest records; closes a segment early when there is a burst."""

TOMBSTONE_RETENTION_MS: Final = 86_400_000
"""A reader that began before a deletion must reach it within this time."""

FOR_EVER: Final = "-1"
"""Retention of what was set aside: once its source topic has expired it is nowhere else."""

UNSEEN: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)
"""What a broker answers for a topic that is not there, and for one that the user may not see."""

VISIBLE_SECONDS_MAX: Final = 30.0
"""Each broker hears of a new topic by itself: within a second, later where the machine is busy."""

VISIBLE_POLL_SECONDS: Final = 0.05
"""Between two looks whether new topics are known to the brokers; it takes milliseconds."""

TIMESTAMP_TYPE: Final = "message.timestamp.type"
BROKERS_TIME: Final = "LogAppendTime"

_log = logging.getLogger(__name__)

_Described = dict[str, TopicDescription]


class ControlTopic(msgspec.Struct, frozen=True):
    """One control topic. ``sharded``: one partition per shard, else one in all.

    ``compacted`` topics hold state, the newest record of each key; the other holds every record, until an operator
    deletes it. In a topic that ``tells_time`` the broker stamps each record with its own time (eventlog/clock.py).
    """

    name: str
    sharded: bool
    segment_ms: int
    compacted: bool = True
    tells_time: bool = False

    def partitions(self, shards: int) -> int:
        """How many partitions it has in a cluster of ``shards``."""
        return shards if self.sharded else 1

    def settings(self, replication_factor: int) -> dict[str, str]:
        """Every setting it is created with."""
        settings = {
            **self.exact,
            **{name: str(least) for name, least in _least(replication_factor).items()},
            "segment.ms": str(self.segment_ms),
            "segment.bytes": str(SEGMENT_BYTES),
        }
        if self.tells_time:
            settings[TIMESTAMP_TYPE] = BROKERS_TIME
        if not self.compacted:
            return {**settings, "retention.ms": FOR_EVER, "retention.bytes": FOR_EVER}
        return {
            **settings,
            "max.compaction.lag.ms": str(self.segment_ms),
            "min.cleanable.dirty.ratio": "0.1",
            "delete.retention.ms": str(TOMBSTONE_RETENTION_MS),
        }

    @property
    def exact(self) -> dict[str, str]:
        """Settings that must be exactly so: without them records that were acknowledged disappear."""
        policy = "compact" if self.compacted else "delete"
        return {"cleanup.policy": policy, "unclean.leader.election.enable": "false"}


CONTROL_TOPICS: Final = (
    ControlTopic("announce", sharded=False, segment_ms=HEARTBEAT_SEGMENT_MS, tells_time=True),
    ControlTopic("changefeed", sharded=True, segment_ms=STATE_SEGMENT_MS),
    ControlTopic("checkpoint", sharded=True, segment_ms=HEARTBEAT_SEGMENT_MS),
    ControlTopic("deadletter", sharded=True, segment_ms=STATE_SEGMENT_MS, compacted=False),
    ControlTopic("dispatch", sharded=True, segment_ms=STATE_SEGMENT_MS),
    ControlTopic("generation", sharded=True, segment_ms=HEARTBEAT_SEGMENT_MS),
    ControlTopic("migration", sharded=False, segment_ms=STATE_SEGMENT_MS),
    ControlTopic("migration-approval", sharded=False, segment_ms=STATE_SEGMENT_MS),
    ControlTopic("migration-request", sharded=False, segment_ms=STATE_SEGMENT_MS),
    ControlTopic("sync", sharded=True, segment_ms=HEARTBEAT_SEGMENT_MS),
)
"""All of them. What is checked at start are ``exact``, _least and the partitions; sizes and ages may be tuned."""


def _least(replication_factor: int) -> dict[str, int]:
    """Settings that must be at least so. A write must be on a majority of replicas before it counts."""
    return {"min.insync.replicas": replication_factor // 2 + 1, "max.message.bytes": MESSAGE_BYTES_MAX}


class TopicMissingError(LogError):
    """A control topic does not exist."""

    code: ClassVar[str] = "control-topic-missing"


class TopicNotCompactedError(LogError):
    """A control topic whose records would be deleted by age."""

    code: ClassVar[str] = "control-topic-not-compacted"


class TopicPartitionsError(LogError):
    """A control topic with another number of partitions than this process has shards."""

    code: ClassVar[str] = "control-topic-partitions"


class TopicSettingError(LogError):
    """A control topic on which acknowledged records could be lost, or that does not take our largest."""

    code: ClassVar[str] = "control-topic-setting"


def topic_name(cluster: str, topic: str) -> str:
    """The full name of control topic ``topic`` of ``cluster``: "headgate.dispatch"."""
    return f"{cluster}.{topic}"


def create_topics(settings: ClusterSettings) -> list[str]:
    """Create those control topics of a cluster that are missing, then check all; the full names created.

    A topic that tells the time but was created by a version that did not need that is altered; if the user may not, a
    warning says so. Until then agents use their own clocks for lags.

    Raises LogError, and what check_topics raises: an existing cluster with another number of shards is refused.
    """
    connection = KafkaConnection(settings.bootstrap, settings.kafka)
    cluster, shards, replication_factor = settings.cluster, settings.shards, settings.replication_factor
    described = _describe(connection, cluster)
    present = [topic for topic in CONTROL_TOPICS if topic.name in described]
    _raise_all(_problems(connection, cluster, present, described, shards))
    missing = [topic for topic in CONTROL_TOPICS if topic.name not in described]
    requested = [
        NewTopic(
            topic_name(cluster, topic.name),
            num_partitions=topic.partitions(shards),
            replication_factor=replication_factor,
            config=topic.settings(replication_factor),
        )
        for topic in missing
    ]
    created = []
    if requested:
        limits = {"request_timeout": ADMIN_SECONDS_MAX, "operation_timeout": ADMIN_SECONDS_MAX}
        for name, future in sorted(connection.admin.create_topics(requested, **limits).items()):
            if _created(connection, name, future):
                created.append(name)
    _stamp_with_brokers_time(connection, [topic_name(cluster, topic.name) for topic in present if topic.tells_time])
    _raise_all(_problems_once_visible(connection, cluster, shards))
    return created


def delete_topics(connection: KafkaConnection, cluster: str) -> None:
    """Delete the control topics, and return when brokers tell of none. Raises LogError, with what could not be."""
    names = [topic_name(cluster, topic.name) for topic in CONTROL_TOPICS]
    limits = {"request_timeout": ADMIN_SECONDS_MAX, "operation_timeout": ADMIN_SECONDS_MAX}
    problems = []
    for name, future in sorted(connection.admin.delete_topics(names, **limits).items()):
        try:
            connection.wait(f"deleting topic {name}", future)
        except LogError as error:
            if code_of(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                problems.append(error)
    _raise_all(problems)
    deadline = time.monotonic() + VISIBLE_SECONDS_MAX
    while _describe(connection, cluster):
        if time.monotonic() >= deadline:
            raise LogError(
                f"the brokers have taken the deletion of the topics {cluster}.… and still tell of some of them after "
                f"{VISIBLE_SECONDS_MAX:g} s. Look again with `headgate doctor`"
            )
        time.sleep(VISIBLE_POLL_SECONDS)


def _stamp_with_brokers_time(connection: KafkaConnection, names: Sequence[str]) -> None:
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    admin = connection.admin  # held until it has answered (eventlog/leaders.py)
    for resource, future in admin.describe_configs(asked, request_timeout=ADMIN_SECONDS_MAX).items() if asked else ():
        found = connection.wait(f"reading settings of topic {resource.name}", future)
        if found[TIMESTAMP_TYPE].value == BROKERS_TIME:
            continue
        entry = ConfigEntry(TIMESTAMP_TYPE, BROKERS_TIME, incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(ResourceType.TOPIC, resource.name, incremental_configs=[entry])
        (altered,) = admin.incremental_alter_configs([wanted], request_timeout=ADMIN_SECONDS_MAX).values()
        try:
            connection.wait(f"setting {TIMESTAMP_TYPE} of topic {resource.name}", altered)
        except LogError as error:
            _log.warning("%s. %s", error, clock_advice(resource.name))


def clock_advice(topic: str) -> str:
    """What to do about a topic that does not tell the time."""
    return (
        f"Topic {topic} does not tell the brokers' time, so lags are computed by the clocks of agents. Set it with: "
        f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} "
        f"--add-config {TIMESTAMP_TYPE}={BROKERS_TIME}"
    )


def _problems_once_visible(connection: KafkaConnection, cluster: str, shards: int) -> list[LogError]:
    """What is wrong once the brokers tell of every topic.

    The controller answers before they have heard of it, and each of them hears of it in its own time.
    """
    deadline = time.monotonic() + VISIBLE_SECONDS_MAX
    while True:
        is_late = time.monotonic() >= deadline
        try:
            problems = _all_problems(connection, cluster, shards)
        except LogError as error:
            if is_late or code_of(error) not in UNSEEN:
                raise
        else:
            if is_late or not any(isinstance(each, TopicMissingError) for each in problems):
                return problems
        time.sleep(VISIBLE_POLL_SECONDS)


def _created(connection: KafkaConnection, name: str, future: Any) -> bool:
    """Whether it was us who created the topic: two first starts at once are no error."""
    try:
        future.result(2 * ADMIN_SECONDS_MAX)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise connection.failed(f"creating topic {name}", error) from error
    return True


def check_topics(settings: ClusterSettings) -> None:
    """Refuse control topics that cannot hold our state.

    Raises TopicMissingError, TopicNotCompactedError, TopicPartitionsError or TopicSettingError (the first of them
    that applies; the message lists every problem found), or LogError if the broker does not answer.
    """
    _raise_all(topic_problems(settings))


def topic_problems(settings: ClusterSettings) -> list[LogError]:
    """Everything that is wrong with the control topics, worst first. Raises LogError if the broker does not answer."""
    connection = KafkaConnection(settings.bootstrap, settings.kafka)
    return _all_problems(connection, settings.cluster, settings.shards)


def _all_problems(connection: KafkaConnection, cluster: str, shards: int) -> list[LogError]:
    described = _describe(connection, cluster)
    missing: list[LogError] = [
        TopicMissingError(
            f"control topic {topic_name(cluster, topic.name)} does not exist on Kafka at "
            f"{connection.bootstrap_servers}, or this user may not see it: create the cluster's topics (headgate topic "
            f"create), check the cluster's name {cluster!r}, or the user's right to Describe"
        )
        for topic in CONTROL_TOPICS
        if topic.name not in described
    ]
    present = [topic for topic in CONTROL_TOPICS if topic.name in described]
    return missing + _problems(connection, cluster, present, described, shards)


def _raise_all(problems: Sequence[LogError]) -> None:
    if not problems:
        return
    raise type(problems[0])("\n".join(str(problem) for problem in problems))


def _describe(connection: KafkaConnection, cluster: str) -> _Described:
    """Those control topics that exist, that this user may see and that have leaders, by short name."""
    names = {topic_name(cluster, topic.name): topic.name for topic in CONTROL_TOPICS}
    admin = connection.admin  # held until it has answered (eventlog/leaders.py)
    futures = admin.describe_topics(TopicCollection(list(names)), request_timeout=ADMIN_SECONDS_MAX)
    described = {}
    for name, future in futures.items():
        try:
            found = connection.wait(f"describing topic {name}", future)
        except LogError as error:
            if code_of(error) in UNSEEN:
                continue
            raise
        if found.partitions and all(each.leader is not None and each.leader.id >= 0 for each in found.partitions):
            described[names[name]] = found
    return described


def _problems(
    connection: KafkaConnection,
    cluster: str,
    topics: Sequence[ControlTopic],
    described: dict[str, TopicDescription],
    shards: int,
) -> list[LogError]:
    """Everything that is wrong with ``topics``, which exist: worst first."""
    resources = [ConfigResource(ResourceType.TOPIC, topic_name(cluster, topic.name)) for topic in topics]
    if not resources:
        return []
    futures = connection.admin.describe_configs(resources, request_timeout=ADMIN_SECONDS_MAX)
    found = {
        resource.name: {
            name: entry.value
            for name, entry in connection.wait(f"reading settings of topic {resource.name}", future).items()
        }
        for resource, future in futures.items()
    }
    compaction: list[LogError] = []
    partitions: list[LogError] = []
    settings: list[LogError] = []
    for topic in topics:
        name = topic_name(cluster, topic.name)
        metadata = described[topic.name]
        if len(metadata.partitions) != topic.partitions(shards):
            partitions.append(_wrong_partitions(name, len(metadata.partitions), topic.partitions(shards), shards))
        for setting, wanted in topic.exact.items():
            if found[name].get(setting) != wanted:
                kind = TopicNotCompactedError if setting == "cleanup.policy" else TopicSettingError
                problem = _wrong_setting(kind, name, setting, found[name].get(setting), wanted)
                (compaction if kind is TopicNotCompactedError else settings).append(problem)
        replicas = len(metadata.partitions[0].replicas)
        for setting, least in _least(replicas).items():
            if int(found[name].get(setting) or 0) < least:
                settings.append(_wrong_setting(TopicSettingError, name, setting, found[name].get(setting), str(least)))
    return compaction + partitions + settings


def _wrong_partitions(name: str, found: int, wanted: int, shards: int) -> TopicPartitionsError:
    return TopicPartitionsError(
        f"control topic {name} has {found} partitions, wanted {wanted} for {shards} shards: the number of shards is "
        f"fixed when a cluster is created. Configure the number it was created with; if partitions were added to the "
        f"topic, make a new cluster under another name and create the feeds there"
    )


def _wrong_setting(kind: type[LogError], name: str, setting: str, found: str | None, wanted: str) -> LogError:
    return kind(
        f"control topic {name} has {setting}={found}, wanted {setting}={wanted}: acknowledged state could be lost or "
        f"refused. Set it with: kafka-configs.sh --alter --entity-type topics --entity-name {name} "
        f"--add-config {setting}={wanted}"
    )
