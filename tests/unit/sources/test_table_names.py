"""Which table of the source a topic's changes are of."""

import pytest

from headgate.config.feed import FeedSpec
from headgate.sources.table_names import source_table

THERE = {"public.orders"}
SAID = {"x.Odd_Sch.select": "Odd Sch.select"}


def feed(**source: object) -> FeedSpec:
    return FeedSpec.model_validate(
        {"feed": "f", "source": {"topics": ["x"]} | source, "sink": {"type": "postgresql", "dsn": "dbname=x"}}
    )


@pytest.mark.parametrize(
    ("source", "table", "topic", "found"),
    [
        ({}, "copy.orders", "x.public.orders", "public.orders"),
        ({}, "copy.select", "x.Odd_Sch.select", "Odd Sch.select"),
        ({}, "copy.other", "x.public.other", None),
        ({"topics": ["y"], "topic_tables": {"y": "a.b"}}, "copy.b", "y", "a.b"),
        ({"topics": ["y"], "tables": ["shop.a", "shop.b"]}, "shop.b", "y", "shop.b"),
    ],
)
def test_by_the_feed_by_the_topic_and_by_the_events(
    source: dict[str, object], table: str, topic: str, found: str | None
) -> None:
    assert source_table(feed(**source), table, topic, has=THERE.__contains__, said=SAID.get) == found
