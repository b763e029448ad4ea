"""``headgate feed list`` and ``show``."""

from typing import Any

import msgspec

from headgate.cli.lookup import find_feed
from headgate.cli.names import FeedName
from headgate.cli.options import ClusterOptions, Format, Watch, connected
from headgate.cli.output import Output, again, show_object, show_rows, show_value
from headgate.cli.snapshots import read_snapshot
from headgate.cli.span_columns import span_columns
from headgate.eventlog.snapshot import Snapshot
from headgate.views.rows import feed_rows, feed_shown


def list_feeds(*, watch: Watch = None, output: Format = Output.TABLE, cluster: ClusterOptions) -> None:
    """List feeds with their states, tables and lag.

    Example: headgate feed list --watch 2
    """
    columns = (
        "feed", "wanted", "state", "tables", "replicating", "copying", "applied", "lag_ms", "held_by", "error",
        "notices",
    )  # fmt: skip
    with connected(cluster) as (_, log):

        def show_now() -> None:
            show_rows(columns, msgspec.to_builtins(feed_rows(read_snapshot(log))), output)

        again(show_now, watch)


def show(feed: FeedName, *, watch: Watch = None, output: Format = Output.TABLE, cluster: ClusterOptions) -> None:
    """Show a feed's configuration, state, checkpoint and tables.

    Example: headgate feed show shop
    """
    with connected(cluster) as (_, log):
        again(lambda: _show(read_snapshot(log), feed, output), watch)


def _show(snapshot: Snapshot, feed: str, output: Output) -> None:
    record = find_feed(snapshot, feed)
    facts: dict[str, Any] = msgspec.to_builtins(feed_shown(snapshot, feed))
    if output is not Output.TABLE:
        show_value(output, facts)
        return
    tables = facts.pop("spans")
    show_object(facts, output)
    show_rows(span_columns([record]), tables, output)
