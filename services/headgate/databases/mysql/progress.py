"""The statements on the fence's table at MySQL and MariaDB."""

from typing import Final

from headgate.databases.progress import Execute, FeedRow

__all__ = ["feed_rows"]

_EXISTS: Final = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'headgate' AND table_name = %s"


def feed_rows(execute: Execute, feed_id: str, table: str, *, locks: bool = False) -> list[FeedRow]:
    """A feed's rows of one table; ``locks``: nobody changes them until the transaction's end."""
    if execute(_EXISTS, ("progress",)) != [(1,)]:
        return []
    # A feed's id is unique, whatever its cluster is.
    rows = execute(
        "SELECT part, next_offset, closed, topic_id FROM headgate.progress WHERE feed_id = %s AND table_name = %s"
        f"{' LOCK IN SHARE MODE' if locks else ''}",
        (feed_id, table),
    )
    return [FeedRow(partition, offset, bool(closed), topic_id) for partition, offset, closed, topic_id in rows]
