"""Access rules of Kafka for the rights that services need."""

from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from headgate.app.command_error import CommandError, ExitCode
from headgate.config.rights import Grant, Resource
from headgate.config.settings import Settings
from headgate.eventlog.connection import ADMIN_SECONDS_MAX, FUTURE_GRACE_SECONDS, KafkaConnection

__all__ = ["access_rule", "create_access_rules"]

_RESOURCES: Final = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
    Resource.CLUSTER: ResourceType.BROKER,  # librdkafka's name for Kafka's resource "cluster"
}

_OPERATIONS: Final = {
    "Alter": AclOperation.ALTER,
    "AlterConfigs": AclOperation.ALTER_CONFIGS,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
}


def access_rule(grant: Grant, principal: str) -> AclBinding:
    """The rule that allows it, from any host."""
    return AclBinding(
        _RESOURCES[grant.resource],
        grant.name,
        ResourcePatternType.PREFIXED if grant.is_prefix else ResourcePatternType.LITERAL,
        principal,
        "*",
        _OPERATIONS[grant.operation],
        AclPermissionType.ALLOW,
    )


def create_access_rules(settings: Settings, rules: Sequence[AclBinding]) -> None:
    """Have the brokers add the rules. Raises CommandError if they have no authorizer, LogError."""
    connection = KafkaConnection(settings.bootstrap, settings.kafka)
    try:
        asked = connection.admin.create_acls(list(rules), request_timeout=ADMIN_SECONDS_MAX)
        for future in asked.values():
            future.result(ADMIN_SECONDS_MAX + FUTURE_GRACE_SECONDS)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.SECURITY_DISABLED:
            raise CommandError(
                ExitCode.LOG,
                f"granting rights on Kafka at {settings.bootstrap}: the brokers have no authorizer, so every client "
                "may do everything, and no rights are needed. To restrict clients, set authorizer.class.name there",
            ) from error
        raise connection.failed("granting rights", error) from error
    except TimeoutError as error:
        raise connection.unreachable("granting rights") from error
    finally:
        connection.close()
