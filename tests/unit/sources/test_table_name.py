"""From a topic's name to a table's."""

import pytest

from headgate.config.feed import FeedSpec, parse_feed
from headgate.records.identifiers import normal_table, show_identifier, split_table
from headgate.sources.topics import TableClashError, TableNameError, sink_table, source_tables, table_name


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


def into(column_value: str, table: str = "shop.{table}", source: str = "topic_pattern: '.*'") -> FeedSpec:
    entry = f"into: {{table: '{table}', discriminator: {{tenant: '{column_value}'}}}}"
    return parse_feed(
        f"feed: f\nsource: {{{source}}}\nsink: {{type: postgresql, dsn: dbname=x}}\ntables: {{'*.*': {{{entry}}}}}"
    )


@pytest.mark.parametrize(
    ("value", "topic", "slice_"),
    [
        ("1", "x.t1.orders", "shop.orders@tenant=1"),
        ("{schema}", "x.t1.orders", "shop.orders@tenant=t1"),
        ("{table}-{schema}", "x.t1.orders", "shop.orders@tenant=orders-t1"),
        ("{prefix}", "eu.a.t1.orders", "shop.orders@tenant=eu.a"),
        ("{topic}", "x.t1.orders", "shop.orders@tenant=x.t1.orders"),
    ],
)
def test_a_source_goes_to_the_slice_of_its_discriminator(value: str, topic: str, slice_: str) -> None:
    assert sink_table(into(value), topic) == slice_


@pytest.mark.parametrize(
    ("value", "topic", "why"),
    [
        ("{prefix}", "t1.orders", r"needs a \{prefix\}, which the name of topic 't1\.orders' does not have"),
        ("{schema}", "orders", r"needs a \{schema\}|needs a \{table\}"),
        ("{database}", "x.t1.orders", r"choose from \{schema\}, \{table\}, \{topic\}, \{prefix\}"),
        ("a b", "x.t1.orders", "'a b' cannot be its value"),
        ("{topic}", f"x.{'t' * 60}.orders", "cannot be its value. Use 1 to 64 letters"),
    ],
)
def test_a_discriminator_without_a_value_is_refused(value: str, topic: str, why: str) -> None:
    spec = into(value)
    with pytest.raises(TableNameError, match=why):
        sink_table(spec, topic) if "." in topic else sink_table(
            parse_feed(spec.to_json().replace('"*.*"', '"*"')), topic
        )


def test_a_table_whose_name_reads_like_a_slice_is_written_in_quotes() -> None:
    assert table_name("public.orders@tenant=1", "a.b") == 'public."orders@tenant=1"'
    assert table_name('public."orders@tenant=1"', "a.b") == 'public."orders@tenant=1"'
    spec = parse_feed("{feed: f, source: {topics: [t], tables: [s.o@t=1, s.o]}, sink: {type: postgresql, dsn: host=x}}")
    assert source_tables(spec) == {'s."o@t=1"': 's."o@t=1"', "s.o": "s.o"}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("1", "nothing keeps their rows apart: tenant is '1' for one"),
        ("{table}", "both go to"),
    ],
)
def test_tables_of_one_topic_with_one_discriminator_are_refused(value: str, why: str) -> None:
    source = "topics: [x.y], tables: [public.a, sales.a]"
    assert list(source_tables(into("{schema}", source=source))) == ["shop.a@tenant=public", "shop.a@tenant=sales"]
    with pytest.raises(TableClashError, match=why):
        source_tables(into(value, source=source))
