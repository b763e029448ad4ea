"""Leases, heartbeats and the agent's name, on a clock of our own and a log in memory."""

import pytest

from headgate.agent.shell.session import Heartbeat, IdInUseError, IdWatch, Lease, SessionLostError
from headgate.eventlog.log import Delivery, Partition
from headgate.records.control import AgentAnnounced, Liveness, SessionEnded
from headgate.records.keys import AgentKey, SessionKey
from headgate_lab.memory_log.log import MemoryBroker, MemoryLog
from support import build

KEY = AgentKey("a1", "mine")


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def announced(liveness: Liveness, count: int) -> AgentAnnounced:
    return build.agent_announced(liveness=liveness, address="here:1", heartbeat=count)


def heartbeat(log: MemoryLog, lease: Lease, clock: FakeClock) -> Heartbeat:
    return Heartbeat(log, KEY, lease, announced, on_lost=lambda: None, clock=clock)


def read(log: MemoryLog) -> list[AgentAnnounced]:
    found = log.reader({Partition("announce", 0): 0}).poll(100, 0)
    return [d.value for d in found if isinstance(d, Delivery) and isinstance(d.value, AgentAnnounced)]


def test_only_an_acknowledged_heartbeat_keeps_the_lease() -> None:
    clock, log = FakeClock(), MemoryBroker().client()
    lease = Lease(10.0, clock)
    beats = heartbeat(log, lease, clock)
    clock.now += 8
    assert beats.beat()
    assert lease.left() == 10.0
    log.cut()
    clock.now += 9
    assert beats.beat(), "not acknowledged, and a second left"
    assert lease.left() == pytest.approx(1.0)
    clock.now += 1
    assert not beats.beat()
    log.heal()
    assert not beats.beat(), "what is lost stays lost"
    with pytest.raises(SessionLostError):
        lease.check()
    assert [a.heartbeat for a in read(log)] == [1]


def test_a_lease_runs_from_the_sending_of_what_was_acknowledged() -> None:
    clock = FakeClock()
    lease = Lease(10.0, clock)
    sent = clock.now
    clock.now += 6
    lease.renew(sent)
    assert lease.left() == pytest.approx(4.0)
    clock.now += 30  # frozen meanwhile; then the acknowledgement of an old heartbeat comes in
    lease.renew(clock.now - 1)
    assert lease.lost()


def test_stopping_is_said_and_never_taken_back() -> None:
    clock, log = FakeClock(), MemoryBroker().client()
    beats = heartbeat(log, Lease(10.0, clock), clock)
    beats.beat()
    beats.stopping()
    beats.beat()
    beats.beat()
    assert [a.liveness for a in read(log)] == [Liveness.ALIVE, Liveness.STOPPING, Liveness.STOPPING]


def elder(watch: IdWatch, session: str, liveness: Liveness = Liveness.ALIVE) -> None:
    watch.read(AgentKey("a1", session), announced(liveness, 1))


def mine(watch: IdWatch) -> None:
    watch.read(KEY, announced(Liveness.ALIVE, 1))


def test_an_elder_that_goes_on_announcing_itself_has_the_name() -> None:
    watch = IdWatch(KEY)
    elder(watch, "old")
    mine(watch)
    assert not watch.settled
    elder(watch, "old")
    elder(watch, "old")  # what was on the wire when it was killed comes at once
    mine(watch)
    mine(watch)
    assert not watch.settled, "an elder whose heartbeats are late is waited for"
    with pytest.raises(IdInUseError, match="name a1 is in use by session old at here:1"):
        elder(watch, "old")


def test_of_two_that_announce_themselves_by_turns_the_younger_goes_before_it_is_settled() -> None:
    """However late all that is read: only the order counts."""
    first, second = IdWatch(AgentKey("a1", "first")), IdWatch(AgentKey("a1", "second"))
    for turn in range(2):
        for session in ("first", "second"):
            for watch in (first, second):
                watch.read(AgentKey("a1", session), announced(Liveness.ALIVE, turn))
        assert (first.settled, second.settled) == (True, False)
    elder(first, "first")
    with pytest.raises(IdInUseError, match="session first at"):
        elder(second, "first")


def test_an_elder_that_is_slow_is_still_found_when_all_has_long_begun() -> None:
    watch = IdWatch(KEY)
    elder(watch, "old")
    mine(watch)
    elder(watch, "old")
    for _ in range(3):
        assert not watch.settled
        mine(watch)
    assert watch.settled
    with pytest.raises(IdInUseError):
        elder(watch, "old")


def test_nobody_is_waited_for_where_nobody_was_or_only_this_very_process() -> None:
    assert not IdWatch(KEY).settled, "its own announcement is not on the log yet"
    watch = IdWatch(KEY, former="mine before")
    elder(watch, "mine before")
    mine(watch)
    assert watch.settled
    for _ in range(2):
        elder(watch, "mine before")
        mine(watch)


def test_predecessors_that_are_dead_or_leaving_and_younger_sessions_do_not_matter() -> None:
    watch = IdWatch(KEY)
    for session in ("dead", "leaving", "gone"):
        elder(watch, session)
    mine(watch)
    elder(watch, "leaving", Liveness.STOPPING)
    watch.read(AgentKey("a1", "gone"), None)
    watch.read(SessionKey("a1", "dead"), SessionEnded(1, "silent", 0))
    watch.read(AgentKey("a2", "x"), announced(Liveness.ALIVE, 1))
    assert watch.settled
    for _ in range(2):
        for session in ("younger", "dead", "gone"):
            elder(watch, session)
        mine(watch)
