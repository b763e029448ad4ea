"""What a feed's record says to the steps of a copy."""

import pytest
from msgspec.structs import replace

from headgate.migration.core.copy_steps import FeedSeen
from headgate.migration.shell.feeds import ChangeFeeds
from headgate.records.control import FeedRecorded, FeedState, WantedState
from headgate.records.error_codes import PARTITIONS_GROWN
from support import build

GOES = build.feed_recorded(changed_ms=5)
WAITS = replace(GOES, state=FeedState.WARNING, error_code="sink_column_missing", error="a column")
GROWN = replace(
    GOES, wanted=WantedState.STOPPED, state=FeedState.STOPPED, error_code=PARTITIONS_GROWN, error="2 partitions"
)
HELD = replace(GOES, state=FeedState.WARNING, error_code="value_refused", error="a value")


@pytest.mark.parametrize(
    ("record", "seen"),
    [
        (None, FeedSeen.ABSENT),
        (replace(GOES, state=FeedState.REMOVED), FeedSeen.ABSENT),
        (replace(GOES, wanted=WantedState.REMOVED), FeedSeen.ABSENT),
        (GOES, FeedSeen.GOING),
        (WAITS, FeedSeen.GOING),
        (HELD, FeedSeen.FAILED),
        (GROWN, FeedSeen.FAILED),
        (replace(GOES, state=FeedState.FAILED), FeedSeen.FAILED),
        (replace(GOES, wanted=WantedState.STOPPED), FeedSeen.GOING),
        (replace(GOES, wanted=WantedState.STOPPED, state=FeedState.STOPPED), FeedSeen.STOPPED),
    ],
)
def test_a_feed_is_seen(record: FeedRecorded | None, seen: FeedSeen) -> None:
    assert ChangeFeeds.seen(record) is seen
