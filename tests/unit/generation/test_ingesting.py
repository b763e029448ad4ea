"""Whose writer a partition is, and how a record is named."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from headgate.generation.changelog.core.ingesting import keyless, writer_of
from headgate.generation.changelog.shell.ingest_metrics import IngestMetrics
from headgate.generation.changelog.shell.wire import (
    ReservedHeaderError,
    change_headers,
    check_headers,
    given_headers,
    writer_in,
)
from headgate.records.places import LogPosition, PlaceError


def test_a_record_is_named_as_it_is_read() -> None:
    place = LogPosition("shop.orders", 3, 1204)
    assert str(place) == "shop.orders/3/1204"
    assert LogPosition.parse(str(place)) == place


@pytest.mark.parametrize("text", ["", "shop", "shop/3", "shop/3/", "shop/x/1", "shop/3/-1", "a/b/3/1", " shop/3/1"])
def test_what_names_no_record_is_refused(text: str) -> None:
    with pytest.raises(PlaceError, match="TOPIC/PARTITION/OFFSET"):
        LogPosition.parse(text)


def test_two_sources_never_have_one_writer() -> None:
    sources = [
        ("a", "t", 1, "X"),
        ("a", "t", 11, "X"),
        ("a", "t", 1, "Y"),
        ("b", "t", 1, "X"),
        ("a", "t1", 1, "X"),
        ("a", "t", 1, None),
    ]
    assert len({writer_of(*source) for source in sources}) == len(sources)


def test_a_record_without_a_key_is_told_with_its_place_and_what_to_do() -> None:
    said = keyless(LogPosition("shop", 2, 7))
    assert "topic shop, partition 2, offset 7" in said
    assert "--skip shop/2/7" in said


def test_headers_of_a_change_and_ours_are_told_apart() -> None:
    given = (("trace", b"1"), ("trace", None))
    check_headers(given)
    both = [*given, *change_headers("w", 5)]
    assert given_headers(both) == given
    assert writer_in(both) == ("w", 5)
    with pytest.raises(ReservedHeaderError, match="headgate-position, headgate-writer"):
        check_headers(both)


def test_figures_are_shown_by_topic() -> None:
    registry = CollectorRegistry()
    IngestMetrics(registry, ["shop"]).topics["shop"].changes = 4
    assert b'headgate_ingest_changes_total{topic="shop"} 4.0' in generate_latest(registry)


def test_a_topic_that_is_not_known_to_be_behind_does_not_say_that_all_is_written() -> None:
    registry = CollectorRegistry()
    figures = IngestMetrics(registry, ["shop"]).topics["shop"]

    def behind() -> float | None:
        return registry.get_sample_value("headgate_ingest_behind_records", {"topic": "shop"})

    assert behind() is None
    figures.behind = 0
    assert behind() == 0
