"""From two descriptions to a plan: which columns are copied, by which key, and what would lose values."""

from contextlib import nullcontext
from typing import Any

import pytest

from headgate.migration.core.spec import Lossy
from headgate.migration.statements.reading import parse_statement
from headgate.migration.statements.statement import StatementError
from headgate.migration.strategies.contract import CopyPlan, DescribedColumn, DescribedTable, RefusedError
from headgate.migration.strategies.planning import (
    check_added,
    columns_before,
    make_plan,
    shadow_name,
    unknown_columns,
    unproven_keys,
)
from headgate.migration.strategies.row_rules import KeyPart, RowRules, UniqueKey

ID = DescribedColumn("id", "int", is_nullable=False)


def table(
    *columns: DescribedColumn, keys: dict[str, tuple[str, ...]] | None = None, obstacles: tuple[str, ...] = ()
) -> DescribedTable:
    return DescribedTable("s", "t", columns, {"PRIMARY": ("id",)} if keys is None else keys, "", obstacles=obstacles)


def plan_of(
    before: DescribedTable, after: DescribedTable, change: str | None = None, *, allow_lossy: Lossy = ()
) -> CopyPlan:
    """``change``: as MariaDB would be asked; without it, columns are those of the same name."""
    was = {column.name: column.name for column in after.columns if before.column(column.name) is not None}
    if change is not None:
        was = columns_before(parse_statement(f"ALTER TABLE t {change}", "mysql"), before, after)
    return make_plan(was, before, after, "shadow", allow_lossy=allow_lossy)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int", "bigint"),
        ("int(11)", "bigint(20)"),
        ("int unsigned", "bigint"),
        ("varchar(10)", "varchar(20)"),
        ("varchar(10)", "text"),
        ("character varying(10)", "text"),
        ("decimal(10,2)", "decimal(12,3)"),
        ("character varying", "text"),
        ("text", "mediumtext"),
        ("tinytext", "text"),
        ("char(3)", "varchar(3)"),
        ("enum('a','B,c')", "varchar(3)"),
        ("set('a','bc')", "varchar(4)"),
        ("enum('a')", "text"),
        ("datetime", "datetime(6)"),
        ("timestamp(3) without time zone", "timestamp without time zone"),
        ("date", "datetime"),
        ("binary(16)", "varbinary(16)"),
        ("varbinary(20)", "varbinary(40)"),
        ("blob", "longblob"),
        ("varbinary(9)", "blob"),
        ("bit(1)", "bit(8)"),
        ("smallint", "real"),
        ("integer", "double precision"),
        ("year(4)", "int(11)"),
        ("int(11)", "varchar(11)"),
        ("enum('a','b')", "enum('a','b','c')"),
        ("real", "double precision"),
        ("float unsigned", "double"),
        ("float unsigned", "double unsigned zerofill"),
        ("int(10) unsigned", "double unsigned"),
        ("bigint", "varchar(30)"),
        ("numeric(5,1)", "numeric"),
        ("integer", "bigint"),
        ("int", "decimal(30,4)"),
    ],
)
def test_what_holds_every_value_is_no_loss(old: str, new: str) -> None:
    assert plan_of(table(ID, DescribedColumn("c", old)), table(ID, DescribedColumn("c", new))).loose == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bigint", "int"),
        ("int", "int unsigned"),
        ("bigint unsigned", "bigint"),
        ("varchar(20)", "varchar(10)"),
        ("text", "varchar(100)"),
        ("decimal(10,2)", "decimal(10,3)"),
        ("enum('a','b')", "enum('b','a')"),
        ("double", "float"),
        ("double", "double unsigned"),
        ("float", "double unsigned"),
        ("smallint(6)", "float unsigned"),
        ("int(11)", "double unsigned zerofill"),
        ("varchar(10)", "int"),
        ("datetime", "date"),
        ("numeric", "numeric(9,2)"),
        ("json", "int"),
        ("bigint", "varchar(10)"),
        ("int", "decimal(8,2)"),
        ("float", "varchar(99)"),
        ("text", "character varying(65535)"),
        ("character varying", "character varying(70000)"),
        ("enum('a','bcd')", "varchar(2)"),
        ("set('a','b')", "varchar(2)"),
        ("int(11)", "enum('0','1')"),
        ("timestamp", "datetime"),
        ("datetime(6)", "datetime"),
        ("date", "timestamp"),
        ("varbinary(40)", "binary(40)"),
        ("binary(8)", "binary(9)"),
        ("longblob", "blob"),
        ("varchar(9)", "char(9)"),
        ("timestamp without time zone", "timestamp with time zone"),
        ("integer", "real"),
        ("json", "jsonb"),
        ("bit(8)", "bit(1)"),
        ("enum('a')", "enum('A')"),
        ("varchar(300)", "tinytext"),
        ("int unsigned", "decimal(10,0) unsigned"),
        ("mood", "text"),
        ("time without time zone", "time(3) without time zone"),
        ("integer[]", "bigint[]"),
        ("geometry", "blob"),
    ],
)
def test_what_may_lose_a_value_needs_the_operators_word(old: str, new: str) -> None:
    before, after = table(ID, DescribedColumn("c", old)), table(ID, DescribedColumn("c", new))
    with pytest.raises(RefusedError, match="--allow-lossy"):
        plan_of(before, after)
    assert plan_of(before, after, allow_lossy=("c",)).loose == ("c",)
    assert plan_of(before, after, allow_lossy=True).loose == ("c",), "records of earlier versions allow every column"


