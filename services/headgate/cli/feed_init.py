"""``headgate feed init``: a connector's configuration and a feed, from what a database has."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.capture.connector import ConnectorNames, connector_json
from headgate.capture.feed_file import FeedFile, SinkAddress, feed_files
from headgate.capture.finding import Finding, State
from headgate.capture.place import place_of
from headgate.capture.source import DEFAULT_NAME, Capture, Mysql, Postgres, read_source
from headgate.capture.tables import SourceTable, topic_part
from headgate.cli.changes import Destruction, permitted
from headgate.cli.options import ClusterOptions, Format, cluster_flags
from headgate.cli.output import Output, note, show_rows
from headgate.cli.source import PublicationName, SlotName, Tables, target_at
from headgate.config.feed import parse_feed
from headgate.config.settings import load_settings
from headgate.databases.address import Options, Target
from headgate.databases.connections import Use
from headgate.databases.kinds import kind_of
from headgate.records.names import check_name

_SOURCE: Final = Options("--source", "--source-password-file", "source")
_SINK: Final = Options("--sink", "--sink-password-file", "sink")


class Written(msgspec.Struct, frozen=True):
    """A file, what it is for, and its text."""

    path: Path
    what: str
    text: str


def init(
    feed: Annotated[
        str | None, typer.Argument(metavar="[FEED]", help="name of the feed [default: the source database's]")
    ] = None,
    *,
    source: Annotated[
        str, typer.Option("--source", metavar="DSN|NAME", help="the source database, or a named connection")
    ],
    source_password_file: Annotated[
        Path | None, typer.Option("--source-password-file", help="a file in HEADGATE_SECRETS_DIR")
    ] = None,
    sink: Annotated[str, typer.Option("--sink", metavar="DSN|NAME", help="the target database, or a named connection")],
    sink_password_file: Annotated[
        Path | None, typer.Option("--sink-password-file", help="a file in HEADGATE_SECRETS_DIR")
    ] = None,
    tables: Tables = None,
    publication: PublicationName = DEFAULT_NAME,
    slot: SlotName = DEFAULT_NAME,
    folder: Annotated[Path, typer.Option("--folder", help="where the files are written")] = Path(),
    change: Destruction,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Write a Debezium connector and a feed for the tables of a database.

    Two files are written: FEED-connector.json for Kafka Connect, and FEED.yaml for `headgate feed create`. Tables
    without a key, and tables whose name no topic can have, get a feed of their own. Both databases are only read. Files
    that exist are replaced only after a confirmation.

    Example: headgate feed init shop --source postgresql://debezium@db/shop --source-password-file debezium
    --sink postgresql://headgate@warehouse/shop --sink-password-file warehouse --tables 'public.*'
    """
    settings = load_settings(cluster_flags(cluster))
    from_database = target_at(source, source_password_file, _SOURCE, Use.SOURCE)
    to_database = target_at(sink, sink_password_file, _SINK, Use.SINK)
    captured = read_source(from_database, tables or [])
    if not captured.tables:
        raise CommandError(ExitCode.NOT_FOUND, "the source has no tables that this user can see. Create them first")
    there = read_source(to_database, []).tables
    place = place_of(from_database)
    name = check_name("feed", feed or topic_part(place.database))
    names = ConnectorNames(
        prefix=name,
        slot=slot,
        publication=publication,
        bootstrap=settings.bootstrap,
        password_file=source_password_file,
        is_mariadb=isinstance(captured, Mysql) and captured.facts.is_mariadb,
    )
    feeds = feed_files(name, name, captured.tables, _sink_address(sink, to_database))
    written = [
        Written(folder / f"{name}-connector.json", "Kafka Connect", connector_json(place, names, captured.tables)),
        *(Written(folder / f"{each.feed}.yaml", _what(each), each.text) for each in feeds),
    ]
    for each in feeds:
        parse_feed(each.text)
    _write(written, change, output)
    show_rows(("file", "for"), [{"file": str(each.path), "for": each.what} for each in written], output)
    _advise(captured, there, captured.findings(publication=publication, slot=slot), source)


def _sink_address(given: str, target: Target) -> SinkAddress:
    kind = kind_of(target.dsn, target.options).name
    if target.options is not _SINK:
        return SinkAddress(kind, connection=given)
    return SinkAddress(kind, dsn=target.dsn, password_file=target.password_file)


def _what(feed: FeedFile) -> str:
    count = len(feed.tables)
    return f"headgate feed create, {count} {'table' if count == 1 else 'tables'}"


def _write(files: Sequence[Written], change: Destruction, output: Output) -> None:
    """Write the files, if the user agrees to lose those that exist. Raises CommandError."""
    there = [str(each.path) for each in files if each.path.exists()]
    what = f"replace {', '.join(there)}" if there else f"write {', '.join(str(each.path) for each in files)}"
    if permitted(change.only_if(bool(there)), what, output) is None:
        return
    for each in files:
        try:
            each.path.write_text(each.text, encoding="utf-8")
        except OSError as error:
            raise CommandError(ExitCode.USAGE, f"cannot write {each.path}: {error.strerror}") from error


def _advise(captured: Capture, there: Sequence[SourceTable], found: Sequence[Finding], source: str) -> None:
    """What is still to be done at the two databases. ``there``: the sink's tables."""
    wrong = sum(finding.state is State.WRONG for finding in found)
    if wrong:
        note(f"the source is not ready: `headgate source check {source}` shows {wrong} things to change")
    names = {(table.schema, table.table) for table in there}
    missing = [table for table in captured.tables if (table.schema, table.table) not in names]
    if missing:
        note(f"the sink does not have {', '.join(table.name for table in missing)}, as far as its user can see")
        note(f"create them before the feed, for example: {_copied(captured, missing)}")


def _copied(captured: Capture, missing: Sequence[SourceTable]) -> str:
    if isinstance(captured, Postgres):
        chosen = " ".join(f'--table=\'"{table.schema}"."{table.table}"\'' for table in missing)
        return f"pg_dump --schema-only --no-owner {chosen} SOURCE | psql SINK"
    chosen = " ".join(table.table for table in missing)
    return f"mariadb-dump --no-data {missing[0].schema} {chosen} | mariadb --host=SINK {missing[0].schema}"
