"""A cluster's settings and its log, opened for one command or one service."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import TopicMetadata

from headgate.config.settings import Settings, given_settings, load_settings
from headgate.eventlog.connection import ADMIN_SECONDS_MAX, KafkaConnection
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.reachable import check_takes_connections
from headgate.eventlog.sharding import SHARDED_TOPICS
from headgate.eventlog.topics import CONTROL_TOPICS, topic_name

_CONTROL: Final = frozenset(topic.name for topic in CONTROL_TOPICS)

_ENOUGH: Final = 2
"""A single topic whose name ends like one of Headgate's belongs to another program."""


def cluster_settings(flags: Mapping[str, Any]) -> Settings:
    """Settings whose number of shards, unless it is set, is that of the cluster if the cluster exists.

    Raises SettingsError, LogError.
    """
    settings = load_settings(flags)
    if "shards" in given_settings(flags):
        return settings
    topics = _topics(settings)
    named = (topics.get(topic_name(settings.cluster, topic)) for topic in SHARDED_TOPICS)
    found = next((len(topic.partitions) for topic in named if topic is not None and topic.partitions), None)
    return settings if found is None else load_settings({**flags, "shards": found})


def topics_of_others(flags: Mapping[str, Any]) -> list[str]:
    """Topics on the brokers that are neither Headgate's own nor internal. Raises SettingsError, LogError."""
    settings = load_settings(flags)
    return [name for name in _topics(settings) if not name.startswith((settings.prefix, "__"))]


def clusters_there(flags: Mapping[str, Any]) -> dict[str, list[str]]:
    """Clusters of Headgate on the brokers → those of their control topics that exist. Raises SettingsError, LogError.

    A cluster that was deleted halfway has some of them.
    """
    found: dict[str, list[str]] = {}
    for topic in _topics(load_settings(flags)):
        cluster, _, name = topic.rpartition(".")
        if cluster and name in _CONTROL:
            found.setdefault(cluster, []).append(topic)
    return {cluster: sorted(topics) for cluster, topics in found.items() if len(topics) >= _ENOUGH}


def _topics(settings: Settings) -> Mapping[str, TopicMetadata]:
    """The topics that this user may see. Raises LogError."""
    connection = KafkaConnection(settings.bootstrap, settings.kafka)
    try:
        found: Mapping[str, TopicMetadata] = connection.admin.list_topics(timeout=ADMIN_SECONDS_MAX).topics
    except KafkaException as error:
        raise connection.failed("listing topics", error) from error
    finally:
        connection.close()
    return found


def settings_for_command(flags: Mapping[str, Any]) -> Settings:
    """See ``cluster_settings``. Unlike a service, a command does not wait for a broker that refuses connections.

    Raises SettingsError, LogError.
    """
    check_takes_connections(load_settings(flags).bootstrap)
    return cluster_settings(flags)


@contextmanager
def opened_cluster(flags: Mapping[str, Any]) -> Iterator[tuple[Settings, KafkaLog]]:
    """The settings and the cluster's log, checked, for one command. Raises SettingsError, LogError."""
    settings = settings_for_command(flags)
    log = open_log(settings)
    try:
        yield settings, log
    finally:
        log.close()
