"""The connector and the feeds that are written for tables."""

import json
import re
from pathlib import Path

import pytest

from headgate.capture.connector import ConnectorNames, connector_json, topic_of
from headgate.capture.feed_file import FeedAddress, FeedEnds, feed_file
from headgate.capture.place import DatabaseEndpoint, place_of
from headgate.capture.tables import CapturedColumn, SourceTable
from headgate.config.column_types import column_of
from headgate.config.feed import FeedSpec, parse_feed
from headgate.config.source_spec import SourceDatabase
from headgate.databases.address import AddressOptions, Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.records.identifiers import split_table, table_spelling
from headgate.sources.topics import table_name

READER = FeedAddress("postgresql", dsn="postgresql://reader@origin/shop", password_file=Path("reader"))
WRITER = FeedAddress("postgresql", dsn="postgresql://headgate@db/shop", password_file=Path("db"))
ENDS = FeedEnds(source=READER, sink=WRITER)
SOURCE = AddressOptions("--source", "--source-password-file", "source")


def table(name: str, *, schema: str = "shop", key: tuple[str, ...] = ("id",)) -> SourceTable:
    return SourceTable(schema=schema, table=name, key=key)


def feed_of(*tables: SourceTable, ends: FeedEnds = ENDS) -> FeedSpec:
    return parse_feed(feed_file("shop", "shop", tables, ends))


def test_plain_tables() -> None:
    spec = feed_of(table("orders"), table("items"))
    assert (spec.feed, spec.source.topics, spec.sink.dsn) == (
        "shop",
        ("shop.shop.orders", "shop.shop.items"),
        WRITER.dsn,
    )
    assert spec.sink.password_file == Path("db")
    assert [table_name(spec.sink.table, topic) for topic in spec.source.topics] == ["shop.orders", "shop.items"]
    assert (dict(spec.tables), spec.sink.tables) == ({}, "create")
    assert spec.source.database == SourceDatabase(dsn="postgresql://reader@origin/shop", password_file=Path("reader"))


ODD = ["Order Lines", 'it"s', "we.ird", "Ünïcode", "{schema}", "a: b # c", "st*r", "a@b=c"]


@pytest.mark.parametrize("name", ODD)
def test_a_table_that_no_topic_is_named_like_is_named(name: str) -> None:
    spec = feed_of(table("orders"), table(name))
    topic = topic_of("shop", table(name))
    assert spec.source.topics == ("shop.shop.orders", topic)
    assert table_name(spec.sink.table, topic, table(name).name) == table_spelling("shop", name)
    assert spec.source.topic_tables == {topic: table(name).name}
    assert split_table(table(name).name) == ("shop", name), "its definition is looked for under this name"


@pytest.mark.parametrize("name", ["orders", *ODD])
def test_a_table_without_a_primary_key_has_options_of_its_own(name: str) -> None:
    unique = SourceTable(schema="shop", table=name, unique_index="a", unique_columns=("Code No", "st*r", "[x], {y}: #"))
    tables = [unique, table("audit", key=()), table("star")]
    spec = feed_of(*tables)
    keyed, audit, star = (spec.for_table(topic_of("shop", each)) for each in tables)
    assert (keyed.key, keyed.sink.keyless) == (unique.unique_columns, "refuse")
    assert (audit.key, audit.sink.keyless) == (None, "append")
    assert (star.key, star.sink.keyless) == (None, "refuse")


def test_columns_that_the_sink_cannot_hold_are_left_out() -> None:
    built_in, own = (
        CapturedColumn("a", "text", is_computed=True, is_built_in=True),
        CapturedColumn("b", "text", is_computed=True),
    )
    columns = (built_in, own, CapturedColumn("place, or so", "point", is_geometry=True), CapturedColumn("n", "int"))
    orders = SourceTable(schema="shop", table="orders", key=("id",), columns=columns)
    at_mariadb = FeedEnds(source=READER, sink=FeedAddress("mysql", dsn="mysql://headgate@db/shop"))
    excluded = [feed_of(orders, ends=ends).for_table("shop.shop.orders").columns.exclude for ends in (ENDS, at_mariadb)]
    assert excluded == [("b", "place, or so"), ("a", "b")]


