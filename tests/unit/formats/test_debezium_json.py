"""Debezium JSON as the connectors write it, with schema and without, and what is not."""

import json
from base64 import b64encode
from decimal import Decimal
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.formats.change import ABSENT, BINARY, CONNECTOR, LACKING, Change, ChangeError, Operation
from headgate.formats.debezium_json import DebeziumJsonDecoder
from headgate.formats.debezium_schema import SCHEMAS_MAX, with_head
from headgate.formats.decoding import UndecodableError
from headgate.formats.reducing import reduce_changes

PLACEHOLDER = "__debezium_unavailable_value"
# As PostgreSQL connector 3.6 wrote it.
UPDATE = (
    b'{"before":null,"after":{"id":1,"name":"Ann O\'Neil \xc3\xa9","qty":4,"price":"13.75","born":11356,'
    b'"at":"2026-01-02T03:04:05.678901Z","ts":1767323045678901,"ok":true,'
    b'"j":"{\\"a\\": 1}","raw":"AP8=","tags":["x","y"]},'
    b'"source":{"version":"3.6.0.Final","connector":"postgresql","name":"shop","ts_ms":1795228070901,"snapshot":"false",'
    b'"db":"postgres","sequence":"[null,\\"1\\"]","schema":"public","table":"demo","txId":777,"lsn":1,"xmin":null},'
    b'"transaction":{"id":"777:1","total_order":1,"data_collection_order":1},"op":"u","ts_ms":1,"ts_us":1,"ts_ns":1}'
)


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def field(column: str, kind: str = "int32", /, **more: object) -> dict:
    return {"type": kind, "optional": True, **more, "field": column}


def wrapped(fields: list[dict], after: dict | None, op: str = "c") -> bytes:
    row = {"type": "struct", "fields": fields, "optional": True, "name": "shop.public.t.Value"}
    envelope = [{**row, "field": "before"}, {**row, "field": "after"}, field("op", "string")]
    payload = {"before": None, "after": after, "source": {"ts_ms": 5}, "op": op}
    schema = {"type": "struct", "fields": envelope, "optional": False, "name": "shop.public.t.Envelope"}
    return compact({"schema": schema, "payload": payload})


def wrapped_key(**key: object) -> bytes:
    fields = [field(name) for name in key]
    return compact({"schema": {"type": "struct", "fields": fields, "optional": False}, "payload": key})


def decode(
    value: bytes | None, key: bytes | None = b'{"id":1}', decoder: DebeziumJsonDecoder | None = None
) -> Change | None:
    return (decoder or DebeziumJsonDecoder()).decode(key, value, 3, 14, 99)


def test_who_wrote_an_event_is_known_without_a_schema_too() -> None:
    def event(connector: str | None) -> bytes:
        named = {} if connector is None else {"connector": connector}
        return compact({"op": "c", "after": {"id": 1}, "source": {"ts_ms": 5, **named}})

    connectors = ["mysql", "mysql", "postgresql", None]
    keys = [b'{"id":1}'] * 4
    together = DebeziumJsonDecoder().decode_batch(
        keys, [event(each) for each in connectors], [0] * 4, [1, 2, 3, 4], [0] * 4
    )
    expected = [None if each is None else {CONNECTOR: each} for each in connectors]
    assert [change.semantics for change in together] == expected
    alike = DebeziumJsonDecoder().decode_batch(keys, [event("mysql")] * 4, [0] * 4, [1, 2, 3, 4], [0] * 4)
    # One object for all of them: the sinks tell by it that rows may be written together.
    assert len({id(change.semantics) for change in alike}) == 1
    assert alike[0].semantics is together[0].semantics

    source = {"field": "source", "type": "struct", "fields": [], "name": "io.debezium.connector.mariadb.Source"}
    after = {"field": "after", "type": "struct", "fields": [{"field": "id", "type": "int64"}]}
    schema = {"type": "struct", "fields": [after, source]}
    change = decode(compact({"schema": schema, "payload": {"op": "c", "after": {"id": 1}}}))
    assert change is not None
    assert change.semantics == {"id": "int64", CONNECTOR: "mariadb"}