def test_only_the_columns_that_are_named_may_lose_values() -> None:
    before = table(ID, DescribedColumn("c", "bigint"), DescribedColumn("my d", "bigint"))
    after = table(ID, DescribedColumn("c", "int"), DescribedColumn("my d", "int"))
    with pytest.raises(RefusedError, match=r"--allow-lossy 'my d'$") as refused:
        plan_of(before, after, allow_lossy=("c",))
    assert "--allow-lossy c" not in str(refused.value)
    assert plan_of(before, after, allow_lossy=("c", "my d")).loose == ("c", "my d")
    with pytest.raises(RefusedError, match=r"names column C, which table s\.t does not have"):
        plan_of(before, after, allow_lossy=("C", "my d"))


def test_null_that_is_not_allowed_any_more_and_a_column_without_a_default() -> None:
    with pytest.raises(RefusedError, match="c: NULL is not allowed any more"):
        plan_of(table(ID, DescribedColumn("c", "int")), table(ID, DescribedColumn("c", "int", is_nullable=False)))
    with pytest.raises(RefusedError, match="NOT NULL without a default"):
        plan_of(table(ID), table(ID, DescribedColumn("c", "int", is_nullable=False)))


def test_columns_are_paired_by_name_and_by_rename_and_generated_ones_are_left_out() -> None:
    before = table(ID, DescribedColumn("a", "int"), DescribedColumn("gone", "int"))
    after = table(
        ID, DescribedColumn("b", "int"), DescribedColumn("g", "int", is_generated=True), DescribedColumn("new", "int")
    )
    plan = plan_of(before, after, "CHANGE a b int, ADD g int AS (b + 1), ADD new int, DROP gone")
    assert plan.pairs == (("id", "id"), ("a", "b"))
    assert plan.key == (("id", "id"),)


@pytest.mark.parametrize(
    ("change", "after", "pairs"),
    [
        ("CHANGE NAME title text", ["id", "title", "note"], [("id", "id"), ("name", "title"), ("note", "note")]),
        ("MODIFY Name text", ["id", "Name", "note"], [("id", "id"), ("name", "Name"), ("note", "note")]),
        ("RENAME COLUMN Name TO NOTE, DROP `Note`", ["id", "NOTE"], [("id", "id"), ("name", "NOTE")]),
        ("DROP name, ADD name int DEFAULT 47", ["id", "note", "name"], [("id", "id"), ("note", "note")]),
        (
            "CHANGE name note text, CHANGE note name text",
            ["id", "note", "name"],
            [("id", "id"), ("name", "note"), ("note", "name")],
        ),
        (
            "MODIFY name text AFTER note, ADD x int FIRST",
            ["x", "id", "note", "name"],
            [("id", "id"), ("note", "note"), ("name", "name")],
        ),
        (
            "ADD x int AFTER NAME, ADD COLUMN IF NOT EXISTS Note int",
            ["id", "name", "x", "note"],
            [("id", "id"), ("name", "name"), ("note", "note")],
        ),
    ],
)
def test_columns_are_paired_by_their_positions_and_not_by_spelling(
    change: str, after: list[str], pairs: list[tuple[str, str]]
) -> None:
    made = table(*(ID if name == "id" else DescribedColumn(name, "text") for name in after))
    assert (
        list(plan_of(table(ID, DescribedColumn("name", "text"), DescribedColumn("note", "text")), made, change).pairs)
        == pairs
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("DROP nme", "column nme does not exist"),
        ("MODIFY c text, ALTER c SET DEFAULT 'x'", "two clauses change column c"),
        ("ADD d int AFTER nothing", "AFTER nothing"),
    ],
)
def test_a_change_of_a_column_that_is_not_clear_is_refused(change: str, why: str) -> None:
    before = table(ID, DescribedColumn("c", "text"))
    with pytest.raises(StatementError, match=why):
        plan_of(before, before, change)


def test_a_table_that_the_statement_does_not_lead_to_is_refused() -> None:
    with pytest.raises(RefusedError, match="the server made id, other of it"):
        plan_of(table(ID), table(ID, DescribedColumn("other", "int")), "ADD c int")


