"""What a feed into Kafka topics may say, and what is refused with a reason."""

from typing import Any

import pytest

from headgate.config.feed import FeedSpecError, parse_feed
from headgate.config.plugs import SINKS

DATABASE = {"dsn": "postgresql://reader@db/shop"}


def parsed(**given: Any) -> None:
    import msgspec

    spec = {
        "feed": "shop",
        "source": {"topics": ["shop.public.orders"]} | given.pop("source", {}),
        "sink": {"type": "kafka", "dsn": "kafka://broker:9092"} | given.pop("sink", {}),
        **given,
    }
    parse_feed(msgspec.json.encode(spec).decode())


def test_the_partition_may_be_chosen_by_key() -> None:
    parsed(sink={"partitions": "by-key"})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("foreign_keys", "ignore"),
        ("keyless", "append"),
        ("rounding", "allow"),
        ("tables", "create"),
        ("tables", "evolve"),
        ("types", {"public.orders.total": "text"}),
        ("unique_keys", "create"),
    ],
)
def test_an_option_of_databases_is_refused(option: str, value: object) -> None:
    with pytest.raises(FeedSpecError, match=rf"sink\.{option} cannot be used with sinks of type kafka"):
        parsed(sink={option: value})


def test_events_are_written_on_where_they_are_envelopes_already() -> None:
    parsed(sink={"format": "debezium"})
    with pytest.raises(FeedSpecError, match=r"sink\.format: debezium needs .*debezium-json.*format is maxwell-json"):
        parsed(sink={"format": "debezium"}, source={"format": "maxwell-json"})


AVRO = {"format": "debezium-avro", "registry": {"url": "http://registry:8081"}}


def test_avro_events_are_written_on_as_they_came_only() -> None:
    parsed(sink={"format": "debezium"}, source=AVRO)
    parsed(sink={"format": "flat"}, source=AVRO, columns={"exclude": ["qty"]})
    with pytest.raises(FeedSpecError, match=r"of format debezium-avro as they came.*\(columns and where\)"):
        parsed(sink={"format": "debezium"}, source=AVRO, columns={"exclude": ["qty"]})
    with pytest.raises(FeedSpecError, match=r"cannot be shaped \(public\.orders\)"):
        parsed(sink={"format": "debezium"}, source=AVRO, tables={"public.orders": {"where": "id > 3"}})


def test_a_snapshot_is_refused() -> None:
    with pytest.raises(FeedSpecError, match="snapshot cannot be used with sinks of type kafka"):
        parsed(snapshot="initial", source={"database": DATABASE})


def test_an_option_of_one_table_is_refused() -> None:
    with pytest.raises(FeedSpecError, match=r"tables.public.orders.keyless cannot be used with sinks of type kafka"):
        parsed(tables={"public.orders": {"keyless": "append"}})


def test_a_typo_is_refused() -> None:
    with pytest.raises(FeedSpecError, match=r"as-source.*by-key"):
        parsed(sink={"partitions": "by-kee"})


@pytest.mark.parametrize("type_", ["postgresql", "mysql"])
def test_databases_have_no_partitions(type_: str) -> None:
    assert "partitions" not in SINKS[type_].options
    with pytest.raises(FeedSpecError, match=rf"sink\.partitions cannot be used with sinks of type {type_}"):
        parsed(sink={"type": type_, "dsn": "x", "partitions": "by-key"})


REGISTRY = {"url": "https://registry:8081"}


def test_records_in_avro_need_a_registry_and_events_with_schemas() -> None:
    parsed(sink={"format": "avro", "registry": REGISTRY})
    parsed(sink={"format": "avro", "registry": REGISTRY}, source=AVRO, columns={"exclude": ["qty"]}, where="qty > 1")
    with pytest.raises(FeedSpecError, match=r"sink\.format: avro needs sink\.registry\.url"):
        parsed(sink={"format": "avro"})
    with pytest.raises(FeedSpecError, match=r"sink\.registry cannot be used with sink\.format: flat"):
        parsed(sink={"registry": REGISTRY})
    with pytest.raises(FeedSpecError, match=r"http sends user and password in plain text"):
        parsed(sink={"format": "avro", "registry": {"url": "http://r", "user": "a", "password_file": "p"}})
    for format_ in ("maxwell-json", "canal-json", "ticdc-canal-json"):
        with pytest.raises(
            FeedSpecError, match=rf"needs events with schemas.*debezium-avro.*format {format_} have none"
        ):
            parsed(sink={"format": "avro", "registry": REGISTRY}, source={"format": format_})
    with pytest.raises(FeedSpecError, match=r"sink\.registry cannot be used with sinks of type delta"):
        parsed(sink={"type": "delta", "dsn": "/lake", "registry": REGISTRY, "format": "flat"})
