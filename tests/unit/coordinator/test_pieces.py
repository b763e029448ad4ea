"""What concerns very many spans is done in pieces, a turn each; an owner that comes between two of them goes on."""

import pytest

from headgate.coordinator.core.feeds import feed_lifecycle
from headgate.coordinator.core.sessions import membership
from headgate.coordinator.core.spans import deadlines, span_lifecycle
from headgate.coordinator.core.state import CoordinatorState
from headgate.records.control import ReplicationState
from headgate.records.keys import SpanKey
from scenarios.runner import World

TABLES = [f"t{number}" for number in range(7)]
PIECE = 2


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Seven tables on a1, an idle a2, and pieces of two."""
    monkeypatch.setattr(span_lifecycle, "REVIEWS_PER_DECISION_MAX", PIECE)
    monkeypatch.setattr(deadlines, "EXPIRIES_PER_DECISION_MAX", PIECE)
    monkeypatch.setattr(feed_lifecycle, "DELETES_PER_DECISION_MAX", PIECE)
    monkeypatch.setattr(membership, "SWEEP_KEYS_MAX", PIECE)
    world = World()
    for line in ("owner start o1", "agent join a1", f"request create r1 shop tables={','.join(TABLES)}"):
        world.run(line)
    for table in TABLES:
        world.run(f"status a1 shop/{table} replicating pos=0")
    world.run("agent join a2")
    return world


def turn(world: World, owner: str) -> None:
    """One turn of the owner and nothing else."""
    world.owners[owner].role.turn(world.time())


def logged(world: World) -> CoordinatorState:
    return world.state()


def held_by(world: World, agent: str) -> int:
    records = logged(world).spans.values()
    return sum(record.primary is not None and record.primary.agent == agent for record in records)


def successor(world: World) -> None:
    """The owner is killed, and another follows."""
    world.kill("o1")
    world.run("owner start o2")
    world.run("advance 6s")


@pytest.mark.parametrize("is_killed_between", [False, True])
def test_spans_of_a_dead_agent(world: World, is_killed_between: bool) -> None:
    world.run("kill a1")
    while not logged(world).ended:
        world.now += 0.25
        world.beat(world.agents["a2"])
        turn(world, "o1")
    assert held_by(world, "a1") == len(TABLES) - PIECE
    if is_killed_between:
        successor(world)
    else:
        turn(world, "o1")
        assert held_by(world, "a1") == len(TABLES) - 2 * PIECE
    world.settle()
    assert held_by(world, "a2") == len(TABLES)


def test_drains_that_are_given_up(world: World) -> None:
    world.run("request pause p1 shop")
    world.run("advance 59s")
    assert held_by(world, "a1") == len(TABLES)
    while held_by(world, "a1") == len(TABLES):
        world.now += 0.25
        for name in ("a1", "a2"):
            world.beat(world.agents[name])
        turn(world, "o1")
    assert held_by(world, "a1") == len(TABLES) - PIECE
    turn(world, "o1")
    assert held_by(world, "a1") == len(TABLES) - 2 * PIECE
    world.settle()
    world.run("advance 2s")
    assert held_by(world, "a2") == len(TABLES)


@pytest.mark.parametrize("is_killed_between", [False, True])
def test_keys_of_a_removed_feed(world: World, is_killed_between: bool) -> None:
    world.run("effects hold")
    world.run("request remove x1 shop")
    for table in TABLES:
        world.run(f"status a1 shop/{table} stopped pos=1")
    assert all(record.state is ReplicationState.ABSENT and record.sealed for record in logged(world).spans.values())
    world.do_effects_run()
    turn(world, "o1")
    assert 0 < len(logged(world).spans) < len(TABLES)
    assert logged(world).outcomes["x1"].status == "accepted"
    assert "shop" in logged(world).feeds
    if is_killed_between:
        successor(world)
        assert world.pending() == 1, "the sink is asked to forget it again"
        world.run("effects run")
    world.settle()
    state = logged(world)
    assert (state.spans, state.feeds, state.feed_progress) == ({}, {}, {})
    assert state.outcomes["x1"].status == "done"


def test_words_of_a_dead_session_are_swept_to_the_last(world: World) -> None:
    """Also those behind many that have to stay: progress that no successor has superseded."""
    for table in TABLES:
        world.run(f"progress a1 shop/{table} pos=2 rows=2")
    world.run("kill a1")
    world.run("advance 6s")
    for table in TABLES:
        world.run(f"status a2 shop/{table} replicating pos=2")
    world.run(f"progress a2 shop/{TABLES[-1]} pos=3 rows=1")
    world.run("advance 61s")
    session = ("a1", "a1s1")
    state = logged(world)
    assert [key.span for key, words in sorted(state.tasks.items()) if session in words] == []
    kept = [key.span for key, words in sorted(state.progress.items()) if session in words]
    assert kept == TABLES[:-1]
    assert session in state.ended
    for table in TABLES[:-1]:
        world.run(f"progress a2 shop/{table} pos=3 rows=1")
    world.run("advance 121s")
    state = logged(world)
    assert not any(session in words for words in state.progress.values())
    assert session not in state.ended
    assert SpanKey("shop", TABLES[0]) in state.spans
