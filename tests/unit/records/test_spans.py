"""Names of spans: one grammar, one spelling, and plans that follow from names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.records.control import SpanPlan
from headgate.records.keys import SpanKey
from headgate.records.registry import parse_key
from headgate.records.spans import SpanName, divide, overlap, parse_span, plan_of, table_of, unite

WHOLE = SpanPlan("shop.orders", "db.shop.orders", "shop.orders", {0: 5, 1: 6, 2: 7, 3: 8, 4: 9})

tables = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
partition_sets = st.sets(st.integers(0, 40), min_size=1).map(lambda found: tuple(sorted(found)))


@pytest.mark.parametrize(
    ("text", "table", "partitions"),
    [
        ("shop.orders", "shop.orders", None),
        ("shop.orders~0", "shop.orders", (0,)),
        ("shop.orders~0-3.6", "shop.orders", (0, 1, 2, 3, 6)),
        ("a~b~2", "a~b", (2,)),
    ],
)
def test_a_name_says_table_and_partitions(text: str, table: str, partitions: tuple[int, ...] | None) -> None:
    assert parse_span(text) == SpanName(table, partitions)
    assert table_of(text) == table


@pytest.mark.parametrize(
    "text", ["t~", "~1", "t~1.0", "t~0.1", "t~01", "t~1-1", "t~3-2", "t~0-99999999999", "t~1.x", "t~1.", "t~-1"]
)
def test_what_is_not_the_one_spelling_is_a_table(text: str) -> None:
    assert parse_span(text) == SpanName(text)


@given(tables, st.none() | partition_sets)
def test_a_part_printed_is_the_part_read(table: str, partitions: tuple[int, ...] | None) -> None:
    name = SpanName(table, partitions)
    if partitions is not None:
        assert parse_span(name.text()) == name
    assert parse_span(parse_span(name.text()).text()) == parse_span(name.text())


@given(tables)
def test_every_text_is_given_back(text: str) -> None:
    assert parse_span(text).text() == text


@given(partition_sets, partition_sets)
def test_spans_overlap_if_they_share_a_partition(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    one, other = SpanName("t", left).text(), SpanName("t", right).text()
    assert overlap(one, other) == overlap(other, one) == bool(set(left) & set(right))
    assert overlap("t", one)
    assert not overlap("u", one)


def test_a_part_has_a_key_that_people_can_read() -> None:
    key = SpanKey("shop", "shop.orders~0-3.6")
    assert key.text() == "shop/shop.orders~0-3.6"
    assert parse_key("dispatch", key.text()) == key


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_parts_cover_every_partition_once(parts: int) -> None:
    plans = divide(WHOLE, parts)
    assert len(plans) == parts
    assert sorted(partition for plan in plans for partition in plan.start) == [0, 1, 2, 3, 4]
    assert max(len(plan.start) for plan in plans) - min(len(plan.start) for plan in plans) <= 1
    assert unite(plans) == WHOLE


@pytest.mark.parametrize("parts", [-1, 0, 1, 6])
def test_a_table_has_no_more_parts_than_partitions(parts: int) -> None:
    with pytest.raises(ValueError, match="5 partitions cannot be divided"):
        divide(WHOLE, parts)


def test_a_plan_follows_from_its_name_however_the_table_is_divided() -> None:
    halves, thirds = divide(WHOLE, 2), divide(WHOLE, 3)
    other = SpanPlan("shop.order", "db.shop.order", "shop.order", {0: 1})
    for plans in ((WHOLE, other), (*halves, other), (*thirds, other)):
        assert plan_of(plans, "shop.orders") == WHOLE
        assert [plan_of(plans, half.span) for half in halves] == list(halves)
    assert plan_of((WHOLE,), "shop.orders~4-5") is None
    assert plan_of((other,), "shop.orders") is None
