"""What a feed's coordinator asks of change logs, on a real broker: where one begins, and who has read how far."""

from contextlib import closing

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headgate.config.feed import FeedSpec, parse_feed
from headgate.eventlog.kafka import KafkaLog
from headgate.generation import ChangeWriter
from headgate.generation.changelog.shell.feeds import FeedChangeLogs
from headgate.records.generation import GenerationRequestKind
from headgate.sources.change_logs import ChangeLogMissingError, ChangeLogUnavailableError, NotAChangeLogError
from headgate.sources.topics import plan_spans
from support.kafka_cluster import ANSWER_SECONDS
from support.waiting import eventually

from .test_change_log import SET, Operator

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("owner")]

PARTITIONS = 4


def spec_of(**source: object) -> FeedSpec:
    table = "public.goods"
    found = {"feed": "shop", "source": source, "sink": {"type": "postgresql", "dsn": "host=db", "table": table}}
    return parse_feed(str(found))


def written(log: KafkaLog, operator: Operator) -> dict[int, int]:
    """Ten changes, a switch from one to two streams, ten changes more; the ends of the topic then."""
    with closing(ChangeWriter(log, SET, "w")) as writer:
        for number in range(10):
            writer.write(f"k{number}".encode(), b"x", number)
        writer.flush()
        operator.resize(2)
        for number in range(10, 20):
            writer.write(f"k{number}".encode(), b"x", number)
        writer.flush()
    eventually(lambda: operator.phases()[1] not in ("committed", "closing"), "the END markers are written")
    return settled_ends(log, operator.topic)


def settled_ends(log: KafkaLog, topic: str) -> dict[int, int]:
    """Where its partitions end once nothing is open there: a broker writes a commit's marker behind its answer."""

    def ends(isolation: IsolationLevel) -> dict[int, int]:
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)}
        found = log.connection.admin.list_offsets(asked, isolation_level=isolation)
        return {place.partition: future.result(ANSWER_SECONDS).offset for place, future in found.items()}

    def settled() -> dict[int, int] | None:
        stable, written = ends(IsolationLevel.READ_COMMITTED), ends(IsolationLevel.READ_UNCOMMITTED)
        return written if stable == written else None

    return eventually(settled, "nothing is open") or {}


def test_a_feed_begins_with_the_oldest_generation_that_is_not_retired(log: KafkaLog) -> None:
    operator, change_logs = Operator(log), FeedChangeLogs(log)
    operator.create(PARTITIONS)
    written(log, operator)
    eventually(lambda: operator.phases()[1] == "drained", "nobody is waited for")
    ends = settled_ends(log, operator.topic)

    def start(**source: object) -> dict[int, int]:
        (plan,) = plan_spans(log.connection, spec_of(change_log=SET, **source), "headgate.", change_logs)
        assert (plan.topic, plan.table) == (operator.topic, "public.goods")
        return dict(plan.start)

    assert start() == dict.fromkeys(range(PARTITIONS), 0)
    assert start(start="latest") == ends
    operator.ask(GenerationRequestKind.RETIRE)
    assert start() == {0: ends[0], 1: 0, 2: 0, 3: 0}, "what is left on partition 0 is of a stream that nobody knows"


def test_a_reader_is_registered_moves_and_is_forgotten(log: KafkaLog) -> None:
    operator, change_logs = Operator(log), FeedChangeLogs(log)
    operator.create(PARTITIONS)
    change_logs.report(SET, "feed.shop", {})
    ends = written(log, operator)
    eventually(lambda: operator.phases()[1] == "superseded", "the feed is waited for")
    change_logs.report(SET, "feed.shop", {0: ends[0] - 1})
    operator.tail.read_to_end()
    assert operator.tail.state.readers[SET]["feed.shop"].read_epoch == 1
    change_logs.report(SET, "feed.shop", {0: ends[0]})
    eventually(lambda: operator.phases()[1] == "drained", "the feed has read it")
    change_logs.forget(SET, "feed.shop")
    change_logs.forget(SET, "feed.shop")
    operator.tail.read_to_end()
    assert not operator.tail.state.readers.get(SET)


def test_what_cannot_be_is_said(log: KafkaLog) -> None:
    operator, change_logs = Operator(log), FeedChangeLogs(log)
    operator.create(PARTITIONS)
    for topic in (operator.topic, f"{operator.topic}.positions"):
        with pytest.raises(NotAChangeLogError, match=f"Use source.change_log: {SET}"):
            plan_spans(log.connection, spec_of(topics=[topic]), "headgate.", change_logs)
    with pytest.raises(ChangeLogMissingError, match="change log 'other' does not exist"):
        plan_spans(log.connection, spec_of(change_log="other"), "headgate.", change_logs)
    with pytest.raises(ChangeLogMissingError, match="no longer exists"):
        change_logs.report("other", "feed.shop", {})
    with pytest.raises(ChangeLogUnavailableError, match="without the control topics"):
        plan_spans(log.connection, spec_of(change_log=SET), "headgate.")
