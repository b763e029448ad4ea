"""The thread of an online change, where its database is lost: it ends, so that the migration is taken up anew."""

import threading
from typing import Any

import pytest

from headgate.migration.core.spec import MigrationSpec
from headgate.migration.strategies.contract import DatabaseUnavailableError, Memory, RefusedError
from headgate.migration.strategies.online.lane_plan import LanePlan, lane_plan
from headgate.migration.strategies.online.marked import MigrationParts, Note
from headgate.migration.strategies.online.steps import OnlineWork
from headgate.migration.strategies.planning import make_plan
from headgate.records.migration import MigrationStrategy
from support.waiting import END_SECONDS_MAX
from unit.migration.test_lane_plan import ID, OTHER, PRIMARY, table


class Lane:
    """A database whose main session is lost after some questions, or which cannot be asked at all."""

    def __init__(self, answers: int) -> None:
        self.answers = answers

    def hold_form(self, _plan: Any) -> None:
        self.check_ours()

    def check_ours(self) -> None:
        self.answers -= 1
        if self.answers < 0:
            raise DatabaseUnavailableError("the session is lost")


class Others:
    """Whatever else it is done with: nothing is there."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("seen"):
            raise DatabaseUnavailableError("no broker answers")
        return lambda *_: None


def work_of(answers: int, held: LanePlan | None = None, feeds: Any = None) -> OnlineWork:
    plan = make_plan({"id": "id"}, table(ID), table(ID), "s", allow_lossy=False)
    held = held or lane_plan(plan, "topic", name_bytes_max=63)
    spec = MigrationSpec(statement="", database="", strategy=MigrationStrategy.ONLINE)
    others: Any = Others()
    lane: Any = Lane(answers)
    parts = MigrationParts(others, lane, feeds or others, "feed", others)
    return OnlineWork(parts, held, Memory(1, 1, "begun"), spec=spec, note=Note(), throttle_ratio=0.0)


@pytest.mark.parametrize("answers", [0, 1, 3])
def test_it_ends_where_its_session_is_lost_and_can_be_begun_again(
    answers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.migration.strategies.online.steps.AGAIN_SECONDS", 0.01)
    work = work_of(answers)
    work.start()
    work._thread.join(END_SECONDS_MAX)
    assert work.is_over_in_vain
    assert isinstance(work.error, DatabaseUnavailableError)


def test_partitions_that_a_topic_gains_before_the_copy_are_found_before_it_is_filled() -> None:
    """The submission has seen one. A table without rows has no mark by which they would be seen."""
    unique = table(ID, OTHER, keys=PRIMARY | {"u": ("other",)})
    plan = make_plan({"id": "id", "other": "other"}, unique, unique, "s", allow_lossy=False)
    work = work_of(1, lane_plan(plan, "topic", name_bytes_max=63), Topic({0: 0, 1: 0}))
    with pytest.raises(RefusedError, match="topic topic several partitions"):
        work._marks()


class Topic(Others):
    """A topic with these ends."""

    def __init__(self, ends: dict[int, int]) -> None:
        super().__init__()
        self._ends = ends

    def ends(self, _topic: str) -> dict[int, int]:
        return self._ends


def test_what_did_not_answer_is_no_reason_any_more_once_a_step_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.migration.strategies.online.steps.AGAIN_SECONDS", 0.0)
    work = work_of(4)
    found = []

    def step() -> None:
        found.append(work.pace.reason)
        if len(found) == 1:
            raise DatabaseUnavailableError("no broker answers")
        if len(found) == 3:
            work.pace.reason = "2000 changes behind"

    monkeypatch.setattr(work, "_step", step)
    work.run()
    assert found == ["", "no broker answers", ""]
    assert work.pace.reason == "2000 changes behind"
