"""What a writer says when it could not write, and that the log then is as it says."""

import os
import time
from contextlib import closing

import msgspec
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from headgate.eventlog import transactions, writers
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.log import CommitRefusedError, CommitUncertainError, FencedError, LogError
from headgate.eventlog.log_writer import LogWriter
from headgate.eventlog.topics import MESSAGE_BYTES_MAX, topic_name
from support.eventlog_contract import DISPATCH_0, SYNC_0, ended, facts, heartbeat, read_all, reported, tombstone
from support.kafka_cluster import Cluster, Foreign, set_topic

pytestmark = pytest.mark.integration


def test_the_brokers_time_is_learnt_from_what_is_written_to_announce(log: KafkaLog) -> None:
    with closing(log.writer("agent")) as writer:
        writer.write([reported("t1")], 10)
        assert not log.clock.is_known, "the other topics carry the writer's time"
        before_ms = wall_ms()
        writer.write([heartbeat(1)], 10)
    assert log.clock.is_known
    apart_ms = abs(log.clock.now_ms() - wall_ms())
    assert apart_ms <= wall_ms() - before_ms + 1, "broker and writer share a machine: no more than the request took"


def test_a_zombies_record_on_disk_is_never_visible(cluster: Cluster, log: KafkaLog, foreign: Foreign) -> None:
    """The old owner's transaction had reached the broker when the new one took over; then it wakes up and commits."""
    zombie = foreign(**{"transactional.id": f"{cluster.cluster}.owner"})
    zombie.producer.init_transactions(30)
    zombie.producer.begin_transaction()
    zombie.put_fact(ended("s1", owner_rev=1))
    zombie.flush()
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        owner.commit([ended("s1", owner_rev=2)])
        with pytest.raises(KafkaException) as fenced:
            zombie.producer.commit_transaction(20)
        assert fenced.value.args[0].code() == KafkaError._FENCED
        owner.commit([ended("s2", owner_rev=2)])
    assert facts(read_all(log, [DISPATCH_0])) == [ended("s1", owner_rev=2).fact, ended("s2", owner_rev=2).fact]


def test_our_writer_is_fenced_by_anybody_with_its_id_and_says_so_for_ever(
    cluster: Cluster, log: KafkaLog, caplog: pytest.LogCaptureFixture, foreign: Foreign
) -> None:
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        owner.commit([ended("s1")])
        rival = foreign(**{"transactional.id": f"{cluster.cluster}.owner"})
        rival.producer.init_transactions(30)
        for _ in range(2):
            with pytest.raises(FencedError, match=f"owner was fenced on Kafka at {cluster.bootstrap}"):
                owner.commit([ended("zombie")])
    assert facts(read_all(log, [DISPATCH_0])) == [ended("s1").fact]
    alarms = [record.getMessage() for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}]
    assert alarms == [], "it is how owners follow each other: our error says it, and librdkafka does not"


def commit_again_and_again(owner: LogWriter) -> None:
    """An answer may be there already, however short the wait for it is."""
    for _ in range(100):
        owner.commit([ended("perhaps")])


def withdraw_again_and_again(owner: LogWriter) -> None:
    """A record may have arrived already, as an answer may."""
    for _ in range(100):
        owner._withdraw([ended("s1")])  # type: ignore[attr-defined]


