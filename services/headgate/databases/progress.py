"""The fence's table ``headgate.progress``: one row per (cluster, feed, table, topic, partition).

What a row allows and refuses is decided in sinks/fence.py. Here, and in each database's ``progress``, is the SQL.
"""

from collections.abc import Callable
from typing import Any

import msgspec

__all__ = ["Execute", "FeedRow"]

Execute = Callable[[str, tuple[object, ...]], list[tuple[Any, ...]]]
"""Runs a statement and returns its rows."""


class FeedRow(msgspec.Struct, frozen=True):
    """How far a feed is in one partition of a table's topic."""

    partition: int
    next_offset: int
    closed: bool
    topic_id: str | None
