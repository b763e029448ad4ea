"""The copy that a lane keeps in step: its columns' names until the cut-over, and what no lane can fill."""

import pytest

from headgate.migration.strategies.contract import DescribedColumn, DescribedTable, RefusedError
from headgate.migration.strategies.online.lane_plan import LanePlan, lane_plan
from headgate.migration.strategies.planning import make_plan

ID = DescribedColumn("id", "integer", is_nullable=False)
PRIMARY = {"t_pkey": ("id",)}


def table(*columns: DescribedColumn, keys: dict[str, tuple[str, ...]] | None = None) -> DescribedTable:
    found = PRIMARY if keys is None else keys
    return DescribedTable("s", "t", columns, found, "", primary=found.get("t_pkey", ()))


def planned(
    before: DescribedTable,
    after: DescribedTable,
    renamed: dict[str, str] | None = None,
    *,
    shadow: str = "shadow",
    limit: int = 63,
) -> LanePlan:
    """``renamed``: name after → name before."""
    names = {column.name: (renamed or {}).get(column.name, column.name) for column in after.columns}
    was = {name: old for name, old in names.items() if before.column(old) is not None}
    plan = make_plan(was, before, after, shadow, allow_lossy=True, is_followed=True)
    return lane_plan(plan, "topic", name_bytes_max=limit)


def test_a_renamed_column_keeps_its_name_and_a_dropped_one_its_place_until_the_cut_over() -> None:
    before = table(ID, DescribedColumn("a", "text"), DescribedColumn("b", "integer"))
    after = table(ID, DescribedColumn("title", "text"), DescribedColumn("c", "integer"))
    found = planned(before, after, {"title": "a"})
    assert found.renamed == (("a", "title"),)
    assert found.dropped == (("b", "integer"),)
    assert found.held.pairs == (("id", "id"), ("a", "a"))
    assert [column.name for column in found.held.after.columns] == ["id", "a", "c"]
    assert found.plan.pairs == (("id", "id"), ("a", "title"))


def test_a_column_that_is_dropped_and_added_again_does_not_get_the_old_ones_changes() -> None:
    before = table(ID, DescribedColumn("c", "text"))
    after = table(ID, DescribedColumn("c", "integer"))
    found = lane_plan(make_plan({"id": "id"}, before, after, "shadow", allow_lossy=False), "topic", name_bytes_max=63)
    assert [column.name for column in found.held.after.columns] == ["id", "c_hg_new"]
    assert (found.renamed, found.dropped) == ((("c_hg_new", "c"),), (("c", "text"),))
    assert found.held.pairs == (("id", "id"),)


def test_a_renamed_key_is_found_under_its_old_name() -> None:
    after = table(DescribedColumn("number", "integer", is_nullable=False), keys={"t_pkey": ("number",)})
    found = planned(table(ID), after, {"number": "id"})
    assert (found.held.key, found.plan.key) == ((("id", "id"),), (("id", "number"),))


@pytest.mark.parametrize(
    ("before", "after", "renamed", "why"),
    [
        (
            table(ID, DescribedColumn("g", "integer", is_generated=True)),
            table(ID, DescribedColumn("g", "integer")),
            {},
            "computed",
        ),
        (
            table(ID, DescribedColumn("a", "text"), DescribedColumn("b", "text")),
            table(ID, DescribedColumn("b", "text"), DescribedColumn("c", "text")),
            {"c": "b", "b": "a"},
            "takes the name",
        ),
    ],
)
def test_what_a_lane_cannot_fill_is_refused(
    before: DescribedTable, after: DescribedTable, renamed: dict[str, str], why: str
) -> None:
    with pytest.raises(RefusedError, match=why):
        planned(before, after, renamed)


OTHER = DescribedColumn("other", "integer", is_nullable=False)
UNIQUE = {"t_id": ("id",)}


EXTENDED = {"t_pkey": ("id", "other")}


@pytest.mark.parametrize(
    ("before", "after", "key", "is_late"),
    [
        (table(ID, keys=UNIQUE), table(ID, keys=UNIQUE), "id", True),
        (table(ID, OTHER, keys={"t_pkey": ("other",)} | UNIQUE), table(ID, OTHER, keys=UNIQUE), "other", True),
        (table(ID, OTHER, keys=PRIMARY), table(ID, OTHER, keys={"t_pkey": ("other",)} | UNIQUE), "id", True),
        (table(ID, OTHER, keys=PRIMARY), table(OTHER, keys={"t_pkey": ("other",)}), "id", True),
        (table(ID, OTHER, keys=EXTENDED), table(ID, OTHER), "id other", True),
        (table(ID, OTHER), table(ID, OTHER, keys=EXTENDED), "id", False),
    ],
    ids=["unique only", "dropped", "replaced", "with its column", "reduced", "extended"],
)
def test_a_copy_whose_primary_key_is_another_one_has_the_key_of_the_events_too(
    before: DescribedTable, after: DescribedTable, key: str, is_late: bool
) -> None:
    found = planned(before, after)
    assert [old for old, _ in found.held.key] == key.split()
    assert {old for old, _ in found.held.key} <= {name for name, _ in found.held.pairs}
    assert {name for name, _ in found.held.pairs} <= {column.name for column in found.held.after.columns}
    assert found.row_key.startswith("headgate_key_")
    assert found.is_rekeyed_late == is_late
    assert planned(before, after, shadow="another").row_key != found.row_key


def test_a_primary_key_that_stays_is_the_one_of_the_events() -> None:
    assert planned(table(ID, OTHER), table(ID)).row_key == ""


@pytest.mark.parametrize(
    ("keys", "compares"),
    [
        (PRIMARY, False),
        (PRIMARY | {"u": ("other", "id")}, False),
        (PRIMARY | {"u": ("other",)}, True),
        (EXTENDED, False),
        ({"t_pkey": ("other",)}, True),
    ],
)
def test_which_unique_keys_keep_a_row_out_because_of_another_one(
    keys: dict[str, tuple[str, ...]], compares: bool
) -> None:
    assert planned(table(ID, OTHER), table(ID, OTHER, keys=keys)).compares_rows == compares


def test_a_key_column_that_is_dropped_and_added_again_is_refused() -> None:
    before, after = (
        table(ID, OTHER),
        table(DescribedColumn("id", "bigint", has_default=True), OTHER, keys={"u": ("other",)}),
    )
    plan = make_plan({"other": "other"}, before, after, "shadow", allow_lossy=True, is_followed=True)
    with pytest.raises(RefusedError, match="is dropped, and another one of that name is added"):
        lane_plan(plan, "topic", name_bytes_max=63)


def test_unique_keys_beside_the_primary_one_are_no_obstacle() -> None:
    both = table(ID, OTHER, keys=PRIMARY | {"u": ("other",)})
    assert planned(both, both).held.key == (("id", "id"),)


def test_a_name_that_becomes_too_long_is_refused() -> None:
    with pytest.raises(RefusedError, match="too long"):
        planned(table(ID), table(ID), shadow="s" * 60)
