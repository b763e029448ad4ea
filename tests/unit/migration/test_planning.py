"""From two descriptions to a plan: which columns are copied, by which key, and what would lose values."""

import pytest

from headgate.migration.strategies.contract import Column, RefusedError, Table
from headgate.migration.strategies.planning import added_unique_keys, make_plan, shadow_name
from headgate.migration.strategies.statement import parse_statement

ID = Column("id", "int", is_nullable=False)


def table(*columns: Column, keys: dict[str, tuple[str, ...]] | None = None, obstacles: tuple[str, ...] = ()) -> Table:
    return Table("s", "t", columns, {"PRIMARY": ("id",)} if keys is None else keys, "", obstacles=obstacles)


def plan_of(before: Table, after: Table, text: str = "ALTER TABLE t ADD c int", *, allow_lossy: bool = False):  # type: ignore[no-untyped-def]
    return make_plan(parse_statement(text, "mysql"), before, after, "shadow", allow_lossy=allow_lossy)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int", "bigint"), ("int(11)", "bigint(20)"), ("int unsigned", "bigint"), ("varchar(10)", "varchar(20)"),
        ("varchar(10)", "text"), ("character varying(10)", "text"), ("decimal(10,2)", "decimal(12,3)"),
        ("enum('a','b')", "enum('a','b','c')"), ("real", "double precision"), ("bigint", "varchar(30)"),
        ("numeric(5,1)", "numeric"), ("integer", "bigint"), ("int", "decimal(30,4)"),
    ],
)  # fmt: skip
def test_what_holds_every_value_is_no_loss(old: str, new: str) -> None:
    assert plan_of(table(ID, Column("c", old)), table(ID, Column("c", new))).loose == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bigint", "int"), ("int", "int unsigned"), ("bigint unsigned", "bigint"), ("varchar(20)", "varchar(10)"),
        ("text", "varchar(100)"), ("decimal(10,2)", "decimal(10,3)"), ("enum('a','b')", "enum('b','a')"),
        ("double", "float"), ("varchar(10)", "int"), ("datetime", "date"), ("numeric", "numeric(9,2)"), ("json", "int"),
        ("bigint", "varchar(10)"), ("int", "decimal(8,2)"), ("float", "varchar(99)"),
    ],
)  # fmt: skip
def test_what_may_lose_a_value_needs_the_operators_word(old: str, new: str) -> None:
    before, after = table(ID, Column("c", old)), table(ID, Column("c", new))
    with pytest.raises(RefusedError, match="--allow-lossy"):
        plan_of(before, after)
    assert plan_of(before, after, allow_lossy=True).loose == ("c",)


def test_null_that_is_not_allowed_any_more_and_a_column_without_a_default() -> None:
    with pytest.raises(RefusedError, match="c: NULL is not allowed any more"):
        plan_of(table(ID, Column("c", "int")), table(ID, Column("c", "int", is_nullable=False)))
    with pytest.raises(RefusedError, match="NOT NULL without a default"):
        plan_of(table(ID), table(ID, Column("c", "int", is_nullable=False)))


def test_columns_are_paired_by_name_and_by_rename_and_generated_ones_are_left_out() -> None:
    before = table(ID, Column("a", "int"), Column("gone", "int"))
    after = table(ID, Column("b", "int"), Column("g", "int", is_generated=True), Column("new", "int"))
    plan = plan_of(before, after, "ALTER TABLE t CHANGE a b int")
    assert plan.pairs == (("id", "id"), ("a", "b"))
    assert plan.key == (("id", "id"),)


def test_a_key_must_stand_before_and_after() -> None:
    with pytest.raises(RefusedError, match="no primary or unique key"):
        plan_of(table(ID, keys={}), table(ID))
    with pytest.raises(RefusedError, match="in two steps"):
        plan_of(table(ID, keys={"k": ("id",)}), table(ID, keys={}))
    nullable = Column("id", "int")
    with pytest.raises(RefusedError, match="in two steps"):
        plan_of(table(nullable), table(nullable))


def test_obstacles_are_told() -> None:
    with pytest.raises(RefusedError, match="trigger x"):
        plan_of(table(ID, obstacles=("trigger x",)), table(ID))


def test_unique_keys_that_are_added() -> None:
    statement = parse_statement("ALTER TABLE t ADD UNIQUE (c)", "mysql")
    before, c = table(ID, Column("c", "int")), Column("c", "int")
    after = table(ID, c, keys={"PRIMARY": ("id",), "c": ("c",), "n": ("new",)})
    assert added_unique_keys(statement, before, after) == [("c",)]


def test_a_name_that_the_server_cannot_have_is_refused() -> None:
    assert shadow_name("items", "m1", 64).startswith("_items_hg")
    with pytest.raises(RefusedError, match="longer than the server's 64 bytes"):
        shadow_name("x" * 60, "m1", 64)
