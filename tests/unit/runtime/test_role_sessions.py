"""Whether an agent is silent, as its owner judges it, driven by hand on the in-memory log."""

import pytest

from headgate.records.base import Fact
from headgate.records.keys import AgentKey, SessionKey
from headgate.runtime.machine import HolderSilent
from headgate.runtime.role import RoleState
from support.toy_role import AGENT_LEASE, ANNOUNCE, LEASE, World


def test_a_session_without_heartbeat_for_a_lease_is_silent_once(world: World) -> None:
    one = world.member("one").serve()
    world.run(2.0, one, beat=("a1", "a2"))
    world.run(AGENT_LEASE - 0.5, one, beat=("a2",))
    assert one.inputs(HolderSilent) == []
    world.run(AGENT_LEASE, one, beat=("a2",))
    assert one.inputs(HolderSilent) == [HolderSilent(("a1", "s1"), AGENT_LEASE)]
    assert SessionKey("a1", "s1") in one.role.view.records
    assert AgentKey("a1", "s1") not in one.role.view.records
    assert one.role.digest() == world.replayed_digest()
    assert (one.role.counters.sessions_ended, one.role.counters.failovers) == (1, 1)


def test_a_session_that_said_farewell_is_no_failover(world: World) -> None:
    one = world.member("one").serve()
    world.run(2.0, one, beat=("a1",))
    world.write(ANNOUNCE, Fact(AgentKey("a1", "s1"), None))
    world.run(1.0, one)
    assert SessionKey("a1", "s1") in one.role.view.records
    assert (one.role.counters.sessions_ended, one.role.counters.failovers) == (1, 0)


def test_silence_is_judged_only_after_reading_to_an_end_captured_after_the_suspicion(world: World) -> None:
    one = world.member("one").serve()
    world.run(1.0, one, beat=("a1",))
    world.beat("a2")
    world.run(1.0, one)
    one.log.hold(ANNOUNCE)  # the owner lags; the agents live
    world.run(2 * AGENT_LEASE, one, beat=("a1", "a2"))
    assert one.inputs(HolderSilent) == []
    assert one.turn() > 0, "judging does not spin"
    one.log.release(ANNOUNCE)
    world.run(2.0, one, beat=("a1", "a2"))
    assert one.inputs(HolderSilent) == []
    world.run(AGENT_LEASE + 0.5, one, beat=("a2",))
    assert one.inputs(HolderSilent) == [HolderSilent(("a1", "s1"), AGENT_LEASE)]


def test_a_heartbeat_read_but_left_for_the_next_turn_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.runtime.candidate.TURN_RECORDS_MAX", 4)
    monkeypatch.setattr("headgate.runtime.term.TURN_FACTS_MAX", 1)
    one = world.member("one").serve()
    world.run(1.0, one, beat=("a1",))
    world.run(AGENT_LEASE - 0.5, one)
    for _ in range(4):
        world.beat("a2")
    one.turn()  # fills its batch from announce, so the next one begins with the other topics
    world.clock += 1.0
    for name in ("r1", "r2", "r3"):
        world.request(name)
    world.beat("a1")
    for _ in range(5):
        one.turn()
    assert sorted(one.outcomes) == ["r1", "r2", "r3"]
    assert one.inputs(HolderSilent) == []


def test_a_new_owner_gives_every_known_session_a_full_lease(world: World) -> None:
    one, two = world.member("one").serve(), world.member("two")
    world.run(1.0, one, two, beat=("a1",))
    world.run(LEASE + 1.0, two)
    assert two.state is RoleState.SERVING
    world.run(AGENT_LEASE - 1.0, two)
    assert two.inputs(HolderSilent) == []
    world.run(2.0, two)
    assert two.inputs(HolderSilent) == [HolderSilent(("a1", "s1"), AGENT_LEASE)]


def test_what_a_dead_session_still_writes_does_not_bring_it_back(world: World) -> None:
    one = world.member("one").serve()
    world.run(1.0, one, beat=("a1",))
    world.run(AGENT_LEASE + 1.0, one)
    world.run(2.0, one, beat=("a1",))
    world.run(2 * AGENT_LEASE, one)
    assert one.inputs(HolderSilent) == [HolderSilent(("a1", "s1"), AGENT_LEASE)]


def test_a_session_whose_announcement_is_deleted_is_not_watched(world: World) -> None:
    one = world.member("one").serve()
    world.run(1.0, one, beat=("a1",))
    world.write(ANNOUNCE, Fact(AgentKey("a1", "s1"), None))
    world.run(2 * AGENT_LEASE, one)
    assert one.inputs(HolderSilent) == []