def test_columns_of_postgresql_are_paired_by_their_numbers() -> None:
    before = table(ID, DescribedColumn("note", "text", number=4), DescribedColumn("c", "int", number=6))
    after = table(
        DescribedColumn("id", "int", is_nullable=False, number=1),
        DescribedColumn("title", "text", number=2),
        DescribedColumn("c", "int", number=4),
    )
    statement = parse_statement("ALTER TABLE t ADD x int", "postgres")
    assert columns_before(statement, before, after) == {"id": "id", "title": "note"}


def test_a_weak_key_is_never_taken_for_a_tables_key() -> None:
    weak = DescribedTable("s", "t", (ID,), {}, "", weak_keys={"u": ("url", "site_id")})
    with pytest.raises(RefusedError, match="a row is not found by u"):
        plan_of(weak, weak)


def test_a_key_must_stand_before_and_after() -> None:
    with pytest.raises(RefusedError, match="no primary or unique key"):
        plan_of(table(ID, keys={}), table(ID))
    with pytest.raises(RefusedError, match="in two steps"):
        plan_of(table(ID, keys={"k": ("id",)}), table(ID, keys={}))
    nullable = DescribedColumn("id", "int")
    with pytest.raises(RefusedError, match="a row is not found by PRIMARY"):
        plan_of(table(nullable), table(nullable))


def test_a_copy_that_is_followed_is_found_by_the_key_of_the_events() -> None:
    both, other = ({"PRIMARY": ("id",), "u": ("c",)}, DescribedColumn("c", "int", is_nullable=False))
    before, after = table(ID, other, keys=both), table(ID, other, keys={"u": ("c",)})
    was = {"id": "id", "c": "c"}
    assert make_plan(was, before, after, "s", allow_lossy=False).key == (("c", "c"),)
    assert make_plan(was, before, after, "s", allow_lossy=False, is_followed=True).key == (("id", "id"),)
    unusable = table(other, keys={"u": ("d",)})
    with pytest.raises(RefusedError, match="without NULLs"):
        make_plan({"c": "c"}, unusable, unusable, "s", allow_lossy=False, is_followed=True)


def test_a_column_whose_name_the_drivers_mistake_is_an_obstacle() -> None:
    odd = table(ID, DescribedColumn("50%", "int"))
    with pytest.raises(RefusedError, match="column 50% has a percent sign"):
        plan_of(odd, odd)


def test_obstacles_are_told() -> None:
    with pytest.raises(RefusedError, match="trigger x"):
        plan_of(table(ID, obstacles=("trigger x",)), table(ID))


def key(*columns: str, collation: str = "", **more: Any) -> UniqueKey:
    return UniqueKey("k", tuple(KeyPart(name, name, collation) for name in columns), **more)


def with_keys(*keys: UniqueKey) -> DescribedTable:
    return DescribedTable(
        "s",
        "t",
        (ID, DescribedColumn("a", "int"), DescribedColumn("b", "int")),
        {"PRIMARY": ("id",)},
        "",
        rules=RowRules(keys),
    )


@pytest.mark.parametrize(
    ("before", "after", "is_proven"),
    [
        (key("a"), key("a"), True),
        (key("a", "b"), key("b", "a"), True),
        (key("a"), key("a", "b"), True),
        (key("a", "b"), key("a"), False),
        (key("a"), key("b"), False),
        (key("a"), key("a", collation="ci"), False),
        (key("a"), key("a", compares_nulls=True), False),
        (key("a", compares_nulls=True), key("a"), True),
        (key("a", is_valid=False), key("a"), False),
        (key("a", predicate="b > 0"), key("a"), False),
        (key("a", predicate="b > 0"), key("a", predicate="b > 0"), True),
        (key("a"), key("a", predicate="b > 0"), True),
        (UniqueKey("k", (KeyPart("(a + b)"),)), UniqueKey("k", (KeyPart("(a + b)"),)), True),
        (UniqueKey("k", (KeyPart("(a + b)"),)), UniqueKey("k", (KeyPart("(a - b)"),)), False),
        (UniqueKey("k", (KeyPart("a", "a", "", 3),)), key("a"), False),
    ],
)
def test_which_unique_keys_have_to_be_looked_at(before: UniqueKey, after: UniqueKey, *, is_proven: bool) -> None:
    assert unproven_keys(plan_of(with_keys(before), with_keys(after))) == ([] if is_proven else [after])


def test_a_key_of_a_column_that_may_lose_values_has_to_be_looked_at() -> None:
    keys = (key("a"), key("b"), *(UniqueKey(text, (KeyPart(text),)) for text in ("(b + 1)", "(a + 1)")))
    narrow = DescribedTable(
        "s",
        "t",
        (ID, DescribedColumn("a", "smallint"), DescribedColumn("b", "int")),
        {"PRIMARY": ("id",)},
        "",
        rules=RowRules(keys),
    )
    found = unproven_keys(plan_of(with_keys(*keys), narrow, allow_lossy=("a",)))
    assert [one.name for one in found] == ["k", "(a + 1)"], "b keeps its values"