def test_an_event_as_a_connector_writes_it() -> None:
    change = decode(UPDATE)
    assert change is not None
    assert (change.partition, change.offset, change.append_ms, change.source_ms) == (3, 14, 99, 1795228070901)
    assert (change.operation, change.key, change.semantics) == (
        Operation.UPSERT,
        {"id": 1},
        {CONNECTOR: "postgresql"},
    )
    assert change.row is not None
    assert change.row["name"] == "Ann O'Neil é"
    assert change.row["ts"] == 1767323045678901
    assert change.row["tags"] == ["x", "y"]
    assert change.row["j"] == '{"a": 1}'


@pytest.mark.parametrize(
    ("op", "operation"), [("c", Operation.UPSERT), ("r", Operation.UPSERT), ("u", Operation.UPSERT)]
)
def test_create_read_and_update_are_upserts(op: str, operation: Operation) -> None:
    assert decode(compact({"op": op, "after": {"id": 1}})).operation is operation


def test_deletes_truncates_tombstones_and_messages() -> None:
    delete = decode(compact({"op": "d", "before": {"id": 1, "v": "x"}, "after": None, "source": {"ts_ms": 7}}))
    assert (delete.operation, delete.key, delete.row, delete.source_ms) == (Operation.DELETE, {"id": 1}, None, 7)
    truncate = decode(compact({"op": "t", "before": None, "after": None}), key=None)
    assert (truncate.operation, truncate.key) == (Operation.TRUNCATE, {})
    assert decode(None, key=None) is None, "a tombstone without key names no row"
    assert decode(compact({"op": "m", "message": {"prefix": "x", "content": ""}}), key=None) is None


def test_with_schema_the_meaning_of_every_column_is_known() -> None:
    fields = [
        field("id"),
        field("price", "bytes", name="org.apache.kafka.connect.data.Decimal", version=1, parameters={"scale": "2"}),
        field("born", "int32", name="io.debezium.time.Date", version=1),
        field("flags", "bytes", name="io.debezium.data.Bits", parameters={"length": "10"}),
        field("days", "array", items={"type": "int32", "optional": True, "name": "io.debezium.time.Date"}),
        field("grid", "array", items={"type": "array", "items": {"type": "int32"}}),
        field("raw", "bytes"),
    ]
    row = {"id": 1, "price": "BOI=", "born": 11356, "flags": "BQI=", "days": [1], "grid": [[1]], "raw": "AP8="}
    change = decode(wrapped(fields, row), key=wrapped_key(id=1))
    assert (change.key, change.row) == ({"id": 1}, row)
    assert change.semantics == {
        "id": "int32",
        "price": "org.apache.kafka.connect.data.Decimal(2)",
        "born": "io.debezium.time.Date",
        "flags": "io.debezium.data.Bits(10)",
        "days": "array(io.debezium.time.Date)",
        "grid": "array(array(int32))",
        "raw": "bytes",
    }
    assert decode(wrapped(fields, None, "d"), key=wrapped_key(id=1)).semantics == change.semantics


TRICKY = {
    "payload": 'x","payload":{"op":"c","after":{}}',
    "after": ',"payload":',
    "schema": "s",
    "op": "d",
    "source": "no",
}


@pytest.mark.parametrize("with_schema", [True, False])
def test_columns_named_like_parts_of_the_envelope(with_schema: bool) -> None:
    decoder = DebeziumJsonDecoder()
    fields = [field(name, "string") for name in TRICKY] + [field("more", "string", default=',"payload":{"')]
    key = {"payload": 1, "schema": 2}
    for number in range(3):  # the schema is unknown, then known
        row = {**TRICKY, "more": str(number)}
        value = wrapped(fields, row) if with_schema else compact({"before": None, "after": row, "op": "u"})
        change = decode(value, wrapped_key(**key) if with_schema else compact(key), decoder)
        assert (change.row, change.key, change.operation) == (row, key, Operation.UPSERT)


