"""Change a topic that is in use, and return when the broker goes by it: a controller answers before it does."""

import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from headgate.eventlog.connection import KafkaConnection
from headgate.provisioning.time_scale import scaled_seconds
from headgate.sources.topic_ids import topic_ids
from support.eventlog_contract import DEADLINE_SECONDS
from support.waiting import eventually

_ANSWER_SECONDS = scaled_seconds(120.0)

_SECOND: Final = {"flush.ms": str(2**63 - 2)}
"""A setting that changes nothing: one millisecond less than for ever, which is what it is by itself."""

FETCH_WAIT_MS = 20
"""How long a broker holds back its answer from a consumer that reads up to the end: half a second by default."""


def change_settings(admin: AdminClient, topic: str, settings: Mapping[str, str]) -> None:
    """Set ``settings`` (name → value) of a topic on a cluster of one broker.

    A broker tells of a setting before its logs go by it: delete_records right after ``cleanup.policy=compact,delete``
    ended in POLICY_VIOLATION, once in some hundred runs. It takes one change of metadata after the other, so once it
    tells of a second one it has done the first.
    """
    for wanted in (settings, _SECOND):
        _set(admin, topic, wanted)
        _await_told(admin, topic, wanted)


def _set(admin: AdminClient, topic: str, settings: Mapping[str, str]) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    for name, value in settings.items():
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(_ANSWER_SECONDS)


def _await_told(admin: AdminClient, topic: str, wanted: Mapping[str, str]) -> None:
    def told() -> dict[str, str]:
        (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return {setting: entry.value for setting, entry in future.result(_ANSWER_SECONDS).items()}

    eventually(lambda: wanted.items() <= told().items(), lambda: f"{topic} has {told()}, wanted {wanted}")


def make_topics(admin: AdminClient, *topics: NewTopic) -> None:
    """Create them. The broker that says they are made may still deny that they exist, for a moment."""
    for future in admin.create_topics(list(topics)).values():
        future.result(_ANSWER_SECONDS)
    await_topics(admin, *(new.topic for new in topics))


def await_topics(admin: AdminClient, *names: str) -> None:
    """Return once the brokers tell of them, whoever creates them."""
    eventually(
        lambda: set(names) <= _partitions(admin).keys(), lambda: f"{names} are there, and not only {_partitions(admin)}"
    )


def delete_topics(admin: AdminClient, *topics: str) -> None:
    """Delete them. The broker that says they are deleted may still tell of them, for a moment."""
    for future in admin.delete_topics(list(topics)).values() if topics else ():
        future.result(_ANSWER_SECONDS)
    for topic in topics:
        await_partitions(admin, topic, 0)


def add_partitions(admin: AdminClient, topic: str, partitions: int) -> None:
    """``partitions`` in all."""
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(_ANSWER_SECONDS)
    await_partitions(admin, topic, partitions)


def await_partitions(admin: AdminClient, topic: str, partitions: int) -> None:
    """0: the topic is gone."""
    eventually(
        lambda: _partitions(admin).get(topic, 0) == partitions,
        lambda: f"{topic} has {_partitions(admin).get(topic, 0)} partitions, wanted {partitions}",
    )


def _partitions(admin: AdminClient) -> dict[str, int]:
    """Of each topic that the brokers tell of, how many."""
    return {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=_ANSWER_SECONDS).topics.items()}


def make_again(connection: KafkaConnection, topic: str, partitions: int) -> str | None:
    """Delete the topic, if it exists, and create it again; its new id, once the broker tells of it.

    Before that, records would go to the old topic's log, and vanish with it.
    """
    before = topic_ids(connection, [topic])
    if before:
        connection.admin.delete_topics([topic])[topic].result(_ANSWER_SECONDS)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        made = connection.admin.create_topics([NewTopic(topic, partitions, 1)])[topic]
        made.exception(_ANSWER_SECONDS)  # a broker goes on deleting for a while
        found = topic_ids(connection, [topic])
        if found and found != before:
            return found[topic]
    raise AssertionError(f"{topic} was not made again")
