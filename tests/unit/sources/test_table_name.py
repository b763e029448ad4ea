"""From a topic's name to a table's."""

import pytest

from headgate.config.feed import FeedSpec, parse_feed
from headgate.sources.topics import TableClashError, TableNameError, source_tables, table_name


@pytest.mark.parametrize(
    ("template", "topic", "table"),
    [
        ("{schema}.{table}", "shop.public.orders", "public.orders"),
        ("copy.{table}", "orders", "copy.orders"),
        ("{schema}.{table}_copy", "a.b", "a.b_copy"),
        ("raw.{topic}", "shop.public.orders", "raw.shop.public.orders"),
        ("fixed", "shop.public.orders", "fixed"),
    ],
)
def test_last_two_parts(template: str, topic: str, table: str) -> None:
    assert table_name(template, topic) == table


def test_one_part_has_no_schema() -> None:
    with pytest.raises(TableNameError, match=r"needs a \{schema\}, but the topic's name 'orders'"):
        table_name("{schema}.{table}", "orders")


@pytest.mark.parametrize("template", ["{database}.x", "{table.__class__}", "{table!r}", "{table:>9}"])
def test_other_placeholders_are_refused(template: str) -> None:
    with pytest.raises(TableNameError, match=r"known are \{schema\}"):
        table_name(template, "a.b")


def test_broken_template() -> None:
    with pytest.raises(TableNameError, match="is no template"):
        table_name("{schema", "a.b")


@pytest.mark.parametrize(
    ("template", "tables"),
    [
        ("{schema}.{table}", {"public.a": "public.a", "sales.a": "sales.a"}),
        ("copy.{schema}_{table}", {"copy.public_a": "public.a", "copy.sales_a": "sales.a"}),
    ],
)
def test_tables_of_one_topic_are_named_by_their_own_names(template: str, tables: dict[str, str]) -> None:
    assert source_tables(several(template)) == tables


def several(template: str) -> FeedSpec:
    source = "source: {topics: [x.y], tables: [public.a, sales.a]}"
    return parse_feed(f"feed: f\n{source}\nsink: {{type: postgresql, dsn: dbname=x, table: '{template}'}}")


@pytest.mark.parametrize("template", ["{table}", "public.{table}", "{topic}", "fixed"])
def test_two_tables_of_a_topic_that_go_to_one_are_refused(template: str) -> None:
    with pytest.raises(TableClashError, match=r"public\.a and sales\.a of source\.tables both go to table"):
        source_tables(several(template))
