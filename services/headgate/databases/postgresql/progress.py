"""The statements on the fence's table at PostgreSQL."""

from typing import Final

from headgate.databases.progress import Execute, FeedRow

__all__ = ["close_feed", "feed_rows"]

_EXISTS: Final = "SELECT to_regclass('headgate.' || %s) IS NOT NULL"

_OF_FEED: Final = "feed_id = %s AND table_name = %s"
"""A feed's id is unique, whatever its cluster is."""


def feed_rows(execute: Execute, feed_id: str, table: str, *, locks: bool = False) -> list[FeedRow]:
    """A feed's rows of one table; ``locks``: nobody changes them until the transaction's end."""
    if execute(_EXISTS, ("progress",)) != [(True,)]:
        return []
    rows = execute(
        f"SELECT partition, next_offset, closed, topic_id FROM headgate.progress WHERE {_OF_FEED}"
        f"{' FOR SHARE' if locks else ''}",
        (feed_id, table),
    )
    return [FeedRow(*row) for row in rows]


def close_feed(execute: Execute, feed_id: str, table: str) -> None:
    """Close a feed's rows of one table: its present epoch writes nothing there any more."""
    execute(
        f"UPDATE headgate.progress SET closed = true, updated_at = clock_timestamp() WHERE {_OF_FEED}",
        (feed_id, table),
    )
