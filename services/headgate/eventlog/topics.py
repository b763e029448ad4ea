"""The control topics and their settings: created from one table, and checked against it at every start.

A control topic is state: the newest record of each key, kept permanently by compaction. On a topic with any other
clean-up policy that state silently disappears; with another number of partitions the same feed has two homes. Both look
fine until they do not, so a process refuses to start on them. The number of shards is fixed when a cluster is created:
the partitions of its topics are the record of it, every process states the number it was configured with, and a
difference is refused.
"""

import logging
import time
from collections.abc import Mapping, Sequence
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
from headgate.eventlog.replicas import too_many_copies
from headgate.records.name_lists import number_of

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
    "removal_advice",
    "topic_name",
    "why_not_removable",
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

UNSEEN: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)
"""What a broker answers for a topic that is not there, and for one that the user may not see."""

VISIBLE_SECONDS_MAX: Final = 30.0
"""Each broker hears of a new topic by itself: within a second, later where the machine is busy."""

VISIBLE_POLL_SECONDS: Final = 0.05
"""Between two looks whether new topics are known to the brokers; it takes milliseconds."""

TIMESTAMP_TYPE: Final = "message.timestamp.type"
BROKERS_TIME: Final = "LogAppendTime"

CLEANUP_POLICY: Final = "cleanup.policy"
KEPT_FOR_EVER: Final = {CLEANUP_POLICY: "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""The settings of topic deadletter in clusters of version 0.1.0. Nothing is lost on it, and nothing can be removed."""

SET_BY: Final = ". Set it with: "
NEXT_COMMAND: Final = "\n"
"""What precedes the commands of a message, and what is between them."""

_FEWER_COPIES: Final = (
    "use `headgate topic create --replication-factor {copies}` (or set HEADGATE_REPLICATION_FACTOR={copies})"
)

_log = logging.getLogger(__name__)

_Described = dict[str, TopicDescription]


class ControlTopic(msgspec.Struct, frozen=True):
    """One control topic. ``sharded``: one partition per shard, else one in all.

    In a topic that ``tells_time`` the broker stamps each record with its own time (eventlog/clock.py). A topic that
    ``was_kept_for_ever`` was not compacted in version 0.1.0, and is accepted with its settings of that version.
    """

    name: str
    sharded: bool
    segment_ms: int
    tells_time: bool = False
    was_kept_for_ever: bool = False

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
        return {**settings, **self.compaction}

    @property
    def compaction(self) -> dict[str, str]:
        """The settings of Kafka's log cleaner for it."""
        return {
            CLEANUP_POLICY: "compact",
            "max.compaction.lag.ms": str(self.segment_ms),
            "min.cleanable.dirty.ratio": "0.1",
            "delete.retention.ms": str(TOMBSTONE_RETENTION_MS),
        }

    @property
    def exact(self) -> dict[str, str]:
        """Settings that must be exactly so: without them records that were acknowledged disappear."""
        return {CLEANUP_POLICY: "compact", "unclean.leader.election.enable": "false"}

    def changed_since(self, found: Mapping[str, str | None]) -> dict[str, str]:
        """Settings that an earlier version created it without, from the settings ``found``. Nothing is lost by them."""
        changed = {}
        if self.tells_time and found.get(TIMESTAMP_TYPE) != BROKERS_TIME:
            changed[TIMESTAMP_TYPE] = BROKERS_TIME
        if self.is_kept_for_ever(found):
            changed |= self.compaction
        return changed

    def is_kept_for_ever(self, found: Mapping[str, str | None]) -> bool:
        """Whether it has the settings of version 0.1.0, with which no record can be removed."""
        return self.was_kept_for_ever and all(found.get(name) == value for name, value in KEPT_FOR_EVER.items())


CONTROL_TOPICS: Final = (
    ControlTopic("announce", sharded=False, segment_ms=HEARTBEAT_SEGMENT_MS, tells_time=True),
    ControlTopic("changefeed", sharded=True, segment_ms=STATE_SEGMENT_MS),
    ControlTopic("checkpoint", sharded=True, segment_ms=HEARTBEAT_SEGMENT_MS),
    ControlTopic("deadletter", sharded=True, segment_ms=STATE_SEGMENT_MS, was_kept_for_ever=True),
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

    A topic that an earlier version created with other settings is altered; if the user may not alter it, a warning is
    logged. Until it is altered agents use their own clocks for lags, and dead letters cannot be removed.

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
            if _created(connection, name, future, replication_factor):
                created.append(name)
    _bring_up_to_date(connection, cluster, present)
    _raise_all(_problems_once_visible(connection, cluster, shards))
    return created


def delete_topics(connection: KafkaConnection, cluster: str) -> None:
    """Delete the control topics, and return when brokers report none. Raises LogError, naming what is left."""
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
                f"the brokers have accepted the deletion of the topics {cluster}.… and still list some of them after "
                f"{VISIBLE_SECONDS_MAX:g} s. Check again with `headgate doctor`"
            )
        time.sleep(VISIBLE_POLL_SECONDS)


def _bring_up_to_date(connection: KafkaConnection, cluster: str, topics: Sequence[ControlTopic]) -> None:
    for topic, found in _settings_of(connection, cluster, topics):
        changed = topic.changed_since(found)
        if not changed:
            continue
        name = topic_name(cluster, topic.name)
        entries = [
            ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
            for setting, value in changed.items()
        ]
        wanted = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        admin = connection.admin  # held until it has answered (eventlog/leaders.py)
        (altered,) = admin.incremental_alter_configs([wanted], request_timeout=ADMIN_SECONDS_MAX).values()
        try:
            connection.wait(f"setting {', '.join(changed)} of topic {name}", altered)
        except LogError as error:
            advice = clock_advice(name) if topic.tells_time else removal_advice(name)
            _log.warning("%s. %s", error, advice)


def _settings_of(
    connection: KafkaConnection, cluster: str, topics: Sequence[ControlTopic]
) -> list[tuple[ControlTopic, dict[str, str | None]]]:
    """Each topic with its settings as the brokers have them. Raises LogError."""
    named = {topic_name(cluster, topic.name): topic for topic in topics}
    if not named:
        return []
    admin = connection.admin  # held until it has answered (eventlog/leaders.py)
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in named]
    found = []
    for resource, future in admin.describe_configs(asked, request_timeout=ADMIN_SECONDS_MAX).items():
        entries = connection.wait(f"reading settings of topic {resource.name}", future)
        found.append((named[resource.name], {name: entry.value for name, entry in entries.items()}))
    return found


