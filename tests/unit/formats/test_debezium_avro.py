"""Debezium Avro: bytes as Connect's converters write them, read with the schemas that they name."""

import io
import json
from typing import Any

import fastavro
import pytest

from headgate.formats.avro_schema import columns_with_defaults
from headgate.formats.change import ABSENT, CONNECTOR, Change, ChangeError, Operation
from headgate.formats.debezium_avro import DebeziumAvroDecoder
from headgate.formats.decoding import SchemasUnavailableError, UndecodableError

UNAVAILABLE = "__debezium_unavailable_value"


def named(kind: Any, name: str, **parameters: str) -> dict[str, Any]:
    """As AvroData writes a Connect type that has a name."""
    kind = kind if isinstance(kind, dict) else {"type": kind}
    return (
        kind | {"connect.version": 1, "connect.name": name} | ({"connect.parameters": parameters} if parameters else {})
    )


COLUMNS: dict[str, Any] = {
    "id": "long",
    "small": {"type": "int", "connect.type": "int16"},
    "name": ["null", "string"],
    "price": [
        "null",
        named({"type": "bytes", "scale": 2, "precision": 64, "logicalType": "decimal"},
              "org.apache.kafka.connect.data.Decimal", scale="2"),
    ],
    "born": ["null", named("int", "io.debezium.time.Date")],
    "day": ["null", named({"type": "int", "logicalType": "date"}, "org.apache.kafka.connect.data.Date")],
    "at": ["null", named("long", "io.debezium.time.MicroTimestamp")],
    "zoned": ["null", named("string", "io.debezium.time.ZonedTimestamp")],
    "mood": ["null", named("string", "io.debezium.data.Enum", allowed="glad,so so")],
    "flags": ["null", named("bytes", "io.debezium.data.Bits", length="10")],
    "doc": ["null", named("string", "io.debezium.data.Json")],
    "raw": ["null", "bytes"],
    "real": ["null", "float"],
    "ok": [{"type": "boolean", "connect.default": True}, "null"],
    "tags": ["null", {"type": "array", "items": ["null", "string"]}],
    "any": [
        "null",
        {"type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data",
         "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
         "connect.version": 1, "connect.name": "io.debezium.data.VariableScaleDecimal"},
    ],
}  # fmt: skip
ROW: dict[str, Any] = {
    "id": 7, "small": -3, "name": "Ann", "price": b"\x04\xe2", "born": 11356, "day": -1, "at": 1767323045678901,
    "zoned": "2026-01-02T03:04:05Z", "mood": "so so", "flags": b"\x05\x02", "doc": '{"a": 1}', "raw": b"\x00\xff",
    "real": 1.5, "ok": False, "tags": ["x", None], "any": {"scale": 1, "value": b"\x0f"},
}  # fmt: skip
MEANING = {
    "id": "int64",
    "small": "int16",
    "name": "string",
    "price": "org.apache.kafka.connect.data.Decimal(2)",
    "born": "io.debezium.time.Date",
    "day": "org.apache.kafka.connect.data.Date",
    "at": "io.debezium.time.MicroTimestamp",
    "zoned": "io.debezium.time.ZonedTimestamp",
    "mood": "io.debezium.data.Enum",
    "flags": "io.debezium.data.Bits(10)",
    "doc": "io.debezium.data.Json",
    "raw": "bytes",
    "real": "float",
    "ok": "boolean",
    "tags": "array(string)",
    "any": "io.debezium.data.VariableScaleDecimal",
    CONNECTOR: "postgresql",
}


def test_columns_that_may_be_null_and_have_a_default_are_in_the_schema() -> None:
    assert columns_with_defaults(json.dumps(envelope(COLUMNS))) == {"ok"}
    defaulted = {"a": ["null", "string"], "b": "long", "c": ["string", "null"]}
    schema = json.loads(json.dumps(envelope(defaulted)))
    columns = schema["fields"][0]["type"][1]["fields"]
    columns[2]["default"] = "basic"
    assert columns_with_defaults(json.dumps(schema)) == {"c"}


def fields(columns: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "type": kind} for name, kind in columns.items()]


def envelope(columns: dict[str, Any]) -> dict[str, Any]:
    value = {"type": "record", "name": "Value", "fields": fields(columns)}
    source = {
        "version": "string",
        "connector": "string",
        "ts_ms": "long",
        "snapshot": ["null", "string"],
    }
    block = {"type": "record", "name": "block", "namespace": "event", "fields": fields({"id": "string"})}
    return {
        "type": "record", "name": "Envelope", "namespace": "shop.public.t",
        "connect.name": "shop.public.t.Envelope",
        "fields": fields({
            "before": ["null", value],
            "after": ["null", "Value"],
            "source": {"type": "record", "name": "Source", "namespace": "io.debezium.connector.postgresql",
                       "connect.name": "io.debezium.connector.postgresql.Source", "fields": fields(source)},
            "transaction": ["null", block],
            "op": "string",
            "ts_ms": ["null", "long"],
        }),
    }  # fmt: skip


