"""``headgate doctor``: check everything that an installation needs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from headgate.app.doctor.kafka import kafka_findings
from headgate.app.doctor.machine import machine_findings
from headgate.app.exit_codes import CommandError, ExitCode
from headgate.capture.finding import CaptureFinding, State
from headgate.capture.source import DEFAULT_NAME
from headgate.cli.checks import show_findings
from headgate.cli.connection_names import complete_sources
from headgate.cli.dry_run import rehearsed
from headgate.cli.options import ClusterOptions, Format, cluster_flags, connected, waiting_for_kafka
from headgate.cli.output import Output
from headgate.cli.rights import complete_services
from headgate.cli.source import PublicationName, SlotName, Tables, read_waiting, target_at
from headgate.config.feed import load_feed
from headgate.config.rights import who_has_rights
from headgate.config.settings import load_settings
from headgate.config.wording import one_of
from headgate.databases.address import AddressOptions
from headgate.databases.connections import Use
from headgate.databases.errors import DatabaseError
from headgate.eventlog.log import LogError
from headgate.records.control import OperationKind
from headgate.records.name_lists import number_of

_OPTIONS: Final = AddressOptions("--source", "--source-password-file", "source")
_GRANTS: Final = ". Run as an administrator: "


def doctor(
    *,
    service: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            metavar="SERVICE",
            help="check the Kafka rights of this service",
            show_default="agent",
            autocompletion=complete_services,
        ),
    ] = None,
    feed: Annotated[
        Path | None,
        typer.Option(
            "--feed", metavar="FILE", help="check the topics and the sink of a feed as well; - for standard input"
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="DSN|NAME",
            help="check a source database as well",
            autocompletion=complete_sources,
        ),
    ] = None,
    source_password_file: Annotated[
        Path | None, typer.Option("--source-password-file", help="a file in HEADGATE_SECRETS_DIR")
    ] = None,
    tables: Tables = None,
    publication: PublicationName = DEFAULT_NAME,
    slot: SlotName = DEFAULT_NAME,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Check everything that an installation needs, and show how to fix it.

    Python, Java, Spark's jars, free space and ports of this machine, then the brokers, the control topics with their
    settings, the rights on them and the clock. Nothing is written. Exit code 0 only if nothing is wrong.

    Example: headgate doctor --bootstrap broker:9092 --feed shop.yaml
    """
    who = service or ["agent"]
    for name in who:
        if name not in who_has_rights():
            raise CommandError(ExitCode.NOT_FOUND, f"service {one_of(name, who_has_rights())}")
    flags = cluster_flags(cluster)
    found = list(machine_findings(load_settings(flags)))
    with waiting_for_kafka(flags):
        found += kafka_findings(flags, who)
    if source is not None:
        found += _source(source, source_password_file, tables or [], publication, slot)
    if feed is not None:
        found += _feed(feed, cluster)
    show_findings(found, output)


def _source(given: str, file: Path | None, tables: list[str], publication: str, slot: str) -> Iterator[CaptureFinding]:
    try:
        captured = read_waiting(target_at(given, file, _OPTIONS, Use.SOURCE), tables)
    except DatabaseError as error:
        yield CaptureFinding("source", State.WRONG, str(error))
        return
    yield from captured.findings(publication=publication, slot=slot)


def _feed(file: Path, cluster: ClusterOptions) -> Iterator[CaptureFinding]:
    """Whether the feed would be accepted. Raises FeedSpecError."""
    spec = load_feed(file)
    try:
        with connected(cluster) as (settings, log):
            result = rehearsed(log, settings.prefix, OperationKind.CREATE_FEED, spec)
    except (CommandError, LogError) as error:
        says, _, statements = str(error).partition(_GRANTS)
        fix = tuple(f"{statement};" for statement in statements.split("; ") if statement)
        yield CaptureFinding("feed", State.WRONG, says, spec.feed, fix=fix)
        return
    yield CaptureFinding("feed", State.OK, f"would be accepted with {number_of(len(result.spans), 'table')}", spec.feed)
    for warning in result.warnings:
        yield CaptureFinding("feed", State.WARNING, warning.removeprefix("warning: "), spec.feed)
