"""Options that many commands share, and what they lead to: settings, and a connection to the cluster's log."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException

from headgate.cli.option_groups import CommandGroup, OptionGroup
from headgate.cli.output import Output, errors_as
from headgate.config.settings import Settings, SettingsError, load_settings
from headgate.eventlog.connection import ADMIN_SECONDS_MAX, KafkaConnection
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.sharding import SHARDED_TOPICS
from headgate.eventlog.topics import topic_name

__all__ = [
    "ClusterOptions",
    "CommandGroup",
    "Format",
    "OptionGroup",
    "Timeout",
    "Watch",
    "cluster_flags",
    "cluster_settings",
    "connected",
]

Format = Annotated[
    Output, typer.Option("--output", "-o", callback=errors_as, help="table for people, json or yaml for programs")
]
Watch = Annotated[
    float | None,
    typer.Option("--watch", "-w", metavar="SECONDS", min=0.2, help="show it again every so often, until Ctrl-C"),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="seconds to wait for the outcome")]


class ClusterOptions(OptionGroup, frozen=True):
    """Which cluster of Headgate, on which brokers, and how to reach them."""

    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", help="Kafka brokers, host:port with commas [HEADGATE_BOOTSTRAP]")
    ] = None
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="prefix of the control topics [HEADGATE_CLUSTER]")
    ] = None
    kafka_property: Annotated[
        list[str] | None,
        typer.Option("--kafka-property", "-X", metavar="NAME=VALUE", help="a librdkafka property [HEADGATE_KAFKA__…]"),
    ] = None


def cluster_flags(given: ClusterOptions) -> dict[str, Any]:
    """The options as nested settings. Raises SettingsError."""
    kafka: dict[str, str] = {}
    for pair in given.kafka_property or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise SettingsError(f"--kafka-property {pair!r}: write NAME=VALUE, as in security.protocol=SASL_SSL")
        kafka[name] = value
    return {"bootstrap": given.bootstrap, "cluster": given.cluster, "kafka": kafka}


def cluster_settings(flags: Mapping[str, Any]) -> Settings:
    """Settings whose number of shards, unless somebody chose one, is that of the cluster if it exists already.

    Raises SettingsError, LogError.
    """
    settings = load_settings(flags)
    if "shards" in settings.model_fields_set:
        return settings
    connection = KafkaConnection(settings.bootstrap, settings.kafka)
    try:
        topics = connection.admin.list_topics(timeout=ADMIN_SECONDS_MAX).topics
    except KafkaException as error:
        raise connection.failed("listing topics", error) from error
    finally:
        connection.close()
    present = topics.get(topic_name(settings.cluster, SHARDED_TOPICS[0]))
    if present is None or not present.partitions:
        return settings
    return load_settings({**flags, "shards": len(present.partitions)})


@contextmanager
def connected(cluster: ClusterOptions) -> Iterator[tuple[Settings, KafkaLog]]:
    """The settings and the cluster's log, checked, for one command. Raises SettingsError, LogError."""
    settings = cluster_settings(cluster_flags(cluster))
    log = open_log(settings)
    try:
        yield settings, log
    finally:
        log.close()
