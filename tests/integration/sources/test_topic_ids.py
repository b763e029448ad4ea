"""Ids of topics on a real broker: a feed's plan has them, and what becomes of it when a topic is made again."""

import re
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headgate.config.feed import FeedSpec
from headgate.config.sink_spec import SinkSpec
from headgate.config.source_spec import SourceSpec
from headgate.config.start_offsets import StartOffsets
from headgate.coordinator.core.effects import FeedRefused, ResolveStart, StartResolved
from headgate.coordinator.shell.effect_runner import FeedWork
from headgate.eventlog.connection import KafkaConnection
from headgate.migration.shell.feeds import ChangeFeeds
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.online.lane_plan import ChangeTopic
from headgate.records.control import SpanPlan
from headgate.records.spans import divide
from headgate.sources.discovery import look_again
from headgate.sources.offsets import TopicMissingError
from headgate.sources.topic_ids import TopicReplacedError, topic_id_of, topic_ids
from headgate.sources.topics import plan_spans
from support.topic_changes import delete_topics, make_again

pytestmark = pytest.mark.integration


class Source:
    """A topic of a feed, and what resolves where it goes on from."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.connection = KafkaConnection(bootstrap)
        self.topic = f"{prefix}public.t"
        self.spec = FeedSpec(
            feed="f",
            source=SourceSpec(topics=(self.topic,)),
            sink=SinkSpec(type="postgresql", dsn="host=nowhere", table="{schema}.{table}"),
        )
        self.make(2)

    def make(self, partitions: int) -> str | None:
        """Make the topic, again if it is there; its id."""
        return make_again(self.connection, self.topic, partitions)

    def plan(self) -> tuple[SpanPlan, ...]:
        return plan_spans(self.connection, self.spec, "x.")

    def resumed(self, spans: tuple[SpanPlan, ...], start: object = "earliest") -> StartResolved | FeedRefused:
        """What ``feed resume --from`` comes to."""
        work = FeedWork(self.connection, cluster_id="c", own_prefix="x.")
        found = work.run(ResolveStart("r", "f", msgspec.json.encode(start).decode(), spans, self.spec.to_json()))
        assert isinstance(found, StartResolved | FeedRefused)
        return found


@pytest.fixture
def source(kafka_bootstrap: str, kafka_prefix: str) -> Source:
    return Source(kafka_bootstrap, kafka_prefix)


def test_a_plan_has_the_id_and_a_topic_that_is_not_there_has_none(source: Source) -> None:
    ids = topic_ids(source.connection, [source.topic, "nowhere"])
    assert [plan.topic_id for plan in source.plan()] == [ids[source.topic]]
    assert ids.keys() == {source.topic}


def test_whoever_keeps_an_id_is_told_that_a_topic_does_not_exist(source: Source) -> None:
    (plan,) = source.plan()
    delete_topics(source.connection.admin, source.topic)
    with pytest.raises(TopicMissingError, match=f"topic {source.topic} does not exist"):
        topic_id_of(source.connection, source.topic)
    refused = source.resumed((plan,))
    assert isinstance(refused, FeedRefused)
    assert f"topic {source.topic} does not exist" in refused.reason


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_a_topic_made_again_is_told_and_is_taken_on_by_a_rewind(source: Source, partitions: int) -> None:
    (before,) = source.plan()
    made = source.make(partitions)
    looked = look_again(source.connection, source.spec, (before,), "x.")
    assert (looked.grown, looked.joined) == (None, ())
    assert looked.notices == (f"source topic {source.topic} was deleted and re-created, so its table stops",)
    after = source.resumed((before,))
    assert isinstance(after, StartResolved)
    assert [(plan.topic_id, plan.start) for plan in after.spans] == [(made, dict.fromkeys(range(partitions), 0))]
    assert look_again(source.connection, source.spec, after.spans, "x.").notices == ()


def test_a_table_that_is_divided_goes_on_only_if_the_partitions_are_as_many(source: Source) -> None:
    parts = divide(source.plan()[0], 2)
    made = source.make(2)
    after = source.resumed(parts)
    assert isinstance(after, StartResolved)
    assert [(plan.span, plan.topic_id) for plan in after.spans] == [(plan.span, made) for plan in parts]
    source.make(3)
    refused = source.resumed(after.spans)
    assert isinstance(refused, FeedRefused)
    assert "re-created with 3 partitions instead of 2, by which table public.t is divided" in refused.reason


def test_a_plan_without_an_id_takes_on_the_one_that_is_there(source: Source) -> None:
    (plan,) = source.plan()
    old = msgspec.structs.replace(plan, topic_id=None)
    assert look_again(source.connection, source.spec, (old,), "x.").notices == ()
    after = source.resumed((old,))
    assert isinstance(after, StartResolved)
    assert after.spans == (plan,)


# --- offsets that a person gives ---


def test_offsets_of_a_topic_that_was_re_created_are_refused_where_the_id_is_given(source: Source) -> None:
    (old,) = source.plan()
    made = source.make(2)
    offsets = {"0": 0, "1": 0}

    stale = source.resumed((old,), {source.topic: {"topic_id": old.topic_id, "offsets": offsets}})
    assert isinstance(stale, FeedRefused)
    assert f"belong to the topic with id {old.topic_id}, but the current topic has id {made}" in stale.reason
    assert f"Start at earliest, or give offsets of the current topic with topic_id: {made}" in stale.reason
    for given in (offsets, {"topic_id": made, "offsets": offsets}):
        resumed = source.resumed((old,), {source.topic: given})
        assert isinstance(resumed, StartResolved)
        assert [(plan.topic_id, plan.start) for plan in resumed.spans] == [(made, {0: 0, 1: 0})]


def test_a_feed_whose_start_offsets_are_of_another_topic_is_refused(source: Source) -> None:
    (old,) = source.plan()

    def planned(topic_id: str | None) -> tuple[SpanPlan, ...]:
        start = StartOffsets(offsets={0: 0, 1: 0}, topic_id=topic_id)
        reading = SourceSpec(topics=(source.topic,), start_offsets={source.topic: start})
        return plan_spans(source.connection, source.spec.model_copy(update={"source": reading}), "x.")

    assert planned(old.topic_id) == (old,)
    made = source.make(2)
    said = f"id {old.topic_id}, but the current topic has id {made}"
    with pytest.raises(TopicReplacedError, match=re.escape(said)):
        planned(old.topic_id)
    assert [plan.topic_id for plan in planned(None)] == [made]


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ({"other": {"0": 1}}, "offsets were given for other, which the feed does not read. It reads "),
        ({"TOPIC": {"0": 1}}, "offsets were given for partitions [0], but the feed reads [0, 1]"),
        ({"TOPIC": {"0": -1, "1": 0}}, "the position to resume from is not valid: "),
        ("yesterday", "the position to resume from is not valid: "),
    ],
)
def test_offsets_that_do_not_fit_the_feed_are_refused(source: Source, start: Any, said: str) -> None:
    named = {source.topic if name == "TOPIC" else name: at for name, at in start.items()} if start != "yesterday" else 0
    refused = source.resumed(source.plan(), named or start)
    assert isinstance(refused, FeedRefused)
    assert said in refused.reason


def test_a_migration_looks_for_its_way_back_in_the_topic_that_its_offsets_are_of(source: Source) -> None:
    log: Any = SimpleNamespace(connection=source.connection)
    feeds = ChangeFeeds(log)
    (old,) = source.plan()
    start = StartOffsets(offsets={0: 0, 1: 0}, topic_id=old.topic_id)
    feeds.check_start(source.topic, start)
    with closing(feeds.tail(ChangeTopic(source.topic))) as tail:
        assert tail.topic_id == old.topic_id
    source.make(2)
    with pytest.raises(RefusedError, match="it was deleted and re-created"):
        feeds.check_start(source.topic, start)
