"""The copy that a lane keeps in step: its columns' names until the cut-over, and what no lane can fill."""

import pytest

from headgate.migration.strategies.contract import Column, RefusedError, Table
from headgate.migration.strategies.online.lane_plan import LanePlan, lane_plan
from headgate.migration.strategies.planning import make_plan

ID = Column("id", "integer", is_nullable=False)
PRIMARY = {"t_pkey": ("id",)}


def table(*columns: Column, keys: dict[str, tuple[str, ...]] | None = None) -> Table:
    found = PRIMARY if keys is None else keys
    return Table("s", "t", columns, found, "", primary=found.get("t_pkey", ()))


def planned(
    before: Table, after: Table, renamed: dict[str, str] | None = None, *, shadow: str = "shadow", limit: int = 63
) -> LanePlan:
    """``renamed``: name after → name before."""
    names = {column.name: (renamed or {}).get(column.name, column.name) for column in after.columns}
    was = {name: old for name, old in names.items() if before.column(old) is not None}
    plan = make_plan(was, before, after, shadow, allow_lossy=True)
    return lane_plan(plan, "topic", name_bytes_max=limit)


def test_a_renamed_column_keeps_its_name_and_a_dropped_one_its_place_until_the_cut_over() -> None:
    before = table(ID, Column("a", "text"), Column("b", "integer"))
    after = table(ID, Column("title", "text"), Column("c", "integer"))
    found = planned(before, after, {"title": "a"})
    assert found.renamed == (("a", "title"),)
    assert found.dropped == (("b", "integer"),)
    assert found.held.pairs == (("id", "id"), ("a", "a"))
    assert [column.name for column in found.held.after.columns] == ["id", "a", "c"]
    assert found.plan.pairs == (("id", "id"), ("a", "title"))


def test_a_column_that_is_dropped_and_added_again_does_not_get_the_old_ones_changes() -> None:
    before = table(ID, Column("c", "text"))
    after = table(ID, Column("c", "integer"))
    found = lane_plan(make_plan({"id": "id"}, before, after, "shadow", allow_lossy=False), "topic", name_bytes_max=63)
    assert [column.name for column in found.held.after.columns] == ["id", "c_hg_new"]
    assert (found.renamed, found.dropped) == ((("c_hg_new", "c"),), (("c", "text"),))
    assert found.held.pairs == (("id", "id"),)


def test_a_renamed_key_is_found_under_its_old_name() -> None:
    after = table(Column("number", "integer", is_nullable=False), keys={"t_pkey": ("number",)})
    found = planned(table(ID), after, {"number": "id"})
    assert (found.held.key, found.plan.key) == ((("id", "id"),), (("id", "number"),))


@pytest.mark.parametrize(
    ("before", "after", "renamed", "why"),
    [
        (table(ID, Column("g", "integer", is_generated=True)), table(ID, Column("g", "integer")), {}, "computed"),
        (
            table(ID, Column("a", "text"), Column("b", "text")),
            table(ID, Column("b", "text"), Column("c", "text")),
            {"c": "b", "b": "a"},
            "takes the name",
        ),
    ],
)
def test_what_a_lane_cannot_fill_is_refused(before: Table, after: Table, renamed: dict[str, str], why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        planned(before, after, renamed)


OTHER = Column("other", "integer", is_nullable=False)
UNIQUE = {"t_id": ("id",)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (table(ID, keys=UNIQUE), table(ID, keys=UNIQUE)),
        (table(ID, OTHER, keys={"t_pkey": ("other",)} | UNIQUE), table(ID, OTHER, keys=UNIQUE)),
        (table(ID, OTHER, keys=PRIMARY), table(ID, OTHER, keys={"t_pkey": ("other",)} | UNIQUE)),
    ],
)
def test_a_table_whose_primary_key_does_not_stay_is_refused(before: Table, after: Table) -> None:
    with pytest.raises(RefusedError, match="primary key"):
        planned(before, after)


def test_unique_keys_beside_the_primary_one_are_no_obstacle() -> None:
    both = table(ID, OTHER, keys=PRIMARY | {"u": ("other",)})
    assert planned(both, both).held.key == (("id", "id"),)


def test_a_name_that_becomes_too_long_is_refused() -> None:
    with pytest.raises(RefusedError, match="too long"):
        planned(table(ID), table(ID), shadow="s" * 60)