def test_a_schema_whose_default_looks_like_the_border_is_not_cut_there() -> None:
    decoder = DebeziumJsonDecoder()
    fields = [field("j", "struct", default={"a": 1, "payload": {"op": "d"}})]
    for number in range(3):
        assert decode(wrapped(fields, {"j": number}), decoder=decoder).row == {"j": number}


def test_an_altered_table_is_not_read_with_the_old_schema() -> None:
    decoder = DebeziumJsonDecoder()
    old = [field("id"), field("at", "int64", name="io.debezium.time.Timestamp")]
    new = [field("id"), field("at", "int64", name="io.debezium.time.MicroTimestamp")]
    seen = [
        decode(wrapped(fields, {"id": 1, "at": 5}), decoder=decoder).semantics["at"] for fields in (old, new, old, new)
    ]
    assert [name.rsplit(".", 1)[1] for name in seen] == ["Timestamp", "MicroTimestamp"] * 2


def test_more_schemas_than_are_kept_are_still_read() -> None:
    decoder = DebeziumJsonDecoder()
    for _ in range(2):
        for number in range(SCHEMAS_MAX + 2):
            column = f"c{number}"
            assert decode(wrapped([field(column)], {column: 1}), decoder=decoder).semantics == {column: "int32"}


def test_schemas_written_in_an_unusual_way() -> None:
    value = json.loads(wrapped([field("id")], {"id": 1}))
    for text in (json.dumps(value, indent=2), json.dumps({"payload": value["payload"], "schema": value["schema"]})):
        change = decode(text.encode(), key=json.dumps(json.loads(wrapped_key(id=1)), indent=1).encode())
        assert (change.key, change.row, change.semantics) == ({"id": 1}, {"id": 1}, {"id": "int32"})
    null_schema = compact({"schema": None, "payload": value["payload"]})
    assert decode(null_schema, key=compact({"schema": None, "payload": {"id": 1}})).key == {"id": 1}


@pytest.mark.parametrize(
    "form",
    [
        PLACEHOLDER,
        b64encode(PLACEHOLDER.encode()).decode(),
        [PLACEHOLDER],
        [b64encode(PLACEHOLDER.encode()).decode()],
        list(PLACEHOLDER.encode()),
        {PLACEHOLDER: PLACEHOLDER},
        json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":")),
    ],
    ids=["text", "bytea", "text[]", "bytea[]", "integer[]", "hstore map", "hstore json"],
)
def test_every_form_of_the_placeholder_is_absent(form: object) -> None:
    row = {"id": 1, "big": form, "near": f"not {PLACEHOLDER}", "list": [PLACEHOLDER, "x"], "none": None}
    change = decode(compact({"op": "u", "after": row}))
    assert change.row == {**row, "big": ABSENT}


def test_the_placeholder_can_be_another() -> None:
    decoder = DebeziumJsonDecoder(unavailable_value="☠")
    change = decode(compact({"op": "u", "after": {"id": 1, "a": "☠", "b": PLACEHOLDER}}), decoder=decoder)
    assert change.row == {"id": 1, "a": ABSENT, "b": PLACEHOLDER}


