"""What a feed into lake tables may say, and what is refused with a reason."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headgate.config.feed import FeedSpec, FeedSpecError, parse_feed
from headgate.sinks.maintaining import Upkeep, upkeep_of


def parsed(type_: str = "delta", **sink: Any) -> FeedSpec:
    dsn = {
        "delta": "file:///lake",
        "iceberg": "sqlite:////lake/c.db",
        "kafka": "kafka://broker:9092",
        "postgresql": "host=db dbname=shop",
    }[type_]
    spec = {"feed": "shop", "source": {"topics": ["shop.public.orders"]}, "sink": {"type": type_, "dsn": dsn, **sink}}
    return parse_feed(msgspec.json.encode(spec).decode())


@pytest.mark.parametrize("type_", ["delta", "iceberg"])
def test_a_table_is_committed_to_once_a_minute_by_default(type_: str) -> None:
    assert parsed(type_).commit_interval_seconds == 60
    assert "commit_interval_seconds" not in parsed(type_).to_json()


def test_a_typing_error_in_the_type_names_the_sink() -> None:
    with pytest.raises(FeedSpecError, match="did you mean 'iceberg'"):
        parse_feed('{"feed": "shop", "source": {"topics": ["a.b"]}, "sink": {"type": "iceburg", "dsn": "x"}}')


@pytest.mark.parametrize("seconds", [1, 12.5, 900])
def test_the_interval_can_be_chosen(seconds: float) -> None:
    given = parsed(commit_interval_seconds=seconds)
    assert given.commit_interval_seconds == seconds
    assert parse_feed(given.to_json()).commit_interval_seconds == seconds


@pytest.mark.parametrize(
    ("seconds", "why"),
    [(0, "at least 1"), (0.5, "at least 1"), (-1, "at least 1"), (901, "at most 900"), ("soon", "write a number")],
)
def test_another_interval_is_refused(seconds: object, why: str) -> None:
    with pytest.raises(FeedSpecError, match=rf"sink\.commit_interval_seconds: .* is not allowed: .*{why}"):
        parsed(commit_interval_seconds=seconds)


@pytest.mark.parametrize("type_", ["postgresql", "kafka"])
def test_sinks_that_are_committed_to_at_once_have_none(type_: str) -> None:
    assert parsed(type_).commit_interval_seconds == 0
    with pytest.raises(FeedSpecError, match=rf"commit_interval_seconds cannot be used with sinks of type {type_}"):
        parsed(type_, commit_interval_seconds=60)


def test_tables_are_created_where_the_source_defines_them() -> None:
    source = {"topics": ["shop.public.orders"], "database": {"dsn": "postgresql://reader@db/shop"}}
    for tables, creates in ((None, True), ("create", True), ("existing", False)):
        sink = {"type": "delta", "dsn": "file:///lake"} | ({} if tables is None else {"tables": tables})
        spec = parse_feed(msgspec.json.encode({"feed": "shop", "source": source, "sink": sink}).decode())
        assert spec.creates_tables == creates
    assert not parsed().creates_tables
    assert parsed(tables="create").creates_tables, "by the schemas of events"


@pytest.mark.parametrize("type_", ["delta", "iceberg"])
def test_tables_are_altered_by_the_sources_catalogue_only(type_: str) -> None:
    with pytest.raises(FeedSpecError, match=r"sink\.tables: evolve needs the tables' definitions\. Name the database"):
        parsed(type_, tables="evolve")


@pytest.mark.parametrize("type_", ["delta", "iceberg"])
@pytest.mark.parametrize(("option", "value"), [("keyless", "append"), ("unique_keys", "create"), ("rounding", "allow")])
def test_an_option_of_databases_is_refused(type_: str, option: str, value: str) -> None:
    with pytest.raises(FeedSpecError, match=rf"sink\.{option} cannot be used with sinks of type {type_}"):
        parsed(type_, **{option: value})


def test_a_typing_error_names_the_option() -> None:
    with pytest.raises(FeedSpecError, match="commit_interval_seconds"):
        parsed(commit_interval_second=60)


@pytest.mark.parametrize("type_", ["delta", "iceberg"])
def test_a_table_is_maintained_once_a_day_and_versions_are_kept_for_a_week(type_: str) -> None:
    assert upkeep_of(parsed(type_).sink.maintenance) == Upkeep(128 << 20, timedelta(days=7), timedelta(days=7))
    assert parsed(type_).sink.maintenance.every_hours == 24
    assert "maintenance" not in parsed(type_).to_json()


def test_files_that_no_version_names_are_kept_for_as_long_as_versions() -> None:
    given = parsed(maintenance={"keep_versions_hours": 400, "every_hours": 6, "target_file_megabytes": 1})
    hours = timedelta(hours=400)
    assert upkeep_of(given.sink.maintenance) == Upkeep(target_bytes=1 << 20, keep=hours, orphans=hours)
    assert parse_feed(given.to_json()).sink.maintenance == given.sink.maintenance


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"every_hours": 0.1}, "at least 0.25"),
        ({"every_hours": 721}, "at most 720"),
        ({"target_file_megabytes": 0}, "at least 1"),
        ({"target_file_megabytes": 513}, "at most 512"),
        ({"keep_versions_hours": 0}, "at least 1"),
        ({"remove_orphans_after_hours": 23}, "at least 24"),
        ({"remove_orphans_after_hours": 100}, "must be at least keep_versions_hours"),
        ({"every_hour": 24}, "every_hours"),
    ],
)
def test_another_maintenance_is_refused(given: dict[str, object], why: str) -> None:
    with pytest.raises(FeedSpecError, match=rf"maintenance.*{why}"):
        parsed(maintenance=given)


def test_tables_of_databases_are_not_maintained() -> None:
    with pytest.raises(FeedSpecError, match=r"maintenance cannot be used with sinks of type postgresql"):
        parsed("postgresql", maintenance={"scheduled": False})
