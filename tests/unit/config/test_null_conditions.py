"""Conditions that NULL keeps from ever being true: refused in a new feed, kept in a feed that has them."""

import pytest

from headgate.config.expressions import parse_expression
from headgate.config.feed import FeedSpecError, parse_feed
from headgate.config.null_conditions import check_null_conditions, null_condition

FEED = "feed: f\nsource: {topics: [t.public.a, t.public.b]}\nsink: {type: postgresql, dsn: dbname=x}\n"
NOT_IN = "NOT IN a list with NULL is never true"
COMPARED = "BETWEEN and CASE … WHEN with NULL are never true"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a NOT IN (1, NULL)", NOT_IN),
        ("NOT (a IN (1, NULL))", NOT_IN),
        ("NOT ((a IN (1, NULL)))", NOT_IN),
        ("b = 1 AND a NOT IN (1, NULL)", NOT_IN),
        ("a IN (NULL)", "IN a list of NULL is never true. Write IS NULL"),
        ("NULL NOT IN (1, 2)", "NULL IN and NULL NOT IN are never true. Write a column"),
        ("NULL IN (1, 2)", "NULL IN and NULL NOT IN are never true"),
        ("a BETWEEN 1 AND NULL", COMPARED),
        ("a BETWEEN NULL AND 1", COMPARED),
        ("CASE a WHEN NULL THEN TRUE ELSE FALSE END", COMPARED),
        ("CASE NULL WHEN 1 THEN TRUE ELSE FALSE END", COMPARED),
    ],
)
def test_a_condition_that_is_never_true_is_refused(text: str, why: str) -> None:
    assert why in (null_condition(parse_expression(text)) or "")


@pytest.mark.parametrize(
    "text",
    [
        "a IN (1, NULL)",
        "a NOT IN (1, 2)",
        "NOT (a IS NULL)",
        "CASE WHEN a IS NULL THEN TRUE ELSE NULL END",
        "COALESCE(a, NULL) = 1",
    ],
)
def test_null_where_it_does_no_harm_is_taken(text: str) -> None:
    assert null_condition(parse_expression(text)) is None


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ("where: a NOT IN (1, NULL)", "where"),
        ('columns: {set: {b: "a NOT IN (1, NULL)"}}', "columns.set.b"),
        ('tables: {public.a: {where: "a NOT IN (1, NULL)"}}', "tables.public.a.where"),
        ('tables: {public.a: {columns: {set: {b: "a NOT IN (1, NULL)"}}}}', "tables.public.a.columns.set.b"),
    ],
)
def test_it_is_refused_by_its_option_unless_the_feed_has_it(options: str, option: str) -> None:
    spec = parse_feed(FEED + options)
    with pytest.raises(FeedSpecError, match=f"^{option}: NOT IN"):
        check_null_conditions(spec)
    with pytest.raises(FeedSpecError, match=f"^{option}: NOT IN"):
        check_null_conditions(spec, parse_feed(FEED))
    check_null_conditions(spec, spec)