def test_numbers_are_exact() -> None:
    row = b'{"id":1,"a":9223372036854775807,"b":18446744073709551615,'
    row += b'"c":123456789012345678901234567890,"d":0.1,"e":"NaN"}'
    assert decode(b'{"op":"c","after":' + row + b"}").row == {
        "id": 1,
        "a": 2**63 - 1,
        "b": 2**64 - 1,
        "c": 123456789012345678901234567890,
        "d": Decimal("0.1"),
        "e": "NaN",
    }


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "not JSON|envelope"),
        (b"{", "not JSON|envelope"),
        (b"\x00\x00\x00\x00\x01abc", "not JSON|envelope"),
        (b"[1]", "not JSON|envelope"),
        (b'{"id":1,"v":"flat"}', "envelope.*unwrapping"),
        (b'{"ts_ms":5}', "envelope"),
        (b'{"op":"x"}', "op='x'.*expected"),
        (b'{"op":"c","after":null}', "without a row"),
        (b'{"op":"u"}', "without a row"),
        (b'{"op":"c","after":{"v":"\xff"}}', "utf-8|envelope"),
        (b'{"schema":{"type":"struct","fields":[]},"payload":{"op":"c","after":{}}}', "describes no field 'after'"),
        (wrapped([field("id")], {"id": 1})[:-1], "not JSON|envelope"),
        (wrapped([field("id")], {"id": 1}) + b"}", "not JSON|envelope"),
    ],
)
def test_what_is_no_event_is_refused_with_the_reason(value: bytes, says: str) -> None:
    decoder = DebeziumJsonDecoder()
    assert decode(wrapped([field("id")], {"id": 1}), decoder=decoder).row == {"id": 1}
    with pytest.raises(ChangeError, match=says):
        decode(value, decoder=decoder)


@pytest.mark.parametrize(
    ("key", "says"), [(None, "no primary key"), (b"7", "not a JSON object"), (b"{", "not a JSON object")]
)
def test_a_key_is_needed(key: bytes | None, says: str) -> None:
    with pytest.raises(ChangeError, match=says):
        decode(UPDATE, key=key)


def test_a_batch_names_its_first_bad_event_and_hands_over_what_came_before() -> None:
    keys = [b'{"id":1}', None, b'{"id":3}', b'{"id":4}']
    values = [UPDATE, b'{"op":"m"}', b"bad", UPDATE]
    good = DebeziumJsonDecoder().decode_batch(keys[:2], values[:2], [0, 0], [10, 11], [1, 2])
    assert [(change.offset, change.append_ms) for change in good] == [(10, 1)]
    with pytest.raises(UndecodableError, match="partition 4, offset 12") as refused:
        DebeziumJsonDecoder().decode_batch(keys, values, [0, 0, 4, 0], [10, 11, 12, 13], [1, 2, 3, 4])
    assert (refused.value.partition, refused.value.offset) == (4, 12)
    assert [change.offset for change in refused.value.decoded] == [10]


@given(st.binary(max_size=60), st.binary(max_size=20))
def test_any_bytes_give_a_change_or_a_typed_error(value: bytes, key: bytes) -> None:
    decoder = DebeziumJsonDecoder()
    decode(wrapped([field("id")], {"id": 1}), decoder=decoder)
    known = wrapped([field("id")], {"id": 1})
    for data in (value, known[: len(known) - 20] + value, known + value):
        try:
            change = decoder.decode(key, data, 0, 0, 0)
        except ChangeError:
            continue
        assert change is None or isinstance(change, Change)


_JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3))


_NAMES = st.text(min_size=1).filter(lambda name: name not in (BINARY, LACKING))
"""Of columns: what the code keeps for itself is refused, and hypothesis draws the constants that it finds there."""


@given(st.dictionaries(_NAMES, _JSON, min_size=1, max_size=5))
def test_any_row_comes_out_as_it_went_in_with_schema_and_without(row: dict[str, object]) -> None:
    plain = decode(json.dumps({"op": "c", "after": row}).encode(), key=b'{"k":1}')
    decoder = DebeziumJsonDecoder()
    fields = [field(name, "string") for name in row]
    assert plain.row == row
    for _ in range(2):
        assert decode(wrapped(fields, row), decoder=decoder).row == row


