"""What a look at the topics finds: some are missing, some were made again. No Kafka needed."""

from collections.abc import Iterable, Mapping

import pytest

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.inputs import Placed, Remove, Served, SettleDue
from headgate.agent.core.span.states import TaskPhase
from headgate.records.control import TaskState
from headgate.replication.queries import Queries
from headgate.replication.span_table import SpanTable
from headgate.replication.topic_watch import TOPICS_SECONDS, TopicWatch
from headgate.sources.offsets import SourceUnreachableError
from support.lanes_without_spark import Restarts, is_on, is_open, lane_of, now_is


class Topics:
    """A source whose topics are told here."""

    present: Mapping[str, str | None] | None = None

    def __call__(self, topics: Iterable[str]) -> dict[str, str | None]:
        if self.present is None:
            raise SourceUnreachableError("no answer")
        return {topic: self.present[topic] for topic in topics if topic in self.present}


@pytest.fixture
def topics() -> Topics:
    return Topics()


@pytest.fixture
def watch(table: SpanTable, topics: Topics, lifecycle: Restarts) -> TopicWatch:
    return TopicWatch(table, topics, 0.0)


def open_span(table: SpanTable, topic: str, topic_id: str | None) -> SpanId:
    return is_open(table, {0: 5}, topic, topic=topic, topic_id=topic_id)


def test_a_span_whose_topic_is_missing_twice_is_sent_back_with_those_of_its_lane(
    table: SpanTable, topics: Topics, watch: TopicWatch, lifecycle: Restarts, queries: Queries
) -> None:
    lane, elsewhere = lane_of(queries, "a", {0: 0}), lane_of(queries, "b", {0: 0})
    for topic, topic_id, on in (("t", "one", lane), ("v", "two", lane), ("u", "two", elsewhere)):
        span = open_span(table, topic, topic_id)
        table.apply(span, Placed(on.name))
        table.apply(span, Served())
    for present, restarted in (("tuv", 0), ("uv", 0), ("tuv", 0), ("uv", 0), ("uv", 2)):
        topics.present = {topic: "one" if topic == "t" else "two" for topic in present}
        watch.look()
        assert lifecycle.restarted == ["its lane reads t, which is not there any more"] * restarted, present
    assert len(elsewhere.members) == 1


def test_a_neighbour_that_is_being_called_leaves_the_lane_and_is_opened_once_it_is_answered(
    table: SpanTable, topics: Topics, watch: TopicWatch, queries: Queries
) -> None:
    lane = lane_of(queries, "a", {0: 0})
    gone, called = is_on(table, lane, {0: 5}, "gone"), is_on(table, lane, {0: 5}, "called", topic="v")
    table.apply(called, SettleDue())
    topics.present = {"v": None}
    watch.look()
    watch.look()
    assert (now_is(table, gone).phase, now_is(table, called).phase) == (TaskPhase.OPENING, TaskPhase.SETTLING)
    assert (now_is(table, called).lane, lane.members) == (None, [])


def test_a_span_that_waits_for_a_lane_is_sent_back_alone(
    table: SpanTable, topics: Topics, watch: TopicWatch, lifecycle: Restarts
) -> None:
    gone, other = open_span(table, "t", "one"), open_span(table, "u", "two")
    topics.present = {"u": "two"}
    watch.look()
    watch.look()
    assert lifecycle.restarted == ["its lane reads t, which is not there any more"]
    assert (now_is(table, gone).phase, now_is(table, other).phase) == (TaskPhase.OPENING, TaskPhase.WAITING)


def test_a_span_whose_topic_is_another_one_fails_and_says_the_way_out(
    table: SpanTable, topics: Topics, watch: TopicWatch
) -> None:
    span, other = open_span(table, "t", "one"), open_span(table, "u", "two")
    topics.present = {"t": "another", "u": "two"}
    watch.look()
    status = now_is(table, span).status(0, 0.0)
    assert (status.state, status.error_code, status.retryable) == (TaskState.FAILED, "source_topic_replaced", False)
    assert "id is another, but the known offsets belong to id one" in str(status.error)
    assert "feed resume --from earliest" in str(status.error)
    assert now_is(table, other).phase is TaskPhase.WAITING


@pytest.mark.parametrize(("known", "seen"), [(None, "one"), ("one", None), ("one", "one")])
def test_what_is_not_known_is_not_another(
    table: SpanTable, topics: Topics, watch: TopicWatch, known: str | None, seen: str | None
) -> None:
    span = open_span(table, "t", known)
    topics.present = {"t": seen}
    watch.look()
    assert now_is(table, span).phase is TaskPhase.WAITING


def test_who_does_not_answer_says_nothing(table: SpanTable, watch: TopicWatch, lifecycle: Restarts) -> None:
    span = open_span(table, "t", "one")
    watch.look()
    watch.look()
    assert (now_is(table, span).phase, lifecycle.restarted) == (TaskPhase.WAITING, [])


def test_it_looks_from_time_to_time_and_only_for_spans_that_are_open(table: SpanTable, watch: TopicWatch) -> None:
    assert not watch.is_due(TOPICS_SECONDS)
    span = open_span(table, "t", "one")
    assert not watch.is_due(TOPICS_SECONDS - 1)
    assert watch.is_due(TOPICS_SECONDS)
    assert not watch.is_due(TOPICS_SECONDS + 1), "the last one was just now"
    table.apply(span, Remove(seal=True))
    assert not watch.is_due(TOPICS_SECONDS * 3)
