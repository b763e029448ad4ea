"""What is said of a connector by the time of its last heartbeat, and of which topics that is asked."""

import pytest

from headgate.sources.heartbeats import Heartbeats, _beside, _heartbeats

TOPIC = "__debezium-heartbeat.shop"
NOW_MS = 1_767_000_000_000


@pytest.mark.parametrize(
    ("seconds", "every", "is_silent"),
    [
        (59, 10, False),
        (61, 10, True),
        (61, 300, False),
        (901, 300, True),
        (-5, 10, False),
        (9000, None, False),
    ],
)
def test_a_connector_is_silent_after_three_heartbeats_or_a_minute(
    seconds: int, every: int | None, is_silent: bool
) -> None:
    found = Heartbeats(TOPIC, NOW_MS - seconds * 1000, None if every is None else every * 1000)
    assert bool(found.why_silent(NOW_MS)) == is_silent


def test_what_is_said_names_topic_age_and_interval() -> None:
    assert Heartbeats(TOPIC, NOW_MS - 125_000, 10_000).why_silent(NOW_MS) == (
        f"its last heartbeat on topic {TOPIC} was written 125 s ago, and one came every 10 s"
    )
    assert "has none any more" in Heartbeats(TOPIC, None, None).why_silent(NOW_MS)


@pytest.mark.parametrize(("times", "every_ms"), [([7], None), ([0, 10, 20, 9000, 9010], 10), ([0, 0, 0, 500], 0)])
def test_a_pause_among_them_is_not_their_interval(times: list[int], every_ms: int | None) -> None:
    assert _heartbeats(TOPIC, times) == Heartbeats(TOPIC, times[-1], every_ms)


def test_heartbeats_are_those_of_the_topics_prefix() -> None:
    present = {f"__debezium-heartbeat.{name}": 1 for name in ("shop", "shop.eu", "sho", "other")}
    present |= {"shop.public.t": 3, "__debezium-heartbeat": 1}
    assert list(_beside(present, ["shop.public.t"])) == ["__debezium-heartbeat.shop"]
    assert list(_beside(present, ["shop.eu.public.t", "other.db.t"])) == [
        "__debezium-heartbeat.other",
        "__debezium-heartbeat.shop.eu",
    ]
    assert _beside(present, ["routed"]) == {}
