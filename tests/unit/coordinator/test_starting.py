"""So many spans an agent opens at a time: whoever begins to write makes room for the next, in the same decision."""

import pytest

from headgate.coordinator.core.scheduling import round_view
from headgate.coordinator.schedulers import capacity
from headgate.records.control import ReplicationState
from scenarios.runner import World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """One agent that opens one span at a time, and four tables."""
    for module in (capacity, round_view):
        monkeypatch.setattr(module, "STARTING_PER_AGENT_MAX", 1)
    world = World()
    for line in ("owner start o1", "agent join a1", "request create r1 shop tables=t1,t2,t3,t4"):
        world.run(line)
    return world


def states(world: World) -> dict[str, ReplicationState]:
    state = world.state()
    return {key.span: record.state for key, record in sorted(state.spans.items())}


def test_the_next_is_given_when_the_one_before_begins_to_write(world: World) -> None:
    assert states(world) == {"t1": ReplicationState.COMMIT}
    world.run("status a1 shop/t1 replicating pos=0")
    assert states(world) == {"t1": ReplicationState.REPLICATING, "t2": ReplicationState.COMMIT}
    last = world.output.index("  dispatch shop/t1: replicating by 0, primary a1s1@0.1")
    assert world.output[last + 1] == "  dispatch shop/t2: commit by 0, primary a1s1@0.2", "in the same decision"


def test_one_that_fails_makes_room_too(world: World) -> None:
    world.run("status a1 shop/t1 failed error=sink_unavailable:away")
    assert states(world) == {"t1": ReplicationState.ABSENT, "t2": ReplicationState.COMMIT}
