"""The topics of change logs on a broker: which are refused, how they grow, and that a deleted name is free again."""

import uuid
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import FencedError
from headgate.generation import ChangeReader, ChangeWriter
from headgate.generation.changelog.shell import log_topics
from headgate.generation.changelog.shell.producer import Outgoing
from headgate.generation.changelog.shell.topic_claims import TopicClaims
from headgate.generation.changelog.shell.wire import MESSAGE_BYTES_MAX, change_headers, positions_topic
from headgate.generation.changelog.shell.writer import LogGoneError
from headgate.records.base import Fact
from headgate.records.control import OutcomeStatus
from headgate.records.generation import (
    GenerationOutcomeKey,
    GenerationRequested,
    GenerationRequestKey,
    GenerationRequestKind,
    ReaderKey,
)
from headgate.sources.topic_settings import topic_settings
from support.generation_owner import running_owner
from support.kafka_cluster import ANSWER_SECONDS, Cluster
from support.topic_changes import add_partitions, delete_topics, make_topics
from support.waiting import eventually

from .test_change_log import SET, Operator, read_all

pytestmark = pytest.mark.integration


def reason_of(writer: ChangeWriter) -> str:
    """Why a writer cannot continue, or empty."""
    try:
        writer.look()
    except LogGoneError as error:
        return str(error)
    return ""


def make_topic(log: KafkaLog, name: str, partitions: int = 4, **settings: str) -> str:
    config = {key.replace("_", "."): value for key, value in settings.items()}
    make_topics(log.connection.admin, NewTopic(name, partitions, 1, config=config))
    return name


def refused(operator: Operator, topic: str, partitions: int = 4) -> str:
    asked = operator.ask(GenerationRequestKind.CREATE, topic=topic, partitions=partitions, streams=1)
    assert asked.status is OutcomeStatus.REFUSED, asked.reason
    return asked.reason


def test_a_topic_that_cannot_be_a_change_logs_is_refused_with_the_reason(log: KafkaLog, owner: Any) -> None:
    operator = Operator(log)
    assert "is a control topic" in refused(operator, f"{log.cluster}.generation")
    assert "are kept for the positions" in refused(operator, f"{log.cluster}.x.positions")
    compacted = make_topic(log, f"{log.cluster}.compacted", cleanup_policy="compact,delete")
    assert "cleanup.policy=compact,delete: compaction deletes changes" in refused(operator, compacted)
    three = make_topic(log, f"{log.cluster}.three", 3)
    assert "exists with 3 partitions, and 64 were asked for. Use --partitions 3" in refused(operator, three, 64)
    other = Operator(log, "other")
    other.create()
    operator.topic = other.topic
    assert "belongs to change log 'other'" in refused(operator, other.topic, 24)
    with ChangeWriter(log, "other", "w") as writer:
        writer.write(b"k", b"v", 0)
    delete_topics(log.connection.admin, other.topic)
    made = topic_settings(log.connection, [positions_topic(other.topic)])[0]
    assert made[positions_topic(other.topic)]["cleanup.policy"] == "compact"
    assert "does not exist, so what it held is gone" in other.ask(GenerationRequestKind.REPAIR).reason
    again = other.ask(GenerationRequestKind.CREATE, topic=other.topic, partitions=24, streams=1)
    assert again.status is OutcomeStatus.FAILED, "it is not there any more, whatever is recorded"


