"""Settings of source topics, read from the broker."""

from collections.abc import Iterable

from confluent_kafka.admin import ConfigResource, ResourceType

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.log import LogError
from headgate.sources.offsets import REQUEST_SECONDS_MAX


def topic_settings(
    connection: KafkaConnection, topics: Iterable[str]
) -> tuple[dict[str, dict[str, str | None]], dict[str, str]]:
    """Topic → its settings by Kafka's names, and topic → why they cannot be asked (the right DescribeConfigs)."""
    told: dict[str, dict[str, str | None]] = {}
    untold: dict[str, str] = {}
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(set(topics))]
    asked = connection.admin.describe_configs(resources, request_timeout=REQUEST_SECONDS_MAX) if resources else {}
    for resource, future in asked.items():
        try:
            settings = connection.wait(f"reading settings of topic {resource.name}", future, REQUEST_SECONDS_MAX)
        except LogError as error:
            untold[resource.name] = str(error)
        else:
            told[resource.name] = {name: entry.value for name, entry in settings.items()}
    return told, untold