def why_not_removable(connection: KafkaConnection, cluster: str) -> str | None:
    """Why dead letters cannot be removed from their topic, and what to do. None if they can. Raises LogError."""
    (topic,) = (topic for topic in CONTROL_TOPICS if topic.was_kept_for_ever)
    ((_, found),) = _settings_of(connection, cluster, [topic])
    return removal_advice(topic_name(cluster, topic.name)) if topic.is_kept_for_ever(found) else None


def removal_advice(topic: str) -> str:
    """What to do about a deadletter topic of version 0.1.0."""
    return (
        f"Topic {topic} has {CLEANUP_POLICY}={KEPT_FOR_EVER[CLEANUP_POLICY]} and keeps every record, so "
        "dead letters cannot be removed from it. Set it to compact with `headgate topic create`, as a "
        "user with the right "
        "AlterConfigs on it"
    )


def clock_advice(topic: str) -> str:
    """What to do about a topic whose records do not have the brokers' timestamps."""
    return (
        f"Topic {topic} does not have the brokers' timestamps, so lags are computed with the agents' "
        "clocks. Set it with: "
        f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} "
        f"--add-config {TIMESTAMP_TYPE}={BROKERS_TIME}"
    )


def _problems_once_visible(connection: KafkaConnection, cluster: str, shards: int) -> list[LogError]:
    """What is wrong once the brokers report every topic.

    The controller answers before the brokers have heard of the topics, and each of them hears of them in its own time.
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


def _created(connection: KafkaConnection, name: str, future: Any, copies: int) -> bool:
    """Whether this process created the topic: two first starts at once are not an error."""
    try:
        future.result(2 * ADMIN_SECONDS_MAX)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if advice := too_many_copies(connection, copies, error, _FEWER_COPIES):
            raise LogError(f"the control topics were not created: {advice}") from error
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
    names = [topic_name(cluster, topic.name) for topic in CONTROL_TOPICS if topic.name not in described]
    missing: list[LogError] = [_missing(connection, cluster, names)] if names else []
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
    """Everything that is wrong with ``topics``, which exist, once for all topics that share it: worst first."""
    partitions: dict[tuple[int, int, bool], list[str]] = {}
    settings: dict[tuple[str, str | None, str], list[str]] = {}
    for topic, found in _settings_of(connection, cluster, topics):
        name = topic_name(cluster, topic.name)
        metadata = described[topic.name]
        count, wanted_count = len(metadata.partitions), topic.partitions(shards)
        if count != wanted_count:
            partitions.setdefault((count, wanted_count, topic.sharded), []).append(name)
        for setting, wanted in topic.exact.items():
            is_from_before = setting == CLEANUP_POLICY and topic.is_kept_for_ever(found)
            if found.get(setting) != wanted and not is_from_before:
                settings.setdefault((setting, found.get(setting), wanted), []).append(name)
        for setting, least in _least(len(metadata.partitions[0].replicas)).items():
            if int(found.get(setting) or 0) < least:
                settings.setdefault((setting, found.get(setting), str(least)), []).append(name)
    wrong = [_wrong_setting(names, *setting) for setting, names in settings.items()]
    created_with = {len(described[topic.name].partitions) for topic in topics if topic.sharded}
    return [
        *(problem for problem in wrong if isinstance(problem, TopicNotCompactedError)),
        *(
            _wrong_partitions(names, found, wanted, shards, created_with if is_sharded else set())
            for (found, wanted, is_sharded), names in partitions.items()
        ),
        *(problem for problem in wrong if not isinstance(problem, TopicNotCompactedError)),
    ]


def _named(names: Sequence[str]) -> str:
    return f"control topic{'s' * (len(names) > 1)} {', '.join(names)}"


def _missing(connection: KafkaConnection, cluster: str, names: Sequence[str]) -> TopicMissingError:
    absent, them = ("does not exist", "it") if len(names) == 1 else ("do not exist", "them")
    return TopicMissingError(
        f"{_named(names)} {absent} on Kafka at {connection.bootstrap_servers}, or this user may not see {them}: create "
        f"the cluster's topics (headgate topic create), check the cluster's name {cluster!r}, or the user's right to "
        "Describe"
    )


def _wrong_partitions(
    names: Sequence[str], found: int, wanted: int, shards: int, created_with: set[int]
) -> TopicPartitionsError:
    """``created_with``: partitions of the sharded topics. If they agree, this is the cluster's number of shards.

    Empty for topics that are not sharded: whatever the number of shards, they have one partition.
    """
    todo = (
        "If partitions were added to the topic, make a new cluster under another name and create the feeds there"
        if created_with in ({shards}, set()) or len(created_with) > 1
        else f"This cluster has {number_of(min(created_with), 'shard')}: set HEADGATE_SHARDS (--shards) to "
        f"{min(created_with)}, or do not set it. Another number needs a new cluster under another name (--cluster)"
    )
    return TopicPartitionsError(
        f"{_named(names)} {'has' if len(names) == 1 else 'have'} {number_of(found, 'partition')}, wanted {wanted} for "
        f"{number_of(shards, 'shard')}: the number of shards is fixed when a cluster is created. {todo}"
    )


def _wrong_setting(names: Sequence[str], setting: str, found: str | None, wanted: str) -> LogError:
    kind = TopicNotCompactedError if setting == CLEANUP_POLICY else TopicSettingError
    commands = (
        f"kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config {setting}={wanted}"
        for name in names
    )
    return kind(
        f"{_named(names)} {'has' if len(names) == 1 else 'have'} {setting}={found}, wanted {setting}={wanted}: "
        f"acknowledged state could be lost or refused{SET_BY}{NEXT_COMMAND.join(commands)}"
    )
