"""What every ``Log`` must do, as tests: the Kafka log and the in-memory log both inherit this one class.

Use it in a test module::

    from support.eventlog_contract import LogContract

    class TestMemoryLog(LogContract):
        @pytest.fixture
        def log(self) -> Iterator[Log]: ...   # empty topics, SHARDS shards, fresh for each test

Only the port (``headgate.eventlog.log``) is used, so nothing here can leave a transaction open: those cases are
in each log's own tests. Waiting is polling with a deadline; nothing sleeps and no time is asserted.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

import pytest

from headgate.eventlog.log import (
    Delivery,
    FencedError,
    Garbage,
    Log,
    LogError,
    LogReader,
    Partition,
    Placed,
)
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.base import Fact
from headgate.records.control import (
    Epoch,
    OperationKind,
    SessionEnded,
    TaskState,
)
from headgate.records.keys import AgentKey, RequestKey, SessionKey, TaskKey
from support import build, waiting

SHARDS = 2
"""Shards of the log that the fixture gives: more than one, so that partitions can be mixed up."""

DEADLINE_SECONDS = scaled_seconds(waiting.DEADLINE_SECONDS)
"""For a fact to become true; far beyond any transaction timeout used in tests."""

ANNOUNCE = Partition("announce", 0)
DISPATCH_0 = Partition("dispatch", 0)
DISPATCH_1 = Partition("dispatch", 1)
SYNC_0 = Partition("sync", 0)
CHANGEFEED_1 = Partition("changefeed", 1)


def ended(session: str, *, at: Partition = DISPATCH_0, owner_rev: int = 7) -> Placed:
    """A fact that an owner writes: ``session`` is dead."""
    record = SessionEnded(owner_rev=owner_rev, reason="lease lost", ended_ms=1_700_000_000_000)
    return Placed(at, Fact(SessionKey(agent="a1", session=session), record))


def tombstone(session: str, *, at: Partition = DISPATCH_0) -> Placed:
    return Placed(at, Fact(SessionKey(agent="a1", session=session), None))


def heartbeat(count: int, *, agent: str = "a1") -> Placed:
    """A fact that an agent writes."""
    record = build.agent_announced(
        version="0.1.0",
        load_bytes_per_s=1.5,
        address="http://127.0.0.1:1",
        heartbeat=count,
        announced_ms=1_700_000_000_000,
    )
    return Placed(ANNOUNCE, Fact(AgentKey(agent=agent, session="s1"), record))


def reported(span: str, *, at: Partition = SYNC_0) -> Placed:
    record = build.task_reported(
        feed_id="0-12",
        epoch=Epoch(3, 4),
        state=TaskState.REPLICATING,
        positions={0: 17, 11: 2**40},
        reported_ms=1_700_000_000_000,
    )
    return Placed(at, Fact(TaskKey(feed="shop", span=span, agent="a1", session="s1"), record))


def requested(request: str, *, at: Partition = CHANGEFEED_1) -> Placed:
    record = build.operation_requested(kind=OperationKind.PAUSE_FEED, feed="löwe/1", requested_ms=1_700_000_000_000)
    return Placed(at, Fact(RequestKey(request=request), record))


def settled_ends(log: Log) -> dict[Partition, int]:
    """Where DISPATCH_0 ends, once nothing is open there: a broker writes a commit's marker behind its answer."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (stable := log.stable_offsets([DISPATCH_0])) != (ends := log.end_offsets([DISPATCH_0])):
        assert time.monotonic() < deadline, f"not in {DEADLINE_SECONDS} s; stable {stable}, ends {ends}"
    return ends


def read_until(
    reader: LogReader, done: Callable[[list[Delivery | Garbage]], bool], *, records_max: int = 100
) -> list[Delivery | Garbage]:
    """Poll until ``done(everything read)``; fails after the deadline, showing what was read."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    read: list[Delivery | Garbage] = []
    while not done(read):
        assert time.monotonic() < deadline, f"not in {DEADLINE_SECONDS} s; positions {reader.positions()}, read {read}"
        batch = reader.poll(records_max, 0.2)
        assert len(batch) <= records_max
        read.extend(batch)
    return read


def read_to(reader: LogReader, ends: Mapping[Partition, int], *, records_max: int = 100) -> list[Delivery | Garbage]:
    """Poll until the reader's positions have reached ``ends``."""

    def reached(_: list[Delivery | Garbage]) -> bool:
        positions = reader.positions()
        return all(positions[partition] >= end for partition, end in ends.items())

    return read_until(reader, reached, records_max=records_max)


