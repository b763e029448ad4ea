"""``headgate verify``: are the target tables of a feed what the source tables are?"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.connection_names import complete_sources
from headgate.cli.lookup import find_feed, not_found
from headgate.cli.names import FeedName, complete_tables
from headgate.cli.options import ClusterOptions, Format, connected
from headgate.cli.output import Output, note, show_rows, show_value
from headgate.config.feed import FeedSpec, parse_feed
from headgate.databases.address import Options, Target
from headgate.databases.connections import Use, named
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.snapshot import read_snapshot
from headgate.records.control import SpanPlan
from headgate.records.spans import wholes
from headgate.sinks.registry import target_of
from headgate.sources.database import source_target
from headgate.sources.origin import origins
from headgate.sources.table_names import named_like, source_table
from headgate.verify.comparing import Side, SideError, TableCompared, UncomparableError, compare_table
from headgate.verify.sides import open_side

SOURCE: Final = Options("--source-dsn", "--source-password-file", "source")


def verify(
    feed: FeedName,
    *,
    source_dsn: Annotated[
        str | None,
        typer.Option(
            "--source-dsn",
            help="the source database: a libpq connection string, or mysql://user@host/database "
            "[the feed's source.database]",
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
            help="compare only this table, name as `headgate table list` shows it; may be repeated",
            autocompletion=complete_tables,
        ),
    ] = None,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Compare the rows of a feed's source and target tables.

    Neither side may change until it is done. A table that cannot be compared is named and skipped. Exit code 0 only if
    all tables were compared and are equal.

    Example: headgate verify shop --source-dsn postgresql://reader@db.example/shop --source-password-file reader
    """
    with connected(cluster) as (_, log):
        record = find_feed(read_snapshot(log), feed)
        spec = parse_feed(record.spec)
        plans = _chosen(feed, wholes(record.spans), table or [])
        said = _said_by_events(log, spec, plans)
    source = _source(spec, source_dsn, source_password_file, source_connection)
    compared, skipped = _compare(spec, plans, said, source)
    rows = sum(each.rows for each in compared)
    differences = sum(each.differences for each in compared)
    if output is not Output.TABLE:
        facts = {"feed": feed, "rows": rows, "differences": differences, "tables": msgspec.to_builtins(compared)}
        show_value(output, {**facts, "skipped": skipped})
    else:
        _show(compared)
        note(f"{rows} rows compared in {len(compared)} tables, {differences} differ")
    for name, reason in skipped.items():
        note(f"{name} was not compared: {reason}")
    if differences:
        raise typer.Exit(int(ExitCode.DIFFERENCE))
    if skipped:
        raise CommandError(ExitCode.DATABASE, f"{len(skipped)} of {len(plans)} tables were not compared, see above")


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
    said: Mapping[str, str],
    source_target: Target,
) -> tuple[list[TableCompared], dict[str, str]]:
    """What was compared, and why the other tables were not."""
    compared: list[TableCompared] = []
    skipped: dict[str, str] = {}
    with (
        closing(open_side(source_target)) as source,
        closing(open_side(target_of(spec.sink))) as target,
    ):
        for plan in plans:
            try:
                compared.append(compare_table(source, target, _source_table(spec, source, said, plan), plan.table))
            except UncomparableError as error:
                skipped[plan.table] = str(error)
            except SideError as error:
                text = f"the comparison stopped at table {plan.table}: {error}"
                raise CommandError(ExitCode.DATABASE, text) from error
    return compared, skipped


def _said_by_events(log: KafkaLog, spec: FeedSpec, plans: Sequence[SpanPlan]) -> dict[str, str]:
    """Topic → table, as the topics' last events say it; of a feed that names its tables nothing is asked.

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


def _show(compared: list[TableCompared]) -> None:
    rows = [
        {
            "table": table.target,
            "rows": table.rows,
            "by": "row" if table.keyless else "key",
            "differences": table.differences,
            "columns": len(table.columns),
            "not_compared": ", ".join((*table.columns_missing, *table.columns_surplus)) or None,
        }
        for table in compared
    ]
    show_rows(("table", "by", "rows", "differences", "columns", "not_compared"), rows, Output.TABLE)
    for table in compared:
        for example in table.examples:
            what = f"{example.kind} in {', '.join(example.columns)}" if example.columns else example.kind
            note(f"{table.target} {msgspec.json.encode(example.key).decode()}: {what}")
