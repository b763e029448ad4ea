"""A feed's record, as owners would have written it."""

from headgate.records.control import FeedRecorded, FeedState, SpanPlan, WantedState

__all__ = ["feed_of"]


def feed_of(topic: str, *tables: str, partitions: int) -> FeedRecorded:
    """A feed that runs, of one topic for all its tables."""
    start = dict.fromkeys(range(partitions), 0)
    return FeedRecorded(
        feed_id="0-1",
        owner_rev=1,
        incarnation=0,
        spec="{}",
        spans=tuple(SpanPlan(table, topic, table, start) for table in tables),
        wanted=WantedState.RUNNING,
        state=FeedState.NORMAL,
        error_code=None,
        error=None,
        request=None,
        changed_ms=0,
    )
