"""How long dead letters are kept."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from headgate.config.feed import FeedSpecError, parse_feed
from headgate.coordinator.shell.retention import DAY_MS, DEFAULT_DAYS, DeadLetterRetention, expired
from headgate.eventlog.dead_letters import DeadLetters
from headgate.records.control import ChangeQuarantined, Epoch
from headgate.records.keys import DeadLetterKey
from headgate.supervision.threads import SUPERVISOR

NOW_MS = 100 * DAY_MS
FEED = "{feed: shop, source: {topics: [a]}, sink: {type: postgresql, dsn: host=db}, deadletter_retention_days: %s}"


def letters(**days_old: int) -> DeadLetters:
    """One dead letter per feed."""
    found = DeadLetters(0, 0)
    for feed, days in days_old.items():
        letter = ChangeQuarantined("f1", 0, Epoch(1, 1), "sink", "", None, b"", (), 0, NOW_MS - days * DAY_MS - 1)
        found.current[DeadLetterKey(feed, "t", "topic", 0, 0)] = letter
    return found


def feeds_expired(found: DeadLetters, days: dict[str, int | None]) -> set[str]:
    return {key.feed for key in expired(found, days, NOW_MS)}


def test_each_feed_has_a_retention_of_its_own() -> None:
    found = letters(young=6, week=7, ever=99)
    assert feeds_expired(found, {"young": 7, "week": 7, "ever": None}) == {"week"}


def test_dead_letters_of_a_feed_that_was_deleted_are_kept_for_the_default() -> None:
    assert DEFAULT_DAYS == 30
    assert feeds_expired(letters(gone=30, lately=29), {}) == {"gone"}


@pytest.mark.parametrize(("given", "days"), [("7", 7), ("null", None)])
def test_the_option(given: str, days: int | None) -> None:
    spec = parse_feed(FEED % given)
    assert spec.deadletter_retention_days == days
    assert parse_feed(spec.to_json()) == spec


def test_a_retention_of_less_than_a_day_is_refused() -> None:
    with pytest.raises(FeedSpecError, match="deadletter_retention_days"):
        parse_feed(FEED % "0")


@pytest.fixture
def crashes() -> Iterator[None]:
    """Crashes that a test causes on purpose, which fail no other test."""
    yield
    SUPERVISOR.reset()


@pytest.mark.usefixtures("crashes")
def test_a_crash_is_counted_and_keeps_neither_another_shard_nor_the_next_sweep_from_running() -> None:
    asked = []

    def why_not() -> str | None:
        asked.append(len(asked))
        if len(asked) == 1:
            raise RuntimeError("made up")
        return "there is nothing to do"

    retention = DeadLetterRetention(cast("Any", None), lambda: [0, 1], why_not, lambda: NOW_MS)
    retention.sweep_all()
    retention.sweep_all()
    assert len(asked) == 4, "two shards in each of two sweeps"
    assert SUPERVISOR.counts["deadletter-sweep"] == 1
    assert SUPERVISOR.fatal == ()