def test_events_without_key_are_rows_to_be_added_if_so_chosen() -> None:
    added = compact({"before": None, "after": {"v": 1}, "op": "c"})
    with pytest.raises(ChangeError, match=r"no key.*sink\.keyless: append"):
        DebeziumJsonDecoder().decode(None, added, 0, 0, 0)
    decoder = DebeziumJsonDecoder(keyless=True)
    change = decoder.decode(None, added, 0, 0, 0)
    assert change is not None
    assert (change.key, change.row) == ({}, {"v": 1})
    for op in ("u", "d"):
        told = compact({"before": {"v": 1}, "after": {"v": 2} if op == "u" else None, "op": op})
        with pytest.raises(ChangeError, match=rf"op='{op}' on a table without key"):
            decoder.decode(None, told, 0, 0, 0)
    assert decoder.decode(b'{"id":1}', compact({"after": {"id": 1}, "op": "u"}), 0, 0, 0).key == {"id": 1}


# --- tombstones -------------------------------------------------------------------------------------------------------

UPSERT = b'{"op":"u","after":{"id":1},"source":{"connector":"mysql"}}'
DELETED = b'{"op":"d","after":null,"source":{"connector":"mysql"}}'


def decoded(
    *events: tuple[bytes | None, bytes | None], decoder: DebeziumJsonDecoder | None = None, first: int = 0
) -> list[Change]:
    keys, values = [key for key, _ in events], [value for _, value in events]
    offsets = range(first, first + len(events))
    return (decoder or DebeziumJsonDecoder()).decode_batch(keys, values, [0] * len(events), offsets, [7] * len(events))


@pytest.mark.parametrize(
    "closer", [b'{"op":"u","after":{"id":4,"v":["a list"]}}', UPSERT], ids=["one by one", "at once"]
)
def test_a_tombstone_is_a_delete_of_its_row_unless_it_repeats_the_one_in_front_of_it(closer: bytes) -> None:
    one, two = b'{"id":1}', b'{"id":2}'
    events = [(one, UPSERT), (one, None), (two, DELETED), (two, None), (two, None), (None, None), (one, closer)]
    changes = decoded(*events)
    assert [(change.offset, change.operation.value, change.key) for change in changes] == [
        (0, "upsert", {"id": 1}),
        (1, "delete", {"id": 1}),
        (2, "delete", {"id": 2}),
        (4, "delete", {"id": 2}),
        (6, "upsert", {"id": 1}),
    ]
    assert (changes[1].row, changes[1].source_ms, changes[1].append_ms) == (None, None, 7)
    assert changes[1].semantics == {CONNECTOR: "mysql"}, "its key means what it meant in the change before"


def test_a_tombstone_repeats_a_delete_only_where_nothing_can_stand_between_them() -> None:
    key, decoder = b'{"id":1}', DebeziumJsonDecoder()
    assert len(decoded((key, DELETED), decoder=decoder)) == 1
    assert decoded((key, None), decoder=decoder, first=1) == [], "the last of one batch and the first of the next"
    assert len(decoded((key, None), decoder=decoder, first=1)) == 0
    assert len(decoded((key, DELETED), decoder=decoder, first=5)) == 1
    (late,) = decoded((key, None), decoder=decoder, first=7)
    assert (late.offset, late.operation) == (7, Operation.DELETE), "offset 6 may have made the row again"


def test_the_key_of_a_tombstone_means_what_its_schema_says_where_no_change_was_met() -> None:
    fields = [{"field": "id", "type": "int64", "name": "io.debezium.time.MicroTimestamp"}]
    key = compact({"schema": {"type": "struct", "fields": fields}, "payload": {"id": 5}})
    (change,) = decoded((key, None))
    assert (change.key, change.semantics) == ({"id": 5}, {"id": "io.debezium.time.MicroTimestamp"})
    (_, change) = decoded((key, UPSERT), (key, None))
    assert change.semantics == {"id": "io.debezium.time.MicroTimestamp", CONNECTOR: "mysql"}
    value = wrapped([field("id", "int64", name="io.debezium.time.Timestamp")], {"id": 5})
    (upsert, change) = decoded((b'{"id":5}', value), (b'{"id":5}', None))
    assert change.semantics is upsert.semantics


