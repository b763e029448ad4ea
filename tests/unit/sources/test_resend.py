"""What cannot be sent again by itself, whatever the log says of its key."""

import json
from typing import Any

import pytest

from headgate.formats import canal_json, debezium_json, maxwell_json
from headgate.sources.resend import Original, why_not_alone


def original(key: Any, value: Any) -> Original:
    return Original("t", 0, 7, json.dumps(key).encode(), json.dumps(value).encode())


def maxwell(old: dict[str, Any]) -> Original:
    key = {"database": "shop", "table": "items", "pk.id": 2}
    row = {"id": 2, "what": "new"}
    value = {"database": "shop", "table": "items", "type": "update", "ts": 1, "data": row, "old": old}
    return original(key, value)


def test_a_key_change_is_of_two_rows_and_an_update_of_one() -> None:
    reason = why_not_alone(maxwell_json.MaxwellDecoder(), maxwell({"id": 1}))
    assert reason is not None
    assert 'it changes 2 rows, {"id":1} and {"id":2}' in reason
    assert "headgate verify" in reason, "the way out"
    assert why_not_alone(maxwell_json.MaxwellDecoder(), maxwell({"what": "old"})) is None


def test_a_statement_of_many_rows() -> None:
    def canal(*numbers: int) -> Original:
        return original(
            {},
            {
                "type": "INSERT", "database": "shop", "table": "items", "isDdl": False, "pkNames": ["id"], "es": 1,
                "ts": 1, "mysqlType": {"id": "int"}, "sqlType": {"id": 4}, "old": None,
                "data": [{"id": str(number)} for number in numbers],
            },
        )  # fmt: skip

    assert "it changes 2 rows" in str(why_not_alone(canal_json.CanalDecoder(tidb=False), canal(1, 2)))
    assert why_not_alone(canal_json.CanalDecoder(tidb=False), canal(1)) is None


@pytest.mark.parametrize("value", [b"", b"\\xff\\x00", b"[1", b"{}", b"not json"])
def test_what_nobody_can_read_would_only_be_set_aside_again(value: bytes) -> None:
    decoder = debezium_json.DebeziumJsonDecoder("__unavailable")
    assert "it cannot be read" in str(why_not_alone(decoder, Original("t", 0, 7, b'{"id":1}', value)))


def test_an_event_of_one_row_can_be_read() -> None:
    event = {"op": "c", "after": {"id": 1}, "source": {"schema": "s", "table": "t"}}
    assert why_not_alone(debezium_json.DebeziumJsonDecoder("__unavailable"), original({"id": 1}, event)) is None
