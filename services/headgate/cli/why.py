"""``headgate why``: what holds a feed or a migration, since when, and what to do about it."""

from typing import Annotated, Final

import typer

from headgate.app.exit_codes import ExitCode
from headgate.cli.lookup import not_found
from headgate.cli.names import complete_feeds_and_migrations
from headgate.cli.options import ClusterOptions, Format, Watch, connected
from headgate.cli.output import Output, again, note, show_value
from headgate.cli.snapshots import read_snapshot
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.sharding import ANNOUNCE, SHARDED_TOPICS
from headgate.eventlog.snapshot import Snapshot, all_partitions
from headgate.records.keys import FeedKey
from headgate.records.migration_standing import PENDING

TOPICS: Final = (ANNOUNCE.topic, *SHARDED_TOPICS)
HOW: Final = "`headgate feed create FILE`, `headgate migration submit STATEMENT`"


def why(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="a feed, or the id of a migration",
            show_default="every feed, and every migration that is not over",
            autocompletion=complete_feeds_and_migrations,
        ),
    ] = None,
    *,
    watch: Watch = None,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Explain what holds a feed or a migration, and what to do about it.

    For a feed: the table, the stage, the agent, since when, and advice. For a migration: what it waits for (an
    approval, its turn, a throttle, a feed, a lock, an owner), since when, and advice. Exit code 0 only if nothing
    holds it, or without NAME any of them.

    Example: headgate why shop
    """
    held = False
    with connected(cluster) as (_, log):

        def look() -> None:
            nonlocal held
            snapshot = read_snapshot(log, all_partitions(log, TOPICS))
            held = _explain_all(log, snapshot, output) if name is None else _explain(log, snapshot, name, output)

        again(look, watch)
    if held:
        raise typer.Exit(int(ExitCode.HELD))


def _explain(log: KafkaLog, snapshot: Snapshot, name: str, output: Output) -> bool:
    """Print what holds one of them; whether anything does. Raises CommandError for a name that is unknown."""
    from headgate.cli import why_answers as answers  # noqa: PLC0415 - it imports the machines that explain

    feeds = {key.feed for key in snapshot.keys(FeedKey)}
    answer: answers.FeedAnswer | answers.MigrationAnswer
    if name in feeds:
        answer = answers.why_feed(log, snapshot, name, *answers.known_migrations(log, snapshot))
    else:
        migrations = answers.read_migrations(log, snapshot)
        if name not in migrations:
            pending = [migration for migration, record in migrations.items() if record.state in PENDING]
            raise not_found(f"feed or migration {name!r}", sorted({*feeds, *pending}), HOW)
        answer = answers.why_migration(log, snapshot, migrations, name)
    if output is Output.TABLE:
        answer.show()
    else:
        show_value(output, answer.document())
    return answer.is_held


def _explain_all(log: KafkaLog, snapshot: Snapshot, output: Output) -> bool:
    """Print what holds each feed, and each migration that is not over; whether anything holds one of them."""
    from headgate.cli import why_answers as answers  # noqa: PLC0415 - it imports the machines that explain

    known, unknown = answers.known_migrations(log, snapshot)
    names = sorted(key.feed for key in snapshot.keys(FeedKey))
    feeds = [answers.why_feed(log, snapshot, feed, known, unknown) for feed in names]
    pending = sorted(name for name, record in known.items() if record.state in PENDING)
    migrations = [answers.why_migration(log, snapshot, known, name) for name in pending]
    held = any(each.is_held for each in feeds) or any(each.is_held for each in migrations)
    if output is not Output.TABLE:
        feed_documents, others = [each.document() for each in feeds], [each.document() for each in migrations]
        show_value(output, {"feeds": feed_documents, "migrations": others, "held": held})
        return held
    if not feeds and not migrations:
        note(f"no feed and no migration exists: {HOW}")
    for feed in feeds:
        feed.show(named=True)
    for migration in migrations:
        migration.show(named=True)
    return held
