"""The Kafka topics of a change log: created, checked, grown and deleted.

A change log's topic must keep every record until retention deletes it, and belong to that change log alone. A topic of
Headgate's own records, of another change log or with compaction would seem to work until the first switch.
"""

import secrets
import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic, OffsetSpec, TopicDescription
from msgspec.structs import replace

from headgate.eventlog.connection import ADMIN_SECONDS_MAX
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.leaders import ask_offsets
from headgate.eventlog.log import LogError
from headgate.eventlog.replicas import too_many_copies
from headgate.eventlog.topics import CONTROL_TOPICS, topic_name
from headgate.generation.changelog.shell.topic_claims import read_claims
from headgate.generation.changelog.shell.wire import MESSAGE_BYTES_MAX, POSITIONS_PARTITIONS, positions_topic
from headgate.generation.core.effects import (
    CreateLog,
    DeleteLog,
    EffectRefused,
    GrowLog,
    LogDeleted,
    LogSeen,
    LookAtLog,
)
from headgate.sources.topic_settings import topic_settings

__all__ = ["LogTopics", "TopicRefusedError"]

_CHANGES: Final[Mapping[str, str]] = {"cleanup.policy": "delete", "max.message.bytes": str(MESSAGE_BYTES_MAX)}
"""Not left to the broker's defaults: compaction would delete changes, and END markers have no key."""

_POSITIONS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "segment.ms": "60000",
    "max.compaction.lag.ms": "60000",
    "min.cleanable.dirty.ratio": "0.1",
}
"""A record per transaction, of which the last counts: a writer that starts reads little more than the last minute's."""

POLL_SECONDS: Final = 0.05
"""Between two looks at a topic that was just created, grown or deleted: brokers hear of it within milliseconds."""

_MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})

_IMPOSSIBLE: Final = frozenset(
    {
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_DELETION_DISABLED,
    }
)
"""Why a request about a topic fails however often it is tried."""


_FEWER_COPIES: Final = "restart `headgate serve generation` with HEADGATE_REPLICATION_FACTOR={copies}"


class TopicRefusedError(Exception):
    """A topic cannot be what was asked for, and trying again does not help."""