KEY = {"type": "record", "name": "Key", "namespace": "shop.public.t", "fields": fields({"id": "long"})}
MESSAGE = {"type": "record", "name": "MessageValue", "fields": fields({"op": "string", "message": ["null", "bytes"]})}


class Registry:
    """Schemas by id; counts what it is asked."""

    def __init__(self) -> None:
        self.schemas = {1: KEY, 2: envelope(COLUMNS), 3: MESSAGE}
        self.asked: list[int] = []
        self.down = False

    def __call__(self, schema_id: int) -> str:
        self.asked.append(schema_id)
        if self.down:
            raise SchemasUnavailableError("nobody answers")
        if schema_id not in self.schemas:
            raise ChangeError(f"schema id {schema_id} is unknown")
        return json.dumps(self.schemas[schema_id])

    def write(self, schema_id: int, record: Any) -> bytes:
        out = io.BytesIO()
        out.write(b"\x00" + schema_id.to_bytes(4, "big"))
        # Logical types are the converter's business: what is written is what Connect hands over.
        text = json.dumps(self.schemas[schema_id]).replace('"logicalType"', '"was"')
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(text)), record)
        return out.getvalue()

    def key(self, number: int = 7) -> bytes:
        return self.write(1, {"id": number})

    def value(self, op: str, after: Any = None, before: Any = None, schema_id: int = 2) -> bytes:
        source = {"version": "3.6", "connector": "postgresql", "ts_ms": 1795228070901, "snapshot": None}
        return self.write(
            schema_id,
            {"before": before, "after": after, "source": source, "transaction": {"id": "7"}, "op": op, "ts_ms": 1},
        )


@pytest.fixture
def registry() -> Registry:
    return Registry()


def batch(decoder: DebeziumAvroDecoder, *events: tuple[bytes | None, bytes | None]) -> list[Change]:
    count = len(events)
    keys, values = [key for key, _ in events], [value for _, value in events]
    return decoder.decode_batch(keys, values, [3] * count, list(range(10, 10 + count)), [99] * count)


def test_a_row_in_every_type_with_what_its_columns_mean(registry: Registry) -> None:
    change = DebeziumAvroDecoder(registry).decode(registry.key(), registry.value("u", ROW, before=ROW), 3, 10, 99)
    assert change == Change(3, 10, Operation.UPSERT, {"id": 7}, ROW, 1795228070901, 99, MEANING)


def test_a_batch_is_what_its_events_are_one_by_one(registry: Registry) -> None:
    events = [
        (registry.key(), registry.value("r", ROW)),
        (registry.key(), registry.value("u", ROW | {"name": UNAVAILABLE, "tags": None}, before=ROW)),
        (registry.key(), registry.value("d", before=ROW)),
        (registry.key(), None),
        (registry.key(8), registry.value("c", ROW | {"id": 8})),
    ]
    one_by_one = DebeziumAvroDecoder(registry)
    expected = [one_by_one.decode(key, value, 3, 10 + place, 99) for place, (key, value) in enumerate(events)]
    decoder = DebeziumAvroDecoder(registry)
    changes = [change for change in expected if change is not None]
    assert batch(decoder, *events) == changes
    assert [change.operation for change in changes] == ["upsert", "upsert", "delete", "upsert"]
    assert batch(decoder, *events) == changes  # the second time the schemas are known


def test_a_tombstone_is_a_delete_of_its_row_unless_it_repeats_the_one_in_front_of_it(registry: Registry) -> None:
    one, two = registry.key(1), registry.key(2)
    events = [
        (one, registry.value("r", ROW | {"id": 1})),
        (one, None),
        (two, registry.value("d", before=ROW)),
        (two, None),
        (two, None),
        (None, None),
    ]
    decoder = DebeziumAvroDecoder(registry)
    for _ in range(2):  # the second time the schemas are known
        changes = batch(decoder, *events)
        assert [(change.offset, change.operation.value, change.key) for change in changes] == [
            (10, "upsert", {"id": 1}),
            (11, "delete", {"id": 1}),
            (12, "delete", {"id": 2}),
            (14, "delete", {"id": 2}),
        ]
        assert (changes[1].row, changes[1].semantics) == (None, {"id": MEANING["id"]})
    with pytest.raises(UndecodableError, match="the key is not of its schema 1"):
        batch(decoder, (one[:-1], None))


