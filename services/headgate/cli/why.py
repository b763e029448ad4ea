"""``headgate why``: what holds a feed or a migration, since when, and what to do about it."""

from typing import Annotated, Final

import typer

from headgate.app.exit_codes import ExitCode
from headgate.cli.lookup import not_found
from headgate.cli.names import complete_feeds_and_migrations
from headgate.cli.options import ClusterOptions, Format, Watch, connected
from headgate.cli.output import Output, again
from headgate.eventlog.sharding import ANNOUNCE, SHARDED_TOPICS
from headgate.eventlog.snapshot import all_partitions, read_snapshot
from headgate.records.keys import FeedKey
from headgate.records.migration_standing import PENDING

TOPICS: Final = (ANNOUNCE.topic, *SHARDED_TOPICS)
HOW: Final = "`headgate feed create FILE`, `headgate migration submit STATEMENT`"


def why(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="a feed, or the id of a migration", autocompletion=complete_feeds_and_migrations
        ),
    ],
    *,
    watch: Watch = None,
    output: Format = Output.TABLE,
    cluster: ClusterOptions,
) -> None:
    """Explain what holds a feed or a migration, and what to do about it.

    For a feed: the table, the stage, the agent, since when, and advice. For a migration: what it waits for (an
    approval, its turn, a throttle, a feed, a lock, an owner), since when, and advice. Exit code 0 only if nothing
    holds it.

    Example: headgate why shop
    """
    held = False
    with connected(cluster) as (_, log):

        def look() -> None:
            nonlocal held
            snapshot = read_snapshot(log, all_partitions(log, TOPICS))
            from headgate.cli import why_answers as answers  # noqa: PLC0415 - it imports the machines that explain

            feeds = {key.feed for key in snapshot.keys(FeedKey)}
            if name in feeds:
                held = answers.why_feed(log, snapshot, name, output)
                return
            migrations = answers.read_migrations(log, snapshot)
            if name in migrations:
                held = answers.why_migration(log, snapshot, migrations, name, output)
            else:
                pending = [migration for migration, record in migrations.items() if record.state in PENDING]
                raise not_found(f"feed or migration {name!r}", sorted({*feeds, *pending}), HOW)

        again(look, watch)
    if held:
        raise typer.Exit(int(ExitCode.HELD))
