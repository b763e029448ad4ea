"""The in-memory log keeps the contract of every log, and the Kafka semantics that the port alone cannot show."""

import pytest

from headgate.eventlog.log import (
    CommitRefusedError,
    CommitUncertainError,
    FencedError,
    Garbage,
    Log,
    LogError,
    NewerSchemaError,
)
from headgate_lab.memory_log.log import CommitFault, MemoryBroker, MemoryTransactionalWriter
from support.eventlog_contract import (
    ANNOUNCE,
    DISPATCH_0,
    SHARDS,
    LogContract,
    ended,
    facts,
    heartbeat,
    read_all,
    tombstone,
)


class TestContract(LogContract):
    @pytest.fixture
    def log(self) -> Log:
        return MemoryBroker(shards=SHARDS).client()


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker(shards=SHARDS)


def owner(broker: MemoryBroker) -> MemoryTransactionalWriter:
    writer = broker.client().transactional_writer("owner")
    writer.init()
    return writer


def test_an_open_transaction_hides_what_is_committed_behind_it_and_the_next_init_frees_it(broker: MemoryBroker) -> None:
    log = broker.client()
    broker.leave_open("killed", [ended("never")])
    behind = owner(broker).commit([ended("behind")])
    reader = log.reader({DISPATCH_0: 0})
    assert reader.poll(10, 0.0) == []
    assert reader.positions()[DISPATCH_0] == 0 < log.end_offsets([DISPATCH_0])[DISPATCH_0]
    log.transactional_writer("killed").init()
    assert [each.offset for each in reader.poll(10, 0.0)] == behind
    reader.poll(10, 0.0)
    assert reader.positions() == log.end_offsets([DISPATCH_0])


def test_a_broker_time_out_or_a_late_commit_ends_an_open_transaction(broker: MemoryBroker) -> None:
    broker.leave_open("one", [ended("s1")])
    broker.end_transaction("one", commit=True)
    broker.leave_open("two", [ended("s2")])
    broker.end_transaction("two", commit=False)
    assert facts(read_all(broker.client(), [DISPATCH_0])) == [ended("s1").fact]


@pytest.mark.parametrize(
    ("fault", "error", "applied"),
    [
        (CommitFault.REFUSED, CommitRefusedError, False),
        (CommitFault.UNCERTAIN_APPLIED, CommitUncertainError, True),
        (CommitFault.UNCERTAIN_LOST, CommitUncertainError, False),
        (CommitFault.UNCERTAIN_OPEN, CommitUncertainError, False),
    ],
)
def test_commit_faults(broker: MemoryBroker, fault: CommitFault, error: type[Exception], applied: bool) -> None:
    writer = owner(broker)
    broker.fail_commit("owner", fault)
    with pytest.raises(error):
        writer.commit([ended("s1")])
    later = owner(broker).commit([ended("s2")])
    expected = [ended("s1").fact] if applied else []
    read = read_all(broker.client(), [DISPATCH_0])
    assert facts(read) == [*expected, ended("s2").fact]
    assert later == [read[-1].offset]


def test_the_broker_may_fence_a_writer_by_itself(broker: MemoryBroker) -> None:
    writer = owner(broker)
    broker.fence("owner")
    with pytest.raises(FencedError):
        writer.commit([ended("s1")])


def test_idempotence_does_not_fence(broker: MemoryBroker) -> None:
    zombie = broker.client().writer("zombie")
    owner(broker).commit([ended("s1")])
    zombie.write([heartbeat(1)], 1.0)
    assert facts(read_all(broker.client(), [ANNOUNCE])) == [heartbeat(1).fact]


def test_compaction_keeps_the_newest_committed_record_of_a_key_and_leaves_holes(broker: MemoryBroker) -> None:
    writer = owner(broker)
    writer.commit([ended("s1", owner_rev=1), ended("s2", owner_rev=1)])
    kept = writer.commit([ended("s1", owner_rev=2), tombstone("s2")])
    broker.fail_commit("owner", CommitFault.REFUSED)
    with pytest.raises(CommitRefusedError):
        writer.commit([ended("s1", owner_rev=3)])
    before = broker.client().end_offsets([DISPATCH_0])
    broker.compact(DISPATCH_0)
    read = read_all(broker.client(), [DISPATCH_0])
    assert [each.offset for each in read] == kept
    assert facts(read) == [ended("s1", owner_rev=2).fact, tombstone("s2").fact]
    assert broker.client().end_offsets([DISPATCH_0]) == before
    broker.compact(DISPATCH_0, drop_tombstones=True)
    assert facts(read_all(broker.client(), [DISPATCH_0])) == [ended("s1", owner_rev=2).fact]