def test_each_schema_is_asked_for_once(registry: Registry) -> None:
    decoder = DebeziumAvroDecoder(registry)
    for _ in range(3):
        batch(decoder, *[(registry.key(), registry.value("c", ROW))] * 5)
    assert sorted(registry.asked) == [1, 2]


def test_a_schema_that_changes_within_a_batch(registry: Registry) -> None:
    registry.schemas[4] = envelope({"id": "long", "extra": "string"})
    changes = batch(
        DebeziumAvroDecoder(registry),
        (registry.key(), registry.value("c", ROW)),
        (registry.key(), registry.value("u", {"id": 7, "extra": "new"}, schema_id=4)),
        (registry.key(), registry.value("c", ROW)),
    )
    assert [change.row for change in changes] == [ROW, {"id": 7, "extra": "new"}, ROW]
    assert changes[1].semantics == {"id": "int64", "extra": "string", CONNECTOR: "postgresql"}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("name", UNAVAILABLE),
        ("raw", UNAVAILABLE.encode()),
        ("tags", [UNAVAILABLE]),
    ],
)
def test_what_was_not_sent_is_absent(registry: Registry, column: str, value: Any) -> None:
    event = (registry.key(), registry.value("u", ROW | {column: value}))
    decoder = DebeziumAvroDecoder(registry)
    for _ in range(2):  # one by one, and, the schemas being known, at once
        (change,) = batch(decoder, event)
        assert change.row == ROW | {column: ABSENT}


def test_truncate_has_no_key_and_a_message_is_no_change(registry: Registry) -> None:
    decoder = DebeziumAvroDecoder(registry)
    message = registry.write(3, {"op": "m", "message": b"hello"})
    (change,) = batch(decoder, (None, registry.value("t")), (None, message))
    assert (change.operation, change.key, change.row) == (Operation.TRUNCATE, {}, None)


def test_rows_without_key_are_added_where_that_is_wanted(registry: Registry) -> None:
    event = (None, registry.value("c", ROW))
    (change,) = batch(DebeziumAvroDecoder(registry, keyless=True), event)
    assert (change.key, change.row) == ({}, ROW)
    with pytest.raises(UndecodableError, match="no primary key"):
        batch(DebeziumAvroDecoder(registry), event)
    with pytest.raises(UndecodableError, match="does not identify a row"):
        batch(DebeziumAvroDecoder(registry, keyless=True), (None, registry.value("u", ROW)))


def routed(registry: Registry, source: Any, names: dict[str, Any], *, schema_id: int) -> bytes:
    """An event whose schema has ``source`` in its place."""
    schema = envelope({"id": "long"})
    at = next(field for field in schema["fields"] if field["name"] == "source")
    block = at["type"] | {"fields": [*at["type"]["fields"], *fields(source)]}
    at["type"] = ["null", block] if schema_id % 2 else block
    registry.schemas[schema_id] = schema
    named = {"version": "3.6", "connector": "postgresql", "ts_ms": 5, "snapshot": None, **names}
    row = {"before": None, "after": {"id": 7}, "source": named, "transaction": None, "op": "c", "ts_ms": 1}
    return registry.write(schema_id, row)


PARTS = {"db": "string", "schema": ["null", "string"], "table": "string"}


@pytest.mark.parametrize("schema_id", [40, 41])  # source may be null in every second
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    "other",
    [
        {"db": "shop", "schema": "public", "table": "items"},
        {"db": "shop", "schema": "sales", "table": "ø" * 200},
        {"db": "shop", "schema": None, "table": "ø" * 200},
        {"db": "other", "schema": "public", "table": "ø" * 200},
    ],
)
def test_a_second_table_in_a_topic_is_refused_by_name(
    registry: Registry, other: dict[str, Any], warm: bool, schema_id: int
) -> None:
    name = {"db": "shop", "schema": "public", "table": "ø" * 200}  # long enough for a length of two bytes
    one = (registry.key(), routed(registry, PARTS, name, schema_id=schema_id))
    second = (registry.key(), routed(registry, PARTS, other, schema_id=schema_id))
    decoder = DebeziumAvroDecoder(registry)
    if warm:
        for _ in range(2):
            assert [change.row for change in batch(decoder, one, one)] == [{"id": 7}] * 2
    with pytest.raises(UndecodableError, match=r"carries changes of shop\.public\.ø* and of .*own") as caught:
        batch(decoder, one, one, second, second)
    assert (caught.value.offset, [change.offset for change in caught.value.decoded]) == (12, [10, 11])


