"""Ids of topics on a real broker: a feed's plan has them, and what becomes of it when a topic is made again."""

import time

import msgspec
import pytest
from confluent_kafka.admin import NewTopic

from headgate.config.feed import FeedSpec, SinkSpec, SourceSpec
from headgate.coordinator.core.effects import FeedRefused, ResolveStart, StartResolved
from headgate.coordinator.shell.effect_runner import FeedWork
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import SpanPlan
from headgate.records.spans import divide
from headgate.sources.discovery import look_again
from headgate.sources.topic_ids import topic_ids
from headgate.sources.topics import plan_spans
from support.kafka_cluster import ANSWER_SECONDS

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
        before = topic_ids(self.connection, [self.topic])
        if before:
            for future in self.connection.admin.delete_topics([self.topic]).values():
                future.result(ANSWER_SECONDS)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            (made,) = self.connection.admin.create_topics([NewTopic(self.topic, partitions, 1)]).values()
            made.exception(10)  # a broker goes on deleting for a while
            found = topic_ids(self.connection, [self.topic])
            if found and found != before:
                return found[self.topic]
            time.sleep(0.05)
        pytest.fail("the topic was not made again")

    def plan(self) -> tuple[SpanPlan, ...]:
        return plan_spans(self.connection, self.spec, "x.")

    def resumed(self, spans: tuple[SpanPlan, ...]) -> StartResolved | FeedRefused:
        """What ``feed resume --from earliest`` comes to."""
        work = FeedWork(self.connection, cluster_id="c", own_prefix="x.")
        found = work.run(ResolveStart("r", "f", msgspec.json.encode("earliest").decode(), spans, self.spec.to_json()))
        assert isinstance(found, StartResolved | FeedRefused)
        return found


@pytest.fixture
def source(kafka_bootstrap: str, kafka_prefix: str) -> Source:
    return Source(kafka_bootstrap, kafka_prefix)


def test_a_plan_has_the_id_and_a_topic_that_is_not_there_has_none(source: Source) -> None:
    ids = topic_ids(source.connection, [source.topic, "nowhere"])
    assert [plan.topic_id for plan in source.plan()] == [ids[source.topic]]
    assert ids.keys() == {source.topic}


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_a_topic_made_again_is_told_and_is_taken_on_by_a_rewind(source: Source, partitions: int) -> None:
    (before,) = source.plan()
    made = source.make(partitions)
    looked = look_again(source.connection, source.spec, (before,), "x.")
    assert (looked.grown, looked.joined) == (None, ())
    assert looked.notices == (f"source topic {source.topic} was deleted and made again: its table stops",)
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
    assert "made again with 3 partitions instead of 2, by which table public.t is divided" in refused.reason


def test_a_plan_without_an_id_takes_on_the_one_that_is_there(source: Source) -> None:
    (plan,) = source.plan()
    old = msgspec.structs.replace(plan, topic_id=None)
    assert look_again(source.connection, source.spec, (old,), "x.").notices == ()
    after = source.resumed((old,))
    assert isinstance(after, StartResolved)
    assert after.spans == (plan,)
