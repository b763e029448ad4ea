"""``headgate topic rights``: what services need on the brokers, shown or granted."""

from typing import Annotated, Final

import typer

from headgate.app.access_rules import access_rule, create_access_rules
from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.options import ClusterOptions, Format, cluster_flags
from headgate.cli.output import Output, note, show_rows
from headgate.config.rights import Topics, grants, who_has_rights
from headgate.config.settings import load_settings
from headgate.config.wording import one_of
from headgate.generation.changelog.shell.wire import positions_topic

_COLUMNS: Final = ("who", "principal", "resource", "name", "pattern", "operation")

WHO: Final = "{who}"


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
        create_access_rules(settings, [access_rule(each, principal.replace(WHO, each.who)) for each in found])
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
