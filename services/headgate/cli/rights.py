"""``headgate topic rights`` and ``grant``: what services need on the brokers."""

from typing import Annotated, Any, Final

import typer

from headgate.app.access_rules import access_rule, create_access_rules
from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.changes import ChangeOptions, Permit, permitted
from headgate.cli.names import complete_broker_topics, complete_change_log_topics
from headgate.cli.options import ClusterOptions, Format, OptionGroup, cluster_flags
from headgate.cli.output import Output, note, show_rows
from headgate.cli.waiting import waiting
from headgate.config.rights import Grant, Topics, grants, who_has_rights
from headgate.config.settings import Settings, load_settings
from headgate.config.wording import one_of
from headgate.generation.changelog.shell.wire import positions_topic

_COLUMNS: Final = ("who", "principal", "resource", "name", "pattern", "operation")

WHO: Final = "{who}"


def complete_services(incomplete: str) -> list[str]:
    """Names of services that need rights, for shell completion."""
    return [who for who in who_has_rights() if who.startswith(incomplete)]


Services = Annotated[
    list[str] | None,
    typer.Argument(metavar="WHO", help="services; default all", autocompletion=complete_services),
]


class RightsOptions(OptionGroup, frozen=True):
    """Whose rights, and on which topics beside the control topics."""

    principal: Annotated[
        str, typer.Option("--principal", help="the principal of the rights; {who} is replaced by the service")
    ] = f"User:{WHO}"
    feed_topic: Annotated[
        list[str] | None,
        typer.Option(
            "--feed-topic",
            metavar="TOPIC",
            help="a topic that feeds read, or a prefix that ends with a dot",
            autocompletion=complete_broker_topics,
        ),
    ] = None
    change_log: Annotated[
        list[str] | None,
        typer.Option(
            "--change-log", metavar="TOPIC", help="a change log's topic", autocompletion=complete_change_log_topics
        ),
    ] = None
    copied_topic: Annotated[
        list[str] | None,
        typer.Option(
            "--copied-topic", metavar="TOPIC", help="a topic that ingest copies", autocompletion=complete_broker_topics
        ),
    ] = None
    target_topic: Annotated[
        list[str] | None,
        typer.Option(
            "--target-topic", metavar="TOPIC", help="a topic that a Kafka sink writes, or a prefix that ends with a dot"
        ),
    ] = None


def rights(
    who: Services = None, *, options: RightsOptions, output: Format = Output.TABLE, cluster: ClusterOptions
) -> None:
    """Show the rights on Kafka that services need, one access rule a line.

    Example: headgate topic rights coordinator agent --feed-topic shop.
    """
    _show(_needed(load_settings(cluster_flags(cluster)), who, options), options, output)


def grant(
    who: Services = None,
    *,
    options: RightsOptions,
    change: ChangeOptions,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Grant services the rights on Kafka that they need, as a user who may.

    Example: headgate topic grant agent --feed-topic shop. --principal User:headgate
    """
    settings = load_settings(cluster_flags(cluster))
    found = _needed(settings, who, options)
    permit = permitted(change, f"grant {len(found)} rights on {settings.bootstrap}", Output.TABLE)
    if permit is not None:
        _granted(settings, found, options, permit)
        note(f"{len(found)} rights are granted on {settings.bootstrap}")
    _show(found, options, output)


def _needed(settings: Settings, who: list[str] | None, options: RightsOptions) -> list[Grant]:
    """The rights. Raises CommandError for a service that does not exist."""
    for name in who or ():
        if name not in who_has_rights():
            raise CommandError(ExitCode.NOT_FOUND, f"service {one_of(name, who_has_rights())}")
    logs = options.change_log or []
    topics = {
        Topics.FEEDS: options.feed_topic or [],
        Topics.CHANGE_LOGS: [*logs, *map(positions_topic, logs)],
        Topics.COPIED: options.copied_topic or [],
        Topics.TARGETS: options.target_topic or [],
    }
    return list(grants(settings.cluster, topics, who or ()))


def _granted(settings: Settings, found: list[Grant], options: RightsOptions, _permit: Permit) -> None:
    with waiting(f"Kafka at {settings.bootstrap}"):
        create_access_rules(settings, [access_rule(each, options.principal.replace(WHO, each.who)) for each in found])


def _show(found: list[Grant], options: RightsOptions, output: Output) -> None:
    rows: list[dict[str, Any]] = [
        {
            "who": each.who,
            "principal": options.principal.replace(WHO, each.who),
            "resource": each.resource.value,
            "name": each.name,
            "pattern": "prefixed" if each.is_prefix else "literal",
            "operation": each.operation,
        }
        for each in found
    ]
    show_rows(_COLUMNS, rows, output)
