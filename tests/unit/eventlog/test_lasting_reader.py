"""Every reader of control topics goes on after its client has stopped a partition, told or silently."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from headgate.agent.shell.reading import SessionReader
from headgate.agent.shell.session import IdWatch
from headgate.coordinator.core.kind import COORDINATOR_KIND
from headgate.eventlog.connection import BrokerUnreachableError
from headgate.eventlog.lasting_reader import (
    BACKLOG_STALL_SECONDS,
    LOOK_SECONDS,
    REPLACE_SECONDS,
    STALL_SECONDS,
    STALL_SECONDS_MIN,
    AskedEnds,
    LastingReader,
    OffsetGoneError,
    ReaderStoppedError,
)
from headgate.eventlog.log import Delivery, LogError, Partition, Placed
from headgate.eventlog.replay import read_to_end
from headgate.generation.changelog.shell.shared_tail import WriterTail
from headgate.generation.shell.tail import GenerationTail
from headgate.records.base import Fact
from headgate.records.control import SessionEnded
from headgate.records.generation import SetKey, SetRecorded
from headgate.records.keys import AgentKey, SessionKey
from headgate.runtime.candidate import Candidate
from headgate.runtime.machine import Now
from headgate.runtime.settings import RoleCounters, RoleSettings
from headgate_lab.memory_log.log import MemoryBroker, MemoryLog
from support.toy_role import TOY

DISPATCH, GENERATION = Partition("dispatch", 0), Partition("generation", 0)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def broker(clock: Clock) -> MemoryBroker:
    made = MemoryBroker()
    made.monotonic = clock
    return made


def write(broker: MemoryBroker, number: int) -> None:
    """The record ``number`` on dispatch, and one on generation."""
    broker.append(Placed(DISPATCH, Fact(SessionKey("a", f"s{number}"), SessionEnded(1, "over", 0))))
    broker.append(Placed(GENERATION, Fact(SetKey(f"s{number}"), SetRecorded(0, "t", None, 1, 0, (), ()))), 2)


Names = Callable[[], set[str]]
"""Reads once, and tells the names of all records read so far."""


@contextmanager
def plain(log: MemoryLog, _clock: Clock) -> Iterator[Names]:
    reader, found = log.reader({DISPATCH: 0}), set[str]()

    def read() -> set[str]:
        found.update(d.key.session for d in reader.poll(100, 0) if isinstance(d, Delivery))  # type: ignore[attr-defined]
        return found

    yield read
    reader.close()


@contextmanager
def session(log: MemoryLog, _clock: Clock) -> Iterator[Names]:
    reader = SessionReader(log, "x", IdWatch(AgentKey("a1", "x")), lambda: None)
    found = set[str]()

    def read() -> set[str]:
        found.update(d.key.session for d in reader.read() if isinstance(d.key, SessionKey))
        return found

    yield read
    reader.close()


@contextmanager
def owner(log: MemoryLog, clock: Clock) -> Iterator[Names]:
    settings = RoleSettings(
        kind=COORDINATOR_KIND,
        shard=0,
        owner_id="o",
        transactional_id="t",
        version="t",
        schema_version=2,
        lease_seconds=5.0,
        holder_lease_seconds=10.0,
    )
    candidate = Candidate(settings, TOY, log, RoleCounters(), clock.now)

    def read() -> set[str]:
        candidate.fetch(0)
        candidate.follow(Now(clock.now, 0))
        return {key.session for key in candidate.state.records if isinstance(key, SessionKey)}

    yield read
    candidate.close()


@contextmanager
def tail(log: MemoryLog, _clock: Clock) -> Iterator[Names]:
    made = GenerationTail(log, "s0", "test")

    def read() -> set[str]:
        made.follow(0)
        return set(made.state.sets)

    yield read
    made.close()


@contextmanager
def writers(log: MemoryLog, _clock: Clock) -> Iterator[Names]:
    made = WriterTail(log, "s9", "w", threading.Event())  # type: ignore[arg-type]
    shared = made._shared

    def read() -> set[str]:
        with shared._lock:
            return set(shared._state.sets)

    yield read
    made.close()


READERS = (plain, session, owner, tail, writers)


def eventually(read: Names, wanted: set[str], clock: Clock, step_seconds: float) -> None:
    """Read on until ``wanted`` has come, while time passes: a shared thread reads at its own pace."""
    for _ in range(20_000):
        if read() >= wanted:
            return
        clock.now += step_seconds
        threading.Event().wait(0.0005)
    pytest.fail(f"only {read()} of {wanted}")


@pytest.mark.parametrize("told", [True, False], ids=["told", "silently"])
@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.__name__)
def test_a_stopped_partition_is_read_on_by_another_client(
    broker: MemoryBroker, clock: Clock, kind: Any, told: bool
) -> None:
    log = broker.client()
    write(broker, 0)
    with kind(log, clock) as read:
        eventually(read, {"s0"}, clock, 0.0)
        for partition in (DISPATCH, GENERATION):
            log.stop_reading(partition, told=told)
        write(broker, 1)
        eventually(read, {"s0", "s1"}, clock, LOOK_SECONDS / 4)


def test_a_lookup_that_fails_at_the_beginning_is_no_missing_offset(broker: MemoryBroker) -> None:
    log = broker.client()
    write(broker, 0)
    reader = log.reader({DISPATCH: 0})
    log.stop_reading(DISPATCH, told=True)
    assert reader.poll(100, 0) == []
    assert "looking up where to begin failed" in str(reader.stopped)


def test_nothing_is_lost_or_repeated_and_it_is_not_ready_until_all_is_read(broker: MemoryBroker, clock: Clock) -> None:
    log = broker.client()
    reader = log.reader({DISPATCH: 0, GENERATION: 0})
    offsets: list[int] = []

    def poll(records_max: int = 100) -> None:
        read = reader.poll(records_max, 0)
        offsets.extend(d.offset for d in read if d.partition == DISPATCH)

    for number in range(10):
        write(broker, number)
    poll(3)
    log.stop_reading(DISPATCH, told=False)
    before = list(offsets)
    while reader.stopped is None:
        clock.now += LOOK_SECONDS / 4
        poll()
    assert offsets == before
    assert STALL_SECONDS <= clock.now <= STALL_SECONDS + 4 * LOOK_SECONDS
    clock.now += REPLACE_SECONDS
    poll(1)
    assert reader.replacements == 1
    assert reader.stopped is not None, "the replacement has not reached the end yet"
    while reader.stopped is not None:
        clock.now += LOOK_SECONDS / 4
        poll(1)
    assert offsets == list(range(10))


@pytest.mark.parametrize(
    ("lease_seconds", "stall_seconds"), [(5.0, 5.0), (60.0, STALL_SECONDS), (0.3, STALL_SECONDS_MIN)]
)
def test_of_an_owner_it_is_noticed_within_its_lease_and_within_bounds(
    broker: MemoryBroker, clock: Clock, lease_seconds: float, stall_seconds: float
) -> None:
    log = broker.client()
    reader = log.reader({DISPATCH: 0}, lease_seconds=lease_seconds)
    log.stop_reading(DISPATCH, told=False)
    write(broker, 1)
    began = clock.now
    while reader.stopped is None:
        clock.now += stall_seconds / 16
        reader.poll(100, 0)
    assert stall_seconds <= clock.now - began <= 1.5 * stall_seconds


def test_one_that_waits_behind_an_open_transaction_is_left_alone(broker: MemoryBroker, clock: Clock) -> None:
    log = broker.client()
    reader = log.reader({DISPATCH: 0})
    broker.leave_open("somebody", [Placed(DISPATCH, Fact(SessionKey("a", "s"), None))])
    write(broker, 1)
    for _ in range(100):
        clock.now += LOOK_SECONDS / 2
        assert reader.poll(100, 0) == []
    assert (reader.stopped, reader.replacements) == (None, 0)


def test_a_process_that_stood_still_does_not_blame_its_reader(broker: MemoryBroker, clock: Clock) -> None:
    log = broker.client()
    reader = log.reader({DISPATCH: 0})
    log.hold(DISPATCH)
    write(broker, 1)
    for _ in range(3):
        clock.now += LOOK_SECONDS
        reader.poll(100, 0)
    clock.now += 10 * STALL_SECONDS
    reader.poll(100, 0)
    assert reader.stopped is None


class _Failing:
    """A client that raises ``error`` at each poll, and counts how many of it there were."""

    def __init__(self, error: LogError) -> None:
        self.error: LogError | None = error
        self.opened: list[Mapping[Partition, int]] = []

    def open(self, start: Mapping[Partition, int]) -> "_Failing":
        self.opened.append(start)
        return self

    def poll(self, _records_max: int, _timeout_seconds: float) -> list[int]:
        if self.error is not None:
            raise self.error
        return []

    def positions(self) -> Mapping[Partition, int]:
        return {DISPATCH: 7}

    def close(self) -> None: ...

    def answer(self) -> Mapping[Partition, int]:
        return {DISPATCH: 7}


class _Lasting(LastingReader[int]):
    """A reader of such clients. ``ends`` None: nobody answers."""

    def __init__(self, client: _Failing, ends: AskedEnds | None, clock: Clock) -> None:
        self._next, self._ends = client, ends
        super().__init__({DISPATCH: 7}, clock)

    def _open_client(self, start: Mapping[Partition, int]) -> _Failing:
        return self._next.open(start)

    def _ask_ends(self, _partitions: object) -> AskedEnds:
        if self._ends is None:
            raise LogError("no answer")
        return self._ends


def test_while_lookups_fail_it_tries_again_at_a_pace_and_no_answer_blames_nobody(clock: Clock) -> None:
    client = _Failing(ReaderStoppedError("the lookup failed"))
    reader = _Lasting(client, None, clock)
    for _ in range(100):
        clock.now += REPLACE_SECONDS / 10
        assert reader.poll(100, 0) == []
    assert 8 <= len(client.opened) <= 12
    assert reader.stopped == "the lookup failed"


@pytest.mark.parametrize(
    ("error", "is_replaced"),
    [
        (LogError("no right to read"), True),
        (OffsetGoneError(DISPATCH, "offset 7 is gone"), False),
        (BrokerUnreachableError("nobody answers"), False),
    ],
    ids=["partition", "offset", "broker"],
)
def test_an_error_is_raised_and_the_reader_is_stopped_until_all_is_read(
    clock: Clock, error: LogError, is_replaced: bool
) -> None:
    client = _Failing(error)
    reader = _Lasting(client, client, clock)
    for _ in range(3):
        with pytest.raises(LogError, match=str(error)):
            reader.poll(100, 0)
        clock.now += REPLACE_SECONDS
        assert reader.stopped == str(error)
    client.error = None
    for _ in range(2):
        clock.now += LOOK_SECONDS
        reader.poll(100, 0)
    assert reader.stopped is None
    assert (reader.replacements > 0) is is_replaced


def test_a_silent_stop_is_noticed_while_every_poll_is_full(broker: MemoryBroker, clock: Clock) -> None:
    log = broker.client()
    write(broker, 0)
    reader = log.reader({DISPATCH: 0, GENERATION: 0})
    while reader.poll(100, 0):
        pass
    log.stop_reading(DISPATCH, told=False)
    began, number = clock.now, 0
    while reader.replacements == 0 and number < 1_000:
        number += 1
        write(broker, number)
        clock.now += LOOK_SECONDS / 4
        if reader.stopped is None:
            assert len(reader.poll(1, 0)) == 1, "generation always has one more"
        else:
            reader.poll(1, 0)
    assert BACKLOG_STALL_SECONDS <= clock.now - began <= BACKLOG_STALL_SECONDS + 4 * LOOK_SECONDS


def test_a_stop_that_is_reported_is_noticed_while_every_poll_is_full(broker: MemoryBroker, clock: Clock) -> None:
    log = broker.client()
    for number in range(10):
        write(broker, number)
    reader = log.reader({DISPATCH: 0, GENERATION: 0})
    assert len(reader.poll(1, 0)) == 1
    log.stop_reading(DISPATCH, told=True)
    assert reader.poll(1, 0) == []
    assert reader.stopped is not None
    clock.now += REPLACE_SECONDS
    assert len(reader.poll(100, 0)) == 19


def test_partitions_that_nobody_fetches_may_stay_below_their_ends(broker: MemoryBroker, clock: Clock) -> None:
    log = broker.client()
    reader = log.reader({DISPATCH: 0, GENERATION: 0})
    log.hold(DISPATCH)
    reader.excuse({DISPATCH})
    write(broker, 1)
    for _ in range(40):
        clock.now += LOOK_SECONDS / 2
        reader.poll(100, 0)
    assert reader.stopped is None
    reader.excuse(())
    for _ in range(40):
        clock.now += LOOK_SECONDS / 2
        reader.poll(100, 0)
    assert reader.replacements > 0


def test_a_replay_reaches_its_end_all_the_same(broker: MemoryBroker, clock: Clock) -> None:
    log = broker.client()
    for number in range(5):
        write(broker, number)
    read = read_to_end(log, [DISPATCH, GENERATION], monotonic=lambda: 0.0)
    first = next(read)
    log.stop_reading(GENERATION, told=True)

    def passing() -> Iterator[Any]:
        yield first
        for item in read:
            clock.now += 0.5
            yield item

    clock.now += REPLACE_SECONDS
    assert len(list(passing())) == 10
