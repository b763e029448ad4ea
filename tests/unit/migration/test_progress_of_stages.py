"""How much of a stage of an online change is done, and when it will be over."""

from typing import Any

import pytest

from headgate.migration.core.progress import percent_of
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.strategies.contract import Memory
from headgate.migration.strategies.online import copying
from headgate.migration.strategies.online.lane_plan import lane_plan
from headgate.migration.strategies.online.marked import MigrationParts, Note
from headgate.migration.strategies.online.steps import COMPARE_ROWS, OnlineWork
from headgate.migration.strategies.planning import make_plan
from headgate.records.migration import MigrationStrategy
from unit.migration.test_lane_plan import ID, table


class Anything:
    """A database, a feed and a copier that are not asked."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


@pytest.fixture
def work() -> OnlineWork:
    plan = make_plan({"id": "id"}, table(ID), table(ID), "s", allow_lossy=False)
    spec = MigrationSpec(statement="", database="", strategy=MigrationStrategy.ONLINE)
    others: Any = Anything()
    held = lane_plan(plan, "topic", name_bytes_max=63)
    note = Note(rows=10 * COMPARE_ROWS)
    return OnlineWork(
        MigrationParts(others, others, others, "feed", others),
        held,
        Memory(1, 1, "begun"),
        spec=spec,
        note=note,
        throttle_ratio=0.0,
    )


@pytest.mark.parametrize(("done", "total", "percent"), [(0, 0, -1), (5, 0, -1), (0, 3, 0), (2, 3, 66), (9, 3, 100)])
def test_estimates_may_be_exceeded_and_may_be_missing(done: int, total: int, percent: int) -> None:
    assert percent_of(done, total) == percent


def test_catching_up_is_counted_from_where_the_feed_was_farthest_behind(work: OnlineWork) -> None:
    work.stage = "catching up"
    found = []
    for behind in (2_000, 4_000, 3_000, 1_000, None):
        work._count_behind(behind)
        found.append(work.percent)
    assert found == [0, 0, 25, 75, 75]


def test_another_stage_begins_without_a_percentage(work: OnlineWork) -> None:
    work.stage, work.percent = "catching up", 70
    work.stage = "catching up"
    assert work.percent == 70
    work.stage = "comparing"
    assert work.percent == -1
    assert work.eta_seconds(0, 0) == -1


def test_the_comparison_says_how_many_rows_it_has_compared(work: OnlineWork, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = iter([(1,), (2,), (3,), None])
    seen = []

    def differing(*_: Any) -> list[Any]:
        seen.append(work.percent)
        return []

    monkeypatch.setattr(work, "_server", Anything())
    monkeypatch.setattr(work._server, "next_bound", lambda *_: next(bounds), raising=False)
    monkeypatch.setattr(work, "_lane", Anything())
    monkeypatch.setattr(work._lane, "differing", differing, raising=False)
    work.stage = "comparing"
    assert work._differing() == []
    assert seen == [0, 10, 20, 30]


def test_the_time_left_is_that_of_the_stage(work: OnlineWork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying.time, "monotonic", lambda: 100.0)
    work.stage = copying.COPYING
    monkeypatch.setattr(copying.time, "monotonic", lambda: 110.0)
    before = work.note.rows
    assert work.eta_seconds(before + 100, before + 400) == 30
    assert work.eta_seconds(before, before + 400) == -1
    work.stage = "comparing"
    monkeypatch.setattr(copying.time, "monotonic", lambda: 150.0)
    work.percent = 80
    assert work.eta_seconds(0, 0) == 10
    work.is_ready = True
    assert work.eta_seconds(0, 0) == 0
