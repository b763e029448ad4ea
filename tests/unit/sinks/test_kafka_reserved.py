"""Topics that a Kafka sink never takes as tables."""

import pytest

from headgate.sinks.contract import FeedIdentity, SinkRefusedError
from headgate.sinks.kafka.reserved import check_not_reserved

SHOP = FeedIdentity("abc/headgate.", "0-7", "shop")


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("headgate.changefeed", "control topics"),
        ("headgate-sink-progress", "positions of Kafka sinks"),
        ("__consumer_offsets", "brokers' own"),
    ],
)
def test_topics_with_state_of_others_are_refused(topic: str, why: str) -> None:
    with pytest.raises(SinkRefusedError, match=rf"topic {topic} .*{why}.*sink\.table"):
        check_not_reserved(topic, SHOP, "abc", "headgate-sink-progress")


@pytest.mark.parametrize(("topic", "cluster"), [("headgate.orders", "other"), ("public.orders", "abc")])
def test_other_topics_are_taken(topic: str, cluster: str) -> None:
    check_not_reserved(topic, SHOP, cluster, "headgate-sink-progress")
