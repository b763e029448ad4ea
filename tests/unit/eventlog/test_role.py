"""The rules of the role loop (design §2), each driven by hand on the in-memory log."""

import pytest

from headgate.eventlog.role import RoleState
from toy_role import LEASE, World


@pytest.fixture
def world() -> World:
    return World()


def test_on_an_empty_log_the_first_campaigns_at_once_and_its_first_announcement_gives_owner_rev(world: World) -> None:
    one = world.member("one").serve()
    (first_offset, first), (_, second) = world.announced()
    assert first.owner_rev is None
    assert second.owner_rev == first_offset == one.role.status.owner_rev
    assert (first.owner_id, first.lease_seconds) == ("one", LEASE)


def test_requests_are_settled_and_state_is_what_a_replay_gives(world: World) -> None:
    one = world.member("one").serve()
    world.request("r1")
    world.request("r2")
    one.turn()
    assert one.outcomes == {"r1": "number 0", "r2": "number 1"}
    world.run(2.0, one)
    assert one.role.digest() == world.replayed_digest()
    world.broker.compact_all()
    assert one.role.digest() == world.replayed_digest()


def test_a_standby_takes_over_when_the_owner_lease_has_run_out(world: World) -> None:
    one, two = world.member("one").serve(), world.member("two")
    world.run(2 * LEASE, one, two)
    assert (one.state, two.state) == (RoleState.SERVING, RoleState.STANDBY)
    world.run(LEASE, two)
    two.serve()
    assert two.role.status.owner_rev > (one.role.status.owner_rev or 0)
