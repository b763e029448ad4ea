"""Where a replay ends, and what a reader says of its position, in every case that was found."""

import time
from contextlib import closing

import pytest

from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import Delivery, Garbage, LogError, NewerSchemaError
from headgate.eventlog.replay import ReplayStalledError, read_on_to, read_to_end
from support.codec import encode
from support.eventlog_contract import (
    ANNOUNCE,
    DEADLINE_SECONDS,
    DISPATCH_0,
    ended,
    facts,
    heartbeat,
    read_all,
    read_to,
    read_until,
)
from support.kafka_cluster import Cluster, Foreign, Foreigner, delete_before, first_offset, set_topic

pytestmark = pytest.mark.integration


def transaction(foreign: Foreign, cluster: Cluster, name: str) -> Foreigner:
    """Another program's transaction on our topics, begun."""
    foreigner = foreign(**{"transactional.id": f"{cluster.cluster}.{name}", "client.id": name})
    foreigner.producer.init_transactions(30)
    foreigner.producer.begin_transaction()
    return foreigner


def test_nothing_at_all(log: KafkaLog) -> None:
    assert list(read_to_end(log, [DISPATCH_0])) == []
    assert list(read_to_end(log, [])) == []


def test_an_aborted_transaction_at_the_end_is_passed(cluster: Cluster, log: KafkaLog, foreign: Foreign) -> None:
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        owner.commit([ended("s1")])
    foreigner = transaction(foreign, cluster, "other")
    foreigner.put_fact(ended("aborted"))
    foreigner.flush()
    foreigner.producer.abort_transaction(20)
    assert facts(list(read_to_end(log, [DISPATCH_0]))) == [ended("s1").fact]
    assert log.end_offsets([DISPATCH_0])[DISPATCH_0] >= 3


def test_a_topic_of_aborted_records_only(cluster: Cluster, log: KafkaLog, foreign: Foreign) -> None:
    foreigner = transaction(foreign, cluster, "other")
    foreigner.put_fact(ended("aborted"))
    foreigner.flush()
    assert log.end_offsets([DISPATCH_0]) == {DISPATCH_0: 1}, "the read_uncommitted end"
    foreigner.producer.abort_transaction(20)
    with closing(log.reader({DISPATCH_0: 0})) as reader:
        read = read_until(reader, lambda _: reader.positions()[DISPATCH_0] == 2)
    assert read == []


def test_an_open_transaction_of_another_stops_the_replay_loudly_and_hides_nothing(
    cluster: Cluster, log: KafkaLog, foreign: Foreign
) -> None:
    """At the first end-of-partition event everything behind the open transaction would be lost in silence."""
    foreigner = transaction(foreign, cluster, "other")
    foreigner.put_fact(ended("open"))
    foreigner.flush()
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        owner.commit([ended("behind")])
        ends = log.end_offsets([DISPATCH_0])
        with closing(log.reader({DISPATCH_0: 0})) as reader:
            read: list[Delivery | Garbage] = []
            with pytest.raises(ReplayStalledError, match=r"dispatch/0 at 0 of [23]\b.*kafka-transactions"):
                read.extend(read_on_to(reader, ends, stall_seconds_max=1.0))
            assert read == []
            foreigner.producer.abort_transaction(20)
            assert facts(list(read_on_to(reader, ends))) == [ended("behind").fact]


def test_keys_behind_an_open_transaction_are_seen_and_nothing_of_it_is_read(
    cluster: Cluster, log: KafkaLog, foreign: Foreign
) -> None:
    foreigner = transaction(foreign, cluster, "other")
    foreigner.put_fact(heartbeat(1))
    foreigner.flush()
    with closing(log.writer("a1")) as writer:
        writer.write([heartbeat(2, agent="a2"), heartbeat(3, agent="a2")], DEADLINE_SECONDS)
    hidden = [heartbeat(1).fact.key, heartbeat(2, agent="a2").fact.key, heartbeat(3, agent="a2").fact.key]
    assert log.hidden_keys(ANNOUNCE, 0) == hidden
    with closing(log.reader({ANNOUNCE: 0})) as reader:
        assert (reader.poll(10, 1.0), reader.positions()) == ([], {ANNOUNCE: 0})
    foreigner.producer.abort_transaction(20)
    assert log.hidden_keys(ANNOUNCE, 0) == hidden, "an aborted one is a sign of life as well"