def test_an_unanswered_commit_is_uncertain_and_the_log_tells(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        owner.commit([ended("s1")])
        monkeypatch.setattr(transactions, "COMMIT_SECONDS_MAX", 0.0)
        for _ in range(2):
            with pytest.raises(CommitUncertainError, match="may or may not have happened"):
                commit_again_and_again(owner)
        monkeypatch.undo()
        with closing(log.transactional_writer("owner")) as successor:
            successor.init()
            before = facts(read_all(log, [DISPATCH_0]))
            successor.commit([ended("s2")])
    after = facts(read_all(log, [DISPATCH_0]))
    assert after == [*before, ended("s2").fact], "decided once the successor's init had returned"
    first, *perhaps = before
    assert first == ended("s1").fact
    assert all(fact == ended("perhaps").fact for fact in perhaps)


def test_a_record_that_the_client_refuses_aborts_the_whole_transaction(log: KafkaLog) -> None:
    huge = ended("x" * (MESSAGE_BYTES_MAX + 1))
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        with pytest.raises(CommitRefusedError, match="MSG_SIZE_TOO_LARGE"):
            owner.commit([ended("s1"), huge])
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        owner.commit([ended("s2")])
    assert facts(read_all(log, [DISPATCH_0])) == [ended("s2").fact]


def test_a_record_that_the_broker_refuses_aborts_the_whole_transaction(cluster: Cluster, log: KafkaLog) -> None:
    set_topic(cluster, "sync", max_message_bytes="200")
    large = reported(os.urandom(400).hex())
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        with pytest.raises(CommitRefusedError, match="aborted"):
            owner.commit([ended("s1"), large])
    with closing(log.writer("a1")) as agent, pytest.raises(LogError, match="MSG_SIZE_TOO_LARGE"):
        agent.write([large], 20.0)
    assert read_all(log, [DISPATCH_0, SYNC_0]) == []


def test_a_withdrawal_whose_record_the_broker_refuses_brings_no_marker_and_says_so(
    cluster: Cluster, log: KafkaLog
) -> None:
    set_topic(cluster, "sync", max_message_bytes="200")
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        with pytest.raises(CommitRefusedError, match="MSG_SIZE_TOO_LARGE"):
            owner._withdraw([reported(os.urandom(400).hex())])  # type: ignore[attr-defined]


def test_a_withdrawal_that_reaches_no_partition_in_time_says_so(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        monkeypatch.setattr(writers, "COMMIT_SECONDS_MAX", 0.0)
        with pytest.raises(CommitRefusedError, match="1 of 1 records had not reached"):
            withdraw_again_and_again(owner)
    assert read_all(log, [DISPATCH_0]) == []


def test_records_say_who_wrote_them_and_in_which_format(cluster: Cluster, log: KafkaLog) -> None:
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        owner.commit([ended("s1"), tombstone("s1")])
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "look"})
    consumer.assign([KafkaPartition(topic_name(cluster.cluster, "dispatch"), 0, 0)])
    with closing(consumer):
        messages = consumer.consume(2, 20)
    assert [dict(message.headers() or ()) for message in messages] == [
        {"writer": b"owner", "content-type": b"application/avro"},
        {"writer": b"owner"},
    ]
    assert messages[0].key() == b"session/a1/s1"


def test_records_are_cloudevents_where_that_is_wanted(cluster: Cluster, log: KafkaLog) -> None:
    with closing(open_log(msgspec.structs.replace(cluster, cloudevents=True))) as wanted:
        with closing(wanted.transactional_writer("owner")) as owner:
            owner.init()
            owner.commit([ended("s1"), ended("s2")])
        with closing(wanted.writer("a1")) as agent:
            agent.write([reported("done")], 10.0)
    headers = []
    for topic, count in (("dispatch", 2), ("sync", 1)):
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "look"})
        consumer.assign([KafkaPartition(topic_name(cluster.cluster, topic), 0, 0)])
        with closing(consumer):
            headers += [dict(message.headers() or ()) for message in consumer.consume(count, 20)]
    assert [each["ce_type"] for each in headers] == [b"headgate.SessionEnded"] * 2 + [b"headgate.TaskReported"]
    assert headers[0]["ce_subject"] == b"session/a1/s1"
    assert len({(each["ce_source"], each["ce_id"]) for each in headers}) == 3
    assert {each["content-type"] for each in headers} == {b"application/avro"}
    assert len(read_all(log, [DISPATCH_0])) == 2, "whoever knows nothing of it reads them as ever"


def test_a_large_transaction_reports_every_offset(log: KafkaLog) -> None:
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        offsets = owner.commit([ended(f"s{n}") for n in range(5000)])
    assert offsets == list(range(offsets[0], offsets[0] + 5000))
    assert len(read_all(log, [DISPATCH_0])) == 5000


def test_closed_things_say_so(log: KafkaLog) -> None:
    owner, agent, reader = log.transactional_writer("owner"), log.writer("a1"), log.reader({DISPATCH_0: 0})
    for opened in (owner, agent, reader):
        opened.close()
    with pytest.raises(LogError, match="closed"):
        owner.commit([ended("s1")])
    with pytest.raises(LogError, match="closed"):
        agent.write([heartbeat(1)], 1.0)
    with pytest.raises(LogError, match="closed"):
        reader.poll(1, 0.0)


def test_letting_go_of_a_writer_does_not_wait_for_anything(log: KafkaLog) -> None:
    """A process that has lost its lease must get out; bounded by far more than it takes."""
    owner = log.transactional_writer("owner")
    owner.init()
    started = time.monotonic()
    owner.close()
    assert time.monotonic() - started < transactions.INIT_SECONDS_MAX
