"""Canal-JSON as Canal and TiCDC write it: values, keys, statements, watermarks, and what is refused."""

import json
from typing import Any

import pytest

from headgate.formats.canal_json import CanalDecoder
from headgate.formats.change import ABSENT, Change, ChangeError, Operation
from headgate.formats.decoding import UndecodableError, Watermark

# As the documentation of TiCDC shows it (Canal-JSON, TiDB extension).
INSERT = (
    b'{"id":0,"database":"test","table":"tp_int","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1639633141221,'
    b'"ts":1639633142960,"sql":"","sqlType":{"c_bigint":-5,"c_int":4,"id":4},"mysqlType":{"c_bigint":"bigint",'
    b'"c_int":"int","id":"int"},"data":[{"c_bigint":"9223372036854775807","c_int":"2147483647","id":"2"}],'
    b'"old":null,"_tidb":{"commitTs":429918007904436226}}'
)
MARK = (
    b'{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK","es":1640007049196,'
    b'"ts":1640007050284,"sql":"","sqlType":null,"mysqlType":null,"data":null,"old":null,'
    b'"_tidb":{"watermarkTs":429918007904436226}}'
)


def message(kind: str = "INSERT", /, **fields: Any) -> bytes:
    whole = {"database": "shop", "table": "t", "pkNames": ["id"], "isDdl": False, "type": kind, "es": 5, "ts": 6}
    return json.dumps({**whole, **fields}, ensure_ascii=False).encode()


def decode(value: bytes | None, decoder: CanalDecoder | None = None) -> list[Change]:
    return (decoder or CanalDecoder(tidb=False)).decode(None, value, 3, 14, 99)


def value_of(mysql_type: str, text: str | None) -> object:
    (change,) = decode(message(mysqlType={"id": "int", "v": mysql_type}, data=[{"id": "1", "v": text}]))
    assert change.row is not None
    return change.row["v"]


def test_an_insert_as_ticdc_writes_it() -> None:
    (change,) = decode(INSERT, CanalDecoder(tidb=True))
    assert (change.partition, change.offset, change.append_ms, change.source_ms) == (3, 14, 99, 1639633141221)
    assert (change.operation, change.key) == (Operation.UPSERT, {"id": "2"})
    assert change.row == {"c_bigint": "9223372036854775807", "c_int": "2147483647", "id": "2"}


@pytest.mark.parametrize(
    ("mysql_type", "text", "value"),
    [
        ("decimal(20,10)", "129012.1230000000", "129012.1230000000"),
        ("bigint(20) unsigned", "18446744073709551615", "18446744073709551615"),
        ("timestamp", "2026-11-21 17:00:00.123456", "2026-11-21 17:00:00.123456"),
        ("time", "-838:59:59", "-838:59:59"),
        ("year", "2155", "2155"),
        ("json", '{"a": [1, null]}', '{"a": [1, null]}'),
        ("varchar(20)", "näme 😀", "näme 😀"),
        ("varchar(20)", "", ""),
        ("text", None, None),
        ("varbinary(16)", "\u0089PNG\r\n\u001a\n\x00ÿ", b"\x89PNG\r\n\x1a\n\x00\xff"),
        ("binary(4)", "ÿ", b"\xff\0\0\0"),
        ("binary(2)", "", b"\0\0"),
        ("BINARY(2)", "ab", b"ab"),
        ("binary", "a", b"a"),
        ("binary(4000000000)", "a", b"a"),
        ("varbinary(4)", "a", b"a"),
        ("longblob", "", b""),
        ("BLOB", "aé", b"a\xe9"),
        ("blob", None, None),
        ("bit(1)", "1", True),
        ("bit(1)", "0", False),
        ("bit(10)", "515", b"\x03\x02"),
        ("bit(64)", "18446744073709551615", b"\xff" * 8),
        ("bit", "81", b"\x51"),
        ("bit", "0", b"\x00"),
        ("enum('a','b''c','d\\'e,f')", "2", "b'c"),
        ("enum('a','b''c','d\\'e,f')", "3", "d'e,f"),
        ("enum('a')", "0", ""),
        ("enum('a')", "a", "a"),
        ("enum", "2", 2),
        ("set('a','b','c')", "5", "a,c"),
        ("set('a','b','c')", "0", ""),
        ("set('a','b','c')", "", ""),
        ("set('a','b','c')", "a,b", "a,b"),
        ("set", "3", 3),
    ],
)
def test_values(mysql_type: str, text: str | None, value: object) -> None:
    assert value_of(mysql_type, text) == value
    assert type(value_of(mysql_type, text)) is type(value)


