"""Errors of options are in our words, with the nearest value."""

import pytest

from headgate.config.feed import FeedSpecError, parse_feed
from headgate.config.settings import SettingsError, load_settings

GOOD = "feed: x\nsource: {topics: [a.b]}\nsink: {type: postgresql, dsn: host=x}\n"
LIBRARY = ("Input should", "Value error", "Field required", "unable to parse", "valid tuple", "instance of")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("[a.b]", "a.b"), "source.topics: 'a.b' is not allowed: write a list, like [a, b]"),
        (
            GOOD.replace("postgresql", "postgres"),
            "sink.type: 'postgres' is unknown; did you mean 'postgresql'? Choose from",
        ),
        (GOOD + "on_bad_change: qarantine", "on_bad_change: 'qarantine' is unknown; did you mean 'quarantine'?"),
        (GOOD.replace("topics:", "format: debezium-jsn, topics:"), "did you mean 'debezium-json'?"),
        (
            GOOD.replace("topics:", "start_ts: soon, topics:"),
            "source.start_ts: soon is not a valid time. Write it in RFC 3339",
        ),
        (GOOD + "batch_rows_max: many", "batch_rows_max: 'many' is not allowed: write a whole number"),
        (GOOD + "batch_rows_max: 0", "batch_rows_max: 0 is not allowed: it must be at least 1"),
        (GOOD.replace("feed: x\n", ""), "feed: it is missing"),
        ("feed: x\nsource: 3\nsink: []", "source: 3 is not allowed: write its options below it"),
        (GOOD.replace("feed: x", "feed: 3"), "feed: 3 is not allowed: write a text"),
        (GOOD.replace("dsn:", "not_the_source: maybe, dsn:"), "'maybe' is not allowed: write true or false"),
    ],
)
def test_of_a_feed(text: str, said: str) -> None:
    with pytest.raises(FeedSpecError) as refused:
        parse_feed(text)
    assert said in str(refused.value)
    assert not [word for word in LIBRARY if word in str(refused.value)]


def test_of_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({"lease_seconds": "soon", "shards": 0, "log": {"format": "jsn"}})
    said = str(refused.value)
    assert "--lease-seconds: 'soon' is not allowed: write a number" in said
    assert "--shards: 0 is not allowed: it must be at least 1" in said
    assert "--log-format: 'jsn' is unknown; did you mean 'json'?" in said
    assert not [word for word in LIBRARY if word in said]
