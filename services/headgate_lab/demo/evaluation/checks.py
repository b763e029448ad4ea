"""What must hold at the two databases before anything is started."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.capture.feed_file import SinkAddress
from headgate.capture.files import CaptureFiles, Naming, capture_files
from headgate.capture.finding import Finding, State, is_wrong
from headgate.capture.place import place_of
from headgate.capture.sink import is_itself, missing_tables
from headgate.capture.source import Capture, Mysql, read_source
from headgate.capture.target_tables import read_target_tables
from headgate.cli.checks import show_findings
from headgate.cli.feed_init import SAME_DATABASE
from headgate.cli.output import Output
from headgate.config.feed import parse_feed
from headgate.databases.address import Target
from headgate.databases.kinds import kind_of
from headgate.sinks.registry import open_sink
from headgate.sinks.relational.rights import RightsMissingError
from headgate.tables.plan import shown_refusals

__all__ = ["SINK_PASSWORD", "SOURCE_PASSWORD", "Databases", "check_sink", "checked", "files_of"]

SOURCE_PASSWORD: Final = "source"  # noqa: S105 - the name of a file
SINK_PASSWORD: Final = "sink"  # noqa: S105 - the name of a file


class Databases(msgspec.Struct, frozen=True):
    """Source and sink, each with the password's file, and what was read there."""

    source: Target
    sink: Target
    captured: Capture
    there: Capture

    @property
    def is_mysql(self) -> bool:
        """Whether the source is a MySQL or a MariaDB."""
        return isinstance(self.captured, Mysql)


def checked(source: Target, sink: Target, patterns: Sequence[str], *, publication: str, slot: str) -> Databases:
    """Both databases, fit for a feed. Passwords are in this process's folder for secrets.

    Raises DatabaseError, CommandError, NoTableError; typer.Exit once the source's faults are shown.
    """
    captured = read_source(source, patterns)
    there = read_source(sink, [])
    if is_itself(captured, there, source, sink):
        raise CommandError(ExitCode.DATABASE, SAME_DATABASE)
    if isinstance(captured, Mysql) and not captured.facts.is_mariadb:
        raise CommandError(
            ExitCode.DATABASE,
            f"the source is MySQL {captured.facts.version}, and `headgate up` has connectors of PostgreSQL and "
            "MariaDB only. Use `headgate feed init` and a Kafka Connect of your own",
        )
    if not captured.tables:
        raise CommandError(ExitCode.NOT_FOUND, "the source has no tables that this user can see. Create them first")
    findings = captured.findings(publication=publication, slot=slot)
    if is_wrong(findings):
        show_findings([finding for finding in findings if finding.state is not State.OK], Output.TABLE)
    found = Databases(source, sink, captured, there)
    _check_tables(found)
    return found


def _check_tables(found: Databases) -> None:
    missing = missing_tables(found.captured, found.there)
    if not missing:
        return
    tables = read_target_tables(found.captured, found.there, found.source, found.sink, {})
    lines = [f"the sink does not have {', '.join(table.name for table in missing)}, as far as its user can see"]
    if tables.text:
        lines += ["Run these statements at the sink, as a user who may create tables:", tables.text]
    raise CommandError(ExitCode.DATABASE, "\n".join([*lines, *shown_refusals(tables)]))


def files_of(found: Databases, name: str, bootstrap: str, folder: Path, *, publication: str, slot: str) -> CaptureFiles:
    """Connector and feeds. ``folder`` is where the connector finds the source's password. Raises DatabaseError."""
    naming = Naming(
        feed=name,
        slot=slot,
        publication=publication,
        bootstrap=bootstrap,
        password_file=folder / SOURCE_PASSWORD,
    )
    kind = kind_of(found.sink.dsn, found.sink.options).name
    address = SinkAddress(kind, dsn=found.sink.dsn, password_file=Path(SINK_PASSWORD))
    return capture_files(found.captured, place_of(found.source), naming, address)


def check_sink(files: CaptureFiles) -> None:
    """Whether the sink takes the feeds. Raises SinkError; typer.Exit once the rights that its user lacks are shown."""
    for feed, file in files.feeds:
        with closing(open_sink(parse_feed(file.text).sink)) as sink:
            try:
                sink.check([table.name for table in feed.tables])
            except RightsMissingError as error:
                fix = tuple(f"{grant};" for grant in error.grants)
                show_findings([Finding("sink", State.WRONG, error.lacks, fix=fix)], Output.TABLE)