def test_a_take_over_ends_the_dangling_transaction_before_the_replay(
    cluster: Cluster, log: KafkaLog, foreign: Foreign
) -> None:
    dead = transaction(foreign, cluster, "owner")
    dead.put_fact(ended("dangling"))
    dead.flush()
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        ends = log.end_offsets([DISPATCH_0])
        assert ends == {DISPATCH_0: 2}, "record and abort marker"
        assert list(read_to_end(log, [DISPATCH_0])) == []
        owner.commit([ended("after")])
    assert facts(read_all(log, [DISPATCH_0])) == [ended("after").fact]


def test_compaction_leaves_holes_and_the_position_passes_them(cluster: Cluster, log: KafkaLog) -> None:
    set_topic(cluster, "dispatch", segment_ms="100", min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="1000")
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        for revision in range(5):
            last = owner.commit([ended("s1", owner_rev=revision), ended("s2", owner_rev=revision)])
        deadline = time.monotonic() + DEADLINE_SECONDS
        rolls = 0
        while first_offset(cluster, DISPATCH_0) < last[0]:
            assert time.monotonic() < deadline, "the broker has not compacted"
            owner.commit([ended("roll", owner_rev=rolls)])  # only a new record closes the active segment
            rolls += 1
    read = list(read_to_end(log, [DISPATCH_0]))
    assert [each.offset for each in read][:2] == last
    assert facts(read)[:2] == [ended("s1", owner_rev=4).fact, ended("s2", owner_rev=4).fact]
    newest = ended("roll", owner_rev=rolls - 1) if rolls else ended("s2", owner_rev=4)  # it may have been quick
    assert facts(read)[-1] == newest.fact


def test_a_log_of_which_everything_was_deleted(cluster: Cluster, log: KafkaLog, foreign: Foreign) -> None:
    foreigner = foreign()
    for n in range(3):
        foreigner.put_fact(ended(f"s{n}"))
    foreigner.flush()
    delete_before(cluster, DISPATCH_0, 3)
    assert log.end_offsets([DISPATCH_0]) == {DISPATCH_0: 3}
    assert log.first_offsets([DISPATCH_0]) == {DISPATCH_0: 3}
    assert list(read_to_end(log, [DISPATCH_0])) == []
    with closing(log.reader({DISPATCH_0: 0}, is_brief=True)) as brief, pytest.raises(LogError, match="at offset 0"):
        read_to(brief, {DISPATCH_0: 3})
    with closing(log.reader({DISPATCH_0: 1})) as reader, pytest.raises(LogError, match=r"dispatch/0 at offset 1.*not"):
        read_to(reader, {DISPATCH_0: 3})


def test_garbage_is_told_with_its_place_and_skipped(log: KafkaLog, foreign: Foreign) -> None:
    key, value = encode(ended("s1").fact)
    foreigner = foreign()
    foreigner.put(DISPATCH_0, b"no/such/key/form", value)
    foreigner.put(DISPATCH_0, key, b'{"json": true}')
    foreigner.put_fact(ended("s1"))
    foreigner.flush()
    first, second, third = read_all(log, [DISPATCH_0])
    assert isinstance(first, Garbage)
    assert (first.partition, first.offset) == (DISPATCH_0, 0)
    assert "no form" in first.reason
    assert isinstance(second, Garbage)
    assert "framing" in second.reason
    assert facts([third]) == [ended("s1").fact]


def test_a_newer_schema_ends_the_reading_for_good_after_what_stands_before_it(log: KafkaLog, foreign: Foreign) -> None:
    foreigner = foreign()
    foreigner.put_fact(ended("before"))
    foreigner.put(DISPATCH_0, ended("s1").fact.key.text().encode(), b"\x00" + (1699).to_bytes(4, "big") + b"?")
    foreigner.put_fact(ended("behind"))
    foreigner.flush()
    read: list[Delivery | Garbage] = []
    with closing(log.reader({DISPATCH_0: 0})) as reader:
        for _ in range(2):
            with pytest.raises(NewerSchemaError, match=r"dispatch/0 offset 1: schema id 1699"):
                read.extend(read_on_to(reader, {DISPATCH_0: 3}))
        assert reader.positions() == {DISPATCH_0: 1}
    assert facts(read) == [ended("before").fact]


def test_a_newer_form_of_a_key_is_no_rubbish_to_who_passes_over_keys(log: KafkaLog, foreign: Foreign) -> None:
    foreigner = foreign()
    foreigner.put(DISPATCH_0, b"of/a/form/that/is/not/known", b"\x00" + (1699).to_bytes(4, "big") + b"?")
    foreigner.flush()
    with closing(log.reader({DISPATCH_0: 0})) as reader:
        reader.pass_over(lambda _key: True)
        with pytest.raises(NewerSchemaError, match="schema id 1699"):
            list(read_on_to(reader, {DISPATCH_0: 1}))
