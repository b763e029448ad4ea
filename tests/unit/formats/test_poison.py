"""Whatever bytes come: a decoder gives changes, or says which event is bad, with the changes before it."""

import base64
import copy
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.formats import canal_json, debezium_avro, debezium_json, maxwell_json
from headgate.formats.change import ChangeError
from headgate.formats.dealing import Dealer, EventColumns, Look
from headgate.formats.debezium_schema import envelope_semantics
from headgate.formats.decoding import Decoder, UndecodableError
from headgate.formats.transactions import decode_end, standing_of
from headgate.sinks.relational.postgresql.values import column_text
from headgate.sinks.relational.times import NotTextError
from headgate.sources.origin import origin_of
from headgate.sources.resend import row_key

DEEP = b"[" * 1_500 + b"]" * 1_500
DIGITS = b"9" * 5_000

ROW = {"id": 1, "name": "a"}
DEBEZIUM_SCHEMA = {
    "type": "struct",
    "fields": [
        {
            "field": "after",
            "type": "struct",
            "fields": [
                {"field": "id", "type": "int32"},
                {"field": "tags", "type": "array", "items": {"type": "string"}},
                {
                    "field": "price",
                    "type": "bytes",
                    "name": "org.apache.kafka.connect.data.Decimal",
                    "parameters": {"scale": "2"},
                },
            ],
        },
        {"field": "source", "type": "struct", "name": "io.debezium.connector.postgresql.Source"},
    ],
}
ENVELOPE = {
    "op": "u",
    "before": None,
    "after": {"id": 1, "tags": ["a"], "price": "AQ=="},
    "source": {"ts_ms": 1, "db": "d", "schema": "public", "table": "a", "connector": "postgresql"},
}
CANAL = {
    "type": "UPDATE",
    "database": "public",
    "table": "a",
    "pkNames": ["id"],
    "mysqlType": {"id": "int", "flags": "bit(8)", "kind": "enum('a','b')", "raw": "varbinary(9)"},
    "data": [{"id": "1", "flags": "3", "kind": "1", "raw": "x"}],
    "old": [{"id": "2"}],
    "es": 1,
    "_tidb": {"commitTs": 1},
}
MAXWELL = {
    "type": "update",
    "database": "public",
    "table": "a",
    "ts": 1,
    "data": {"id": 1, "doc": {"n": 1.5}},
    "old": {"id": 2},
}
AVRO_SCHEMA = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "op", "type": "string"},
        {
            "name": "after",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Row",
                    "fields": [
                        {"name": "id", "type": "int"},
                        {"name": "tags", "type": {"type": "array", "items": "string"}},
                    ],
                },
            ],
        },
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [{"name": "schema", "type": "string"}, {"name": "table", "type": "string"}],
            },
        },
    ],
}
AVRO_KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
AVRO_VALUE = b"\x00\x00\x00\x00\x01\x02u\x02\x02\x02\x02a\x00\x0cpublic\x02a"
AVRO_KEY_VALUE = b"\x00\x00\x00\x00\x02\x02"


def encoded(value: object) -> bytes:
    return msgspec.json.encode(value)


def avro(value_schema: object = AVRO_SCHEMA, key_schema: object = AVRO_KEY) -> debezium_avro.DebeziumAvroDecoder:
    schemas = {1: encoded(value_schema).decode(), 2: encoded(key_schema).decode()}
    return debezium_avro.DebeziumAvroDecoder(schemas.__getitem__)


class Format(msgspec.Struct, frozen=True):
    make: Callable[[], Decoder]
    look: Callable[[], Look]
    key: bytes
    value: bytes


