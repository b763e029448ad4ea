"""A turn of an owner: facts, effects, timers and results, driven by hand on the in-memory log."""

from collections.abc import Mapping

import pytest

from headgate.eventlog.log import Partition
from headgate.records.control import OperationKind, RequestSettled
from headgate.records.keys import OutcomeKey
from headgate.runtime.machine import Arrived, EffectFinished, TermBegan, TimerFired
from headgate.runtime.role import RoleState, TermEffect
from headgate_lab.memory_log.log import CommitFault, MemoryTransactionalWriter
from support.toy_role import ANNOUNCE, LEASE, TIMER_SECONDS, Resolve, World, transactional_id


def test_requests_are_settled_and_state_is_what_any_replay_gives(world: World) -> None:
    one = world.member("one").serve()
    for name in ("r1", "r2", "r1"):
        world.request(name)
    one.turn()
    assert one.outcomes == {"r1": "number 2", "r2": "number 1"}
    world.run(2.0, one)
    full = world.replayed_digest()
    world.broker.compact_all()
    assert one.role.digest() == full == world.replayed_digest()


def test_what_a_new_owner_finds_open_is_settled_in_its_own_term(world: World) -> None:
    world.request("r1")
    one = world.member("one").serve()
    record = one.role.view.records[OutcomeKey("r1")]
    assert isinstance(record, RequestSettled)
    assert record.owner_rev == one.role.status.owner_rev


def test_a_turn_is_one_transaction_and_each_decision_sees_the_facts_of_the_one_before(world: World) -> None:
    one = world.member("one").serve()
    one.committed.clear()
    for name in ("r1", "r2", "r3"):
        world.request(name)
    one.turn()
    (facts,) = one.committed
    assert [fact.value.reason for fact in facts if isinstance(fact.key, OutcomeKey)] == [
        "number 0",
        "number 1",
        "number 2",
    ]


def test_an_idle_turn_commits_nothing_and_a_heartbeat_comes_five_times_a_lease(world: World) -> None:
    one = world.member("one").serve()
    before = len(world.announced())
    one.turn()
    one.turn()
    assert len(world.announced()) == before
    world.run(10 * LEASE, one)
    assert 48 <= len(world.announced()) - before <= 51


def test_the_owner_does_not_read_back_what_it_wrote(world: World) -> None:
    one = world.member("one").serve()
    world.request("r1")
    world.run(1.0, one)
    arrived = [given.delivery.key.text() for given in one.inputs(Arrived)]
    assert arrived == ["request/r1"]


def test_its_writer_learns_in_each_turn_how_far_readers_have_got(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it need not ask whether its last commit can be read (docs/adr/0126)."""
    seen: list[Mapping[Partition, int]] = []
    monkeypatch.setattr(MemoryTransactionalWriter, "seen", lambda _, positions: seen.append(positions))
    owner = world.member("o1").serve()
    end = world.client.end_offsets([ANNOUNCE])[ANNOUNCE]
    owner.turn()
    assert seen[-1][ANNOUNCE] >= end


def test_effects_run_only_after_the_commit_and_their_results_are_decided(world: World) -> None:
    one = world.member("one").serve()
    world.request("r1", OperationKind.CREATE_FEED)
    world.broker.fail_commit(transactional_id(), CommitFault.REFUSED)
    one.turn()
    assert one.effects == []
    one = world.member("other")
    world.run(LEASE + 2.0, one)
    world.request("r2", OperationKind.CREATE_FEED)
    one.turn()
    rev = one.role.status.owner_rev
    assert rev is not None
    assert one.effects == [TermEffect(rev, Resolve("r2"))]
    assert one.role.finish(one.effects[0], "found")
    one.turn()
    assert one.outcomes["r2"] == "result found"


def test_a_fenced_owner_with_an_effect_but_no_fact_finds_out_before_it_runs_it(world: World) -> None:
    one = world.member("one").serve()
    world.broker.fence(transactional_id())
    world.request("r1", OperationKind.CREATE_FEED)
    one.turn()
    assert one.effects == []
    assert one.state is RoleState.WAITING


def test_a_result_of_an_earlier_term_is_dropped(world: World) -> None:
    one = world.member("one").serve()
    world.request("r1", OperationKind.CREATE_FEED)
    one.turn()
    (late,) = one.effects
    world.broker.fence(transactional_id())
    world.run(LEASE + 4.0, one)
    assert one.state is RoleState.SERVING
    assert one.role.status.owner_rev != late.owner_rev
    assert one.role.finish(late, "late")
    one.turn()
    assert one.inputs(EffectFinished) == []


def test_too_many_results_are_refused_until_a_turn_has_taken_some(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.runtime.term.RESULTS_MAX", 1)
    one = world.member("one").serve()
    for name in ("r1", "r2"):
        world.request(name, OperationKind.CREATE_FEED)
    one.turn()
    first, second = one.effects
    assert one.role.finish(first, 1)
    assert not one.role.finish(second, 2)
    one.turn()
    assert one.role.finish(second, 2)
    one.turn()
    assert one.outcomes == {"r1": "result 1", "r2": "result 2"}


def test_a_full_turn_leaves_the_rest_for_the_next(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.runtime.term.TURN_FACTS_MAX", 2)
    one = world.member("one").serve()
    for name in ("r1", "r2", "r3"):
        world.request(name)
    one.turn()
    assert sorted(one.outcomes) == ["r1", "r2"]
    one.turn()
    assert sorted(one.outcomes) == ["r1", "r2", "r3"]


def test_timers_fire_late_never_early_and_can_be_cancelled(world: World) -> None:
    one = world.member("one").serve()
    world.request("r1", OperationKind.RESUME_FEED)
    one.turn()
    world.run(TIMER_SECONDS - 0.25, one)
    assert one.inputs(TimerFired) == []
    world.run(0.25, one)
    assert one.outcomes == {"r1": "timer"}
    world.request("r2", OperationKind.RESUME_FEED)
    one.turn()
    world.request("r3", OperationKind.REMOVE_FEED)
    world.run(2 * TIMER_SECONDS, one)
    assert one.outcomes == {"r1": "timer"}


def test_timers_die_with_their_term(world: World) -> None:
    one = world.member("one").serve()
    world.request("r1", OperationKind.RESUME_FEED)
    one.turn()
    world.broker.fence(transactional_id())
    world.run(LEASE + 4.0, one)
    assert one.state is RoleState.SERVING
    assert one.inputs(TimerFired) == []
    assert len(one.inputs(TermBegan)) == 1


def test_the_pause_is_until_the_next_thing_due(world: World) -> None:
    one = world.member("one").serve()
    world.run(1.0, one)
    pauses = []
    for _ in range(20):
        pauses.append(one.turn())
        world.clock += pauses[-1]
    assert max(pauses) <= 0.25
    assert sum(pauses) > 2.0, "an idle owner does not spin"


def test_waiting_keeps_what_it_reads_for_the_next_turn(world: World) -> None:
    one = world.member("one")
    assert not one.role.wait(0.0), "nothing to wait on before the first turn"
    one.serve()
    world.request("r1")
    assert one.role.wait(1.0)
    assert one.outcomes == {}
    one.turn()
    assert one.outcomes == {"r1": "number 0"}