def test_tables_that_would_share_a_topic_are_refused() -> None:
    with pytest.raises(DatabaseRefusedError, match=r"shop.a b and shop.a_b would share topic x.shop.a_b"):
        feed_file("shop", "x", [table("a b"), table("a_b")], ENDS)


def test_a_named_connection_stands_for_the_address() -> None:
    ends = FeedEnds(
        source=FeedAddress("postgresql", connection="shop"), sink=FeedAddress("mysql", connection="warehouse")
    )
    spec = feed_of(table("orders"), ends=ends)
    assert (spec.sink.connection, spec.sink.dsn, spec.sink.password_file) == ("warehouse", None, None)
    assert spec.source.database == SourceDatabase(connection="shop")


def test_a_chosen_type_is_in_the_feed() -> None:
    types = {("shop", "orders"): {"total": "decimal(12,2)"}, ("shop", "Order Lines"): {"we.ird: #": "text"}}
    ends = FeedEnds(source=READER, sink=WRITER, types=types)
    chosen = feed_of(table("orders"), table("Order Lines"), table("audit", key=()), ends=ends).sink.types
    assert {column_of(name): type_ for name, type_ in chosen.items()} == {
        ("shop.orders", "total"): "decimal(12,2)", ("shop.Order Lines", "we.ird: #"): "text",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("place", "own"),
    [
        (
            DatabaseEndpoint("postgresql", "db", 5432, "debezium", "shop", {"sslmode": "verify-full"}),
            {
                "slot.name": "s",
                "publication.name": "p",
                "interval.handling.mode": "string",
                "database.sslmode": "verify-full",
            },
        ),
        (
            DatabaseEndpoint("mysql", "db", 3306, "debezium", "shop"),
            {
                "schema.history.internal.kafka.bootstrap.servers": "broker:9092",
                "bigint.unsigned.handling.mode": "precise",
                "enable.time.adjuster": "false",
            },
        ),
    ],
)
def test_a_connector_has_what_the_defaults_get_wrong(place: DatabaseEndpoint, own: dict[str, str]) -> None:
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
    ("schema", "name", "columns", "keys"),
    [
        ("shop", "codes", ("code",), r"shop\.codes:code"),
        ("shop", "odd: na.me;", ("a", "b.c"), r"shop\.odd\x3a\x20na\.me\x3b:a,b.c"),
        ("shop", "codes", ("code no",), None),
        ("shop", "codes", ("a,b",), None),
    ],
)
def test_the_connector_is_told_the_key_of_a_unique_index(
    schema: str, name: str, columns: tuple[str, ...], keys: str | None
) -> None:
    names = ConnectorNames(prefix="shop", slot="s", publication="p", bootstrap="broker:9092", password_file=None)
    found = SourceTable(schema=schema, table=name, unique_index="u", unique_columns=columns)
    place = DatabaseEndpoint("postgresql", "db", 5432, "debezium", "shop")
    written = json.loads(connector_json(place, names, [table("orders"), found]))
    assert written.get("message.key.columns") == keys
    if keys is not None:
        pattern, _, _ = keys.rpartition(":")
        assert re.fullmatch(pattern, f"{schema}.{name}")


@pytest.mark.parametrize(
    ("dsn", "place"),
    [
        (
            "postgresql://me@db:5433/shop?sslmode=require",
            DatabaseEndpoint("postgresql", "db", 5433, "me", "shop", {"sslmode": "require"}),
        ),
        ("host=db user=me dbname=shop", DatabaseEndpoint("postgresql", "db", 5432, "me", "shop")),
        ("mysql://me@db/shop", DatabaseEndpoint("mysql", "db", 3306, "me", "shop")),
    ],
)
def test_where_a_database_is(dsn: str, place: DatabaseEndpoint) -> None:
    assert place_of(Target(dsn, None, SOURCE)) == place


@pytest.mark.parametrize(
    ("dsn", "says"),
    [
        ("postgresql://me@a,b/shop", "--source names several hosts"),
        ("postgresql://me@a", "--source must name host, user and database. Write postgresql://user@host:port/database"),
        ("mysql://me@a", "--source names no database"),
    ],
)
def test_a_connector_needs_one_host_and_a_database(dsn: str, says: str) -> None:
    with pytest.raises(DatabaseRefusedError, match=says):
        place_of(Target(dsn, None, SOURCE))
