"""``headgate up`` is up once each table replicates or reports why not: it does not wait for one that needs its user."""

import pytest

from headgate.eventlog.snapshot import Snapshot
from headgate_lab.demo.evaluation.running import held_tables
from scenarios.runner import World


@pytest.fixture
def world() -> World:
    made = World()
    for line in ("owner start o1", "agent join a1", "request create r1 shop tables=t1,t2"):
        made.run(line)
    return made


def held(world: World) -> list[str] | None:
    snapshot = Snapshot()
    reader = world.broker.client().reader(dict.fromkeys(world.broker.partitions(), 0))
    while batch := reader.poll(1_000, 0.0):
        for item in batch:
            snapshot.take(item)
    return held_tables(snapshot, "shop")


def test_tables_that_start_are_waited_for(world: World) -> None:
    world.run("status a1 shop/t1 replicating pos=0")
    assert held(world) is None
    world.run("status a1 shop/t2 replicating pos=0")
    assert held(world) == []


def test_a_table_that_has_failed_is_named_instead(world: World) -> None:
    world.run("status a1 shop/t1 replicating pos=0")
    world.run("status a1 shop/t2 failed error=sink_refused:gone")
    world.run("advance 1s")
    assert held(world) == ["t2"]


def test_a_paused_feed_stays_as_it_is(world: World) -> None:
    world.run("request pause r2 shop")
    assert held(world) == []
