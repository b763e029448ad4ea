"""What must hold at the two databases before anything is started."""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.capture.connector import topic_of
from headgate.capture.feed_file import FeedAddress, FeedEnds
from headgate.capture.files import CaptureFiles, Naming, capture_files
from headgate.capture.finding import CaptureFinding, State, is_wrong
from headgate.capture.place import place_of
from headgate.capture.sink import is_itself
from headgate.capture.source import Capture, Mysql, read_source
from headgate.capture.target_tables import read_target_tables
from headgate.cli.checks import show_findings
from headgate.cli.column_types import chosen_types
from headgate.cli.feed_init import SAME_DATABASE
from headgate.cli.output import Output
from headgate.config.feed import parse_feed
from headgate.databases.address import Target
from headgate.databases.kinds import kind_of
from headgate.records.control import SpanPlan
from headgate.sinks.registry import open_sink
from headgate.sinks.relational.rights import RightsMissingError
from headgate.sources.table_options import by_session_options
from headgate.tables.missing import MissingTables
from headgate.tables.plan import ChosenTypes, by_option, shown_refusals

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
    types: ChosenTypes

    @property
    def is_mysql(self) -> bool:
        """Whether the source is a MySQL or a MariaDB."""
        return isinstance(self.captured, Mysql)


def checked(
    source: Target, sink: Target, patterns: Sequence[str], types: Sequence[str], *, publication: str, slot: str
) -> Databases:
    """Both databases, fit for a feed. Passwords are in this process's folder for secrets.

    ``patterns`` and ``types`` are those of the options --tables and --type.

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
    # Of a table that an earlier run has created, too: the same command continues.
    chosen = chosen_types(types, captured.tables, otherwise="is not one of the source's tables")
    missing = read_target_tables(captured, there, source, sink, chosen)
    if missing.tables.refused:
        reasons = shown_refusals(missing.tables, partial(by_option, "headgate up"))
        raise CommandError(ExitCode.DATABASE, "\n".join([*reasons, _REFUSED]))
    return Databases(source, sink, captured, there, missing, chosen)


_REFUSED: Final = "Or create these tables at the sink yourself, or leave them out: choose the others with --tables"


def files_of(found: Databases, name: str, bootstrap: str, folder: Path, *, publication: str, slot: str) -> CaptureFiles:
    """Connector and feed. ``folder`` is where the connector finds the source's password. Raises DatabaseError."""
    naming = Naming(
        feed=name,
        slot=slot,
        publication=publication,
        bootstrap=bootstrap,
        password_file=folder / SOURCE_PASSWORD,
    )
    ends = FeedEnds(
        source=_address(found.source, SOURCE_PASSWORD), sink=_address(found.sink, SINK_PASSWORD), types=found.types
    )
    return capture_files(found.captured, place_of(found.source), naming, ends)


def _address(target: Target, password_file: str) -> FeedAddress:
    kind = kind_of(target.dsn, target.options).name
    return FeedAddress(kind, dsn=target.dsn, password_file=Path(password_file))


def check_sink(name: str, found: Databases, files: CaptureFiles) -> None:
    """Whether the sink takes feed ``name``.

    Raises SinkError; typer.Exit once the rights that its user lacks are shown.
    """
    missing = found.missing
    lacks = {f"no right to create {', '.join(sorted(missing.lacking))}": missing.grants} if missing.grants else {}
    # As the feed reads them: a table without a key is taken with its own option only.
    plans = [
        SpanPlan(span=table.name, topic=topic_of(name, table), table=table.name, start={})
        for table in found.captured.tables
        if table.name not in missing.lacking
    ]
    for own, own_plans in by_session_options(parse_feed(files.feed.text), plans):
        with closing(open_sink(own.sink)) as sink:
            try:
                sink.check([plan.table for plan in own_plans])
            except RightsMissingError as error:
                lacks[error.lacks] = error.grants
    if lacks:
        findings = [
            CaptureFinding("sink", State.WRONG, what, fix=tuple(f"{grant};" for grant in grants))
            for what, grants in lacks.items()
        ]
        show_findings(findings, Output.TABLE)