class LogTopics:
    """Of all change logs of a cluster. Safe to use from several threads."""

    def __init__(self, log: KafkaLog, replication_factor: int) -> None:
        self._log = log
        self._connection = log.connection
        self._replication_factor = replication_factor

    def create(self, effect: CreateLog) -> LogSeen:
        """Create both topics. One that exists must be fit for a change log. Raises TopicRefusedError, LogError."""
        self._check_name(effect)
        found = self._describe(effect.topic)
        if found is not None:
            self._check_found(effect, found)
        positions = positions_topic(effect.topic)
        if self._describe(positions) is not None:
            self._check_positions(positions)
        if found is None:
            self._create(effect.topic, effect.partitions, _CHANGES)
        self._create(positions, POSITIONS_PARTITIONS, _POSITIONS)
        return self._await(effect.topic, effect.partitions)

    def grow(self, effect: GrowLog) -> LogSeen | EffectRefused:
        """Add partitions up to the number asked for. Raises TopicRefusedError, LogError."""
        seen = self.look(effect.topic)
        if isinstance(seen, EffectRefused) or len(seen.ends) >= effect.partitions:
            return seen
        asked = [NewPartitions(effect.topic, effect.partitions)]
        future = self._connection.admin.create_partitions(asked, request_timeout=ADMIN_SECONDS_MAX)[effect.topic]
        try:
            future.result(ADMIN_SECONDS_MAX)
        except KafkaException as error:
            raise self._told(f"adding partitions to topic {effect.topic}", error) from error
        return self._await(effect.topic, effect.partitions)

    def delete(self, effect: DeleteLog) -> LogDeleted:
        """Delete both topics, unless the first is another one by now, or another change log has it as well.

        An owner whose term is over may come here late, when the name is used again. Raises TopicRefusedError, LogError.
        """
        found = self._describe(effect.topic)
        if read_claims(self._log).owners([effect.topic], effect.set):
            return LogDeleted(is_shared=True)
        if found is not None and effect.topic_id not in (None, _id_of(found)):
            return LogDeleted()
        for topic in (positions_topic(effect.topic), effect.topic):
            future = self._connection.admin.delete_topics([topic], request_timeout=ADMIN_SECONDS_MAX)[topic]
            try:
                future.result(ADMIN_SECONDS_MAX)
            except KafkaException as error:
                if error.args[0].code() not in _MISSING:
                    raise self._told(f"deleting topic {topic}", error) from error
            self._await_deletion(topic)
        return LogDeleted()

    def look(self, topic: str) -> LogSeen | EffectRefused:
        """A change log's topic as it is now. Raises LogError."""
        found = self._describe(topic)
        if found is None:
            return EffectRefused(
                f"topic {topic} does not exist, so what it held is gone. `headgate generation delete` the change log, "
                "then create it again"
            )
        ends = self.ends(topic, tuple(range(len(found.partitions))))
        return LogSeen(_id_of(found), ends, secrets.randbits(63), self._wrong_policy(topic))

    def check(self, effect: LookAtLog) -> LogSeen | EffectRefused:
        """The same, and whether another change log has the topic. Raises LogError."""
        seen = self.look(effect.topic)
        others = read_claims(self._log).owners([effect.topic], effect.set)
        if isinstance(seen, EffectRefused) or not others:
            return seen
        return replace(seen, problem=_shared(effect.topic, others[effect.topic]))

    def ends(self, topic: str, partitions: tuple[int, ...]) -> dict[int, int]:
        """Partition → the offset behind its last record. Raises LogError."""
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in partitions}
        answers = ask_offsets(self._connection, asked, f"asking for the ends of {topic}")
        return {at.partition: answer.offset for at, answer in answers.items()}

    # --- checks ---

    def _check_name(self, effect: CreateLog) -> None:
        topic, positions = effect.topic, positions_topic(effect.topic)
        if topic in {topic_name(self._log.cluster, each.name) for each in CONTROL_TOPICS}:
            raise TopicRefusedError(f"topic {topic} is a control topic of Headgate. Choose another with --topic")
        if topic.endswith(positions_topic("")):
            raise TopicRefusedError(
                f"topic {topic}: names that end in {positions_topic('')!r} are kept for the positions of change logs' "
                "writers. Choose another with --topic"
            )
        claims = read_claims(self._log)
        for each, name in claims.owners((topic, positions), effect.set).items():
            raise TopicRefusedError(f"topic {each} belongs to change log {name!r}. Choose another with --topic")
        for rival in claims.rivals((topic, positions), effect.set):
            if rival.request < effect.request:
                raise TopicRefusedError(
                    f"change log {rival.set!r} is being created on topic {topic} at the same moment. Choose another "
                    "with --topic"
                )
            raise LogError(
                f"change log {rival.set!r} is being created on topic {topic}, too: waiting until its owner has refused "
                "that. Is its `headgate serve generation` running?"
            )

    def _check_found(self, effect: CreateLog, found: TopicDescription) -> None:
        if len(found.partitions) != effect.partitions:
            raise TopicRefusedError(
                f"topic {effect.topic} exists with {len(found.partitions)} partitions, and {effect.partitions} were "
                f"asked for. Use --partitions {len(found.partitions)}, or another topic"
            )
        if problem := self._wrong_policy(effect.topic):
            raise TopicRefusedError(problem)

    def _check_positions(self, positions: str) -> None:
        ends = self.ends(positions, tuple(range(POSITIONS_PARTITIONS)))
        if any(ends.values()):
            raise TopicRefusedError(
                f"topic {positions} has positions of an earlier change log's writers: their changes would count as "
                "written. Delete that topic, or choose another with --topic"
            )

    def _wrong_policy(self, topic: str) -> str:
        """Why a topic loses changes, or empty. Raises LogError without the right DescribeConfigs."""
        told, untold = topic_settings(self._connection, [topic])
        if topic in untold:
            raise LogError(untold[topic])
        policy = told[topic].get("cleanup.policy") or ""
        if "compact" not in policy:
            return ""
        return (
            f"topic {topic} has cleanup.policy={policy}: compaction deletes changes, and a switch could never end. Set "
            "cleanup.policy=delete on it"
        )

    # --- requests to Kafka ---

    def _describe(self, topic: str) -> TopicDescription | None:
        admin = self._connection.admin
        future = admin.describe_topics(TopicCollection([topic]), request_timeout=ADMIN_SECONDS_MAX)[topic]
        try:
            return future.result(ADMIN_SECONDS_MAX)
        except KafkaException as error:
            if error.args[0].code() in _MISSING:
                return None
            raise self._connection.failed(f"describing topic {topic}", error) from error

    def _create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        asked = NewTopic(topic, partitions, self._replication_factor, config=dict(config))
        futures = self._connection.admin.create_topics([asked], request_timeout=ADMIN_SECONDS_MAX)
        try:
            futures[topic].result(ADMIN_SECONDS_MAX)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return  # by an earlier try
            if advice := too_many_copies(self._connection, self._replication_factor, error, _FEWER_COPIES):
                raise TopicRefusedError(f"topic {topic} was not created: {advice}") from error
            raise self._told(
                f"creating topic {topic} with {partitions} partitions and {self._replication_factor} replicas "
                "(HEADGATE_REPLICATION_FACTOR of `serve generation`)",
                error,
            ) from error

    def _await(self, topic: str, partitions: int) -> LogSeen:
        """The controller answers before every broker has heard of a new topic or partition. Raises LogError."""
        deadline = time.monotonic() + ADMIN_SECONDS_MAX
        while True:
            seen = self.look(topic)
            if isinstance(seen, LogSeen) and len(seen.ends) >= partitions:
                return seen
            if time.monotonic() >= deadline:
                raise LogError(
                    f"topic {topic} with {partitions} partitions is not visible within {ADMIN_SECONDS_MAX:g} s"
                )
            time.sleep(POLL_SECONDS)

    def _await_deletion(self, topic: str) -> None:
        """So that a topic of this name can be created at once. Raises LogError."""
        deadline = time.monotonic() + ADMIN_SECONDS_MAX
        while self._describe(topic) is not None:
            if time.monotonic() >= deadline:
                raise LogError(f"topic {topic} is still there {ADMIN_SECONDS_MAX:g} s after its deletion")
            time.sleep(POLL_SECONDS)

    def _told(self, what: str, error: KafkaException) -> LogError | TopicRefusedError:
        if error.args[0].code() in _IMPOSSIBLE:
            return TopicRefusedError(f"{what} is not possible: {error.args[0].str()}")
        return self._connection.failed(what, error)


def _shared(topic: str, other: str) -> str:
    return (
        f"topic {topic} belongs to change log {other!r} as well. Neither knows the other's streams and writers, so a "
        "key's changes may be read out of order. Stop the writers of one, and `headgate generation delete` it: its "
        "topics stay with the other one"
    )


def _id_of(found: TopicDescription) -> str | None:
    return None if found.topic_id is None else str(found.topic_id)