@pytest.mark.parametrize(
    ("mysql_type", "text", "complaint"),
    [
        ("blob", "日", "ISO-8859-1, but character 0"),
        ("bit(8)", "x", "not a number"),
        ("enum('a','b')", "3", "beyond the 2 that the enum has"),
        ("enum('a','b')", "c", "not a number"),
        ("set('a','b')", "4", "beyond the 2 labels"),
    ],
)
def test_a_text_that_is_no_value_is_named_with_its_column(mysql_type: str, text: str, complaint: str) -> None:
    with pytest.raises(ChangeError, match=r"column v \(") as caught:
        value_of(mysql_type, text)
    assert complaint in str(caught.value)


def test_one_message_holds_the_rows_of_a_statement() -> None:
    changes = decode(message(data=[{"id": "1"}, {"id": "2"}]))
    assert [(change.offset, change.key) for change in changes] == [(14, {"id": "1"}), (14, {"id": "2"})]


def test_an_update_carries_the_new_row_and_a_new_key_deletes_the_old_one() -> None:
    rows = [{"id": "1", "v": "b"}, {"id": "8", "v": "d"}, {"id": "5", "v": "y"}]
    old = [{"id": "1", "v": "a"}, {"id": "7"}, {"v": "x"}]
    changes = decode(message("UPDATE", data=rows, old=old, mysqlType={"id": "int", "v": "text"}))
    assert [(change.operation, change.key, change.row) for change in changes] == [
        (Operation.UPSERT, {"id": "1"}, rows[0]),
        (Operation.DELETE, {"id": "7"}, None),
        (Operation.UPSERT, {"id": "8"}, rows[1]),
        (Operation.UPSERT, {"id": "5"}, rows[2]),
    ]


def test_keys_of_several_columns_and_of_bytes() -> None:
    fields: dict[str, Any] = {"pkNames": ["a", "b"], "mysqlType": {"a": "binary(2)", "b": "int"}}
    changes = decode(message("UPDATE", data=[{"a": "\u0001ÿ", "b": "2"}], old=[{"a": "\u0001þ"}], **fields))
    assert [change.key for change in changes] == [{"a": b"\x01\xfe", "b": "2"}, {"a": b"\x01\xff", "b": "2"}]


def test_a_delete_has_a_key_and_no_row() -> None:
    (change,) = decode(message("DELETE", data=[{"id": "1", "v": "a"}]))
    assert (change.operation, change.key, change.row) == (Operation.DELETE, {"id": "1"}, None)


TYPES = {"id": "int", "v": "text", "w": "longtext"}


def test_nulls_left_out_of_an_insert_are_nulls() -> None:
    (change,) = decode(message(data=[{"id": "1", "v": "b"}], mysqlType=TYPES))
    assert change.row == {"id": "1", "v": "b", "w": None}


@pytest.mark.parametrize(
    ("old", "w"),
    [
        pytest.param({"w": "x"}, None, id="became NULL"),
        pytest.param({"v": "a"}, ABSENT, id="did not change"),
        pytest.param({}, ABSENT, id="nothing changed"),
    ],
)
def test_a_column_left_out_of_an_update_is_null_if_old_has_it(old: dict[str, str], w: object) -> None:
    rows = [{"id": "0", "v": "a", "w": "b"}, {"id": "1", "v": "b"}]
    _, change = decode(message("UPDATE", data=rows, old=[{"v": "x"}, old], mysqlType=TYPES))
    assert change.row == {"id": "1", "v": "b", "w": w}