def test_a_tombstone_repeats_the_delete_that_a_batch_with_another_tombstone_ended_with() -> None:
    key, decoder = b'{"id":1}', DebeziumJsonDecoder()
    changes = decoded((b'{"id":2}', None), (key, DELETED), decoder=decoder)
    assert [change.offset for change in changes] == [0, 1]
    assert decoded((key, None), decoder=decoder, first=2) == []


def test_a_tombstone_in_front_of_a_batch_means_what_the_change_before_it_said() -> None:
    decoder = DebeziumJsonDecoder()
    (wrapped_one,) = decoded((b'{"id":5}', wrapped([field("id", "int32")], {"id": 5})), decoder=decoder)
    tombstone, _ = decoded((b'{"id":5}', None), (b'{"id":6}', UPSERT), decoder=decoder, first=1)
    assert tombstone.semantics == wrapped_one.semantics


@pytest.mark.parametrize("key", [b"", b"1", b"{", b"\xff", b"null", b'{"schema":1'])
def test_a_tombstone_whose_key_names_no_row_is_refused(key: bytes) -> None:
    with pytest.raises(UndecodableError, match="offset 1"):
        decoded((b'{"id":1}', UPSERT), (key, None))


def test_a_delete_with_its_tombstone_is_one_row_of_a_reduced_batch() -> None:
    key, again = b'{"id":1}', b'{"op":"c","after":{"id":1}}'
    changes = decoded((key, DELETED), (key, None), (b'{"id":2}', None), (b'{"id":2}', DELETED), (b'{"id":2}', None))
    reduced = reduce_changes(changes, ["id"])
    assert [change.key["id"] for change in reduced.deletes] == [1, 2]
    reduced = reduce_changes(decoded((key, DELETED), (key, None), (key, None), (key, again)), ["id"])
    assert ([change.key["id"] for change in reduced.deletes], len(reduced.upserts)) == ([1], 1)


EVENTS: list[tuple[bytes | None, bytes | None]] = [
    (b'{"id":1}', b'{"op":"c","after":{"id":1,"a":"x"},"source":{"ts_ms":5}}'),
    (b'{"id":2}', b'{"op":"u","after":{"id":2,"a":null}}'),
    (b'{"id":2}', b'{"op":"d","after":null,"before":{"id":2}}'),
    (b'{"id":2}', b'{"op":"d","after":{"id":2}}'),
    (b'{"id":2}', None),
    (None, None),
    (b'{"id":3}', b'{"op":"u","after":{"id":3,"a":"' + PLACEHOLDER.encode() + b'"}}'),
    (b'{"id":4}', b'{"op":"u","after":{"id":4,"a":["' + PLACEHOLDER.encode() + b'"]}}'),
    (b'{"id":5}', b'{"op":"u","after":{"id":5,"a":["x"]}}'),
    (None, b'{"op":"t","after":null}'),
    (b'{"id":6}', b'{"op":"m"}'),
    (b'{"id":7}', wrapped([field("id"), field("a", "string")], {"id": 7, "a": "w"})),
    (wrapped_key(id=8), wrapped([field("id"), field("a", "string")], {"id": 8, "a": "w"})),
    (wrapped_key(id=9), wrapped([field("id"), field("payload", "string")], {"id": 9, "payload": ',"payload":'})),
    (wrapped_key(id=9), wrapped([field("id"), field("a", "string", default=',"payload":')], {"id": 9, "a": "z"})),
    (b'{"schema":1,"payload":2}', b'{"op":"c","after":{"schema":1,"payload":2}}'),
]


@given(st.lists(st.sampled_from(EVENTS), max_size=12))
def test_a_batch_decodes_as_its_events_do_one_by_one(events: list[tuple[bytes | None, bytes | None]]) -> None:
    batched, single = DebeziumJsonDecoder(), DebeziumJsonDecoder()
    # What was decoded before (an ALTER in between, say) must not change what an event means.
    for start in range(0, len(events), 4):
        part = events[start : start + 4]
        offsets = list(range(start, start + len(part)))
        changes = batched.decode_batch(
            [key for key, _ in part], [value for _, value in part], [1] * len(part), offsets, [7] * len(part)
        )
        each = [single.decode(key, value, 1, offset, 7) for (key, value), offset in zip(part, offsets, strict=True)]
        assert changes == [change for change in each if change is not None]


