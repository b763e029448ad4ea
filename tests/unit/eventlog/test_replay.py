"""The loop that decides what caught up means, with a clock of its own (on a broker: integration/eventlog)."""

from collections.abc import Callable
from contextlib import closing
from itertools import count

import pytest

from headgate.eventlog.log import NewerSchemaError
from headgate.eventlog.replay import ReplayStalledError, read_on_to, read_to_end
from headgate_lab.memory_log.log import MemoryBroker
from support.eventlog_contract import ANNOUNCE, DISPATCH_0, DISPATCH_1, SHARDS, ended, facts, heartbeat


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker(shards=SHARDS)


def ticking() -> Callable[[], float]:
    """A clock that goes on one second with each look."""
    seconds = count()
    return lambda: float(next(seconds))


def test_it_reads_each_partition_from_its_start_to_its_end_and_no_further(broker: MemoryBroker) -> None:
    log = broker.client()
    with closing(log.writer("a1")) as writer:
        writer.write([heartbeat(n) for n in range(3)], 1.0)
        writer.write([ended("s1", at=DISPATCH_0), ended("s2", at=DISPATCH_1)], 1.0)
        reading = read_to_end(log, [ANNOUNCE, DISPATCH_0], {ANNOUNCE: 1})
        first = next(reading)
        writer.write([heartbeat(9, agent="late")], 1.0)
        read = facts([first, *reading])
    assert sorted(read, key=lambda fact: fact.key.text())[:2] == [heartbeat(1).fact, heartbeat(2).fact]
    assert ended("s1").fact in read
    assert ended("s2", at=DISPATCH_1).fact not in read


def test_a_stall_is_counted_from_the_last_progress(broker: MemoryBroker) -> None:
    log = broker.client()
    broker.leave_open("foreign", [ended("open")])
    ends = log.end_offsets([DISPATCH_0])
    with closing(log.reader({DISPATCH_0: 0})) as reader:
        with pytest.raises(ReplayStalledError, match=r"not advanced for 30 s: dispatch/0 at 0 of 1\.") as stalled:
            list(read_on_to(reader, ends, monotonic=ticking()))
        assert stalled.value.code == "replay-stalled"
        broker.end_transaction("foreign", commit=True)
        assert facts(list(read_on_to(reader, ends, monotonic=ticking()))) == [ended("open").fact]


def test_a_slow_replay_that_moves_is_no_stall(broker: MemoryBroker) -> None:
    """Longer than the limit in all, but never without progress for as long."""
    log = broker.client()
    with closing(log.writer("a1")) as writer:
        writer.write([heartbeat(n) for n in range(20)], 1.0)
    with closing(log.reader({ANNOUNCE: 0})) as reader:
        poll = reader.poll
        reader.poll = lambda _records_max, timeout: poll(1, timeout)  # type: ignore[method-assign]
        read = list(read_on_to(reader, {ANNOUNCE: 20}, stall_seconds_max=5.0, monotonic=ticking()))
    assert len(read) == 20


def test_heartbeats_elsewhere_do_not_hide_a_stall(broker: MemoryBroker) -> None:
    log = broker.client()
    broker.leave_open("foreign", [ended("open")])
    with closing(log.writer("a1")) as writer, closing(log.reader({ANNOUNCE: 0, DISPATCH_0: 0})) as reader:
        ends = log.end_offsets([ANNOUNCE, DISPATCH_0])
        poll = reader.poll

        def poll_while_others_write(records_max: int, timeout_seconds: float) -> object:
            writer.write([heartbeat(1)], 1.0)
            return poll(records_max, timeout_seconds)

        reader.poll = poll_while_others_write  # type: ignore[method-assign,assignment]
        reading = read_on_to(reader, ends, monotonic=ticking())
        with pytest.raises(ReplayStalledError, match="dispatch/0"):
            for _ in zip(range(1000), reading, strict=False):
                pass


def test_an_end_already_reached_reads_nothing(broker: MemoryBroker) -> None:
    log = broker.client()
    with closing(log.reader({DISPATCH_0: 0})) as reader:
        assert list(read_on_to(reader, {DISPATCH_0: 0}, monotonic=ticking())) == []


def test_a_newer_schema_is_not_swallowed(broker: MemoryBroker) -> None:
    broker.append_newer(DISPATCH_0, "session/a1/s1", "schema id 1699")
    with pytest.raises(NewerSchemaError, match="1699"):
        list(read_to_end(broker.client(), [DISPATCH_0]))
