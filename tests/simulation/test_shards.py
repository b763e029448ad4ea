"""Four shards in the simulation: coordinators share them, and one's death moves only its own."""

import pytest
from msgspec.structs import replace

from headgate.eventlog.log import Partition, Placed
from headgate.records.base import Fact
from headgate.records.control import OperationKind
from headgate.records.keys import RequestKey
from headgate.runtime.role import RoleState
from headgate_lab.simulation.agents import AgentProcess
from headgate_lab.simulation.processes import CoordinatorProcess
from headgate_lab.simulation.profile import draw_profile
from headgate_lab.simulation.world import World
from support import build

SHARDS = 4
LEASE_SECONDS = 5.0


def _world(coordinators: int) -> World:
    profile = replace(
        draw_profile(7, ticks=100),
        shards=SHARDS,
        coordinators=coordinators,
        feeds=2,
        agents=2,
        tables=3,
        capacity=100,
        tick_seconds=0.25,
        pace=0.9,
        lease_seconds=LEASE_SECONDS,
        agent_lease_seconds=LEASE_SECONDS,
        rates={},
    )
    world = World(profile)
    world.faults.stop()
    world.operator.create_all()
    return world


def _pass(world: World, seconds: float) -> None:
    for _ in range(round(seconds / world.profile.tick_seconds)):
        world.tick()


def _owners(world: World) -> dict[int, tuple[str, int | None]]:
    """Shard → its owner and owner_rev."""
    return {
        shard: (process.name, role.status.owner_rev)
        for process in world.processes.values()
        if isinstance(process, CoordinatorProcess)
        for shard, role in process.roles.items()
        if role.status.state is RoleState.SERVING
    }


def _shares(world: World, coordinators: int) -> list[int]:
    names = [name for name, _ in _owners(world).values()]
    return sorted(names.count(f"c{number}") for number in range(1, coordinators + 1))


@pytest.mark.parametrize("coordinators", [2, 3])
def test_coordinators_share_and_a_killed_one_moves_only_its_shards(coordinators: int) -> None:
    world = _world(coordinators)
    even = sorted(SHARDS // coordinators + (number < SHARDS % coordinators) for number in range(coordinators))
    _pass(world, 60.0)
    assert _shares(world, coordinators) == even
    before = _owners(world)

    _pass(world, 300.0)
    assert _owners(world) == before, "with nothing wrong no shard moves"

    killed = world.processes.pop("c1")
    killed.die()
    _pass(world, 3 * LEASE_SECONDS)
    after = _owners(world)
    assert sorted(after) == list(range(SHARDS))
    for shard, (name, owner_rev) in before.items():
        assert (after[shard] == (name, owner_rev)) == (name != "c1")
    left = [name for name, _ in after.values()]
    assert max(map(left.count, left)) - min(map(left.count, set(left))) <= 1

    world.start("c1")
    _pass(world, 60.0)
    assert _shares(world, coordinators) == even
    settled = _owners(world)
    _pass(world, 120.0)
    assert _owners(world) == settled


def test_an_agent_is_drained_over_all_shards_within_one_session() -> None:
    world = _world(2)
    _pass(world, 30.0)
    held = {
        (shard, key.feed): record.primary.agent
        for shard, state in world.log_audit.states.items()
        for key, record in state.spans.items()
        if record.primary is not None
    }
    assert len({shard for shard, _ in held}) > 1, "feeds of one shard only: the test would show nothing"
    assert len({session for state in world.log_audit.states.values() for session in state.agents}) == 2
    agent = world.processes["a1"]
    assert isinstance(agent, AgentProcess)
    agent.leave()
    _pass(world, 9.0)
    assert world.marks["agent left empty"] == 1
    assert world.marks["agent left with tables"] == 0
    for state in world.log_audit.states.values():
        assert {record.primary.agent for record in state.spans.values() if record.primary is not None} <= {"a2"}


def test_a_drain_asked_of_every_shard_is_done_in_every_shard() -> None:
    world = _world(2)
    _pass(world, 30.0)
    for shard in range(SHARDS):
        wish = build.operation_requested(kind=OperationKind.DRAIN_AGENT, feed="", agent="a1")
        world.broker.append(Placed(Partition("changefeed", shard), Fact(RequestKey(f"drain-{shard}"), wish)))
    _pass(world, 30.0)
    outcomes = [outcome for state in world.log_audit.states.values() for outcome in state.outcomes.values()]
    drained = [outcome for outcome in outcomes if "no table left" in outcome.reason]
    assert len(drained) == SHARDS
