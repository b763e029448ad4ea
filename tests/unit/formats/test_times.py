"""Odd times in events: left out where they are for people, refused where a claim would be made of them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.formats import canal_json, maxwell_json
from headgate.formats.change import ChangeError, source_time, source_times
from headgate.formats.debezium_json import DebeziumJsonDecoder
from headgate.formats.decoding import UndecodableError
from headgate.formats.transactions import decode_end
from headgate.records.ts import MS_MAX, TS_MAX, ts_of_ms

NOW_MS = 1_795_228_073_964
NOW_US, NOW_NS = NOW_MS * 1_000, NOW_MS * 1_000_000
KEY = b'{"id": 1}'
TRANSACTION = {"id": "7:1", "total_order": 1, "data_collection_order": 1}


def debezium(ts_ms: int, **more: Any) -> bytes:
    source = {"ts_ms": ts_ms, "db": "d", "schema": "s", "table": "t"}
    return json.dumps({"op": "c", "after": {"id": 1}, "source": source} | more).encode()


def batch(decoder: DebeziumJsonDecoder, *values: bytes) -> list[int | None]:
    count = len(values)
    changes = decoder.decode_batch([KEY] * count, values, [0] * count, range(count), [NOW_MS] * count)
    return [change.source_ms for change in changes]


def test_a_time_in_microseconds_is_no_time_of_a_debezium_event() -> None:
    decoder = DebeziumJsonDecoder()
    change = decoder.decode(KEY, debezium(NOW_US), 0, 0, NOW_MS)
    assert change is not None
    assert change.source_ms is None
    assert batch(decoder, debezium(NOW_MS), debezium(NOW_US), debezium(-1)) == [NOW_MS, None, None]
    assert batch(decoder, debezium(2**70)) == [None]
    assert batch(decoder, debezium(NOW_MS), debezium(0)) == [NOW_MS, 0]


def test_where_a_feed_ends_by_that_time_the_event_is_refused() -> None:
    decoder = DebeziumJsonDecoder(transactions=True)
    good = debezium(NOW_MS, transaction=TRANSACTION)
    assert batch(decoder, good, good) == [NOW_MS, NOW_MS]
    with pytest.raises(UndecodableError, match=r"offset 1: source\.ts_ms is 1795228073964000") as raised:
        batch(decoder, good, debezium(NOW_US, transaction=TRANSACTION), good)
    assert [change.offset for change in raised.value.decoded] == [0]


def test_milliseconds_are_no_time_of_a_maxwell_event() -> None:
    message = {"database": "d", "table": "t", "type": "insert", "ts": NOW_MS, "data": {"id": 1}}
    key = json.dumps({"database": "d", "table": "t", "pk.id": 1}).encode()
    (change,) = maxwell_json.MaxwellDecoder().decode(key, json.dumps(message).encode(), 0, 0, NOW_MS)
    assert change.source_ms is None
    (change,) = maxwell_json.MaxwellDecoder().decode(key, json.dumps(message | {"ts": 7}).encode(), 0, 0, NOW_MS)
    assert change.source_ms == 7_000


def canal(**more: Any) -> bytes:
    row = {"database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "type": "INSERT", "ts": 1, "sql": ""}
    types: dict[str, Any] = {"sqlType": {"id": 4}, "mysqlType": {"id": "int"}, "data": [{"id": "1"}], "old": None}
    return json.dumps(row | types | {"es": NOW_MS} | more).encode()


def test_nanoseconds_are_no_time_of_a_canal_event() -> None:
    decoder = canal_json.CanalDecoder(tidb=False)
    (change,) = decoder.decode(None, canal(es=NOW_NS), 0, 0, NOW_MS)
    assert change.source_ms is None
    (change,) = decoder.decode(None, canal(), 0, 1, NOW_MS)
    assert change.source_ms == NOW_MS


@pytest.mark.parametrize("ts", [2**64 - 1, TS_MAX + 1, -1])
def test_a_watermark_or_commit_ts_that_is_no_ts_is_refused(ts: int) -> None:
    decoder = canal_json.CanalDecoder(tidb=True)
    with pytest.raises(ChangeError, match=f"watermarkTs is {ts}"):
        decoder.decode(None, canal(type="TIDB_WATERMARK", _tidb={"watermarkTs": ts}), 0, 0, NOW_MS)
    assert decoder.take_watermarks() == []
    with pytest.raises(ChangeError, match=f"commitTs is {ts}"):
        decoder.decode(None, canal(_tidb={"commitTs": ts}), 0, 1, NOW_MS)


@pytest.mark.parametrize("change", [{"ts_ms": NOW_US}, {"ts_ms": -5}, {"data_collections": [("s.t", -1)]}])
def test_an_end_of_a_transaction_that_nothing_can_be_claimed_of_is_refused(change: dict[str, Any]) -> None:
    end: dict[str, Any] = {"status": "END", "id": "7:1", "ts_ms": NOW_MS, "data_collections": [("s.t", 1)]} | change
    end["data_collections"] = [{"data_collection": n, "event_count": c} for n, c in end["data_collections"]]
    with pytest.raises(ChangeError, match="the END of '7:1'"):
        decode_end(json.dumps(end).encode())


@given(st.lists(st.none() | st.integers() | st.integers(0, MS_MAX) | st.text(max_size=2) | st.floats()))
def test_whatever_an_event_says_its_time_is_a_ts_or_none(column: list[Any]) -> None:
    times = list(source_times(column))
    assert times == [source_time(told) for told in column]
    assert all(ms is None or 0 <= ts_of_ms(ms) <= TS_MAX for ms in times)
