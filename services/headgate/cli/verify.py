"""``headgate verify``: are the target tables of a feed what the source tables are?"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.changes import Destruction, check_can_agree
from headgate.cli.connection_names import complete_sources
from headgate.cli.lookup import find_feed, not_found
from headgate.cli.names import FeedName, complete_tables
from headgate.cli.options import ClusterOptions, Format, connected
from headgate.cli.output import Output, note, show_rows, show_value
from headgate.cli.snapshots import read_snapshot
from headgate.cli.verify_feed import FeedSource, TableFeed
from headgate.cli.verify_progress import compared_rows
from headgate.cli.verify_repair import Repairs
from headgate.config.feed import FeedSpec, parse_feed
from headgate.databases.address import AddressOptions, Target
from headgate.databases.connections import Use, named
from headgate.eventlog.kafka import KafkaLog
from headgate.records.control import SpanPlan
from headgate.records.name_lists import number_of, shown_names
from headgate.records.spans import wholes
from headgate.records.stored_names import plan_today
from headgate.sources.database import source_target
from headgate.sources.origin import origins
from headgate.sources.table_names import named_like, source_table
from headgate.sources.table_options import spec_of
from headgate.verify.comparing import RowDifference, TableCompared, compare_table
from headgate.verify.contract import Side, SideError, UncomparableError
from headgate.verify.pace import RowLimit
from headgate.verify.settling import Settling
from headgate.verify.shaped import ShapedSide
from headgate.verify.sides import open_side, open_target, why_uncomparable

SETTLE_SECONDS_DEFAULT: Final = 10.0
"""A connector writes a change within a second or two. One that has been quiet for so long has written everything."""

WAIT_SECONDS_DEFAULT: Final = 60.0
"""A feed that moves to another agent is behind for some ten seconds."""

SOURCE: Final = AddressOptions("--source-dsn", "--source-password-file", "source")


def verify(
    feed: FeedName,
    *,
    source_dsn: Annotated[
        str | None,
        typer.Option(
            "--source-dsn",
            help="the source database: postgresql://user@host/database, or mysql://user@host/database "
            "(by default the feed's source.database)",
        ),
    ] = None,
    source_connection: Annotated[
        str | None,
        typer.Option(
            "--source-connection", help="a named connection, for --source-dsn", autocompletion=complete_sources
        ),
    ] = None,
    source_password_file: Annotated[
        Path | None, typer.Option("--source-password-file", help="a file in HEADGATE_SECRETS_DIR")
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="TABLE",
            help="compare only this table, name as `headgate table list` shows it; may be repeated",
            autocompletion=complete_tables,
        ),
    ] = None,
    settle: Annotated[
        float,
        typer.Option("--settle", min=0, help="seconds that a row must differ without a change before it is reported"),
    ] = SETTLE_SECONDS_DEFAULT,
    wait: Annotated[
        float,
        typer.Option("--wait", min=0, help="seconds to wait for connector and feed, and for rows that keep changing"),
    ] = WAIT_SECONDS_DEFAULT,
    max_rows_per_second: Annotated[
        float | None,
        typer.Option("--max-rows-per-second", min=1, help="compare no more rows than this (by default no limit)"),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="copy rows that differ from the source to the target, and delete those that only the target has",
        ),
    ] = False,
    change: Destruction,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Compare a feed's source and target rows while both change.

    Rows that differ are read again until they are equal, or have differed without a change for --settle seconds and
    after the connector wrote, and the feed applied, everything up to then. A table that cannot be compared is named and
    skipped. Columns that the feed excludes or masks are not compared, renamed ones are. Rows that the feed's where
    leaves out must not be in the target. Exit code 0 only if all tables were compared and are equal, or were repaired.

    Example: headgate verify shop --source-dsn postgresql://reader@db.example/shop --source-password-file reader
    """
    if (change.dry_run or change.yes) and not repair:
        raise typer.BadParameter("--dry-run and --yes are for --repair; without it nothing is changed")
    if repair:
        check_can_agree(change, "overwrite rows that differ with those of the source")
    with connected(cluster) as (_, log):
        record = find_feed(read_snapshot(log), feed)
        spec = parse_feed(record.spec)
        _check_comparable(feed, spec)
        plans = _chosen(feed, wholes(record.spans), table or [])
        said = _said_by_events(log, spec, plans)
        source = _source(spec, source_dsn, source_password_file, source_connection)
        limit = RowLimit(max_rows_per_second)
        repairs = Repairs()
        written = FeedSource(record, log)
        with compared_rows(limit, output) as on_rows:

            def compare(here: Side, there: Side, plan: SpanPlan) -> TableCompared:
                progress = TableFeed(record, plan, written, here, there)
                settling = Settling(progress, seconds=settle, timeout_seconds=wait + spec.commit_interval_seconds)
                at_sink = plan_today(record.spec, plan)
                name = _source_table(spec, here, said, at_sink)
                told = partial(on_rows, plan.table)
                noted = partial(repairs.add, plan.table)
                shaped = spec_of(spec, at_sink)
                return compare_table(
                    ShapedSide(here, shaped.columns, shaped.where, target=there.shape(at_sink.table))
                    if shaped.shapes
                    else here,
                    there,
                    name,
                    at_sink.table,
                    settling=settling,
                    on_rows=told,
                    on_difference=noted,
                )

            compared, skipped = _compare(spec, plans, source, compare)
        if output is Output.TABLE:
            _show(compared)
        repaired = repairs.make(log, feed, change) if repair else {}
    would = repairs.counts if repair and change.dry_run else {}
    if output is not Output.TABLE:
        found = {"feed": feed, **_totals(compared), "tables": msgspec.to_builtins(compared), "skipped": skipped}
        show_value(output, {**found, "repaired": repaired, "would_repair": would})
    elif would:
        note(f"would {repairs}; nothing was changed")
    for name, rows in repaired.items():
        note(f"{name}: {number_of(rows, 'row')} repaired")
    if not repair and output is Output.TABLE and _totals(compared)["differences"]:
        note("With --repair the rows that differ are overwritten with those of the source; --dry-run only counts them")
    _end(compared, skipped, sum(repaired.values()))


