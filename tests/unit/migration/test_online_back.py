"""Strategy online about its way back: opened once, its feed gone before its table, left to whom it belongs."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headgate.config.start_offsets import StartOffsets
from headgate.migration.core import effects as fx
from headgate.migration.core.copy_steps import FeedSeen, Position
from headgate.migration.core.spec import MigrationSpec, written
from headgate.migration.shell.topic_tail import FeedsUnavailableError
from headgate.migration.strategies.contract import DescribedTable, Memory, RefusedError
from headgate.migration.strategies.online.lane import CopySink, Held
from headgate.migration.strategies.online.strategy import OnlineStrategy
from headgate.migration.strategies.online.way_back import plan_back, read_way_back
from headgate.records.migration import FEED, Artifact, MigrationRecorded, MigrationStrategy
from support.migration_records import recorded
from unit.migration.test_lane_plan import ID, planned, table

FORTH = planned(table(ID), table(ID), shadow="_t_hg12345678")
BACK = plan_back(FORTH, table(ID))
OLD = Artifact("table", "s._t_hg12345678_old")


class World:
    """A database and the cluster's feeds: what is done there is noted in its order."""

    def __init__(self, memory: Memory | None = None, *, is_changed: bool = False) -> None:
        self.memory, self.is_in_force = memory, is_changed
        self.done: list[str] = []
        self.feeds: set[str] = set()
        self.refuses = ""
        self.is_away = False

    # --- the server, and the lane ---

    mark = "12345678"
    password_file = None

    def take_over(self, _owner_rev: int) -> Memory | None:
        return self.memory

    def of(self, migration: str) -> Any:
        return SimpleNamespace(
            take_over=lambda _rev: self.memory,
            forget=lambda: self.done.append(f"forget {migration}"),
            close=lambda: None,
        )

    def forget(self) -> None:
        self.done.append("forget")

    def is_changed(self, _memory: Memory, _plan: Any) -> bool:
        return self.is_in_force

    def note(self, memory: Memory) -> None:
        self.memory = memory

    def drop(self, artifacts: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
        self.done += [f"drop {artifact.name}" for artifact in artifacts]
        return ()

    def look(self, _statement: Any) -> DescribedTable:
        return table(ID)

    def built_of(self, _table: DescribedTable) -> str:
        return "built"

    def hold_form(self, plan: Any) -> None:
        self.done.append(f"hold {plan.plan.shadow}")

    def sink_kind(self) -> str:
        return "postgresql"

    def settle(self, _plan: Any) -> None:
        pass

    def artifacts(self, _plan: Any) -> tuple[Artifact, ...]:
        return (OLD,)

    def close(self) -> None:
        pass

    # --- feeds ---

    def record(self, feed: str) -> str | None:
        return feed if feed in self.feeds else None

    def seen(self, record: str | None) -> FeedSeen:
        return FeedSeen.ABSENT if record is None else FeedSeen.GOING

    def create(self, feed: str, _source: Any, sink: CopySink, *, start: StartOffsets) -> None:
        assert (sink.kind, sink.connection) == ("postgresql", "shop")
        if self.refuses:
            raise RefusedError(self.refuses)
        self.done.append(f"create {feed} {start.offsets} of {start.topic_id}")
        self.feeds.add(feed)

    def remove(self, feed: str) -> None:
        if self.is_away:
            raise FeedsUnavailableError("no coordinator")
        if feed in self.feeds:
            self.done.append(f"remove {feed}")
            self.feeds.discard(feed)


def strategy(world: World, reverts: str | None = None) -> OnlineStrategy:
    anything: Any = world
    return OnlineStrategy(anything, anything, anything, None, "m1" if reverts is None else "r1", reverts=reverts)


def memory(stage: Any, plan: Any, offset: int = 8) -> Memory:
    held = Held(Position("f", {0: offset}, True), "built", {0: offset}, topic_id="id-1")
    return Memory(1, 1, stage, msgspec.json.encode(plan).decode(), msgspec.json.encode(held).decode())


def record(*, reverts: str | None = None, keeps: bool = False, left: tuple[Artifact, ...] = ()) -> MigrationRecorded:
    spec = MigrationSpec(
        statement="",
        database="shop",
        strategy=MigrationStrategy.ONLINE,
        reverts=reverts,
        keep_way_back=keeps,
    )
    return recorded(written(spec), artifacts=left)


def test_a_change_that_is_in_force_opens_its_way_back_once_whoever_sees_it() -> None:
    world = World(memory("changed", FORTH), is_changed=True)
    first = strategy(world).adopt(fx.AdoptMigration("m1", record(keeps=True)))
    second = strategy(world).adopt(fx.AdoptMigration("m1", record(keeps=True)))
    (feed,) = world.feeds
    assert world.done == ["hold _t_hg12345678_old", f"create {feed} {{0: 8}} of id-1"]
    assert first == second
    assert first.artifacts == (OLD, Artifact(FEED, feed))
    way = read_way_back(first.note)
    assert way is not None
    assert (way.offsets, way.topic_id, way.table, way.feed, way.reason) == ({0: 8}, "id-1", OLD.name, feed, "")


def test_a_way_back_that_cannot_be_opened_leaves_the_change_complete_and_says_why() -> None:
    world = World(memory("changed", FORTH), is_changed=True)
    world.refuses = "not this one"
    found = strategy(world).adopt(fx.AdoptMigration("m1", record(keeps=True)))
    assert isinstance(found, fx.Completed)
    assert ("not this one" in found.message, found.artifacts) == (True, (OLD,))


def test_without_being_kept_it_is_remembered_and_nothing_is_begun() -> None:
    world = World(memory("changed", FORTH), is_changed=True)
    found = strategy(world).adopt(fx.AdoptMigration("m1", record()))
    assert (world.done, found.artifacts) == ([], (OLD,))
    assert "offsets" in found.note


def test_the_feed_goes_before_the_table() -> None:
    world = World(memory("changed", FORTH))
    world.feeds, left = {"back"}, (OLD, Artifact(FEED, "back"))
    cleaned = strategy(world).clean_up(fx.CleanUpMigration("m1", record(left=left)))
    assert (world.done, cleaned.artifacts) == (["remove back", f"drop {OLD.name}"], ())


def test_a_feed_that_cannot_be_removed_keeps_the_table() -> None:
    world = World(memory("changed", FORTH))
    world.feeds, world.is_away = {"back"}, True
    with pytest.raises(FeedsUnavailableError):
        strategy(world).clean_up(fx.CleanUpMigration("m1", record(left=(OLD, Artifact(FEED, "back")))))
    assert world.done == []


def test_a_way_back_is_ended_without_its_table() -> None:
    world = World(memory("changed", FORTH))
    world.feeds, left = {"back"}, (OLD, Artifact(FEED, "back"))
    cleaned = strategy(world).clean_up(fx.CleanUpMigration("m1", record(left=left), keeps_tables=True))
    assert (world.done, cleaned.artifacts) == (["remove back"], (OLD,))


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_revert_that_is_stopped_leaves_the_way_back_to_the_reverted_migration(*, is_begun: bool) -> None:
    world = World(memory("returning", BACK))
    revert = strategy(world, "m1")
    world.feeds = {revert._feed} if is_begun else set()
    stopped = revert.stop(fx.StopMigration("r1", record(reverts="m1"), is_forced=False))
    assert stopped == fx.Stopped((), way_back=(Artifact(FEED, revert._feed),) * is_begun)
    assert bool(world.feeds) is is_begun


def test_a_revert_that_was_never_begun_removes_no_feed() -> None:
    world = World()
    revert = strategy(world, "m1")
    world.feeds = {revert._feed}
    assert revert.stop(fx.StopMigration("r1", record(reverts="m1"), is_forced=False)) == fx.Stopped()
    assert world.feeds == {revert._feed}
    assert world.done == ["forget"]


def test_a_revert_in_force_ends_the_feed_and_forgets_what_it_has_reverted() -> None:
    world = World(memory("changed", BACK), is_changed=True)
    revert = strategy(world, "m1")
    world.feeds = {feed := revert._feed}
    found = revert.adopt(fx.AdoptMigration("r1", record(reverts="m1")))
    assert isinstance(found, fx.Completed)
    assert world.done == [f"remove {feed}", "forget m1"]
