"""The way back from a change: how the table before is held while changes of the new form come into it, or why not."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headgate.config.start_offsets import StartOffsets
from headgate.migration.core.copy_steps import CopyStep, FeedSeen, next_step
from headgate.migration.core.feed_names import back_feed
from headgate.migration.strategies.contract import DescribedColumn, DescribedTable, RefusedError
from headgate.migration.strategies.online.back import OnlineBack
from headgate.migration.strategies.online.lane_plan import aside_name, lane_plan
from headgate.migration.strategies.online.strategy import _why_not_back
from headgate.migration.strategies.online.way_back import WayBack, fingerprint, plan_back, read_way_back
from headgate.migration.strategies.planning import make_plan
from headgate.records.migration import Artifact
from support.migration_records import recorded
from unit.migration.test_lane_plan import ID, planned, table
from unit.migration.test_spec import spec

SHADOW = "_t_hg12345678"


def back_of(before: DescribedTable, after: DescribedTable, renamed: dict[str, str] | None = None) -> Any:
    return plan_back(planned(before, after, renamed, shadow=SHADOW), after)


def test_the_table_before_is_held_in_the_form_of_the_new_one() -> None:
    before = table(ID, DescribedColumn("a", "text"), DescribedColumn("b", "integer"), DescribedColumn("v", "integer"))
    after = table(
        ID,
        DescribedColumn("title", "text"),
        DescribedColumn("v", "bigint"),
        DescribedColumn("extra", "integer", is_nullable=False),
    )
    found = back_of(before, after, {"title": "a"})
    assert found.plan.shadow == f"{SHADOW}_old"
    assert found.plan.pairs == (("id", "id"), ("title", "a"), ("v", "v"))
    assert found.renamed == (("title", "a"),)
    assert found.dropped == (("extra", "integer"),), "it is there for its changes, and goes in the end"
    assert found.held.pairs == (("id", "id"), ("title", "title"), ("v", "v"))
    assert [column.name for column in found.held.after.columns] == ["id", "title", "b", "v"]
    assert (found.is_back, found.casts_copy) == (True, True)


def test_there_and_back_and_there_again() -> None:
    before = table(ID, DescribedColumn("a", "text"), DescribedColumn("v", "bigint"))
    after = table(ID, DescribedColumn("title", "text"), DescribedColumn("v", "integer"))
    forth = planned(before, after, {"title": "a"}, shadow=SHADOW)
    back = plan_back(forth, after)
    again = plan_back(back, before)
    assert (again.plan.pairs, again.plan.key, again.plan.loose) == (forth.plan.pairs, forth.plan.key, forth.plan.loose)
    assert (again.plan.shadow, again.held.pairs, again.casts_copy) == (SHADOW, forth.held.pairs, False)
    assert aside_name(aside_name(SHADOW)) == SHADOW


@pytest.mark.parametrize(
    ("before", "after", "renamed", "why"),
    [
        (table(ID, DescribedColumn("n", "text", is_nullable=False)), table(ID), {}, "NOT NULL without a default"),
        (
            table(ID, DescribedColumn("g", "integer")),
            table(ID, DescribedColumn("g", "integer", is_generated=True)),
            {},
            "computed",
        ),
        (
            table(ID, DescribedColumn("a", "text"), DescribedColumn("b", "text")),
            table(ID, DescribedColumn("b", "text")),
            {"b": "a"},
            "column b was a",
        ),
    ],
)
def test_why_there_is_no_way_back(
    before: DescribedTable, after: DescribedTable, renamed: dict[str, str], why: str
) -> None:
    with pytest.raises(RefusedError, match=f"cannot be reverted.*{why}.*"):
        back_of(before, after, renamed)


def test_a_column_that_was_dropped_and_added_again_does_not_come_back() -> None:
    before, after = table(ID, DescribedColumn("c", "text")), table(ID, DescribedColumn("c", "integer"))
    forth = lane_plan(make_plan({"id": "id"}, before, after, SHADOW, allow_lossy=False), "topic", name_bytes_max=63)
    with pytest.raises(RefusedError, match="cannot be reverted, because column c was dropped, and another one"):
        plan_back(forth, after)


OTHER = DescribedColumn("other", "integer", is_nullable=False)


@pytest.mark.parametrize(
    "after",
    [
        table(ID, OTHER, keys={"t_pkey": ("id", "other")}),
        table(ID, OTHER, keys={"t_pkey": ("other",)}),
        table(OTHER, keys={"t_pkey": ("other",)}),
    ],
    ids=["extended", "replaced", "dropped"],
)
def test_a_change_of_the_primary_key_is_not_reverted_and_says_so_from_the_beginning(after: DescribedTable) -> None:
    """Events have the new key from the cut-over on, and the table before has other rows under it."""
    forth = planned(table(ID, OTHER), after, shadow=SHADOW)
    why = "replaced the primary key that the events have: submit the opposite change"
    assert why in _why_not_back(forth, spec()), "the submission's message"
    with pytest.raises(RefusedError, match=f"{why}. Without --keep-revertible it is done all the same"):
        _why_not_back(forth, spec(keep_way_back=True))
    with pytest.raises(RefusedError, match=f"{why}. If it may be final, confirm it with --yes"):
        _why_not_back(forth, spec(must_be_revertible=True))
    with pytest.raises(RefusedError, match=f"m1: .*{why}"):
        check(WayBack({}, reason=_why_not_back(forth, spec())))


def test_a_change_that_can_be_reverted_needs_no_confirmation() -> None:
    forth = planned(table(ID), table(ID, OTHER), shadow=SHADOW)
    assert _why_not_back(forth, spec(must_be_revertible=True)) == ""


def test_a_dropped_column_may_come_back_empty_or_with_its_default() -> None:
    before = table(
        ID, DescribedColumn("a", "text"), DescribedColumn("b", "integer", is_nullable=False, has_default=True)
    )
    assert back_of(before, table(ID)).plan.pairs == (("id", "id"),)


def test_a_revert_begins_with_the_feed() -> None:
    steps = {feed: next_step("returning", feed) for feed in FeedSeen}
    assert steps == {
        FeedSeen.ABSENT: CopyStep.CREATE,
        FeedSeen.STOPPED: CopyStep.RESUME,
        FeedSeen.GOING: CopyStep.CATCH_UP,
        FeedSeen.FAILED: CopyStep.END,
    }


@pytest.mark.parametrize("note", ["", '{"upto": [1], "rows": 3}', "no JSON"])
def test_other_notes_say_nothing_of_a_way_back(note: str) -> None:
    assert read_way_back(note) is None


NOW = table(ID, DescribedColumn("extra", "integer"))
WAY = WayBack({0: 7}, "built", fingerprint(NOW), "s.before", "feed", topic_id="id-1")


class Server:
    def __init__(self, now: DescribedTable | None, past: DescribedTable | None) -> None:
        self.tables = {"t": now, "before": past}

    def look(self, statement: Any) -> DescribedTable | None:
        return self.tables[statement.table]


class Feeds:
    def __init__(self, seen: FeedSeen) -> None:
        self._seen = seen

    def record(self, feed: str) -> Any:
        assert feed == back_feed("m1")
        return SimpleNamespace(error="value out of range")

    def seen(self, _record: Any) -> FeedSeen:
        return self._seen

    def check_start(self, topic: str, start: StartOffsets) -> None:
        assert (topic, start) == ("topic", StartOffsets(offsets={0: 7}, topic_id="id-1"))
        raise RefusedError("changes that are needed are not on the topic any more")


def check(
    way: WayBack | None = WAY,
    *,
    now: DescribedTable | None = NOW,
    past: DescribedTable | None = NOW,
    built: str = "built",
    seen: FeedSeen = FeedSeen.GOING,
    left: tuple[Artifact, ...] = (Artifact("table", "s.before"),),
) -> WayBack:
    lane: Any = SimpleNamespace(built_of=lambda _table: built)
    note = "" if way is None else msgspec.json.encode(way).decode()
    record = recorded('{"topic": "topic"}', table="s.t", note=note, artifacts=left)
    return OnlineBack(Server(now, past), lane, Feeds(seen)).check("m1", record)


def test_a_way_back_that_is_open() -> None:
    assert check() == WAY


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"way": None}, "has copied nothing"),
        ({"way": WayBack({}, reason="a reason")}, "m1: a reason"),
        ({"past": None}, "is gone"),
        ({"left": ()}, "is gone"),
        ({"built": "other"}, "was truncated, replaced or rebuilt"),
        ({"now": msgspec.structs.replace(NOW, definition="another")}, "has been altered since"),
        ({"seen": FeedSeen.FAILED}, "cannot be reverted now, because feed.*value out of range.*feed resume"),
        ({"seen": FeedSeen.ABSENT}, "not on the topic any more"),
    ],
)
def test_a_way_back_that_cannot_be_gone_is_refused_with_what_can_be_done(given: dict[str, Any], why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        check(**given)