def _check_comparable(feed: str, spec: FeedSpec) -> None:
    """Raise CommandError for a sink whose rows cannot be compared."""
    if why := why_uncomparable(spec.sink):
        raise CommandError(ExitCode.DATABASE, f"feed {feed!r}: {why}")


def _totals(compared: Sequence[TableCompared]) -> dict[str, int]:
    return {name: sum(getattr(each, name) for each in compared) for name in ("rows", "differences", "unsettled")}


def _end(compared: Sequence[TableCompared], skipped: Mapping[str, str], repaired: int) -> None:
    """Report what was not compared, and exit unless all is equal."""
    for name, reason in skipped.items():
        note(f"{name} was not compared: {reason}")
    totals = _totals(compared)
    if totals["differences"] > repaired:
        raise typer.Exit(int(ExitCode.DIFFERENCE))
    if skipped:
        tables = len(skipped) + len(compared)
        raise CommandError(ExitCode.DATABASE, f"{len(skipped)} of {tables} tables were not compared, see above")
    if totals["unsettled"]:
        raise CommandError(
            ExitCode.UNSETTLED,
            f"{totals['unsettled']} rows differed whenever they were read, and may be changes that have not "
            "arrived yet. Run the "
            "command again, with a longer --wait if needed. `headgate why` shows what holds the feed",
        )


def _source(spec: FeedSpec, dsn: str | None, password_file: Path | None, connection: str | None) -> Target:
    """The source database, by default the feed's own. Raises typer.BadParameter, SourceError, DatabaseError."""
    if dsn is None and connection is None and spec.source.database is not None:
        if password_file is not None:
            raise typer.BadParameter("--source-password-file needs --source-dsn")
        return source_target(spec.source.database)
    if (dsn is None) == (connection is None):
        raise typer.BadParameter(
            "give either --source-dsn or --source-connection, or name the database in the feed (source.database)"
        )
    if connection is not None:
        return named(connection, Use.SOURCE, "--source-connection")[1]
    return Target(dsn or "", password_file, SOURCE)


