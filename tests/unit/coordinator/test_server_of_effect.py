"""What an effect may have to wait for, by which effects share the coordinator's threads."""

import json

import pytest

from headgate.config.feed import parse_feed
from headgate.coordinator.core.effects import DiscoverTables, ForgetFeed, ResolveFeed, ResolveStart
from headgate.coordinator.shell.effect_runner import late_ms, server_of_effect

SPEC = json.dumps(
    {"feed": "shop", "source": {"topics": ["t"]}, "sink": {"type": "postgresql", "dsn": "host=DB dbname=d"}}
)


@pytest.mark.parametrize(
    "effect",
    [
        ResolveFeed(request="r", feed="shop", spec=SPEC),
        ResolveStart(request="r", feed="shop", start="1", spans=(), spec=SPEC),
        DiscoverTables(feed="shop", feed_id="0-1", spec=SPEC, spans=()),
        ForgetFeed(feed="shop", feed_id="0-1", spec=SPEC),
    ],
    ids=lambda effect: type(effect).__name__,
)
def test_it_is_the_sinks_server(effect: object) -> None:
    assert server_of_effect(effect) == "db:5432"


@pytest.mark.parametrize("spec", ["{", SPEC.replace("host=DB", "hots=DB"), SPEC.replace("postgresql", "postgres")])
def test_a_description_that_says_none_shares_with_its_like(spec: str) -> None:
    assert server_of_effect(ForgetFeed(feed="shop", feed_id="0-1", spec=spec)) == ""


@pytest.mark.parametrize(
    ("sink", "seconds"), [("type: postgresql, dsn: dbname=x", 10), ("type: delta, dsn: 'file:///lake'", 70)]
)
def test_a_change_is_late_if_it_waits_for_longer_than_its_sinks_interval(sink: str, seconds: int) -> None:
    spec = parse_feed(f"{{feed: f, source: {{topics: [t]}}, sink: {{{sink}}}}}")
    assert late_ms(spec) == seconds * 1000
    spec = parse_feed(f"{{feed: f, source: {{topics: [t], tables: [a.b]}}, sink: {{{sink}}}}}")
    assert late_ms(spec) == (seconds + 20) * 1000
