"""Records that are named to be skipped although the feed has read them already."""

import pytest

from headgate.cli.feed_skip import already_read
from headgate.config.feed import SkippedRecord
from headgate.eventlog.log import Delivery, Partition
from headgate.eventlog.snapshot import Snapshot
from headgate.records.control import SpanPlan
from headgate.records.keys import FeedProgressKey
from support import build

A = SpanPlan(span="public.a", topic="src", table="public.a", start={0: 5, 1: 7})
B = SpanPlan(span="public.b", topic="src", table="public.b", start={0: 5, 1: 7})
FEED = build.feed_recorded(spans=(A, B))


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ("src/0/8", {"src/0/8": 9}),
        ("src/0/9", {}),
        ("src/1/6", {"src/1/6": 7}),  # before the feed's start
        ("src/1/7", {}),  # one table has read it, the other one has not
        ("src/7/0", {}),
        ("other/0/0", {}),
    ],
)
def test_a_record_has_been_read_once_every_table_of_its_topic_is_behind_it(
    record: str, expected: dict[str, int]
) -> None:
    snapshot = Snapshot()
    progress = build.feed_progressed(incarnation=1, positions={"public.a": {0: 9, 1: 8}, "public.b": {0: 12}})
    snapshot.take(Delivery(Partition("checkpoint", 0), 0, FeedProgressKey("shop"), progress))
    assert dict(already_read(snapshot, "shop", FEED, [SkippedRecord(record=record)])) == expected