def of(table: str | None, number: int = 1, *, schema: str | None = "public", db: str = "shop", op: str = "c") -> bytes:
    """An event of that table, as a connector of PostgreSQL (or, without schema, of MySQL) writes it."""
    parts = {"db": db, "schema": schema, "table": table}
    source = {"ts_ms": 5, "connector": "x", **{part: name for part, name in parts.items() if name is not None}}
    row = {"after": {"id": number}} if op in "cru" else {"after": None}
    return compact({"op": op, **row, "source": source if table else {"ts_ms": 5}})


OTHERS = [
    of("items"),
    of("orders", schema="sales"),
    of("orders", db="other"),
    of("orders", schema=None),
    of("items", op="d"),
]


@pytest.mark.parametrize("transactions", [False, True])
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("other", OTHERS)
def test_a_second_table_in_a_topic_is_refused_by_name(other: bytes, warm: bool, transactions: bool) -> None:
    decoder, keys = DebeziumJsonDecoder(transactions=transactions), [b'{"id":1}'] * 4
    if warm:  # the table is known, and whole batches are decoded by a parser made for it
        decoder.decode_batch(keys, [of("orders")] * 4, [0] * 4, [1, 2, 3, 4], [1] * 4)
    with pytest.raises(UndecodableError, match=r"carries changes of shop\.public\.orders and of .*own") as caught:
        decoder.decode_batch(keys, [of("orders"), of("orders"), other, other], [0] * 4, [10, 11, 12, 13], [1] * 4)
    assert (caught.value.offset, [change.offset for change in caught.value.decoded]) == (12, [10, 11])


@pytest.mark.parametrize("schema", ["public", None])
def test_one_table_is_one_whatever_its_name_and_what_stands_between_its_changes(schema: str | None) -> None:
    decoder = DebeziumJsonDecoder()
    name = 'Größe "a"\\b\u2028'
    message = compact({"op": "m", "source": {"db": "shop", "schema": "", "table": ""}})
    events = [of(name, schema=schema), None, message, of(name, 2, schema=schema, op="d"), of(None, 3)]
    escaped = json.dumps(json.loads(of(name, 4, schema=schema))).encode()
    for events_now in (events, [of(name, n, schema=schema) for n in range(5)], [escaped] * 5):
        changes = decoder.decode_batch([b'{"id":1}'] * 5, events_now, [0] * 5, range(5), [1] * 5)
        assert len(changes) == (4 if events_now is events else 5)


def test_events_without_source_are_decoded_as_one_table() -> None:
    decoder = DebeziumJsonDecoder()
    for _ in range(2):
        bare = [b'{"op":"c","after":{"id":1}}', b'{"op":"c","after":{"id":1},"source":null}', of(None)]
        assert len(decoder.decode_batch([b'{"id":1}'] * 3, bare, [0] * 3, [1, 2, 3], [1] * 3)) == 3


@pytest.mark.parametrize("bad", [b"{", b'{"op":"?"}', b'{"op":"c"}', b'{"op":"c","after":null}', b"\xff"])
def test_one_bad_event_among_good_ones_is_named_and_the_good_ones_before_it_are_given(bad: bytes) -> None:
    good = b'{"op":"c","after":{"id":1}}'
    with pytest.raises(UndecodableError, match="offset 12") as caught:
        DebeziumJsonDecoder().decode_batch(
            [b'{"id":1}'] * 4, [good, good, bad, good], [0] * 4, [10, 11, 12, 13], [1] * 4
        )
    assert [change.offset for change in caught.value.decoded] == [10, 11]


