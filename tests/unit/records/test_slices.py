"""Names of slices: which rows they stand for, and which of them share rows."""

import pytest

from headgate.records.identifiers import normal_table, split_table, table_spelling
from headgate.records.slices import Slice, slice_of, whole_table, why_no_column, why_no_value, with_slice
from headgate.records.spans import parse_span, table_of
from headgate.records.taken_tables import TakenTables, overlapping


@pytest.mark.parametrize(
    ("name", "table", "column", "value"),
    [
        ("public.orders@tenant=1", "public.orders", "tenant", "1"),
        ("orders@t=a.b-c_d", "orders", "t", "a.b-c_d"),
        ('"a.b"."or@x=1"@tenant=2', '"a.b"."or@x=1"', "tenant", "2"),
        ("public.a@b=1@c=2", "public.a@b=1", "c", "2"),
    ],
)
def test_a_slice_is_taken_apart_and_put_together(name: str, table: str, column: str, value: str) -> None:
    found = slice_of(name)
    assert found == Slice(table, column, value)
    assert found.text == name
    assert whole_table(name) == table
    assert with_slice("other", name) == f"other@{column}={value}"


@pytest.mark.parametrize(
    "name", ["public.orders", "a@b", "a@1b=1", "a@b=", "a@b=ü", "@b=1", 'public."a@b=1"', "a@b=1~", f"a@b={'x' * 65}"]
)
def test_any_other_name_is_a_whole_tables(name: str) -> None:
    assert (slice_of(name), whole_table(name), with_slice("x", name)) == (None, name, "x")


def test_a_slice_is_found_where_its_table_is_and_keeps_its_name() -> None:
    assert split_table("public.orders@tenant=a.b") == ("public", "orders")
    assert split_table("orders@tenant=a.b") == (None, "orders")
    assert split_table('"a.b"."c.d"@tenant=1') == ("a.b", "c.d")
    assert normal_table('"public"."orders"@tenant=1') == "public.orders@tenant=1"
    assert normal_table("public.orders@tenant=1") == "public.orders@tenant=1"
    assert split_table(table_spelling("a.b", "c")) == ("a.b", "c")


def test_a_part_of_a_slice_is_one_of_its_partitions() -> None:
    span = parse_span("public.orders@tenant=1~0-3")
    assert (span.table, span.partitions) == ("public.orders@tenant=1", (0, 1, 2, 3))
    assert table_of("public.orders@tenant=1~2") == "public.orders@tenant=1"


@pytest.mark.parametrize(
    ("one", "other", "shares"),
    [
        ("a.t", "a.t", True),
        ("a.t", "a.u", False),
        ("a.t", "a.t@x=1", True),
        ("a.t@x=1", "a.t", True),
        ("a.t@x=1", "a.t@x=2", False),
        ("a.t@x=a", "a.t@x=A", True),
        ("a.t@x=1", "a.t@y=2", True),
        ("a.t@x=1", "a.u@x=1", False),
        ("a.t@x=1", "a.t2", False),
    ],
)
def test_slices_share_rows_unless_their_values_differ(one: str, other: str, *, shares: bool) -> None:
    assert overlapping(one, other) is shares
    assert overlapping(other, one) is shares
    taken = TakenTables([(one, "first")])
    assert taken.clash(other) == ("first" if shares else None)


def test_of_many_slices_the_one_that_clashes_is_named() -> None:
    taken = TakenTables((f"a.t@x={number}", f"topic {number}") for number in range(100))
    assert taken.clash("a.t@x=7") == "topic 7"
    assert taken.clash("a.t@x=100") is None
    assert taken.clash("a.t") == "topic 0"
    taken.take("a.t@x=100", "topic 100")
    assert taken.clash("a.t@x=100") == "topic 100"


@pytest.mark.parametrize(
    ("value", "number"),
    [("0", 0), ("7", 7), ("-7", -7), ("9" * 15, 10**15 - 1)]
    + [(text, None) for text in ("07", "-0", "00", "1.0", "1e3", "9" * 16, "a", "-", "7_0")],
)
def test_an_integer_has_one_spelling(value: str, number: int | None) -> None:
    assert Slice("t", "tenant", value).number == number


def test_names_that_no_slice_can_have_are_told_why() -> None:
    assert why_no_column("tenant_2") is None
    assert why_no_value("tenant-2.a_B") is None
    for column in ("", "2a", "ä", "a b", 'a"', "a" * 64):
        assert "cannot name the column" in (why_no_column(column) or "")
    for value in ("", "a b", " a", "a@", "a=b", "ä", "a/b", "a~1", "x" * 65):
        assert "cannot be its value" in (why_no_value(value) or "")