@pytest.mark.parametrize(
    ("added", "is_proven"),
    [
        (DescribedColumn("n", "int", is_counting=True), True),
        (DescribedColumn("n", "int", given="NULL"), True),
        (DescribedColumn("n", "int", given="7"), False),
        (DescribedColumn("n", "int"), False),
        (DescribedColumn("n", "int", is_generated=True, expression="(a + 1)"), False),
    ],
)
def test_a_key_of_a_new_column(added: DescribedColumn, *, is_proven: bool) -> None:
    after = DescribedTable(
        "s", "t", (*with_keys().columns, added), {"PRIMARY": ("id",)}, "", rules=RowRules((key("a", "n"),))
    )
    assert unproven_keys(plan_of(with_keys(), after)) == ([] if is_proven else [key("a", "n")])


def test_nulls_of_a_new_column_may_be_equal() -> None:
    nulls = key("n", compares_nulls=True)
    columns = (*with_keys().columns, DescribedColumn("n", "int", given="NULL"))
    after = DescribedTable("s", "t", columns, {"PRIMARY": ("id",)}, "", rules=RowRules((nulls,)))
    assert unproven_keys(plan_of(with_keys(), after)) == [nulls]


@pytest.mark.parametrize(
    ("type_of_a", "expression", "is_proven"),
    [("int", "(a + 1)", True), ("int", "(a + 2)", False), ("bigint", "(a + 1)", False)],
)
def test_a_key_of_a_column_that_is_computed(type_of_a: str, expression: str, *, is_proven: bool) -> None:
    """A change of another column does not concern it."""

    def made(of_a: str, of_b: str, text: str) -> DescribedTable:
        computed = DescribedColumn("g", "int", is_generated=True, expression=text)
        columns = (ID, DescribedColumn("a", of_a), DescribedColumn("b", of_b), computed)
        return DescribedTable("s", "t", columns, {"PRIMARY": ("id",)}, "", rules=RowRules((key("g"),)))

    plan = plan_of(made("int", "int", "(a + 1)"), made(type_of_a, "bigint", expression))
    assert unproven_keys(plan) == ([] if is_proven else [key("g")])


def test_columns_whose_values_are_not_known() -> None:
    after = DescribedTable(
        "s",
        "t",
        (
            ID,
            DescribedColumn("c", "int", given="7"),
            DescribedColumn("d", "int"),
            DescribedColumn("g", "int", is_generated=True, expression="(d + 1)"),
        ),
        {"PRIMARY": ("id",)},
        "",
    )
    assert unknown_columns(plan_of(table(ID), after)) == {"d", "g"}


def test_a_name_that_the_server_cannot_have_is_refused() -> None:
    assert shadow_name("items", "m1", 64).startswith("_items_hg")
    with pytest.raises(RefusedError, match="longer than the server's 64 bytes"):
        shadow_name("x" * 60, "m1", 64)


@pytest.mark.parametrize("second", ["ALTER c SET DEFAULT 9", "ALTER c DROP DEFAULT", "ALTER c SET EXPRESSION AS (1)"])
def test_a_new_column_has_one_default(second: str) -> None:
    with pytest.raises(RefusedError, match="column c is added, and its default is changed by another clause"):
        check_added(parse_statement(f"ALTER TABLE t ADD COLUMN c int DEFAULT 7, {second}", "postgres"), table(ID))


@pytest.mark.parametrize(
    ("change", "is_added"),
    [
        ("ADD COLUMN IF NOT EXISTS a int, ALTER a SET DEFAULT 9", False),
        ("ADD COLUMN IF NOT EXISTS b int, ALTER b SET DEFAULT 9", True),
        ("ADD COLUMN IF NOT EXISTS a int, ALTER a SET DEFAULT 9, DROP COLUMN a", True),
    ],
)
def test_a_column_that_the_table_has_is_not_added_again(change: str, is_added: bool) -> None:
    statement = parse_statement(f"ALTER TABLE t {change}", "postgres")
    with pytest.raises(RefusedError, match=r"table s\.t: column . is added") if is_added else nullcontext():
        check_added(statement, table(ID, DescribedColumn("a", "int")))


def test_a_new_column_may_be_changed_in_other_ways() -> None:
    change = "DROP COLUMN c, ADD COLUMN c int DEFAULT 7, ALTER c SET NOT NULL, ALTER d SET DEFAULT 9"
    check_added(parse_statement(f"ALTER TABLE t {change}", "postgres"), table(ID, DescribedColumn("c", "int")))
