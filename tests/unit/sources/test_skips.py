"""Records that are skipped by name: checked against what the feed reads, and kept with the id of their topic."""

import pytest

from headgate.config.feed import SKIPS_MAX, FeedSpec, FeedSpecError, SkippedRecord, parse_feed
from headgate.records.control import SpanPlan
from headgate.sources.skips import with_topic_ids
from headgate.sources.topic_ids import TopicReplacedError

PLANS = [SpanPlan("s.t", "shop.s.t", "s.t", {0: 0, 1: 0}, "id-1")]


def feed(skip: str) -> FeedSpec:
    return parse_feed(
        f"{{feed: f, source: {{topics: [shop.s.t]}}, sink: {{type: postgresql, dsn: 'host=x'}}, skip: {skip}}}"
    )


def test_a_named_record_is_kept_with_its_topics_id() -> None:
    spec = with_topic_ids(feed("[shop.s.t/0/17]"), PLANS)
    assert spec.skip == (SkippedRecord(record="shop.s.t/0/17", topic_id="id-1"),)
    assert parse_feed(spec.to_json()) == spec
    assert with_topic_ids(spec, PLANS) == spec


@pytest.mark.parametrize(("topic_id", "skipped"), [("id-1", {(0, 17)}), (None, {(0, 17)}), ("id-2", set())])
def test_a_record_of_a_topic_that_was_re_created_is_not_skipped(
    topic_id: str | None, skipped: set[tuple[int, int]]
) -> None:
    spec = with_topic_ids(feed("[shop.s.t/0/17]"), PLANS)
    assert spec.skips("shop.s.t", topic_id) == skipped
    assert spec.skips("shop.s.other", topic_id) == set()


def test_whether_anything_may_be_set_aside() -> None:
    assert not feed("[]").may_set_aside
    assert feed("[shop.s.t/0/17]").may_set_aside


@pytest.mark.parametrize(
    ("skip", "error", "said"),
    [
        ("[shop.s.u/0/17]", FeedSpecError, "the feed does not read topic shop.s.u of record shop.s.u/0/17"),
        ("[shop.s.t/2/17]", FeedSpecError, "topic shop.s.t has no partition 2"),
        ("[{record: shop.s.t/0/17, topic_id: id-0}]", TopicReplacedError, "Remove the record from skip"),
        ("[shop.s.t]", FeedSpecError, "'shop.s.t' does not name a record. Write TOPIC/PARTITION/OFFSET"),
        ("[{recrd: shop.s.t/0/1}]", FeedSpecError, "skip"),
        (str([f"shop.s.t/0/{n}" for n in range(SKIPS_MAX + 1)]), FeedSpecError, "it names 101 records, at most 100"),
    ],
)
def test_a_record_that_cannot_be_skipped_is_refused(skip: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as caught:
        with_topic_ids(feed(skip), PLANS)
    assert said in str(caught.value)