def test_positions_of_an_earlier_change_log_are_not_taken_for_those_of_a_new_one(log: KafkaLog, owner: Any) -> None:
    operator = Operator(log)
    make_topic(log, positions_topic(operator.topic), cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": log.connection.bootstrap_servers})
    producer.produce(positions_topic(operator.topic), key=b"w", value=b"{}", partition=0)
    assert producer.flush(60) == 0
    assert "has positions of an earlier change log's writers" in refused(operator, operator.topic)


def test_a_topic_is_created_with_settings_of_its_own_not_with_the_brokers(log: KafkaLog, owner: Any) -> None:
    operator = Operator(log)
    operator.create()
    settings = topic_settings(log.connection, [operator.topic])[0][operator.topic]
    assert settings["cleanup.policy"] == "delete"
    assert settings["max.message.bytes"] == str(MESSAGE_BYTES_MAX)


def test_partitions_that_were_added_are_used_by_the_next_switch(log: KafkaLog, owner: Any) -> None:
    operator = Operator(log)
    operator.create(2, 2)
    with ChangeWriter(log, SET, "w") as writer:
        writer.write(b"k", b"0", 0)
        full = operator.resize(1)
        assert (full.status, "generation grow" in full.reason) == (OutcomeStatus.REFUSED, True)
        grown = operator.ask(GenerationRequestKind.GROW, partitions=4)
        assert grown.status is OutcomeStatus.DONE, grown.reason
        assert operator.resize(1).status is OutcomeStatus.DONE
        writer.write(b"k", b"1", 1)
        # Kafka's own tools do as well: the owner sees the new partitions when it looks for the next switch.
        add_partitions(log.connection.admin, operator.topic, 16)
        eventually(lambda: operator.resize(8).status is OutcomeStatus.DONE, "eight streams")
        writer.write(b"k", b"2", 2)
    with closing(ChangeReader(log, SET, "r")) as reader:
        assert read_all(reader, 3) == {b"k": [0, 1, 2]}


def test_a_deleted_change_log_is_gone_for_its_writers_and_its_name_can_be_used_again(log: KafkaLog, owner: Any) -> None:
    operator = Operator(log)
    operator.create()
    writer = ChangeWriter(log, SET, "w")
    writer.write(b"k", b"old", 5)
    assert writer.flush() == 5
    with closing(ChangeReader(log, SET, "r")) as reader:
        read_all(reader, 1)
        assert operator.resize(2).status is OutcomeStatus.DONE
        eventually(lambda: reader.poll(0.1) == [] and SET in operator.tail.state.readers, "the reader is registered")
        operator.tail.read_to_end()
    held = operator.ask(GenerationRequestKind.DELETE)
    assert (held.status, "registered readers would lose it: r" in held.reason) == (OutcomeStatus.REFUSED, True)
    operator.tail.say(Fact(ReaderKey(SET, "r"), None))
    deleted = operator.ask(GenerationRequestKind.DELETE)
    assert deleted.status is OutcomeStatus.DONE, deleted.reason
    present = log.connection.admin.list_topics(timeout=ANSWER_SECONDS).topics
    assert not {operator.topic, positions_topic(operator.topic)} & present.keys()
    eventually(lambda: "was deleted" in reason_of(writer), "the writer hears of it")
    with pytest.raises(LogGoneError, match=f"change log {SET} was deleted while w wrote to it"):
        writer.write(b"k", b"lost", 6)
    writer.close()
    operator.create()
    with ChangeWriter(log, SET, "w") as again:
        assert again.position == -1
        again.write(b"k", b"new", 5)
    with closing(ChangeReader(log, SET, "r2")) as reader:
        assert read_all(reader, 1) == {b"k": [5]}
    assert operator.phases() == {3: "committed"}, "epochs continue, so late reports of the old log say nothing here"


def test_a_writer_that_paused_while_its_change_log_was_deleted_writes_nothing_into_the_next_one(
    log: KafkaLog, owner: Any
) -> None:
    operator = Operator(log)
    operator.create()
    with closing(ChangeWriter(log, SET, "w")) as writer:
        assert writer.position == -1
        paused = writer._acts._producer
        assert paused is not None
        deleted = operator.ask(GenerationRequestKind.DELETE)
        assert deleted.status is OutcomeStatus.DONE, deleted.reason
        operator.create()
        with pytest.raises(FencedError):
            paused.commit([Outgoing(operator.topic, 0, b"k", b"old", change_headers("w", 0))])


def test_of_two_change_logs_that_are_created_on_one_topic_at_once_only_one_is(
    log: KafkaLog, cluster: Cluster, logs_apart: None
) -> None:
    topic = f"{log.cluster}.contested"
    with running_owner(log, cluster):
        asked = {}
        for name in ("one", "two", "three"):
            operator = Operator(log, name)
            operator.tail.read_to_end()
            key = GenerationRequestKey(name, uuid.uuid4().hex)
            asked[key] = operator
        for key, operator in asked.items():
            operator.tail.say(
                Fact(key, GenerationRequested(GenerationRequestKind.CREATE, topic, 4, 1, 0, (), "test", 0))
            )
        eventually(lambda: all(settled(key, operator) for key, operator in asked.items()), "all are answered")
    found = {key: operator.tail.state.outcomes[outcome_of(key)] for key, operator in asked.items()}
    done = [key for key, outcome in found.items() if outcome.status is OutcomeStatus.DONE]
    assert len(done) == 1
    for key in asked.keys() - set(done):
        assert found[key].status is OutcomeStatus.REFUSED
        assert f"created on topic {topic} at the same moment" in found[key].reason or "belongs to" in found[key].reason


def test_repair_tells_of_a_topic_that_two_change_logs_have_and_deleting_one_leaves_it_to_the_other(
    log: KafkaLog, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Operator(log, "one"), Operator(log, "two")
    one.create(4)
    with monkeypatch.context() as patched:  # as owners did that could not tell
        patched.setattr(log_topics, "read_claims", lambda _log: TopicClaims({}, {}))
        shared = two.ask(GenerationRequestKind.CREATE, topic=one.topic, partitions=4, streams=1)
        assert shared.status is OutcomeStatus.DONE, shared.reason
    for operator, other in ((one, "two"), (two, "one")):
        told = operator.ask(GenerationRequestKind.REPAIR)
        assert f"topic {one.topic} belongs to change log '{other}' as well" in told.reason
    deleted = two.ask(GenerationRequestKind.DELETE)
    assert (deleted.status, "stays, because another" in deleted.reason) == (OutcomeStatus.DONE, True)
    assert one.topic in log.connection.admin.list_topics(timeout=ANSWER_SECONDS).topics
    assert "nothing is wrong" in one.ask(GenerationRequestKind.REPAIR).reason


def outcome_of(key: GenerationRequestKey) -> GenerationOutcomeKey:
    return GenerationOutcomeKey(key.set, key.request)


def settled(key: GenerationRequestKey, operator: Operator) -> bool:
    operator.tail.read_to_end()
    found = operator.tail.state.outcomes.get(outcome_of(key))
    return found is not None and found.status is not OutcomeStatus.ACCEPTED
