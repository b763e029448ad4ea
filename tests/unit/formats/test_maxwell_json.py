"""Maxwell's messages, as its documentation and its writer of keys have them."""

import json
from decimal import Decimal
from typing import Any

import pytest

from headgate.config.feed import FeedSpecError, parse_feed
from headgate.formats.change import (
    CONNECTOR,
    LACKING,
    LACKING_NULL,
    LACKING_UNKNOWN,
    Change,
    ChangeError,
    Operation,
)
from headgate.formats.decoding import UndecodableError
from headgate.formats.maxwell_json import MaxwellDecoder
from headgate.formats.reducing import reduce_changes
from headgate.sinks.relational.mysql.catalog import MysqlSinkColumn
from headgate.sinks.relational.mysql.values import column_text as mysql_text
from headgate.sinks.relational.postgresql.values import column_text as postgresql_text
from headgate.sinks.relational.text import escape

UNSAID = {CONNECTOR: "maxwell", LACKING: LACKING_UNKNOWN}
KEY = b'{"database":"shop","table":"goods","pk.id":7}'
ROW = {"Id": 7, "name": "Ann é", "price": 12.5, "at": "2026-01-02 03:04:05.678", "raw": "AP8=", "gone": None}


def message(kind: str, data: Any = ROW, **more: Any) -> bytes:
    given = {"database": "shop", "table": "goods", "type": kind, "ts": 1795228070, "xid": 5, "commit": True}
    return json.dumps(given | ({} if data is None else {"data": data}) | more).encode()


def decode(value: bytes | None, key: bytes | None = KEY, decoder: MaxwellDecoder | None = None) -> list[Change]:
    return (decoder or MaxwellDecoder()).decode(key, value, 3, 14, 99)


@pytest.mark.parametrize("kind", ["insert", "update", "bootstrap-insert"])
def test_a_row_that_is_there(kind: str) -> None:
    (change,) = decode(message(kind, old={"name": "Bob"}) if kind == "update" else message(kind))
    row = ROW | {"price": Decimal("12.5")}
    assert change == Change(3, 14, Operation.UPSERT, {"Id": 7}, row, 1795228070000, 99, UNSAID)


def test_a_row_that_is_gone_and_the_tombstone_behind_it() -> None:
    (change,) = decode(message("delete"))
    assert (change.operation, change.key, change.row) == (Operation.DELETE, {"Id": 7}, None)
    assert decode(None, None) == []


def test_a_tombstone_is_a_delete_of_the_row_that_its_key_names() -> None:
    (change,) = decode(None)
    assert (change.operation, change.key, change.row) == (Operation.DELETE, {"id": 7}, None)
    decoder = MaxwellDecoder()
    decode(message("insert"), decoder=decoder)
    (change,) = decode(None, decoder=decoder)
    assert change.key == {"Id": 7}, "spelled as in the rows that were met"
    assert decode(None, b'{"database":"shop","table":"goods","_uuid":"x"}') == []
    for key in (b'["shop","goods",[{"id":1.5}]]', b'{"database":"shop","table":"goods","pk.id":null}'):
        with pytest.raises(ChangeError, match="a tombstone whose key has id"):
            decode(None, key)


def test_a_row_that_has_got_another_key_is_deleted_under_the_old_one_first() -> None:
    before, after = decode(message("update", old={"Id": 6, "name": "Bob"}))
    assert (before.operation, before.key, before.row) == (Operation.DELETE, {"Id": 6}, None)
    assert (after.operation, after.key) == (Operation.UPSERT, {"Id": 7})


def test_keys_of_several_columns_in_both_forms() -> None:
    hashed = b'{"database":"shop","table":"goods","pk.id":7,"pk.name":"Ann"}'
    listed = b'["shop","goods",[{"id":7},{"name":"Ann"}]]'
    for key in (hashed, listed):
        (change,) = decode(message("insert"), key)
        assert change.key == {"Id": 7, "name": "Ann é"}


def test_decimals_keep_their_digits_within_json_as_well() -> None:
    value = message("insert").replace(b"12.5", b"12345678901234567890.12345678901234567890")
    value = value.replace(b'"AP8="', b'{"a": [1.50, null]}').replace(b'"gone": null', b'"flags": ["a", "c"]')
    (change,) = decode(value)
    assert change.row is not None
    assert change.row["price"] == Decimal("12345678901234567890.12345678901234567890")
    assert (change.row["raw"], change.row["flags"]) == ({"a": [Decimal("1.50"), None]}, ["a", "c"])
    assert str(change.row["raw"]["a"][0]) == "1.50"  # type: ignore[index]


@pytest.mark.parametrize(
    "written",
    [
        '"123"',
        '"true"',
        '"a \\\\ \\" b"',
        "123",
        "1.50",
        "true",
        "0.12345678901234567890123",
        '{"a":[1.50,null,"1"]}',
        "[]",
    ],
)
def test_a_column_of_json_is_at_the_sink_what_it_was(written: str) -> None:
    """Maxwell puts the column's JSON into the message as it is."""
    (change,) = decode(message("insert").replace(b'"AP8="', written.encode()))
    assert change.row is not None
    assert change.semantics == UNSAID
    value, connector = change.row["raw"], change.semantics[CONNECTOR]
    postgresql = postgresql_text("jsonb", None, connector)
    mysql = mysql_text(MysqlSinkColumn("json", "json", None, None), None, connector)
    assert (postgresql.plain(value), mysql.plain(value)) == (written, written)
    assert postgresql.fields([value], {type(value)}) == [escape(written)]


