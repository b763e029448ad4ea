"""What is kept between batches: never across incarnations, topics or feeds of one name, and not for ever."""

import time

import msgspec
import pytest

from headgate.formats.decoding import Watermark
from headgate.replication import kept_parts, task_run
from headgate.replication.consumer_groups import ConsumerGroups, group_name
from headgate.replication.feed_parts import FEEDS_MAX, FeedIncarnation, FeedParts
from headgate.replication.kept_parts import KeptParts

from .conftest import canal, work

SPEC = msgspec.json.encode(
    {
        "feed": "shop",
        "source": {"topics": ["t"], "format": "ticdc-canal-json"},
        "sink": {"type": "postgresql", "dsn": "host=h dbname=d"},
    }
).decode()

FEED = FeedIncarnation("0-1", 1, SPEC)
OTHERS = [
    FeedIncarnation("0-2", 1, SPEC),
    FeedIncarnation("0-1", 2, SPEC),
    FeedIncarnation("0-1", 1, SPEC.replace("host=h ", "host=h2 ")),
]


class Parts:
    """Parts that know whether they are open."""

    def __init__(self, opened: "list[Parts]") -> None:
        self.is_open = True
        opened.append(self)

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Parts]:
    made: list[Parts] = []
    monkeypatch.setattr(kept_parts, "FeedParts", lambda _spec: Parts(made))
    return made


def lend(kept: KeptParts, feed: FeedIncarnation = FEED) -> object:
    with kept.lent(feed) as parts:
        return parts


def test_parts_are_kept_for_the_same_incarnation_of_a_feed_only(opened: list[Parts]) -> None:
    kept = KeptParts(60.0)
    assert lend(kept) is lend(kept)
    assert len({id(lend(kept, feed)) for feed in (FEED, *OTHERS)}) == 1 + len(OTHERS)


def test_parts_are_lent_to_one_user_at_a_time(opened: list[Parts]) -> None:
    kept = KeptParts(60.0)
    with kept.lent(FEED) as one, kept.lent(FEED) as other:
        assert one is not other


def test_parts_are_closed_when_their_use_failed(opened: list[Parts]) -> None:
    kept = KeptParts(60.0)
    with pytest.raises(ValueError, match="broken"), kept.lent(FEED):
        raise ValueError("broken")
    assert [parts.is_open for parts in opened] == [False]


def test_sessions_of_feeds_that_come_and_go_are_bounded(opened: list[Parts]) -> None:
    kept = KeptParts(60.0)
    for number in range(3 * kept_parts.KEPT_MAX):
        lend(kept, FeedIncarnation(f"0-{number}", 1, SPEC))
    assert [parts.is_open for parts in opened].count(True) == kept_parts.KEPT_MAX
    assert opened[-1].is_open


def test_unused_parts_expire(opened: list[Parts]) -> None:
    kept = KeptParts(60.0)
    lend(kept)
    now = time.monotonic()
    kept.purge(now)
    assert (opened[0].is_open, kept.are_due(now)) == (True, False)
    assert kept.are_due(now + 61)
    kept.purge(now + 61)
    assert not opened[0].is_open


def test_parts_of_feeds_that_are_gone_are_closed_at_once(opened: list[Parts]) -> None:
    kept = KeptParts(60.0)
    for feed in (FEED, *OTHERS):
        lend(kept, feed)
    kept.purge(time.monotonic(), {FEED})
    assert [parts.is_open for parts in opened] == [True, False, False, False]


def test_nothing_is_kept_after_the_end(opened: list[Parts]) -> None:
    kept = KeptParts(60.0)
    with kept.lent(FEED):
        kept.close()
    assert [parts.is_open for parts in opened] == [False]


# --- what decoders remember ---


def decoded(parts: FeedParts, rows: list[tuple[int, int, int]], topic_id: str | None) -> list[int]:
    """Offsets of the changes of (partition, offset, ts), a watermark where the ts is negative."""
    decoder = parts.decoder("t", None, topic_id)
    changes = []
    for chunk in canal(rows):
        partitions = [chunk.partition] * len(chunk.offsets)
        changes += decoder.decode_batch(chunk.keys, chunk.values, partitions, chunk.offsets, chunk.appended_ms)
    return [change.offset for change in changes]


def test_a_watermark_of_the_old_topic_drops_nothing_of_the_new_one() -> None:
    parts = FeedParts(SPEC)
    assert decoded(parts, [(0, 4, -100), (0, 5, 90)], "old") == [], "sent a second time, after its watermark"
    assert decoded(parts, [(0, 5, 90)], "old") == []
    assert decoded(parts, [(0, 5, 90)], "new") == [5]


def test_a_decoder_is_kept_for_its_topic() -> None:
    parts = FeedParts(SPEC)
    assert parts.decoder("t", None, "one") is parts.decoder("t", None, "one")
    assert parts.decoder("t", None, "one") is not parts.decoder("t", None, "two")
    decoded(parts, [(0, 4, -100)], "three")
    assert parts.decoder("t", None, "three").take_watermarks() == [Watermark(0, 4, 100)]


def test_a_dealer_is_kept_for_its_topic() -> None:
    parts = FeedParts(SPEC.replace('"topics": ["t"]', '"topics": ["t"], "tables": ["a.b"]'))
    assert parts.dealer("t", "one") is parts.dealer("t", "one")
    assert parts.dealer("t", "one") is not parts.dealer("t", "two")


def test_a_task_uses_the_decoder_of_its_topics_id(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr(task_run, "kept", KeptParts(60.0))
    monkeypatch.setattr(FeedParts, "decoder", lambda _self, _topic, _table, topic_id: asked.append(topic_id))
    given = msgspec.structs.replace(work("a", {0: 0}), topic_id="seven")
    task_run.run_task(task_run.BatchPlan(SPEC, (given,)), canal([(0, 0, 5)]))
    assert asked == ["seven"]


# --- what Spark's JVM keeps ---


def test_lanes_of_the_same_topics_share_consumers() -> None:
    groups = ConsumerGroups()
    first = groups.tag(FEED, [("a", "1"), ("b", "2")])
    assert groups.tag(FEED, [("b", "2"), ("c", "3")]) == first
    assert groups.tag(FEED, [("a", "1"), ("c", "3")]) == first


def test_no_consumer_is_shared_across_incarnations_feeds_or_topics_of_one_name() -> None:
    groups = ConsumerGroups()
    topics = [("a", "1"), ("b", None)]
    tags = [groups.tag(feed, topics) for feed in (FEED, *OTHERS)]
    tags.append(groups.tag(FEED, [("a", "2")]))
    tags.append(groups.tag(FEED, [("b", "3")]))
    tags.append(groups.tag(FEED, topics))
    assert len(set(tags)) == len(tags) - 1, "topics that were not replaced since may share"
    assert tags[-1] != tags[0]


def test_a_tag_is_never_used_again_after_it_was_forgotten() -> None:
    groups = ConsumerGroups()
    first = groups.tag(FEED, [("a", "1")])
    for number in range(2, FEEDS_MAX + 3):
        groups.tag(FeedIncarnation(f"0-{number}", 1, SPEC), [("a", "1")])
    assert groups.tag(FEED, [("a", "1")]) != first


def test_a_group_is_named_by_its_feed_its_incarnation_and_its_properties() -> None:
    tag = ConsumerGroups().tag(FEED, [("a", "1")])
    name = group_name(tag, {"kafka.max.poll.records": "1"})
    assert name.startswith("headgate-lane-0-1-1-")
    assert group_name(tag, {"kafka.max.poll.records": "2"}) != name
