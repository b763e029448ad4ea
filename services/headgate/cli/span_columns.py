"""The columns of spans in tables for people."""

from collections.abc import Iterable

from headgate.records.control import FeedRecorded
from headgate.records.slices import slice_of
from headgate.records.stored_names import plans_today

__all__ = ["span_columns"]


def span_columns(feeds: Iterable[FeedRecorded], *whose: str) -> tuple[str, ...]:
    """Behind ``whose``. With the source's topic if several sources go to one table: a span's name is the target's."""
    is_shared = any(slice_of(plan.table) is not None for feed in feeds for plan in plans_today(feed))
    source = ("topic",) if is_shared else ()
    return (*whose, "span", *source, "state", "agent", "epoch", "applied", "lag_ms", "error")
