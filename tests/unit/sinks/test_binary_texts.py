"""Bytes that are a text in the event: read as its schema, or the feed, says; never guessed."""

from base64 import b64encode, urlsafe_b64encode

import pytest

from headgate.config.feed import FeedSpecError, parse_feed
from headgate.formats import canal_json, debezium_avro, debezium_json
from headgate.formats.change import BINARY, CONNECTOR, TEXT_ONLY
from headgate.replication.feed_parts import FeedParts
from headgate.sinks.relational.mysql.catalog import MysqlSinkColumn
from headgate.sinks.relational.mysql.values import column_text as mysql_text
from headgate.sinks.relational.postgresql.values import column_text as postgresql_text
from headgate.sinks.relational.text import ColumnText
from headgate.sinks.relational.times import NotTextError

RAW = b"\xde\xad\xbe\xef\xfb\xff"
BASE64, URL_SAFE = b64encode(RAW).decode(), urlsafe_b64encode(RAW).decode()


def columns(meaning: str | None, mode: str | None) -> list[tuple[ColumnText, str]]:
    """A binary column of each sink, and what stands before the digits there."""
    return [
        (postgresql_text("bytea", meaning, "mysql", mode), "\\x"),
        (mysql_text(MysqlSinkColumn("varbinary(9)", "varbinary", None, None), meaning, "mysql", mode), ""),
    ]


@pytest.mark.parametrize(
    ("meaning", "mode", "text"),
    [
        ("bytes", None, BASE64),
        ("bytes", "hex", BASE64),
        ("string", "hex", RAW.hex()),
        ("string", "base64", BASE64),
        ("string", "base64-url-safe", URL_SAFE),
        (None, None, BASE64),
        (None, "bytes", BASE64),
        (None, "hex", RAW.hex()),
        (None, "base64-url-safe", URL_SAFE),
    ],
)
def test_bytes_are_read_as_the_schema_or_the_feed_says(meaning: str | None, mode: str | None, text: str) -> None:
    for column, start in columns(meaning, mode):
        assert column.plain(text) == start + RAW.hex()
        assert column.plain(RAW) == start + RAW.hex(), "bytes are bytes"


@pytest.mark.parametrize(
    ("meaning", "mode", "text", "reason"),
    [
        ("string", None, "deadbeef", "a text by the event's schema.*source.binary_handling_mode"),
        ("string", "bytes", "deadbeef", "a text by the event's schema"),
        ("io.debezium.data.Uuid", "hex", "deadbeef", "a text by the event's schema"),
        ("io.debezium.data.Json", None, "1234", "a text by the event's schema"),
        ("string", "hex", "dead beef", "not hex"),
        ("string", "hex", "abc", "not hex"),
        ("string", "base64-url-safe", "+/+/", "not base64-url-safe"),
        (None, "hex", BASE64, "not hex"),
        ("bytes", None, "abc", "not base64"),
        (None, TEXT_ONLY, "deadbeef", "needs bytes"),
        (None, None, "deadbeef", "may be base64 or hexadecimal.*source.binary_handling_mode"),
        (None, None, "12345678", "may be base64 or hexadecimal"),
    ],
)
def test_a_text_that_may_be_anything_is_refused(meaning: str | None, mode: str | None, text: str, reason: str) -> None:
    for column, _ in columns(meaning, mode):
        with pytest.raises(NotTextError, match=reason):
            column.plain(text)


def test_what_the_feed_says_of_bytes_goes_along_with_the_events() -> None:
    after = '{"field":"after","type":"struct","fields":[{"field":"id","type":"int32"}]}'
    schema = f'{{"type":"struct","fields":[{after}]}}'
    payload = '{"op":"c","after":{"id":1},"source":{"connector":"mysql"}}'
    decoder = debezium_json.DebeziumJsonDecoder(binary="hex")
    for value in (payload, f'{{"schema":{schema},"payload":{payload}}}'):
        for _ in range(2):
            (change, tombstone) = decoder.decode_batch(
                [b'{"id":1}'] * 2, [value.encode(), None], [0, 0], [1, 2], [3, 3]
            )
            assert change.semantics is not None
            assert change.semantics[BINARY] == "hex"
            assert tombstone.semantics == change.semantics
    bare = debezium_json.DebeziumJsonDecoder().decode(b'{"id":1}', payload.encode(), 0, 1, 2)
    assert bare is not None
    assert bare.semantics == {CONNECTOR: "mysql"}


def test_avro_and_canal_tell_it_too() -> None:
    row = '{"type":"record","name":"Row","fields":[{"name":"id","type":"int"}]}'
    envelope = (
        f'{{"type":"record","name":"E","fields":[{{"name":"op","type":"string"}},{{"name":"after","type":{row}}}]}}'
    )
    decoder = debezium_avro.DebeziumAvroDecoder({1: envelope, 2: row}.__getitem__, binary="hex")
    change = decoder.decode(b"\x00\x00\x00\x00\x02\x02", b"\x00\x00\x00\x00\x01\x02c\x02", 0, 1, 2)
    assert change is not None
    assert change.semantics == {"id": "int32", BINARY: "hex"}
    message = b'{"type":"INSERT","database":"d","table":"t","pkNames":["id"],"mysqlType":{"id":"int","t":"text"},'
    (canal,) = canal_json.CanalDecoder(tidb=False).decode(
        None, message + b'"data":[{"id":"1","t":"deadbeef"}]}', 0, 1, 2
    )
    assert canal.semantics == {BINARY: TEXT_ONLY}


FEED = """
feed: shop
source: {{topics: [a], format: {}, binary_handling_mode: {}}}
sink: {{type: postgresql, dsn: host=x dbname=y}}
"""


def test_it_is_an_option_of_the_source_and_of_debezium_only() -> None:
    spec = parse_feed(FEED.format("debezium-json", "base64-url-safe"))
    change = (
        FeedParts(spec.to_json())
        .decoder("a")
        .decode_batch([b'{"id":1}'], [b'{"op":"c","after":{"id":1}}'], [0], [1], [2])
    )
    assert change[0].semantics == {BINARY: "base64-url-safe"}
    with pytest.raises(FeedSpecError, match="an option of Debezium's connectors"):
        parse_feed(FEED.format("maxwell-json", "hex"))
    with pytest.raises(FeedSpecError, match="binary_handling_mode"):
        parse_feed(FEED.format("debezium-json", "octal"))


@pytest.mark.parametrize("text", ["zz==", "AAB=", "AA==AA=="])
def test_base64_that_no_encoder_writes_is_refused(text: str) -> None:
    """Two such texts would be the same bytes, and as keys the same row."""
    for column in (postgresql_text("bytea", None), postgresql_text("bit(16)", None)):
        with pytest.raises(NotTextError, match="base64"):
            column.plain(text)
    assert postgresql_text("bytea", None).plain("zw==") == "\\xcf"
