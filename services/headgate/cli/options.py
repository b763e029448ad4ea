"""Options that many commands share, and what they lead to: settings, and a connection to the cluster's log."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any

import typer

from headgate.app.cluster import opened_cluster
from headgate.cli.groups import CommandGroup, OptionGroup
from headgate.cli.output import Output, errors_as
from headgate.cli.waiting import waiting
from headgate.config.settings import Settings, SettingsError, load_settings, with_variable
from headgate.eventlog.kafka import KafkaLog

__all__ = [
    "ClusterOptions",
    "CommandGroup",
    "Format",
    "OptionGroup",
    "Timeout",
    "Watch",
    "cluster_flags",
    "connected",
    "waiting_for_kafka",
]

Format = Annotated[
    Output, typer.Option("--output", "-o", callback=errors_as, help="table for people, json or yaml for programs")
]
Watch = Annotated[
    float | None,
    typer.Option("--watch", "-w", metavar="SECONDS", min=0.2, help="refresh until Ctrl-C"),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="seconds to wait for the outcome")]


class ClusterOptions(OptionGroup, frozen=True):
    """Which cluster of Headgate, on which brokers, and how to reach them."""

    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", help=with_variable("Kafka brokers, host:port with commas", "bootstrap")),
    ] = None
    cluster: Annotated[
        str | None, typer.Option("--cluster", help=with_variable("prefix of the control topics", "cluster"))
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


@contextmanager
def connected(cluster: ClusterOptions) -> Iterator[tuple[Settings, KafkaLog]]:
    """The settings and the cluster's log, checked, for one command. Raises SettingsError, LogError."""
    flags = cluster_flags(cluster)
    with ExitStack() as open_until_the_end:
        with waiting_for_kafka(flags):
            opened = open_until_the_end.enter_context(opened_cluster(flags))
        yield opened


@contextmanager
def waiting_for_kafka(flags: Mapping[str, Any]) -> Iterator[None]:
    """Show on a terminal that Kafka is awaited. Raises SettingsError."""
    with waiting(f"Kafka at {load_settings(flags).bootstrap}"):
        yield