def test_a_table_goes_on_under_a_schema_that_names_it_in_another_type(registry: Registry) -> None:
    decoder = DebeziumAvroDecoder(registry)
    name = {"db": "shop", "schema": "public", "table": "orders"}
    loose = {part: ["null", "string"] for part in PARTS}
    events = [
        routed(registry, PARTS, name, schema_id=40),
        routed(registry, loose, name, schema_id=42),
        registry.value("c", ROW),  # nothing is said of its table
        routed(registry, {"table": "int"}, {"table": 5}, schema_id=44),
    ]
    for _ in range(2):
        for event in events[:3]:
            assert len(batch(decoder, (registry.key(), event))) == 1
        with pytest.raises(UndecodableError, match="carries changes of"):
            batch(decoder, (registry.key(), events[3]))


def bad_events(registry: Registry) -> dict[str, tuple[bytes | None, bytes | None, str]]:
    key, value = registry.key(), registry.value("c", ROW)
    registry.schemas |= {
        20: {"type": "record", "name": "flat", "fields": fields({"id": "long"})},
        21: "string",
        22: {"type": "record", "name": "e", "fields": fields({"op": "string", "after": ["null", "string"]})},
    }
    return {
        "truncated": (key, value[:-3], "not of its schema 2"),
        "frame only": (key, value[:5], "ends before its schema"),
        "half a frame": (key, value[:3], "Confluent's framing"),
        "empty": (key, b"", "Confluent's framing"),
        "JSON": (key, b'{"before": null}', "Confluent's framing"),
        "more than its schema": (key, value + b"\x00", "not of its schema 2"),
        "unknown id": (key, b"\x00\x00\x00\x00\x63" + value[5:], "schema id 99 is unknown"),
        "another schema's": (key, b"\x00\x00\x00\x00\x01" + value[5:], "no field 'op'"),
        "truncated key": (key[:-1], value, "the key is not of its schema 1"),
        "JSON key": (b'{"id": 7}', value, "the key is not Avro"),
        "key of no columns": (b"\x00\x00\x00\x00\x15\x02a", value, "not a record of key columns"),
        "unwrapped": (key, registry.write(20, {"id": 7}), "no field 'op'"),
        "after is a text": (key, registry.write(22, {"op": "c", "after": "x"}), "not a record of columns"),
        "unknown operation": (key, registry.value("z", ROW), "op='z'"),
        "no row": (key, registry.value("u"), "without a row"),
    }  # fmt: skip


@pytest.mark.parametrize("name", bad_events(Registry()))
def test_a_bad_event_is_named_and_what_stands_before_it_is_kept(registry: Registry, name: str) -> None:
    key, value, reason = bad_events(registry)[name]
    good = (registry.key(), registry.value("c", ROW))
    decoder = DebeziumAvroDecoder(registry)
    for _ in range(2):
        with pytest.raises(UndecodableError, match=reason) as caught:
            batch(decoder, good, (key, value), good)
        assert (caught.value.partition, caught.value.offset) == (3, 11)
        assert [change.row for change in caught.value.decoded] == [ROW]
    known = [schema_id for schema_id in registry.asked if schema_id != 99]
    assert max(map(known.count, known)) <= 2  # once as a key's, once as a value's


def test_a_registry_that_is_away_says_nothing_against_the_events(registry: Registry) -> None:
    decoder = DebeziumAvroDecoder(registry)
    event = (registry.key(), registry.value("c", ROW))
    registry.down = True
    with pytest.raises(SchemasUnavailableError):
        batch(decoder, event)
    registry.down = False
    assert len(batch(decoder, event)) == 1
    registry.down = True
    assert len(batch(decoder, event)) == 1  # what is known needs no registry


def test_more_schemas_than_are_kept_are_still_read(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.formats.debezium_avro.SCHEMAS_MAX", 2)
    for schema_id in range(100, 105):
        registry.schemas[schema_id] = envelope({"id": "long", f"c{schema_id}": "int"})
    decoder = DebeziumAvroDecoder(registry)
    for _ in range(2):
        for schema_id in range(100, 105):
            row = {"id": 7, f"c{schema_id}": 1}
            (change,) = batch(decoder, (registry.key(), registry.value("c", row, schema_id=schema_id)))
            assert change.row == row


@pytest.mark.parametrize("kind", ["delete", "tombstone", "upsert"])
@pytest.mark.parametrize("is_known", [False, True], ids=["schema met first", "schema known"])
def test_a_key_with_null_identifies_no_row_and_is_refused(registry: Registry, kind: str, *, is_known: bool) -> None:
    registry.schemas[7] = {**KEY, "fields": fields({"id": ["null", "long"]})}
    value = {"delete": registry.value("d", before=ROW), "tombstone": None, "upsert": registry.value("u", ROW)}[kind]
    decoder = DebeziumAvroDecoder(registry)
    if is_known:
        assert len(batch(decoder, (registry.write(7, {"id": 7}), registry.value("u", ROW)))) == 1
    with pytest.raises(UndecodableError, match="NULL in id"):
        batch(decoder, (registry.write(7, {"id": None}), value))