@pytest.mark.parametrize("old", [None, [], [None]])
def test_an_update_that_does_not_say_what_it_changed_must_have_all_columns(old: object) -> None:
    with pytest.raises(ChangeError, match="lacks w, and without 'old'"):
        decode(message("UPDATE", data=[{"id": "1", "v": "b"}], old=old, mysqlType=TYPES))
    (change,) = decode(message("UPDATE", data=[{"id": "1", "v": "b", "w": None}], old=old, mysqlType=TYPES))
    assert change.row == {"id": "1", "v": "b", "w": None}


@pytest.mark.parametrize("kind", ["CREATE", "ALTER", "QUERY", "CINDEX", "XYZ"])
def test_statements_are_passed_over(kind: str) -> None:
    assert decode(message(kind, isDdl=True, sql="…", data=None)) == []
    assert decode(None) == []


@pytest.mark.parametrize("kind", ["GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT"])
def test_messages_without_rows_are_passed_over(kind: str) -> None:
    assert decode(message(kind, isDdl=False, data=None, pkNames=None)) == []


def test_truncate_is_a_change_whatever_its_partition_for_only_the_sink_knows_how_many_there_are() -> None:
    for partition in (0, 3):
        (change,) = CanalDecoder(tidb=False).decode(None, message("TRUNCATE", isDdl=True), partition, 1, 2)
        assert (change.operation, change.key, change.row) == (Operation.TRUNCATE, {}, None)


@pytest.mark.parametrize("is_ddl", [True, False])
def test_truncate_of_another_table_is_passed_over(*, is_ddl: bool) -> None:
    """Statements on other tables come along (case 600), and this one would empty the topic's table."""
    decoder = CanalDecoder(tidb=False)
    decode(message(data=[{"id": "1"}]), decoder)
    assert decode(message("TRUNCATE", table="u", isDdl=is_ddl), decoder) == []
    (change,) = decode(message("TRUNCATE", isDdl=is_ddl), decoder)
    assert change.operation is Operation.TRUNCATE
    with pytest.raises(ChangeError, match=r"shop\.t and of shop\.T"):  # one table or two, depending on the server
        decode(message("TRUNCATE", table="T", isDdl=is_ddl), decoder)


def test_a_time_that_is_none_does_not_stop_a_table() -> None:
    (change,) = decode(message(data=[{"id": "1"}], es="1764000000000"))
    assert change.source_ms is None


# --- evidence of time ---------------------------------------------------------------------------------------


def mark(ts: int) -> bytes:
    return message("TIDB_WATERMARK", database="", table="", _tidb={"watermarkTs": ts})


def row(ts: int, number: int = 1) -> bytes:
    return message(data=[{"id": str(number)}], _tidb={"commitTs": ts})


def batch(decoder: CanalDecoder, values: list[bytes], first: int = 0, partition: int = 0) -> list[int]:
    count = len(values)
    offsets = list(range(first, first + count))
    return [c.offset for c in decoder.decode_batch([None] * count, values, [partition] * count, offsets, [0] * count)]


def test_watermarks_are_told_once_with_their_places() -> None:
    decoder = CanalDecoder(tidb=True)
    assert batch(decoder, [MARK, INSERT]) == [], "the insert's commit ts is not above the watermark before it"
    assert decoder.take_watermarks() == [Watermark(0, 0, 429918007904436226)]
    assert decoder.take_watermarks() == []


