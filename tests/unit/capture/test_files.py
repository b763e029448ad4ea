"""The connector and the feeds that are written for tables."""

import json
from pathlib import Path

import pytest

from headgate.capture.connector import ConnectorNames, connector_json, topic_of
from headgate.capture.feed_file import FeedAddress, FeedEnds, feed_files
from headgate.capture.place import Place, place_of
from headgate.capture.tables import SourceTable
from headgate.config.column_types import column_of
from headgate.config.feed import SourceDatabase, parse_feed
from headgate.databases.address import Options, Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.sources.topics import table_name

READER = FeedAddress("postgresql", dsn="postgresql://reader@origin/shop", password_file=Path("reader"))
WRITER = FeedAddress("postgresql", dsn="postgresql://headgate@db/shop", password_file=Path("db"))
ENDS = FeedEnds(source=READER, sink=WRITER)
SOURCE = Options("--source", "--source-password-file", "source")


def table(name: str, *, schema: str = "shop", key: tuple[str, ...] = ("id",)) -> SourceTable:
    return SourceTable(schema=schema, table=name, key=key)


def test_plain_tables_are_one_feed() -> None:
    (feed,) = feed_files("shop", "shop", [table("orders"), table("items")], ENDS)
    spec = parse_feed(feed.text)
    assert (spec.feed, spec.source.topics, spec.sink.dsn) == (
        "shop",
        ("shop.shop.orders", "shop.shop.items"),
        WRITER.dsn,
    )
    assert spec.sink.password_file == Path("db")
    assert [table_name(spec.sink.table, topic) for topic in spec.source.topics] == ["shop.orders", "shop.items"]


@pytest.mark.parametrize("name", ["Order Lines", 'it"s', "we.ird", "Ünïcode", "{schema}", "a: b # c"])
def test_a_table_that_no_topic_is_named_like_has_a_feed_that_names_it(name: str) -> None:
    plain, odd = feed_files("shop", "shop", [table("orders"), table(name)], ENDS)
    spec = parse_feed(odd.text)
    assert plain.feed == "shop"
    assert spec.feed == odd.feed != "shop"
    (topic,) = spec.source.topics
    assert topic == topic_of("shop", table(name))
    assert table_name(spec.sink.table, topic) == table_name("{schema}.{table}", "", table(name).name)
    assert spec.source.topic_tables == {topic: table(name).name}


def test_tables_without_a_key_have_a_feed_of_their_own() -> None:
    plain, keyless = feed_files("shop", "shop", [table("audit", key=()), table("orders")], ENDS)
    assert (plain.feed, parse_feed(plain.text).sink.keyless) == ("shop", "refuse")
    assert (keyless.feed, parse_feed(keyless.text).sink.keyless) == ("shop-keyless", "append")
    (only,) = feed_files("shop", "shop", [table("audit", key=())], ENDS)
    assert only.feed == "shop"


def test_tables_that_would_share_a_topic_are_refused() -> None:
    with pytest.raises(DatabaseRefusedError, match=r"shop.a b and shop.a_b would share topic x.shop.a_b"):
        feed_files("shop", "x", [table("a b"), table("a_b")], ENDS)


def test_a_named_connection_stands_for_the_address() -> None:
    ends = FeedEnds(
        source=FeedAddress("postgresql", connection="shop"), sink=FeedAddress("mysql", connection="warehouse")
    )
    (feed,) = feed_files("shop", "shop", [table("orders")], ends)
    spec = parse_feed(feed.text)
    assert (spec.sink.connection, spec.sink.dsn, spec.sink.password_file) == ("warehouse", None, None)
    assert spec.source.database == SourceDatabase(connection="shop")


def test_every_feed_names_its_source_and_creates_its_tables() -> None:
    tables = [table("orders"), table("Order Lines"), table("audit", key=())]
    specs = [parse_feed(feed.text) for feed in feed_files("shop", "shop", tables, ENDS)]
    assert [spec.sink.tables for spec in specs] == ["create"] * 3
    database = SourceDatabase(dsn="postgresql://reader@origin/shop", password_file=Path("reader"))
    assert [spec.source.database for spec in specs] == [database] * 3


def test_a_chosen_type_is_in_the_feed_of_its_table() -> None:
    types = {("shop", "orders"): {"total": "decimal(12,2)"}, ("shop", "Order Lines"): {"we.ird: #": "text"}}
    tables = [table("orders"), table("Order Lines"), table("audit", key=())]
    ends = FeedEnds(source=READER, sink=WRITER, types=types)
    plain, keyless, odd = [parse_feed(feed.text).sink.types for feed in feed_files("shop", "shop", tables, ends)]
    assert (plain, keyless) == ({"shop.orders.total": "decimal(12,2)"}, {})
    ((name, chosen),) = odd.items()
    assert (column_of(name), chosen) == (("shop.Order Lines", "we.ird: #"), "text")


@pytest.mark.parametrize(
    ("place", "own"),
    [
        (
            Place("postgresql", "db", 5432, "debezium", "shop", {"sslmode": "verify-full"}),
            {
                "slot.name": "s",
                "publication.name": "p",
                "interval.handling.mode": "string",
                "database.sslmode": "verify-full",
            },
        ),
        (
            Place("mysql", "db", 3306, "debezium", "shop"),
            {
                "schema.history.internal.kafka.bootstrap.servers": "broker:9092",
                "bigint.unsigned.handling.mode": "precise",
                "enable.time.adjuster": "false",
            },
        ),
    ],
)
def test_a_connector_has_what_the_defaults_get_wrong(place: Place, own: dict[str, str]) -> None:
    names = ConnectorNames(
        prefix="shop", slot="s", publication="p", bootstrap="broker:9092", password_file=Path("/secrets/db")
    )
    written = json.loads(connector_json(place, names, [table("orders"), table("a.b")]))
    settings = {name: value for name, value in written.items() if not name.startswith("//")}
    assert settings.items() >= own.items()
    assert (
        settings.items()
        >= {
            "topic.prefix": "shop",
            "table.include.list": r"shop\.orders,shop\.a\.b",
            "database.password": "${directory:/secrets:db}",
            "decimal.handling.mode": "string",
            "key.converter.replace.null.with.default": "false",
            "value.converter.replace.null.with.default": "false",
            "topic.creation.default.replication.factor": "-1",
        }.items()
    )
    assert all(name.removeprefix("// ") in settings for name in written)


@pytest.mark.parametrize(
    ("dsn", "place"),
    [
        (
            "postgresql://me@db:5433/shop?sslmode=require",
            Place("postgresql", "db", 5433, "me", "shop", {"sslmode": "require"}),
        ),
        ("host=db user=me dbname=shop", Place("postgresql", "db", 5432, "me", "shop")),
        ("mysql://me@db/shop", Place("mysql", "db", 3306, "me", "shop")),
    ],
)
def test_where_a_database_is(dsn: str, place: Place) -> None:
    assert place_of(Target(dsn, None, SOURCE)) == place


@pytest.mark.parametrize(
    ("dsn", "says"),
    [
        ("postgresql://me@a,b/shop", "--source names several hosts"),
        ("postgresql://me@a", "--source: write postgresql://user@host:port/database"),
        ("mysql://me@a", "--source names no database"),
    ],
)
def test_a_connector_needs_one_host_and_a_database(dsn: str, says: str) -> None:
    with pytest.raises(DatabaseRefusedError, match=says):
        place_of(Target(dsn, None, SOURCE))
