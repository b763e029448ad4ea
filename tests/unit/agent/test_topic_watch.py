"""What a look at the topics finds: some are missing, some were made again. No Kafka needed."""

from collections.abc import Iterable, Mapping

import pytest

from headgate.agent.executor import SpanId, SpanTask
from headgate.agent.lane.fleet import Fleet
from headgate.agent.lane.keeper import Board
from headgate.agent.lane.span import SpanRun
from headgate.agent.lane.topic_watch import TOPICS_SECONDS, TopicWatch
from headgate.records.control import Epoch, SpanPlan, TaskState
from headgate.sources.offsets import SourceUnreachableError
from lanes_without_spark import SPEC, Restarts, lane_of


class Topics(Restarts):
    """A keeper with a source whose topics are told here."""

    present: Mapping[str, str | None] | None = None

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str | None]:
        if self.present is None:
            raise SourceUnreachableError("no answer")
        return {topic: self.present[topic] for topic in topics if topic in self.present}


@pytest.fixture
def keeper(board: Board) -> Topics:
    return Topics(board)


def open_span(board: Board, topic: str, topic_id: str | None) -> SpanRun:
    plan = SpanPlan(span=topic, topic=topic, table=f"public.{topic}", start={0: 0})
    run = SpanRun(SpanTask(SpanId("f", topic), "0-1", 1, Epoch(1, 1), plan, SPEC), "c", primary=True)
    run.state, run.claimed, run.topic_id = TaskState.REPLICATING, True, topic_id
    run.opened({0: 5})
    board.runs[run.task.id] = run
    return run


def test_a_span_whose_topic_is_missing_twice_is_sent_back_with_those_of_its_lane(
    board: Board, keeper: Topics, fleet: Fleet
) -> None:
    watch = TopicWatch(board, keeper, 0.0)
    lane, elsewhere = lane_of(fleet, "a", {0: 0}), lane_of(fleet, "b", {0: 0})
    for topic, topic_id, on in (("t", "one", lane), ("v", "two", lane), ("u", "two", elsewhere)):
        run = open_span(board, topic, topic_id)
        run.lane = on
        on.take_on(run)
    for present, restarted in (("tuv", 0), ("uv", 0), ("tuv", 0), ("uv", 0), ("uv", 2)):
        keeper.present = {topic: "one" if topic == "t" else "two" for topic in present}
        watch.look()
        assert keeper.restarted == ["its lane reads t, which is not there any more"] * restarted, present
    assert len(elsewhere.members) == 1


def test_a_span_whose_topic_is_another_one_fails_and_says_the_way_out(board: Board, keeper: Topics) -> None:
    watch = TopicWatch(board, keeper, 0.0)
    run, other = open_span(board, "t", "one"), open_span(board, "u", "two")
    keeper.present = {"t": "another", "u": "two"}
    watch.look()
    status = run.status()
    assert (status.state, status.error_code, status.retryable) == (TaskState.FAILED, "source_topic_replaced", False)
    assert "id is another, the offsets known are of one" in str(status.error)
    assert "feed resume --from earliest" in str(status.error)
    assert other.state is TaskState.REPLICATING


@pytest.mark.parametrize(("known", "seen"), [(None, "one"), ("one", None), ("one", "one")])
def test_what_is_not_known_is_not_another(board: Board, keeper: Topics, known: str | None, seen: str | None) -> None:
    watch = TopicWatch(board, keeper, 0.0)
    run = open_span(board, "t", known)
    keeper.present = {"t": seen}
    watch.look()
    assert run.state is TaskState.REPLICATING


def test_who_does_not_answer_says_nothing(board: Board, keeper: Topics) -> None:
    watch = TopicWatch(board, keeper, 0.0)
    run = open_span(board, "t", "one")
    watch.look()
    watch.look()
    assert (run.state, keeper.restarted) == (TaskState.REPLICATING, [])


def test_it_looks_from_time_to_time_and_only_for_spans_that_are_open(board: Board, keeper: Topics) -> None:
    watch = TopicWatch(board, keeper, 0.0)
    assert not watch.is_due(TOPICS_SECONDS)
    run = open_span(board, "t", "one")
    assert not watch.is_due(TOPICS_SECONDS - 1)
    assert watch.is_due(TOPICS_SECONDS)
    assert not watch.is_due(TOPICS_SECONDS + 1), "the last one was just now"
    run.stop = "seal"
    assert not watch.is_due(TOPICS_SECONDS * 3)