def test_a_change_that_was_sent_again_after_its_watermark_is_left_out() -> None:
    decoder = CanalDecoder(tidb=True)
    assert batch(decoder, [row(10), mark(10), row(9), row(10), row(11), mark(8), row(10)]) == [0, 4]
    assert decoder.take_watermarks() == [Watermark(0, 1, 10)]
    assert batch(decoder, [row(5)], first=7, partition=1) == [7], "each partition has its own"


def test_reading_again_from_further_back_loses_nothing() -> None:
    decoder = CanalDecoder(tidb=True)
    values = [row(3), mark(5), row(7), mark(9)]
    assert batch(decoder, values) == [0, 2]
    decoder.take_watermarks()
    assert batch(decoder, values) == [0, 2]
    assert [found.ts for found in decoder.take_watermarks()] == [5, 9]


def test_changes_beyond_the_target_are_left_out() -> None:
    decoder = CanalDecoder(tidb=True, target_ts=10)
    assert batch(decoder, [row(9), row(10), row(11), mark(12)]) == [0, 1]
    assert [found.ts for found in decoder.take_watermarks()] == [12]


def test_plain_canal_json_claims_no_evidence() -> None:
    decoder = CanalDecoder(tidb=False)
    assert batch(decoder, [mark(10), row(9), message(data=[{"id": "1"}])]) == [1, 2]
    assert decoder.take_watermarks() == []


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (b"{", "not a Canal-JSON message"),
        (b"\xff", "not a Canal-JSON message"),
        (b"[]", "not a Canal-JSON message"),
        (b'{"data":[]}', "missing required field `type`"),
        (message(data=[["a"]]), "not a Canal-JSON message"),
        (message("UPSERT", data=[{"id": "1"}]), "unknown Canal-JSON type 'UPSERT'"),
        (message(data=[]), "without rows"),
        (message(data=None), "without rows"),
        (message(pkNames=[], data=[{"id": "1"}]), "shop.t has no primary key"),
        (message(pkNames=None, data=[{"id": "1"}]), "shop.t has no primary key"),
        (message(data=[{"id": "1"}], isDdl=True), "type INSERT with isDdl: true"),
        (message(data=[{"v": "1"}]), "lacks id of its key"),
        (message(data=[{"id": None}]), "lacks id of its key"),
        (message("TIDB_WATERMARK"), "without _tidb.watermarkTs"),
        (message(data=[{"id": "1"}], _tidb={"onlyHandleKey": True}), "because of its size"),
        (message(data=[{"id": "1"}], _tidb={"claimCheckLocation": "s3://b/1"}), "because of its size"),
    ],
)
def test_what_is_no_change_is_refused_with_its_reason(value: bytes, complaint: str) -> None:
    with pytest.raises(ChangeError) as caught:
        decode(value)
    assert complaint in str(caught.value)


def test_a_batch_names_the_place_of_its_first_bad_event_and_keeps_what_stands_before() -> None:
    with pytest.raises(UndecodableError, match="partition 4, offset 12") as caught:
        batch(CanalDecoder(tidb=False), [row(1), row(2), b"?", row(3)], first=10, partition=4)
    assert [change.offset for change in caught.value.decoded] == [10, 11]


def test_the_extension_is_asked_for_where_the_format_needs_it() -> None:
    with pytest.raises(ChangeError, match="enable-tidb-extension=true"):
        decode(message(data=[{"id": "1"}]), CanalDecoder(tidb=True))


def test_a_topic_of_two_tables_is_noticed() -> None:
    decoder = CanalDecoder(tidb=False)
    decode(message(data=[{"id": "1"}]), decoder)
    with pytest.raises(ChangeError, match=r"shop\.t and of shop\.u"):
        decode(message(table="u", data=[{"id": "1"}]), decoder)


def test_an_old_key_with_null_is_refused() -> None:
    with pytest.raises(ChangeError, match="NULL in the row's key"):
        decode(message("UPDATE", data=[{"id": "1"}], old=[{"id": None}], mysqlType={"id": "int"}))
