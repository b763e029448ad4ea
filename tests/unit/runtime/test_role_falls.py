"""What ends a term or a role, and what a fall costs, driven by hand on the in-memory log."""

import itertools

import pytest

from headgate.eventlog.log import Partition
from headgate.records.base import Fact
from headgate.records.keys import OwnerKey
from headgate.runtime.role import BACKOFF_SECONDS, RoleEndedError, RoleState
from headgate_lab.memory_log.log import CommitFault
from support import build
from support.toy_role import ANNOUNCE, LEASE, World, transactional_id

CHANGEFEED = Partition("changefeed", 0)


@pytest.mark.parametrize("fault", list(CommitFault))
def test_a_commit_that_does_not_return_costs_the_state_and_a_replay_says_what_happened(
    world: World, fault: CommitFault
) -> None:
    one = world.member("one").serve()
    world.broker.fail_commit(transactional_id(), fault)
    world.request("r1")
    one.turn()
    assert one.state is RoleState.WAITING
    assert one.outcomes == {}
    assert one.role.status.owner_rev is None
    world.run(LEASE + 4.0, one)
    assert one.state is RoleState.SERVING
    applied = fault is CommitFault.UNCERTAIN_APPLIED
    assert one.outcomes == {"r1": "number 0" if applied else "found open"}
    assert one.role.digest() == world.replayed_digest()


def test_back_off_grows_and_ends_with_success(world: World) -> None:
    one = world.member("one")
    one.log.cut()
    falls = []
    for _ in range(200):
        before = one.role.counters.falls
        one.turn()
        if one.role.counters.falls > before:
            falls.append(world.clock)
        world.clock += 0.1
    pauses = [round(b - a, 1) for a, b in itertools.pairwise(falls)]
    assert pauses[: len(BACKOFF_SECONDS)] == list(BACKOFF_SECONDS)
    assert set(pauses[len(BACKOFF_SECONDS) :]) == {BACKOFF_SECONDS[-1]}
    one.log.heal()
    world.run(10.0, one)
    assert one.state is RoleState.SERVING
    one.log.cut()
    one.turn()
    one.log.heal()
    world.run(BACKOFF_SECONDS[0] + 0.05, one, step=0.05)
    assert one.state is RoleState.STANDBY


def test_the_log_failing_while_waiting_is_told_in_the_turn(world: World) -> None:
    one = world.member("one").serve()
    one.log.cut()
    assert one.role.wait(1.0)
    one.turn()
    assert one.state is RoleState.WAITING
    assert "cannot be reached" in (one.role.status.last_error or "")


def test_an_owner_that_was_frozen_beyond_its_lease_forgets_and_follows_the_new_one(world: World) -> None:
    one, two = world.member("one").serve(), world.member("two")
    world.run(1.0, one, two)
    world.run(LEASE + 3.0, two)
    world.request("r1")
    two.turn()
    one.turn()  # thawed
    assert one.state is RoleState.STANDBY
    world.run(2 * LEASE, one, two)
    assert (one.state, two.state) == (RoleState.STANDBY, RoleState.SERVING)
    assert one.role.counters.campaigns == 1
    assert one.role.digest() == two.role.digest()


def test_a_standby_that_was_frozen_does_not_take_its_own_gap_for_the_owners_silence(world: World) -> None:
    one, two = world.member("one").serve(), world.member("two")
    world.run(1.0, one, two)
    two.log.hold(ANNOUNCE)
    world.run(3 * LEASE, one)
    world.run(1.0, one, two)
    two.log.release(ANNOUNCE)
    world.run(2 * LEASE, one, two)
    assert two.role.counters.campaigns == 0
    assert two.role.counters.falls == 1


def test_a_later_owner_seen_on_announce_ends_the_term_before_anything_is_written(world: World) -> None:
    one = world.member("one").serve()
    world.request("r1")
    later = build.owner_announced(
        owner_id="two", owner_rev=(one.role.status.owner_rev or 0) + 100, version="0.1.0", lease_seconds=LEASE
    )
    world.write(ANNOUNCE, Fact(OwnerKey(0), later))
    commits = one.role.counters.commits
    one.turn()
    assert one.state is RoleState.WAITING
    assert one.role.counters.commits == commits


def test_garbage_is_reported_with_its_place_counted_and_changes_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    one = world.member("one").serve()
    offset = world.broker.append_garbage(CHANGEFEED, "request/bad", "no Avro")
    world.request("r1")
    one.turn()
    assert one.outcomes == {"r1": "number 0"}
    assert one.role.counters.garbage == {"changefeed": 1}
    two = world.member("two")
    world.run(1.0, one, two)
    # Once live, once in replay, and the same both times.
    assert caplog.messages == [f"changefeed/0 at {offset} is skipped: no Avro"] * 2
    assert two.role.counters.garbage == {"changefeed": 1}
    assert two.role.digest() == one.role.digest()


@pytest.mark.parametrize("waits", [True, False])
def test_a_newer_schema_ends_the_role_without_a_word(world: World, waits: bool) -> None:
    one = world.member("one").serve()
    one.turn()
    world.broker.append_newer(CHANGEFEED, "request/new", "schema 1902 is unknown")
    end = world.broker.end_offset(ANNOUNCE)
    if waits:
        one.role.wait(0.1)
    with pytest.raises(RoleEndedError, match="schema 1902"):
        one.turn()
    assert one.state is RoleState.ENDED
    assert world.broker.end_offset(ANNOUNCE) == end