def test_compaction_stops_at_an_open_transaction(broker: MemoryBroker) -> None:
    writer = owner(broker)
    writer.commit([ended("s1", owner_rev=1)])
    broker.leave_open("killed", [ended("s1", owner_rev=2)])
    writer.commit([ended("s1", owner_rev=3)])
    broker.compact(DISPATCH_0)
    broker.end_transaction("killed", commit=False)
    assert facts(read_all(broker.client(), [DISPATCH_0])) == [
        ended("s1", owner_rev=1).fact,
        ended("s1", owner_rev=3).fact,
    ]


def test_compaction_can_spare_the_active_segment(broker: MemoryBroker) -> None:
    writer = owner(broker)
    offsets = [writer.commit([ended("s1", owner_rev=n)])[0] for n in range(3)]
    broker.compact(DISPATCH_0, before=offsets[2])
    assert [each.offset for each in read_all(broker.client(), [DISPATCH_0])] == offsets[1:]


def test_retention_moves_the_start_and_a_reader_left_behind_is_told(broker: MemoryBroker) -> None:
    log = broker.client()
    offsets = owner(broker).commit([ended("s1"), ended("s2")])
    behind = log.reader({DISPATCH_0: 0})
    broker.retain_from(DISPATCH_0, offsets[1])
    with pytest.raises(LogError, match="expired"):
        behind.poll(10, 0.0)
    assert [each.offset for each in read_all(log, [DISPATCH_0])] == offsets[1:]


def test_a_partition_can_lag_for_one_process_only(broker: MemoryBroker) -> None:
    slow, quick = broker.client(), broker.client()
    writer = owner(broker)
    writer.commit([ended("s1")])
    slow.hold(DISPATCH_0)
    writer.commit([ended("s2")])
    reader = slow.reader({DISPATCH_0: 0})
    assert facts(reader.poll(10, 0.0)) == [ended("s1").fact]
    assert facts(read_all(quick, [DISPATCH_0])) == [ended("s1").fact, ended("s2").fact]
    assert reader.poll(10, 0.0) == []
    slow.release(DISPATCH_0)
    assert facts(reader.poll(10, 0.0)) == [ended("s2").fact]


def test_a_busy_partition_does_not_starve_the_others(broker: MemoryBroker) -> None:
    log = broker.client()
    log.writer("a1").write([heartbeat(n) for n in range(100)], 1.0)
    owner(broker).commit([ended("s1")])
    reader = log.reader({ANNOUNCE: 0, DISPATCH_0: 0})
    read = reader.poll(10, 0.0) + reader.poll(10, 0.0)
    assert DISPATCH_0 in {each.partition for each in read}


def test_garbage_is_delivered_as_garbage_and_a_newer_schema_raises_after_what_stands_before_it(
    broker: MemoryBroker,
) -> None:
    owner(broker).commit([ended("s1")])
    garbage = broker.append_garbage(DISPATCH_0, "session/a1/s2", "no Avro")
    broker.append_newer(DISPATCH_0, "session/a1/s3", "schema 1502")
    reader = broker.client().reader({DISPATCH_0: 0})
    assert reader.poll(10, 0.0)[1:] == [Garbage(DISPATCH_0, garbage, "no Avro")]
    for _ in range(2):
        with pytest.raises(NewerSchemaError, match="schema 1502"):
            reader.poll(10, 0.0)


def test_a_cut_process_can_do_nothing_until_it_heals(broker: MemoryBroker) -> None:
    log = broker.client()
    writer, reader, agent = log.transactional_writer("owner"), log.reader({DISPATCH_0: 0}), log.writer("a1")
    log.cut()
    for attempt in (
        writer.init,
        lambda: writer.commit([ended("s1")]),
        lambda: reader.poll(1, 0.0),
        lambda: agent.write([heartbeat(1)], 1.0),
        lambda: log.end_offsets([DISPATCH_0]),
    ):
        with pytest.raises(LogError, match="cannot be reached"):
            attempt()
    log.heal()
    writer.init()
    assert writer.commit([ended("s1")]) == [0]


@pytest.mark.parametrize("applied", [True, False])
def test_a_write_without_acknowledgement_may_have_happened(broker: MemoryBroker, applied: bool) -> None:
    log = broker.client()
    log.fail_write(applied=applied)
    with pytest.raises(LogError, match="no acknowledgement"):
        log.writer("a1").write([heartbeat(1)], 1.0)
    assert facts(read_all(log, [ANNOUNCE])) == ([heartbeat(1).fact] if applied else [])
