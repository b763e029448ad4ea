"""From a topic's name to a table's."""

import pytest

from headgate.sources.topics import TableNameError, table_name


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
