"""Names of tables: parts, dots, quotes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config.feed import FeedSpecError, parse_feed
from headgate.formats.dealing import Dealer, EventColumns
from headgate.records.identifiers import (
    NotAnIdentifierError,
    earlier_spelling,
    namesake,
    normal_table,
    parse_identifier,
    show_identifier,
    split_table,
    split_whole,
    table_spelling,
)
from headgate.records.slices import Slice, slice_of
from headgate.records.taken_tables import overlapping
from headgate.sources.topics import source_tables, table_name

TEXTS = st.text(alphabet="ab1.\"' Ä@=_-", min_size=1) | st.sampled_from(["o@t=1", "o@t=", "@t=1", "o@t=1@u=2", "t=1"])
PARTS = st.lists(TEXTS, min_size=1, max_size=3).map(tuple)
SPACES = st.none() | TEXTS
SLICES = st.tuples(
    st.from_regex(r"[a-z_][a-z0-9_]{0,3}", fullmatch=True), st.from_regex(r"[aA1_.-]{1,4}", fullmatch=True)
)


@given(PARTS)
def test_a_name_that_is_shown_is_the_name_that_is_read(parts: tuple[str, ...]) -> None:
    assert parse_identifier(show_identifier(parts)) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("sales.orders", ("sales", "orders")),
        ('"sales.eu"."or""ders"', ("sales.eu", 'or"ders')),
        ('"sales".orders', ("sales", "orders")),
        ("Odd Sch.select", ("Odd Sch", "select")),
    ],
)
def test_parts(text: str, parts: tuple[str, ...]) -> None:
    assert parse_identifier(text) == parts


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", '"a', 'a"b', '"".b', '"a"b'])
def test_what_is_no_name_is_refused_with_the_way_to_write_it(text: str) -> None:
    with pytest.raises(NotAnIdentifierError, match="in double quotes"):
        parse_identifier(text)


def test_sink_tables_are_divided_at_their_first_dot_or_by_their_quotes() -> None:
    assert split_table("raw.shop.public.orders") == ("raw", "shop.public.orders")
    assert split_table('copy."or.ders"') == ("copy", "or.ders")
    assert split_table('"or.ders"') == (None, "or.ders")
    assert split_table("orders") == (None, "orders")
    assert split_table('odd"one') == (None, 'odd"one')


FEED = """
feed: shop
source: {topics: [shop], tables: ['"sales.eu".orders', 'sales."eu.orders"', '"sales"."plain"']}
sink: {type: postgresql, dsn: host=x, table: "copy.{schema}_{table}"}
"""


def test_a_feed_names_tables_with_dots_and_each_event_finds_its_own() -> None:
    spec = parse_feed(FEED)
    assert spec.source.tables == ('"sales.eu".orders', 'sales."eu.orders"', "sales.plain")
    tables = source_tables(parse_feed(FEED.replace("copy.{schema}_{table}", "{schema}.{table}")))
    assert {sink: split_table(sink) for sink in tables} == {
        '"sales.eu".orders': ("sales.eu", "orders"),
        "sales.eu.orders": ("sales", "eu.orders"),
        "sales.plain": ("sales", "plain"),
    }
    events = [(b"1", ("sales.eu", "orders")), (b"2", ("sales", "eu.orders")), (b"3", ("sales", "eu"))]
    whose = dict(events)
    dealt = Dealer(whose.__getitem__, spec.source.tables).deal(
        EventColumns([1, 2, 3], [0, 0, 0], [None] * 3, [value for value, _ in events])
    )
    assert {table: list(columns.values) for table, columns in dealt.tables.items()} == {
        '"sales.eu".orders': [b"1"],
        'sales."eu.orders"': [b"2"],
        "sales.plain": [],
    }
    assert (dealt.passed_over, dealt.passed_over_table) == (1, "sales.eu")


def test_topics_have_no_quotes() -> None:
    assert table_name("{schema}.{table}", "shop.public.orders") == "public.orders"


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ('[a.b, \'"a"."b"\']', "a.b is listed twice"),
        ("[a.b.c]", "'a.b.c' is not a valid table name"),
        ("['public.*']", "looks like a pattern"),
        ("['a.\"b']", "in double quotes"),
    ],
)
def test_names_that_cannot_be(tables: str, said: str) -> None:
    with pytest.raises(FeedSpecError, match=said.replace("*", r"\*")):
        parse_feed(f"feed: x\nsource: {{topics: [t], tables: {tables}}}\nsink: {{type: postgresql, dsn: host=x}}")


def test_a_pattern_character_within_quotes_is_a_letter() -> None:
    spec = parse_feed("feed: x\nsource: {topics: [t], tables: ['\"a$\".b']}\nsink: {type: postgresql, dsn: host=x}")
    assert parse_identifier(spec.source.tables[0]) == ("a$", "b")


@given(SPACES, TEXTS)
def test_the_one_spelling_of_a_sink_table_gives_its_parts_back(space: str | None, table: str) -> None:
    spelling = table_spelling(space, table)
    assert split_table(spelling) == (space, table)
    assert normal_table(spelling) == spelling
    assert slice_of(spelling) is None


@given(SPACES, TEXTS, SLICES)
def test_a_slice_of_any_table_is_told_from_every_table(space: str | None, table: str, of: tuple[str, str]) -> None:
    part = Slice(table_spelling(space, table), *of)
    assert slice_of(part.text) == part
    assert split_table(part.text) == (space, table)
    assert normal_table(part.text) == part.text
    assert namesake(namesake(part.text) or "") in (part.text, None)


@given(SPACES, TEXTS)
def test_what_older_versions_stored_for_a_table_is_found_from_its_name(space: str | None, table: str) -> None:
    spelling, earlier = table_spelling(space, table), earlier_spelling(space, table)
    assert split_whole(earlier) == (space, table)
    if earlier == spelling:
        assert namesake(spelling) is None
    else:
        assert namesake(spelling) == earlier
        assert namesake(earlier) == spelling
        assert overlapping(spelling, earlier)
        assert overlapping(f"{spelling}@x=1", earlier)


@given(TEXTS)
def test_two_spellings_are_one_where_they_name_the_same_parts(name: str) -> None:
    assert split_table(normal_table(name)) == split_table(name)
    assert normal_table(normal_table(name)) == normal_table(name)
