"""The source table that a topic's changes belong to."""

from collections.abc import Callable

from headgate.config.feed import FeedSpec
from headgate.records.identifiers import normal_table
from headgate.sources.topics import source_tables

__all__ = ["named_like", "source_table"]


def named_like(topic: str) -> str:
    """The table that a topic is named like: the last two parts of its name."""
    return ".".join(topic.split(".")[-2:])


def source_table(
    spec: FeedSpec, table: str, topic: str, *, has: Callable[[str], bool], said: Callable[[str], str | None]
) -> str | None:
    """The table that the feed names; else the one in the topic's name, if it exists; else the one that the events name.

    A topic ends in schema and table, but Debezium replaces characters that a topic's name may not have; and the name of
    a topic that a transform has made is not that of a table of its events. ``table`` is the sink's. ``has``: whether
    the source has a table. ``said``: topic → the table that its events name. None if the table is unknown.
    """
    known = source_tables(spec).get(normal_table(table)) or spec.source.topic_tables.get(topic)
    if known is not None:
        return known
    return name if has(name := named_like(topic)) else said(topic)
