"""What an agent does about a table that the sink does not take, before it claims the span."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config.feed import parse_feed
from headgate.records.control import Epoch, SpanPlan
from headgate.replication import new_tables
from headgate.replication.new_tables import check_table
from headgate.sinks.contract import Claim, FeedIdentity, SinkRefusedError
from headgate.tables.missing import MissingTables

PLAN = SpanPlan(span="s.t", topic="t", table="s.t", start={0: 0})
CLAIM = Claim(FeedIdentity("c", "0-1", "f"), "s.t", "t", Epoch(1, 1), 1, {0: 0})
CREATES = "feed: f\nsource: {topics: [t], database: {dsn: dbname=x}}\nsink: {type: postgresql, dsn: dbname=y}"
EXISTING = CREATES.replace("dbname=y", "dbname=y, tables: existing")


class World:
    """A sink with or without the table; ``steps`` is what was done."""

    def __init__(self) -> None:
        self.has_table = False
        self.is_new_ = True
        self.is_refused_otherwise = False
        self.steps: list[str] = []

    def check(self, _tables: list[str]) -> None:
        self.steps.append("check")
        if not self.has_table or self.is_refused_otherwise:
            raise SinkRefusedError("table s.t does not exist at the sink")

    def is_new(self, _claim: Claim) -> bool:
        return self.is_new_

    def create(self, *_: Any) -> bool:
        if self.has_table:
            return False
        self.steps.append("create")
        self.has_table = True
        return True

    def plan(self, *_: Any) -> MissingTables:
        return MissingTables(lacking=frozenset() if self.has_table else frozenset({"s.t"}))


Run = Callable[[str], None]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(new_tables, "create_missing", world.create)
    monkeypatch.setattr(new_tables, "plan_missing", world.plan)
    return world


def run(world: World, feed: str = CREATES) -> None:
    check_table(None, SimpleNamespace(spec=parse_feed(feed), sink=world), PLAN, CLAIM)  # type: ignore[arg-type]


def test_a_table_that_the_sink_takes_costs_one_check(world: World) -> None:
    world.has_table = True
    run(world)
    assert world.steps == ["check"]


def test_a_missing_table_is_created_and_checked(world: World) -> None:
    run(world)
    assert world.steps == ["check", "create", "check"]


def test_a_feed_that_does_not_create_tables_refuses_a_missing_one(world: World) -> None:
    with pytest.raises(SinkRefusedError, match=r"does not exist at the sink$"):
        run(world, EXISTING)
    assert world.steps == ["check"]


def test_a_table_that_was_written_and_dropped_is_not_created_empty(world: World) -> None:
    world.is_new_ = False
    with pytest.raises(SinkRefusedError, match="has written to it before and does not re-create it"):
        run(world)
    assert world.steps == ["check"]


@pytest.mark.parametrize("is_new", [True, False])
def test_what_else_the_sink_refuses_stays_refused(world: World, is_new: bool) -> None:
    world.has_table, world.is_refused_otherwise, world.is_new_ = True, True, is_new
    with pytest.raises(SinkRefusedError, match=r"does not exist at the sink$"):
        run(world)
    assert world.steps == ["check"]
