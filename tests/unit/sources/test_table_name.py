"""From a topic's name to a table's."""

import pytest

from headgate.config.feed import FeedSpec, parse_feed
from headgate.records.identifiers import normal_table, show_identifier, split_table
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


@pytest.mark.parametrize("template", ["{schema}.{table}", "copy.{schema}_{table}", "{topic}", "{schema}_{table}"])
@pytest.mark.parametrize("schema", ["public", "sales.eu", 'S"q', "Ünï Code", "a{b}", '"'])
@pytest.mark.parametrize("table", ["orders", "Or.Ders", 'or"ders', '"', "a{schema}b", "x*"])
def test_dots_quotes_and_case_of_a_name_stay_in_the_part_that_they_are_put_into(
    template: str, schema: str, table: str
) -> None:
    """Whatever the names are, they are found again in the sink table's parts, and no other part comes of them."""
    name = table_name(template, "shop.topic", show_identifier([schema, table]))
    assert (
        split_table(name)
        == {
            "{schema}.{table}": (schema, table),
            "copy.{schema}_{table}": ("copy", f"{schema}_{table}"),
            "{schema}_{table}": (None, f"{schema}_{table}"),
            "{topic}": ("shop", "topic"),
        }[template]
    )
    assert normal_table(name) == name, "it is the one spelling"


@pytest.mark.parametrize(
    ("template", "space", "table"),
    [
        ('"my.schema".{table}', "my.schema", 'o"r.ders'),
        ('copy."{schema}.{table}"', "copy", 'S.1.o"r.ders'),
        ('"{schema}.{table}"', None, 'S.1.o"r.ders'),
        ("{{x}}.{table}", "{x}", 'o"r.ders'),
    ],
)
def test_quotes_and_braces_of_the_template_are_its_own(template: str, space: str | None, table: str) -> None:
    assert split_table(table_name(template, "t", '"S.1"."o""r.ders"')) == (space, table)


@pytest.mark.parametrize("template", ["{database}.x", "{table.__class__}", "{table!r}", "{table:>9}"])
def test_other_placeholders_are_refused(template: str) -> None:
    with pytest.raises(TableNameError, match=r"choose from \{schema\}"):
        table_name(template, "a.b")


def test_broken_template() -> None:
    with pytest.raises(TableNameError, match="is not a valid template"):
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
