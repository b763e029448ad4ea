"""How a feed wants topics to be created."""

import pytest

from headgate.config.feed import FeedSpecError, parse_feed
from headgate.config.sink_spec import SinkSpec

FEED = """
feed: shop
source: {{topics: [shop.public.orders]}}
sink: {{type: kafka, dsn: 'kafka://broker:9092', topic: {topic}}}
"""


def parsed(topic: str) -> SinkSpec:
    return parse_feed(FEED.format(topic=topic)).sink


def test_settings_are_texts_as_kafka_takes_them() -> None:
    given = "{partitions: 6, replication_factor: 3, config: {retention.ms: 60000, preallocate: true}}"
    topic = parsed(given).topic
    assert (topic.partitions, topic.replication_factor) == (6, 3)
    assert topic.config == {"retention.ms": "60000", "preallocate": "true"}


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("{partitions: 0}", r"sink\.topic\.partitions"),
        ("{partitons: 6}", "did you mean 'partitions'"),
        ("{config: {retention.ms: [1]}}", r"retention\.ms must be a text, a number, true or false"),
        ("{config: compact}", r"sink\.topic\.config"),
    ],
)
def test_what_is_wrong_is_named(topic: str, why: str) -> None:
    with pytest.raises(FeedSpecError, match=why):
        parsed(topic)


def test_databases_have_no_topics() -> None:
    with pytest.raises(FeedSpecError, match=r"sink\.topic cannot be used with sinks of type postgresql"):
        parse_feed(FEED.format(topic="{partitions: 6}").replace("type: kafka", "type: postgresql"))
