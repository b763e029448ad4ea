"""``headgate feed init``: a connector's configuration and a feed, from what a database has."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.capture.feed_file import FeedAddress, FeedEnds
from headgate.capture.files import CaptureFile, Naming, capture_files, tables_file
from headgate.capture.finding import CaptureFinding, State
from headgate.capture.place import place_of
from headgate.capture.sink import creating, is_itself, missing_tables
from headgate.capture.source import DEFAULT_NAME
from headgate.capture.target_tables import read_target_tables
from headgate.cli.changes import Destruction, permitted
from headgate.cli.column_types import ColumnTypes, chosen_types
from headgate.cli.connection_names import complete_sinks, complete_sources
from headgate.cli.options import ClusterOptions, Format, cluster_flags
from headgate.cli.output import Output, note, show_rows
from headgate.cli.source import PublicationName, SlotName, Tables, read_waiting, target_at
from headgate.cli.waiting import waiting
from headgate.config.settings import load_settings
from headgate.databases.address import AddressOptions, Target
from headgate.databases.connections import Use
from headgate.databases.kinds import kind_of
from headgate.formats.topic_names import topic_part
from headgate.records.names import check_name
from headgate.tables.missing import MissingTables
from headgate.tables.plan import shown_refusals

_SOURCE: Final = AddressOptions("--source", "--source-password-file", "source")
_SINK: Final = AddressOptions("--sink", "--sink-password-file", "sink")


def init(
    feed: Annotated[
        str | None, typer.Argument(metavar="FEED", help="name of the feed", show_default="the source database's")
    ] = None,
    *,
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="DSN|NAME",
            help="the source database, or a named connection",
            autocompletion=complete_sources,
        ),
    ],
    source_password_file: Annotated[
        Path | None, typer.Option("--source-password-file", help="a file in HEADGATE_SECRETS_DIR")
    ] = None,
    sink: Annotated[
        str,
        typer.Option(
            "--sink",
            metavar="DSN|NAME",
            help="the target database, or a named connection",
            autocompletion=complete_sinks,
        ),
    ],
    sink_password_file: Annotated[
        Path | None, typer.Option("--sink-password-file", help="a file in HEADGATE_SECRETS_DIR")
    ] = None,
    tables: Tables = None,
    types: ColumnTypes = None,
    publication: PublicationName = DEFAULT_NAME,
    slot: SlotName = DEFAULT_NAME,
    folder: Annotated[Path, typer.Option("--folder", help="where the files are written")] = Path(),
    change: Destruction,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Write a connector and a feed for a database.

    The files are FEED-connector.json for Kafka Connect, FEED.yaml for `headgate feed create`, and FEED-tables.sql with
    the statements with which that feed creates tables that are missing at the sink. Both databases are only
    read. Files that exist are replaced only after a confirmation.

    Example: headgate feed init shop --source postgresql://debezium@db/shop --source-password-file debezium
    --sink postgresql://headgate@warehouse/shop --sink-password-file warehouse --tables 'public.*'
    """
    settings = load_settings(cluster_flags(cluster))
    from_database = target_at(source, source_password_file, _SOURCE, Use.SOURCE)
    to_database = target_at(sink, sink_password_file, _SINK, Use.SINK)
    captured = read_waiting(from_database, tables or [])
    if not captured.tables:
        raise CommandError(ExitCode.NOT_FOUND, "the source has no tables that this user can see. Create them first")
    there = read_waiting(to_database, [])
    if is_itself(captured, there, from_database, to_database):
        raise CommandError(ExitCode.DATABASE, SAME_DATABASE)
    place = place_of(from_database)
    naming = Naming(
        feed=check_name("feed", feed or topic_part(place.database)),
        slot=slot,
        publication=publication,
        bootstrap=settings.bootstrap,
        password_file=source_password_file,
    )
    chosen = chosen_types(types or [], missing_tables(captured, there))
    with waiting("the catalogues of both databases"):
        missing = read_target_tables(captured, there, from_database, to_database, chosen)
    ends = FeedEnds(
        source=_address(source, from_database, _SOURCE), sink=_address(sink, to_database, _SINK), types=chosen
    )
    statements = tables_file(naming.feed, missing.tables)
    files = [*capture_files(captured, place, naming, ends).all, *statements]
    _write(folder, files, change, output)
    show_rows(("file", "for"), [{"file": str(folder / each.name), "for": each.what} for each in files], output)
    _advise_source(captured.findings(publication=publication, slot=slot), source)
    _advise_sink(missing, [creating(to_database, folder / each.name) for each in statements])


SAME_DATABASE: Final = (
    "the sink is the source itself. A feed writes to tables of the same names, so each change would be captured "
    "again. Name another database in --sink (of MariaDB and MySQL, another server)"
)


def _address(given: str, target: Target, by_dsn: AddressOptions) -> FeedAddress:
    """As the user has named the database: a connection has options of its own."""
    kind = kind_of(target.dsn, target.options).name
    if target.options is not by_dsn:
        return FeedAddress(kind, connection=given)
    return FeedAddress(kind, dsn=target.dsn, password_file=target.password_file)


def _write(folder: Path, files: Sequence[CaptureFile], change: Destruction, output: Output) -> None:
    """Write the files, if the user agrees to lose those that exist. Raises CommandError."""
    there = [str(folder / each.name) for each in files if (folder / each.name).exists()]
    names = there or [str(folder / each.name) for each in files]
    what = f"{'replace' if there else 'write'} {', '.join(names)}"
    if permitted(change.only_if(bool(there)), what, output) is None:
        return
    for each in files:
        try:
            (folder / each.name).write_text(each.text, encoding="utf-8")
        except OSError as error:
            raise CommandError(ExitCode.USAGE, f"cannot write {folder / each.name}: {error.strerror}") from error


def _advise_source(found: Sequence[CaptureFinding], source: str) -> None:
    wrong = sum(finding.state is State.WRONG for finding in found)
    if wrong:
        things = "thing" if wrong == 1 else "things"
        note(f"the source is not ready: `headgate source check {source}` shows {wrong} {things} to change")


def _advise_sink(missing: MissingTables, commands: Sequence[str]) -> None:
    if commands:
        names = ", ".join(table.name for table in missing.tables.created)
        note(f"the sink does not have {names}, as far as its user can see. The feed creates them")
    if missing.grants:
        grants = [f"{grant};" for grant in missing.grants]
        note("\n".join(["its user does not have the rights for that. Run as an administrator of the sink:", *grants]))
        note("\n".join(["or create the tables as a user who may:", *commands]))
    for line in shown_refusals(missing.tables):
        note(line)
    if missing.tables.refused:
        note("`headgate feed create` refuses the feed until then")