@pytest.mark.parametrize("kind", ["bootstrap-start", "bootstrap-complete", "table-alter", "database-drop"])
def test_what_changes_no_row_is_passed_over(kind: str) -> None:
    assert decode(message(kind, None), key=None) == []


def test_rows_without_key_are_added_where_that_is_wanted() -> None:
    key = b'{"database":"shop","table":"goods","_uuid":"5e045c13-0000-4000-8000-000000000001"}'
    for form in (key, b'["shop","goods",[]]'):
        (change,) = decode(message("insert"), form, MaxwellDecoder(keyless=True))
        assert change.key == {}
        with pytest.raises(ChangeError, match="no primary key"):
            decode(message("insert"), form)
        with pytest.raises(ChangeError, match="does not identify a row"):
            decode(message("delete"), form, MaxwellDecoder(keyless=True))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (KEY, b"\xff\x00", "not a message of Maxwell"),
        (KEY, b"{", "not a message of Maxwell"),
        (KEY, b"[]", "not a message of Maxwell"),
        (KEY, b"{}", "not a message of Maxwell"),
        (KEY, message("insert").replace(b"12.5", b"1e99999999999999999999"), "not a message of Maxwell"),
        (KEY, message("replace"), "unknown type 'replace'"),
        (KEY, message("insert", None), "'data' is missing"),
        (KEY, message("insert", {}), "'data' is missing"),
        (KEY, message("insert", {}, encrypted={"iv": "x"}), "encrypted"),
        (KEY, message("insert", {"name": "x"}), "lacks id of its key"),
        (KEY, message("insert", ROW | {"Id": None}), "lacks id of its key"),
        (KEY, message("update", old={"secret": 1}), "lacks secret, although"),
        (None, message("insert"), "has no key"),
        (b"7", message("insert"), "not one of Maxwell's"),
        (b"\xff", message("insert"), "not one of Maxwell's"),
        (b'{"id": 7}', message("insert"), "not one of Maxwell's"),
        (b'["shop","goods"]', message("insert"), "not one of Maxwell's"),
        (b'["shop","goods",7]', message("insert"), "not one of Maxwell's"),
    ],
)
def test_what_is_no_change_is_refused_with_its_reason(key: bytes | None, value: bytes, reason: str) -> None:
    with pytest.raises(ChangeError, match=reason):
        decode(value, key)
    good = message("insert")
    with pytest.raises(UndecodableError) as caught:
        MaxwellDecoder().decode_batch([KEY, key, KEY], [good, value, good], [0] * 3, [1, 2, 3], [0] * 3)
    assert (caught.value.offset, len(caught.value.decoded)) == (2, 1)


def test_a_topic_of_two_tables_is_refused() -> None:
    decoder = MaxwellDecoder()
    decode(message("insert"), decoder=decoder)
    with pytest.raises(ChangeError, match=r"shop\.goods and of shop\.orders: give every table a topic"):
        decode(message("insert", table="orders"), decoder=decoder)


def test_an_old_key_with_null_is_refused() -> None:
    with pytest.raises(ChangeError, match="NULL in the row's key"):
        decode(message("update", old={"Id": None}))


@pytest.mark.parametrize(("option", "lacking"), [(True, None), (False, LACKING_NULL), (None, LACKING_UNKNOWN)])
def test_what_a_column_means_that_a_row_lacks_is_said_by_the_feed(option: bool | None, lacking: str | None) -> None:
    decoder = MaxwellDecoder(output_nulls=option)
    for kind in ("insert", "update", "bootstrap-insert"):
        (change,) = decode(message(kind, old={}), decoder=decoder)
        assert change.semantics is not None
        assert change.semantics.get(LACKING) == lacking
    update = message("update", {"Id": 7}, old={"gone": "x"})
    if option is False:
        assert [change.row for change in decode(update, decoder=decoder)] == [{"Id": 7}]
    else:
        with pytest.raises(ChangeError, match=r"lacks gone.*output_nulls"):
            decode(update, decoder=decoder)


def test_a_row_that_may_lack_nulls_takes_no_value_of_an_earlier_one() -> None:
    decoder = MaxwellDecoder(output_nulls=False)
    changes = decode(message("insert"), decoder=decoder) + decode(
        message("bootstrap-insert", {"Id": 7}), decoder=decoder
    )
    assert [change.row for change in reduce_changes(changes, ["Id"]).upserts] == [{"Id": 7}]


def test_the_option_is_of_maxwells_format_only() -> None:
    feed = "feed: shop\nsource: {{topics: [a], format: {}, output_nulls: false}}\n"
    feed += "sink: {{type: postgresql, dsn: host=x dbname=y}}"
    assert parse_feed(feed.format("maxwell-json")).source.output_nulls is False
    with pytest.raises(FeedSpecError, match="output_nulls is an option of Maxwell"):
        parse_feed(feed.format("canal-json"))
