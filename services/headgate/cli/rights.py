"""``headgate topic rights``: what services need on the brokers, shown or granted."""

from typing import Annotated, Final

import typer
from confluent_kafka import KafkaException
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from headgate.cli.exit_codes import CommandError, ExitCode
from headgate.cli.options import ClusterOptions, Format, cluster_flags
from headgate.cli.output import Output, note, show_rows
from headgate.config.rights import Grant, Resource, Topics, grants, who_has_rights
from headgate.config.settings import load_settings
from headgate.config.wording import one_of
from headgate.eventlog.connection import ADMIN_SECONDS_MAX, FUTURE_GRACE_SECONDS, KafkaConnection
from headgate.generation.changelog.shell.wire import positions_topic

__all__ = ["access_rule", "rights"]

_RESOURCES: Final = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}

_OPERATIONS: Final = {
    "Alter": AclOperation.ALTER,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
}

_COLUMNS: Final = ("who", "principal", "resource", "name", "pattern", "operation")

WHO: Final = "{who}"


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


def rights(
    who: Annotated[list[str] | None, typer.Argument(metavar="[WHO]…", help="services; default all")] = None,
    *,
    principal: Annotated[
        str, typer.Option("--principal", help="whose rights they are, {who} stands for the service")
    ] = f"User:{WHO}",
    feed_topic: Annotated[
        list[str] | None, typer.Option("--feed-topic", help="a topic that feeds read; with a dot at its end a prefix")
    ] = None,
    change_log: Annotated[list[str] | None, typer.Option("--change-log", help="a change log's topic")] = None,
    copied_topic: Annotated[list[str] | None, typer.Option("--copied-topic", help="a topic that ingest copies")] = None,
    grant: Annotated[bool, typer.Option("--grant", help="have the brokers grant them")] = False,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Show the rights on Kafka that services need, one access rule a line; --grant grants them."""
    for name in who or ():
        if name not in who_has_rights():
            raise CommandError(ExitCode.NOT_FOUND, f"service {one_of(name, who_has_rights())}")
    settings = load_settings(cluster_flags(cluster))
    logs = change_log or []
    topics = {
        Topics.FEEDS: feed_topic or [],
        Topics.CHANGE_LOGS: [*logs, *map(positions_topic, logs)],
        Topics.COPIED: copied_topic or [],
    }
    found = grants(settings.cluster, topics, who or ())
    if grant:
        _grant(KafkaConnection(settings.bootstrap, settings.kafka), found, principal)
        note(f"{len(found)} rights are granted on {settings.bootstrap}")
    rows = [
        {
            "who": each.who,
            "principal": principal.replace(WHO, each.who),
            "resource": each.resource.value,
            "name": each.name,
            "pattern": "prefixed" if each.is_prefix else "literal",
            "operation": each.operation,
        }
        for each in found
    ]
    show_rows(_COLUMNS, rows, output)


def _grant(connection: KafkaConnection, found: list[Grant], principal: str) -> None:
    rules = [access_rule(each, principal.replace(WHO, each.who)) for each in found]
    try:
        asked = connection.admin.create_acls(rules, request_timeout=ADMIN_SECONDS_MAX)
        for future in asked.values():
            future.result(ADMIN_SECONDS_MAX + FUTURE_GRACE_SECONDS)
    except KafkaException as error:
        raise connection.failed("granting rights", error) from error
    except TimeoutError as error:
        raise connection.unreachable("granting rights") from error
    finally:
        connection.close()