FORMATS = {
    "debezium-json": Format(
        debezium_json.DebeziumJsonDecoder, debezium_json.DebeziumJsonLook, encoded({"id": 1}), encoded(ENVELOPE)
    ),
    "debezium-json with schema": Format(
        debezium_json.DebeziumJsonDecoder,
        debezium_json.DebeziumJsonLook,
        encoded({"schema": {"type": "struct", "fields": []}, "payload": {"id": 1}}),
        encoded({"schema": DEBEZIUM_SCHEMA, "payload": ENVELOPE}),
    ),
    "debezium-avro": Format(
        avro,
        lambda: debezium_avro.DebeziumAvroLook({1: encoded(AVRO_SCHEMA).decode()}.__getitem__),
        AVRO_KEY_VALUE,
        AVRO_VALUE,
    ),
    "canal-json": Format(
        lambda: canal_json.CanalDecoder(tidb=False), lambda: canal_json.look, encoded({"id": 1}), encoded(CANAL)
    ),
    "ticdc-canal-json": Format(
        lambda: canal_json.CanalDecoder(tidb=True), lambda: canal_json.look, encoded({"id": 1}), encoded(CANAL)
    ),
    "maxwell-json": Format(
        maxwell_json.MaxwellDecoder,
        lambda: maxwell_json.look,
        encoded({"database": "public", "table": "a", "pk.id": 1}),
        encoded(MAXWELL),
    ),
}
FORMAT = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)


def decode(form: Format, events: Sequence[tuple[bytes | None, bytes | None]]) -> int | None:
    """The offset of the first bad event, None if there is none. Any other exception is a fault."""
    keys, values = [key for key, _ in events], [value for _, value in events]
    try:
        form.make().decode_batch(keys, values, [0] * len(events), range(len(events)), [0] * len(events))
    except UndecodableError as error:
        bad = error
    else:
        return None
    assert all(change.offset < bad.offset for change in bad.decoded)
    return bad.offset


def poisons(form: Format) -> list[bytes]:
    """The event with something in it that makes a parser, or what trusts it, raise what it never should."""
    texts = [DEEP, DIGITS, b'{"a":' + DEEP + b"}", b"", b"\xff\xfe", b"null", b"[]", b"1e99999999999999999999"]
    if form.value[:1] == b"{":
        for poison in (DEEP, DIGITS, b'"\xff"', b"1.5e99999999999999999999", b"-1.5e-99999999999999999999999"):
            texts += [form.value.replace(old, poison) for old in (b'"a"', b"1,", b'"x"') if old in form.value]
    return texts


@FORMAT
def test_the_events_that_the_others_are_made_of_are_good(form: Format) -> None:
    assert decode(form, [(form.key, form.value)] * 3) is None


@FORMAT
def test_poison_is_the_trouble_of_one_event(form: Format) -> None:
    good = (form.key, form.value)
    for poison in poisons(form):
        for event in ((form.key, poison), (poison, form.value)):
            assert decode(form, [good, event, good]) in (None, 1)
    assert decode(form, [good, (form.key, DEEP), good]) == 1


@FORMAT
def test_poison_on_a_topic_of_several_tables_is_an_event_that_does_not_say_whose_it_is(form: Format) -> None:
    values = [form.value, *poisons(form), form.value]
    offsets = range(len(values))
    dealt = Dealer(form.look(), ["public.a"]).deal(EventColumns(offsets, offsets, [form.key] * len(values), values))
    assert {1, 2} <= {offset for offset, _ in dealt.unreadable} < set(offsets)


@pytest.mark.parametrize(
    "broken",
    [
        {"field": "a", "type": "array", "items": "a string"},
        {"field": "a", "type": "array", "items": ["int32"]},
        {"field": "a", "type": "array"},
        {"field": "a", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "two"}},
        {"field": "a", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {}},
        {"field": "a", "name": "io.debezium.data.Bits", "parameters": "8"},
        {"field": ["a"], "type": "int32"},
        "a",
        None,
    ],
)
def test_a_schema_that_is_none_is_the_trouble_of_its_event(broken: object) -> None:
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": [broken]}]}
    with pytest.raises(ChangeError):
        envelope_semantics(schema)
    form = FORMATS["debezium-json with schema"]
    value = encoded({"schema": schema, "payload": ENVELOPE})
    assert decode(form, [(form.key, form.value), (form.key, value)]) == 1


