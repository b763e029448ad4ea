"""Leases, heartbeats and the agent's name, on a clock of our own and a log in memory."""

import pytest

from headgate.agent.session import Heartbeat, IdInUseError, IdWatch, Lease, SessionLostError
from headgate.eventlog.log import Delivery, Partition
from headgate.eventlog.memory import MemoryBroker, MemoryLog
from headgate.records.control import AgentAnnounced, Liveness, SessionEnded
from headgate.records.keys import AgentKey, SessionKey

KEY = AgentKey("a1", "mine")


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def announced(liveness: Liveness, count: int) -> AgentAnnounced:
    return AgentAnnounced("1", 1, 10, 0.0, liveness, "here:1", count, 0)


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


def elder(watch: IdWatch, session: str, now: float, liveness: Liveness = Liveness.ALIVE) -> None:
    watch.read(AgentKey("a1", session), announced(liveness, 1), now)


def mine(watch: IdWatch, now: float) -> None:
    watch.read(KEY, announced(Liveness.ALIVE, 1), now)


def test_an_elder_that_goes_on_announcing_itself_has_the_name() -> None:
    watch = IdWatch(KEY, 10.0, started_at=0.0)
    elder(watch, "old", 0.1)
    mine(watch, 0.2)
    assert not watch.settled(0.3)
    elder(watch, "old", 1.5)
    elder(watch, "old", 1.6)  # what was on the wire when it was killed comes at once
    with pytest.raises(IdInUseError, match="name a1 is in use by session old at here:1"):
        elder(watch, "old", 3.5)


def test_an_elder_that_is_slow_is_still_found_when_all_has_long_begun() -> None:
    watch = IdWatch(KEY, 10.0, started_at=0.0)
    elder(watch, "old", 0.1)
    mine(watch, 0.2)
    elder(watch, "old", 4.0)
    assert watch.settled(5.0)
    with pytest.raises(IdInUseError):
        elder(watch, "old", 60.0)


def test_nobody_is_waited_for_where_nobody_was_or_only_this_very_process() -> None:
    assert not IdWatch(KEY, 10.0, started_at=0.0).settled(0.2), "its own announcement is not on the log yet"
    watch = IdWatch(KEY, 10.0, started_at=0.0, former="mine before")
    elder(watch, "mine before", 0.1)
    mine(watch, 0.2)
    assert watch.settled(0.2)
    for now in (3.0, 6.0):
        elder(watch, "mine before", now)


def test_predecessors_that_are_dead_or_leaving_and_younger_sessions_do_not_matter() -> None:
    watch = IdWatch(KEY, 10.0, started_at=0.0)
    elder(watch, "dead", 0.1)
    elder(watch, "leaving", 0.1)
    elder(watch, "gone", 0.1)
    mine(watch, 0.2)
    elder(watch, "leaving", 5.0, Liveness.STOPPING)
    watch.read(AgentKey("a1", "gone"), None, 5.0)
    watch.read(SessionKey("a1", "dead"), SessionEnded(1, "silent", 0), 6.0)
    watch.read(AgentKey("a2", "x"), announced(Liveness.ALIVE, 1), 12.0)
    for now in (11.0, 13.0):
        elder(watch, "younger", now)
        elder(watch, "dead", now)
        elder(watch, "gone", now)
        mine(watch, now)