_EVENT = wrapped([field("id"), field("payload", "string", default=',"payload":')], {"id": 1})
HEAD = _EVENT[: _EVENT.index(b'{"before"')]
PAYLOADS: list[tuple[bytes | None, bytes | None]] = [
    *[(key, value) for key, value in EVENTS if value is None or b'"schema"' not in value],
    (wrapped_key(id=8), b'{"op":"c","after":{"id":8,"payload":"x"},"source":{"ts_ms":5}}'),
    (wrapped_key(id=8), b'{"op":"d","after":null,"source":{"ts_ms":6}}'),
    (wrapped_key(id=8), None),
]


@given(st.lists(st.lists(st.sampled_from(PAYLOADS), max_size=6), max_size=4))
def test_values_without_their_head_decode_as_those_with_it(
    batches: list[list[tuple[bytes | None, bytes | None]]],
) -> None:
    cut, whole = DebeziumJsonDecoder(), DebeziumJsonDecoder()
    offset = 0
    for events in batches:
        keys, payloads = [key for key, _ in events], [payload for _, payload in events]
        values = [with_head(HEAD, payload) for payload in payloads]
        places = ([1] * len(events), list(range(offset, offset + len(events))), [7] * len(events))
        assert cut.decode_cut(HEAD, keys, payloads, *places) == whole.decode_batch(keys, values, *places)
        offset += len(events)


@pytest.mark.parametrize("bad", [b"", b"{", b'{"op":"c","after":{"id":1}},"more":1', b'{"op":"?"}', b"[1]"])
def test_a_bad_payload_without_its_head_is_named_as_the_value_would_be(bad: bytes) -> None:
    good = b'{"op":"c","after":{"id":1}}'
    columns = ([1] * 3, [4, 5, 6], [7] * 3)
    errors = []
    for is_cut in (True, False):
        decoder = DebeziumJsonDecoder()
        values = [payload if is_cut else with_head(HEAD, payload) for payload in (good, bad, good)]
        decoding = partial(decoder.decode_cut, HEAD) if is_cut else decoder.decode_batch
        with pytest.raises(UndecodableError) as error:
            decoding([b'{"id":1}'] * 3, values, *columns)
        errors.append((str(error.value), error.value.offset, error.value.decoded))
    assert errors[0] == errors[1]
    assert len(errors[0][2]) == 1


def test_a_decoder_tells_what_all_values_of_a_batch_began_with() -> None:
    decoder = DebeziumJsonDecoder()
    fields = [field("id"), field("a", "string", default=',"payload":')]
    one, other = wrapped(fields, {"id": 1, "a": "x"}), wrapped(fields[:1], {"id": 1})
    head = one[: one.index(b'{"before"')]
    key = b'{"id":1}'
    decoded((key, one), decoder=decoder)
    assert len(decoded((key, one), (key, None), (key, one), decoder=decoder)) == 3
    assert decoder.head == head, "a tombstone has none"
    decoded((key, one), (key, other), decoder=decoder)
    assert decoder.head is None
    decoded((key, UPSERT), decoder=decoder)
    assert decoder.head is None
    decoder.decode_cut(head, [key], [b'{"op":"c","after":{"id":1}}'], [0], [9], [7])
    assert decoder.head is None, "it is known already"


# --- keys with NULL ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [b'{"email":null}', b'{"id":1,"email":null}', wrapped_key(email=None)])
@pytest.mark.parametrize("value", [DELETED, None, UPSERT], ids=["delete", "tombstone", "upsert"])
@pytest.mark.parametrize("before", [0, 3], ids=["alone", "in a batch"])
def test_a_key_with_null_identifies_no_row_and_is_refused(key: bytes, value: bytes | None, before: int) -> None:
    """A delete by such a key would delete nothing, and say nothing."""
    good = (b'{"id":1}', UPSERT)
    with pytest.raises(
        UndecodableError, match=r"NULL in email.*message\.key\.columns.*REPLICA IDENTITY FULL"
    ) as refused:
        decoded(*[good] * before, (key, value), good)
    assert (refused.value.offset, len(refused.value.decoded)) == (before, before)