def read_all(log: Log, partitions: Sequence[Partition]) -> list[Delivery | Garbage]:
    """Everything visible now, by a reader of its own."""
    ends = log.end_offsets(partitions)
    with closing(log.reader(dict.fromkeys(partitions, 0))) as reader:
        return read_to(reader, ends)


def facts(read: Sequence[Delivery | Garbage]) -> list[Fact]:
    assert not [each for each in read if isinstance(each, Garbage)]
    return [Fact(each.key, each.value) for each in read if isinstance(each, Delivery)]


class LogContract:
    """Inherit, and give a fixture ``log``."""

    # --- identity -------------------------------------------------------------------------------------------

    def test_it_knows_its_shards_and_its_identity(self, log: Log) -> None:
        assert log.shards == SHARDS
        assert log.cluster_id

    # --- ends and positions ---------------------------------------------------------------------------------

    def test_an_empty_topic_ends_at_zero_and_a_reader_is_there_at_once(self, log: Log) -> None:
        ends = log.end_offsets([DISPATCH_0, ANNOUNCE])
        assert ends == {DISPATCH_0: 0, ANNOUNCE: 0}
        with closing(log.reader({DISPATCH_0: 0, ANNOUNCE: 0})) as reader:
            assert dict(reader.positions()) == {DISPATCH_0: 0, ANNOUNCE: 0}
            assert reader.poll(10, 0.0) == []

    def test_positions_pass_the_marker_behind_the_last_record(self, log: Log) -> None:
        with closing(log.transactional_writer("owner")) as writer:
            writer.init()
            (offset,) = writer.commit([ended("s1")])
        with closing(log.reader({DISPATCH_0: 0})) as reader:
            # Kafka answers the commit first and writes the marker, which takes an offset, just after.
            read_until(reader, lambda _: reader.positions()[DISPATCH_0] > offset + 1)
            assert reader.positions() == log.end_offsets([DISPATCH_0])

    def test_what_its_reader_knows_is_passed_over_but_counts_as_read(self, log: Log) -> None:
        with closing(log.transactional_writer("owner")) as writer, closing(log.reader({DISPATCH_0: 0})) as reader:
            writer.init()
            writer.commit([ended("s1")])
            read_until(reader, lambda read: len(read) == 1)
            reader.pass_over(lambda key: isinstance(key, SessionKey) and key.session != "s3")
            writer.commit([ended("s2"), ended("s3"), ended("s4")])
            (read,) = read_to(reader, log.end_offsets([DISPATCH_0]))
            assert isinstance(read, Delivery)
            assert isinstance(read.key, SessionKey)
            assert read.key.session == "s3"

    def test_positions_never_pass_what_was_not_delivered(self, log: Log) -> None:
        with closing(log.transactional_writer("owner")) as writer:
            writer.init()
            offsets = writer.commit([ended(f"s{n}") for n in range(10)])
        with closing(log.reader({DISPATCH_0: 0})) as reader:
            read = read_until(reader, lambda read: len(read) >= 3, records_max=1)
            assert len(read) == 3
            assert reader.positions()[DISPATCH_0] == offsets[2] + 1
            assert [each.offset for each in read_to(reader, log.end_offsets([DISPATCH_0]))] == offsets[3:]

    def test_a_reader_starts_where_it_is_told(self, log: Log) -> None:
        with closing(log.transactional_writer("owner")) as writer:
            writer.init()
            first = writer.commit([ended("s1"), ended("s2")])
            second = writer.commit([ended("s3")])
        with closing(log.reader({DISPATCH_0: first[1]})) as reader:
            read = read_to(reader, log.end_offsets([DISPATCH_0]))
        assert [each.offset for each in read] == [first[1], *second]

    def test_a_reader_at_the_end_sees_what_comes_later(self, log: Log) -> None:
        with closing(log.transactional_writer("owner")) as writer:
            writer.init()
            writer.commit([ended("s1")])
            ends = settled_ends(log)
            with closing(log.reader(ends)) as reader:
                assert reader.poll(10, 0.0) == []
                (offset,) = writer.commit([ended("s2")])
                (delivery,) = read_until(reader, bool)
        assert isinstance(delivery, Delivery)
        assert (delivery.partition, delivery.offset, delivery.key) == (DISPATCH_0, offset, ended("s2").fact.key)

    def test_a_brief_reader_reads_what_is_there(self, log: Log) -> None:
        assert log.first_offsets([]) == {}
        with closing(log.transactional_writer("owner")) as writer:
            writer.init()
            offsets = writer.commit([ended("s1"), ended("s2")])
        first = log.first_offsets([DISPATCH_0, ANNOUNCE])
        assert first == {DISPATCH_0: 0, ANNOUNCE: 0}
        with closing(log.reader(first, is_brief=True)) as reader:
            assert [each.offset for each in read_to(reader, settled_ends(log))] == offsets
        with closing(log.reader({DISPATCH_0: offsets[1]}, is_brief=True)) as reader:
            assert [each.offset for each in read_to(reader, settled_ends(log))] == offsets[1:]

    def test_hidden_keys_are_those_of_every_record_from_there_on(self, log: Log) -> None:
        with closing(log.writer("a1")) as writer:
            writer.write([heartbeat(1), heartbeat(2), heartbeat(3, agent="a2")], DEADLINE_SECONDS)
        assert log.hidden_keys(ANNOUNCE, 1) == [heartbeat(2).fact.key, heartbeat(3, agent="a2").fact.key]
        assert log.hidden_keys(ANNOUNCE, log.end_offsets([ANNOUNCE])[ANNOUNCE]) == []

    def test_unknown_partitions_are_refused(self, log: Log) -> None:
        beyond = Partition("dispatch", SHARDS)
        for unknown in (beyond, Partition("nonsense", 0)):
            with pytest.raises(LogError, match=unknown.topic):
                log.end_offsets([unknown])
            with pytest.raises(LogError, match=unknown.topic):
                log.first_offsets([unknown])
            with pytest.raises(LogError, match=unknown.topic):
                log.stable_offsets([unknown])
            with pytest.raises(LogError, match=unknown.topic):
                log.reader({unknown: 0})
        with closing(log.transactional_writer("owner")) as writer:
            writer.init()
            with pytest.raises(LogError, match="dispatch"):
                writer.commit([ended("s1", at=beyond)])

    # --- what is written is what is read --------------------------------------------------------------------

    def test_facts_come_back_as_written_in_order_with_their_offsets(self, log: Log) -> None:
        placed = [ended("s1"), tombstone("s0"), ended("s1", owner_rev=8), ended("ü/%", at=DISPATCH_0)]
        with closing(log.transactional_writer("owner")) as writer:
            writer.init()
            offsets = writer.commit(placed)
        assert offsets == sorted(offsets)
        read = read_all(log, [DISPATCH_0])
        assert [each.offset for each in read] == offsets
        assert facts(read) == [each.fact for each in placed]
        assert isinstance(read[1], Delivery)
        assert read[1].value is None

    def test_one_transaction_reaches_several_partitions(self, log: Log) -> None:
        placed = [ended("s1", at=DISPATCH_1), requested("r1"), ended("s2", at=DISPATCH_0), ended("s3", at=DISPATCH_1)]
        with closing(log.transactional_writer("owner")) as writer:
            writer.init()
            offsets = writer.commit(placed)
        for partition in (DISPATCH_0, DISPATCH_1, CHANGEFEED_1):
            expected = [
                (offset, each.fact) for offset, each in zip(offsets, placed, strict=True) if each.partition == partition
            ]
            read = read_all(log, [partition])
            assert list(zip([each.offset for each in read], facts(read), strict=True)) == expected
            assert {each.partition for each in read} == {partition}

    def test_an_idempotent_writer_writes_in_order(self, log: Log) -> None:
        placed = [heartbeat(n) for n in range(20)]
        with closing(log.writer("a1")) as writer:
            writer.write(placed[:15], 10.0)
            writer.write([*placed[15:], reported("orders")], 10.0)
        assert facts(read_all(log, [ANNOUNCE])) == [each.fact for each in placed]
        assert facts(read_all(log, [SYNC_0])) == [reported("orders").fact]

    def test_two_writers_and_an_owner_share_topics(self, log: Log) -> None:
        with (
            closing(log.writer("a1")) as one,
            closing(log.writer("a2")) as two,
            closing(log.transactional_writer("owner")) as owner,
        ):
            owner.init()
            one.write([heartbeat(1, agent="a1"), reported("one")], 10.0)
            owner.commit([ended("s9")])
            two.write([heartbeat(1, agent="a2"), reported("two")], 10.0)
        read = read_all(log, [ANNOUNCE, SYNC_0, DISPATCH_0])
        assert {fact.key for fact in facts(read)} == {
            heartbeat(1, agent="a1").fact.key,
            heartbeat(1, agent="a2").fact.key,
            reported("one").fact.key,
            reported("two").fact.key,
            ended("s9").fact.key,
        }

    def test_a_poll_is_bounded(self, log: Log) -> None:
        with closing(log.writer("a1")) as writer:
            writer.write([heartbeat(n) for n in range(25)], 10.0)
        with closing(log.reader({ANNOUNCE: 0})) as reader:
            read = read_to(reader, log.end_offsets([ANNOUNCE]), records_max=7)
        assert len(read) == 25

    def test_a_fact_on_a_topic_that_is_not_its_keys_is_refused(self, log: Log) -> None:
        wrong = Placed(SYNC_0, ended("s1").fact)
        with closing(log.writer("a1")) as writer, pytest.raises(ValueError, match="sync"):
            writer.write([wrong], 10.0)
        assert read_all(log, [SYNC_0]) == []

    def test_an_empty_transaction_is_refused(self, log: Log) -> None:
        """A fenced producer commits an empty transaction without noticing, so it would prove nothing."""
        with closing(log.transactional_writer("owner")) as writer:
            writer.init()
            with pytest.raises(ValueError, match="at least one"):
                writer.commit([])

    # --- fencing --------------------------------------------------------------------------------------------

    def test_the_later_init_fences_the_earlier_writer(self, log: Log) -> None:
        with closing(log.transactional_writer("owner")) as old, closing(log.transactional_writer("owner")) as new:
            old.init()
            before = old.commit([ended("before")])
            new.init()
            with pytest.raises(FencedError):
                old.commit([ended("zombie")])
            after = new.commit([ended("after")])
            with pytest.raises(FencedError):
                old.commit([ended("zombie again")])
        read = read_all(log, [DISPATCH_0])
        assert [each.offset for each in read] == [*before, *after]
        assert facts(read) == [ended("before").fact, ended("after").fact]

    def test_writers_of_other_names_do_not_fence_each_other(self, log: Log) -> None:
        with closing(log.transactional_writer("shard-0")) as zero, closing(log.transactional_writer("shard-1")) as one:
            zero.init()
            one.init()
            zero.commit([ended("s0", at=DISPATCH_0)])
            one.commit([ended("s1", at=DISPATCH_1)])
            zero.commit([ended("s2", at=DISPATCH_0)])
        assert facts(read_all(log, [DISPATCH_0])) == [ended("s0").fact, ended("s2").fact]
        assert facts(read_all(log, [DISPATCH_1])) == [ended("s1", at=DISPATCH_1).fact]

    # --- letting go -----------------------------------------------------------------------------------------

    def test_everything_can_be_closed_twice(self, log: Log) -> None:
        reader = log.reader({DISPATCH_0: 0})
        owner = log.transactional_writer("owner")
        owner.init()
        agent = log.writer("a1")
        for opened in (reader, owner, agent):
            opened.close()
            opened.close()
