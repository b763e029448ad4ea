"""What must hold at the two databases before anything is started."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.capture.feed_file import FeedAddress, FeedEnds
from headgate.capture.files import CaptureFiles, Naming, capture_files
from headgate.capture.finding import Finding, State, is_wrong
from headgate.capture.place import place_of
from headgate.capture.sink import is_itself
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
from headgate.tables.missing import MissingTables
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
    missing: MissingTables
    """Tables that the feed creates."""

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
    missing = read_target_tables(captured, there, source, sink, {})
    if missing.tables.refused:
        raise CommandError(ExitCode.DATABASE, "\n".join([*shown_refusals(missing.tables), _REFUSED]))
    return Databases(source, sink, captured, there, missing)


_REFUSED: Final = "Create these tables at the sink yourself, or leave them out: choose the others with --tables"


def files_of(found: Databases, name: str, bootstrap: str, folder: Path, *, publication: str, slot: str) -> CaptureFiles:
    """Connector and feeds. ``folder`` is where the connector finds the source's password. Raises DatabaseError."""
    naming = Naming(
        feed=name,
        slot=slot,
        publication=publication,
        bootstrap=bootstrap,
        password_file=folder / SOURCE_PASSWORD,
    )
    ends = FeedEnds(source=_address(found.source, SOURCE_PASSWORD), sink=_address(found.sink, SINK_PASSWORD))
    return capture_files(found.captured, place_of(found.source), naming, ends)


def _address(target: Target, password_file: str) -> FeedAddress:
    kind = kind_of(target.dsn, target.options).name
    return FeedAddress(kind, dsn=target.dsn, password_file=Path(password_file))


def check_sink(found: Databases, files: CaptureFiles) -> None:
    """Whether the sink takes the feeds. Raises SinkError; typer.Exit once the rights that its user lacks are shown."""
    missing = found.missing
    lacks = {f"no right to create {', '.join(sorted(missing.lacking))}": missing.grants} if missing.grants else {}
    for feed, file in files.feeds:
        with closing(open_sink(parse_feed(file.text).sink)) as sink:
            try:
                sink.check([table.name for table in feed.tables if table.name not in missing.lacking])
            except RightsMissingError as error:
                lacks[error.lacks] = error.grants
    if lacks:
        findings = [
            Finding("sink", State.WRONG, what, fix=tuple(f"{grant};" for grant in grants))
            for what, grants in lacks.items()
        ]
        show_findings(findings, Output.TABLE)
