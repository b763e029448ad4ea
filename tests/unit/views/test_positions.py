"""Which positions of a feed are shown, and which are left out."""

from msgspec.structs import replace

from headgate.eventlog.log import Delivery, Partition
from headgate.eventlog.snapshot import Snapshot
from headgate.records.base import Key, Record
from headgate.records.keys import FeedKey, FeedProgressKey
from headgate.views.positions import positions_of
from support import build

FEED = build.feed_of("t", "a", "b", partitions=2)
PROGRESS = build.feed_progressed(
    feed_id=FEED.feed_id, incarnation=FEED.incarnation, positions={"a": {0: 7, 1: 3}, "b": {0: 5, 1: 9}}
)


def standing(*records: tuple[Key, Record]) -> Snapshot:
    snapshot = Snapshot()
    for offset, (key, record) in enumerate(records):
        snapshot.take(Delivery(Partition(key.topic, 0), offset, key, record))
    return snapshot


def test_where_tables_share_a_partition_the_least_is_shown() -> None:
    records = ((FeedKey("f"), FEED), (FeedProgressKey("f"), PROGRESS))
    assert positions_of(standing(*records)) == {"f": {("t", 0): 5, ("t", 1): 3}}


def test_a_checkpoint_of_another_feed_or_from_before_a_rewind_is_none() -> None:
    for other in (replace(PROGRESS, feed_id="0-9"), replace(PROGRESS, incarnation=9)):
        assert positions_of(standing((FeedKey("f"), FEED), (FeedProgressKey("f"), other))) == {}
    assert positions_of(standing((FeedKey("f"), FEED))) == {}
    assert positions_of(standing((FeedProgressKey("f"), PROGRESS))) == {}