def _chosen(feed: str, plans: Sequence[SpanPlan], names: Sequence[str]) -> list[SpanPlan]:
    """The plans of the tables of these names; of all, if there are none. Raises CommandError."""
    known = {plan.table: plan for plan in plans}
    for name in names:
        if name not in known:
            raise not_found(f"table {name!r}", sorted(known), f"`headgate table list {feed}`")
    return [known[name] for name in dict.fromkeys(names)] if names else list(plans)


def _compare(
    spec: FeedSpec,
    plans: Sequence[SpanPlan],
    source_target: Target,
    compare: Callable[[Side, Side, SpanPlan], TableCompared],
) -> tuple[list[TableCompared], dict[str, str]]:
    """What was compared, and why the other tables were not."""
    compared: list[TableCompared] = []
    skipped: dict[str, str] = {}
    with (
        closing(open_side(source_target)) as source,
        closing(open_target(spec.sink)) as target,
    ):
        for plan in plans:
            try:
                compared.append(compare(source, target, plan))
            except UncomparableError as error:
                skipped[plan.table] = str(error)
            except SideError as error:
                text = f"the comparison stopped at table {plan.table}: {error}"
                raise CommandError(ExitCode.DATABASE, text) from error
    return compared, skipped


def _said_by_events(log: KafkaLog, spec: FeedSpec, plans: Sequence[SpanPlan]) -> dict[str, str]:
    """Topic → table, from the topics' last events. Not read for a feed that names its tables.

    Raises SourceError.
    """
    topics = {plan.topic: len(plan.start) for plan in plans if plan.topic not in spec.source.topic_tables}
    if spec.source.tables or not topics:
        return {}
    return {topic: origin.in_full for topic, origin in origins(log.connection, topics).items()}


def _source_table(spec: FeedSpec, source: Side, said: Mapping[str, str], plan: SpanPlan) -> str:
    found = source_table(spec, plan.table, plan.topic, has=lambda name: source.shape(name) is not None, said=said.get)
    if found is not None:
        return found
    raise UncomparableError(
        f"the source has no table {named_like(plan.topic)}, which the name of topic {plan.topic} suggests, "
        "and the topic's last events do not name their table. Name it in source.topic_tables (`headgate feed update`)"
    )


def _show(compared: Sequence[TableCompared]) -> None:
    rows = [
        {
            "table": table.target,
            "rows": table.rows,
            "by": "row" if table.keyless else "key",
            "differences": table.differences,
            "unsettled": table.unsettled,
            "columns": len(table.columns),
            "not_compared": ", ".join((*table.columns_missing, *table.columns_surplus, *table.columns_unlike)) or None,
        }
        for table in compared
    ]
    show_rows(("table", "by", "rows", "differences", "unsettled", "columns", "not_compared"), rows, Output.TABLE)
    for table in compared:
        for columns, side in ((table.columns_missing, "source"), (table.columns_surplus, "target")):
            if columns:
                note(f"{table.target}: {shown_names(columns)} not compared: only in the {side}")
        if table.columns_unlike:
            unlike = [f"{column} ({types})" for column, types in table.columns_unlike.items()]
            note(f"{table.target}: {shown_names(unlike)} not compared: their values are written differently")
        for example in table.examples:
            note(_described(table, example))
        for example in table.unsettled_examples:
            note(f"{_described(table, example)}, not settled")
        if table.unsettled:
            note(f"{table.target}: {table.unsettled} rows could not be settled: {table.unsettled_reason}")
    totals = _totals(compared)
    unsettled = f", {totals['unsettled']} could not be settled" if totals["unsettled"] else ""
    done = f"{number_of(totals['rows'], 'row')} compared in {number_of(len(compared), 'table')}"
    note(f"{done}, {totals['differences']} differ{unsettled}")


def _described(table: TableCompared, example: RowDifference) -> str:
    what = f"{example.kind} in {', '.join(example.columns)}" if example.columns else example.kind
    return f"{table.target} {msgspec.json.encode(example.key).decode()}: {what}"
