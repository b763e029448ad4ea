"""Whether a table's rows are being copied from its source, from the records: the one word that every status shows.

Between two turns of a copy (docs/adr/0114) the table replicates, and before the first one no agent has it. Its copy
begins when the owner accepts the request and ends when the owner settles it, so the owner's records decide.
"""

from collections.abc import Callable
from enum import StrEnum

from headgate.records.control import FeedRecorded, SpanDispatched, WantedState
from headgate.records.row_copies import snapshot_request
from headgate.records.spans import paused_table, table_of

__all__ = ["CopyState", "copy_state"]


class CopyState(StrEnum):
    """``copy_paused``: the feed is stopped. The copy continues at the range where it was when the feed is resumed."""

    COPYING = "copying"
    PAUSED = "copy_paused"


def copy_state(
    feed: FeedRecorded, span: str, record: SpanDispatched | None, is_requested: Callable[[str], bool]
) -> CopyState | None:
    """The state of the copy of the span's rows; None if there are none to copy.

    ``is_requested``: whether a request of that id exists. Asked for a table that was not dispatched since it joined.
    """
    if feed.wanted is WantedState.RUNNING:
        state = CopyState.COPYING
    elif feed.wanted is WantedState.STOPPED:
        state = CopyState.PAUSED
    else:
        return None
    paused = paused_table(feed, span)
    if paused is not None and paused.copy is not None:
        return state
    if record is not None and record.feed_id == feed.feed_id:
        return None if record.copy is None else state
    return state if is_requested(snapshot_request(feed.feed_id, table_of(span))) else None
