"""Expressions as people write them: what is taken, and what is refused with what to do."""

import pytest

from headgate.config.expressions import ALLOWED, DEPTH_MAX, Call, ColumnReference, ExpressionError, parse_expression
from headgate.config.feed import FeedSpec, FeedSpecError, parse_feed
from headgate.config.feed_differences import differences

FEED = "feed: f\nsource: {topics: [t.public.a, t.public.b]}\nsink: {type: postgresql, dsn: dbname=x}\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the expression is empty. Write a condition"),
        ("  ", "the expression is empty"),
        ("a = 'x", "cannot be parsed. Check its quotes"),
        ("a = ", "cannot be parsed at character"),
        ("a = = 1", "cannot be parsed at character 5"),
        ("a = 1; b = 2", "only one expression is allowed"),
        *(
            (f"a > TIMESTAMP '{text}'", "is not a valid timestamp: it is not a timestamp like 2026-01-31 12:00:00")
            for text in ("2026-W05-6", "2026-01-31 12:00:00.1234567", "2026-01-31x12:00", "2026-01-31 12:00:00,5")
        ),
        ("SELECT 1", "'SELECT 1' is not allowed in an expression"),
        ("a IN (SELECT 1)", "is not allowed in an expression"),
        ("NOW() > a", "'CURRENT_TIMESTAMP' is not allowed"),
        ("a ~ 'x'", "\"a ~ 'x'\" is not allowed"),
        ("a ILIKE 'x'", "is not allowed"),
        ("a LIKE b", "LIKE with anything but a text in quotes"),
        ("a LIKE 'x!_' ESCAPE '!'", "is not allowed"),
        ("a LIKE 'x\\'", "cannot end with a backslash"),
        ("a = 'x' COLLATE \"C\"", "is not allowed"),
        ("a = NULL", "= NULL is never true. Write IS NULL"),
        ("a <> NULL", "<> NULL is never true. Write IS NULL or IS NOT NULL"),
        ("a < b < c", "'a < b' is a condition within another operator. Put it in brackets"),
        ("t.a = 1", "'t.a' is not allowed"),
        ("a IS TRUE", "IS with anything but NULL"),
        ("CAST(a AS VARCHAR(5)) = 'x'", r"CAST to VARCHAR(5) is not allowed"),
        ("CAST(a AS FLOAT) > 1", "is not allowed"),
        ("CAST(a AS NUMERIC(2, 3)) > 1", "NUMERIC(2,3): the precision must be 1 to 1000"),
        ("TRY_CAST(a AS INTEGER) > 1", "is not allowed"),
        ("a > DATE '2026-02-30'", "DATE '2026-02-30' is not a valid date"),
        ("a > TIMESTAMP '2026-02-01 00:00:00+00'", "is not a valid timestamp: it has an offset"),
        ("a > TIMESTAMPTZ '2026-02-01 00:00:00'", "is not a valid timestamptz: it has no offset like +00"),
        ("a > INTERVAL '1 day'", "is not allowed"),
        ("a = ?", "'?' is not allowed"),
        ("`a` = 1", "cannot be parsed at character"),
        ("1e9999 > a", "is not allowed"),
        ("a = " + "1" * 2000, "a number has more than 1000 digits"),
        ("x" * 5000, "at most 4000 are allowed"),
        ("NOT " * 100 + "a", f"more than {DEPTH_MAX} levels"),
        ("(" * 1900 + "a" + ")" * 1900, "levels"),
        ("a IN (" + ", ".join("1" * 600) + ")", "more than 500 parts"),
    ],
)
def test_what_is_not_in_the_subset_is_refused(text: str, why: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        parse_expression(text)
    assert why in str(refused.value)
    if "is not allowed in" in why:
        assert ALLOWED in str(refused.value)


def test_a_long_chain_is_one_level() -> None:
    chain = parse_expression(" OR ".join(f"a = {number}" for number in range(100)))
    assert isinstance(chain, Call)
    assert len(chain.operands) == 100


def test_names_are_those_of_the_source_in_their_case() -> None:
    assert parse_expression("Status") == ColumnReference("Status")
    assert parse_expression('"Order Id"') == ColumnReference("Order Id")


def test_a_feed_with_a_wrong_filter_is_refused_with_its_option() -> None:
    with pytest.raises(FeedSpecError, match=r"^where: .*'CURRENT_DATE' is not allowed"):
        parse_feed(FEED + "where: a > CURRENT_DATE")
    with pytest.raises(FeedSpecError, match=r"tables\.public\.a\.where: .*IS NULL"):
        parse_feed(FEED + "tables: {public.a: {where: a = NULL}}")
    with pytest.raises(FeedSpecError, match="where"):
        parse_feed(FEED + "where: true")
    with pytest.raises(FeedSpecError, match="did you mean 'where'"):
        parse_feed(FEED + "wher: a = 1")


def test_a_tables_filter_takes_the_place_of_the_feeds() -> None:
    spec = parse_feed(FEED + "where: a = 1\ntables: {public.a: {where: 'TRUE'}}")
    assert [spec.for_table(topic).where for topic in ("t.public.a", "t.public.b")] == ["TRUE", "a = 1"]
    assert (spec.hides, spec.shapes) == (True, True)
    assert not parse_feed(FEED).shapes
    assert FeedSpec.model_validate_json(spec.to_json()) == spec


def test_an_update_shows_the_filter() -> None:
    shown = differences(parse_feed(FEED), parse_feed(FEED + "where: a = 1"))
    assert [(each.option, each.before, each.after) for each in shown] == [("where", None, "a = 1")]