def test_what_else_reads_events_takes_poison_for_nothing() -> None:
    for poison in (DEEP, b'{"status":' + DEEP + b"}", b'{"payload":' + DEEP + b"}", b'{"ts_ms":' + DIGITS + b"}"):
        assert standing_of(poison) is None
        assert origin_of(poison) is None
        with pytest.raises(ChangeError):
            decode_end(poison)
    assert row_key(b"[" * 100_000) == b"[" * 100_000


# --- by chance ------------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(
        ["bit(99999999999)", "enum('", "set('a'", "__debezium_unavailable_value", "9" * 5_000, "1_0", "²"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in a JSON value something stands."""
    inner: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for name, each in inner for place in places(each, (*at, name)))]


def changed(value: Any, place: tuple[Any, ...], to: object) -> Any:
    if not place:
        return to
    made = copy.copy(value)
    made[place[0]] = changed(value[place[0]], place[1:], to)
    return made


@FORMAT
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_change_of_an_event_raises_anything_else(form: Format, data: st.DataObject) -> None:
    def mutated(original: bytes) -> bytes:
        if original[:1] == b"{" and data.draw(st.booleans()):
            value = msgspec.json.decode(original)
            for _ in range(data.draw(st.integers(1, 3))):
                value = changed(value, data.draw(st.sampled_from(places(value))), data.draw(json_values))
            return encoded(value)
        at = data.draw(st.integers(0, len(original)))
        return original[:at] + data.draw(st.binary(max_size=6)) + original[at + data.draw(st.integers(0, 6)) :]

    good = (form.key, form.value)
    events = [good, (form.key, mutated(form.value)), (mutated(form.key), form.value), good]
    decode(form, events)
    values = [value for _, value in events]
    Dealer(form.look(), ["public.a"]).deal(EventColumns(range(4), range(4), [form.key] * 4, values))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_schema_of_a_registry_raises_anything_else(data: st.DataObject) -> None:
    def mutated(schema: Any) -> Any:
        for _ in range(data.draw(st.integers(1, 3))):
            words = st.sampled_from(["record", "int", "array", "fixed", "enum", "Row", "null", ["null", "Row"], -1])
            schema = changed(schema, data.draw(st.sampled_from(places(schema))), data.draw(json_values | words))
        return schema

    value_schema, key_schema = mutated(AVRO_SCHEMA), mutated(AVRO_KEY)
    form = Format(lambda: avro(value_schema, key_schema), lambda: maxwell_json.look, AVRO_KEY_VALUE, AVRO_VALUE)
    decode(form, [(form.key, form.value)] * 2)


# --- values that only the sinks look at -----------------------------------------------------------------------------

DECIMAL = "org.apache.kafka.connect.data.Decimal(2)"


def test_a_decimal_of_more_digits_than_python_writes_is_written() -> None:
    number = 10**5_000 + 1
    raw = base64.b64encode(number.to_bytes(2_100, "big", signed=True)).decode()
    assert column_text("numeric", DECIMAL).plain(raw) == "1" + "0" * 4_999 + "1e-2"
    with pytest.raises(NotTextError, match="larger than any database can store"):
        column_text("numeric", DECIMAL).plain(base64.b64encode(b"\x01" * 70_000).decode())
    with pytest.raises(NotTextError, match="larger than any database can store"):
        column_text("money", "org.apache.kafka.connect.data.Decimal(999999999)").plain("AQ==")


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("numeric", {"scale": "two", "value": "AQ=="}),
        ("numeric", {"scale": None, "value": "AQ=="}),
        ("bigint", 10**5_000),
        ("numeric", 10**5_000),
        ("text", 10**5_000),
        ("point", {"x": 10**5_000, "y": 1}),
        ("timestamp with time zone", 10**5_000),
        ("date", 10**5_000),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_a_value_that_cannot_be_written_says_so(declared: str, value: object) -> None:
    with pytest.raises(NotTextError):
        column_text(declared, None).fields([value], {type(value)})
