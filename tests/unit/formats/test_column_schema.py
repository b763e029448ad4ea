"""What a schema says of columns is read from JSON and Avro alike, once, and whatever it says is checked."""

import json
from typing import Any

import pytest

from headgate.formats.avro_schema import Record, meaning_of, parse_avro
from headgate.formats.change import ChangeError
from headgate.formats.column_schema import ColumnSchema, EventSchema, avro_schema, json_schema

DECIMAL = "org.apache.kafka.connect.data.Decimal"
SOURCE = "__debezium.source.column."

EXPECTED = EventSchema(
    connector="mariadb",
    key=("id",),
    columns=(
        ColumnSchema(name="id", meaning="int64", is_optional=False, declared="BIGINT UNSIGNED"),
        ColumnSchema(
            name="total",
            meaning=f"{DECIMAL}(2,12)",
            is_optional=True,
            declared="DECIMAL",
            length=12,
            scale=2,
            precision=12,
        ),
        ColumnSchema(name="mood", meaning="io.debezium.data.Enum", is_optional=True, labels="glad,so so"),
    ),
)


def json_column(name: str, type_: str, *, optional: bool = True, semantic: str = "", **parameters: str) -> Any:
    named = {"name": semantic} if semantic else {}
    told = {"parameters": parameters} if parameters else {}
    return {"field": name, "type": type_, "optional": optional} | named | told


def json_event(*columns: Any, connector: str = "mariadb") -> bytes:
    row = {"type": "struct", "fields": list(columns), "optional": True}
    fields = [
        row | {"field": "before"},
        row | {"field": "after"},
        {"type": "struct", "field": "source", "name": f"io.debezium.connector.{connector}.Source", "fields": []},
    ]
    schema = {"type": "struct", "name": "db.shop.t.Envelope", "fields": fields}
    return json.dumps({"schema": schema, "payload": {"op": "c"}}).encode()


def json_key(*names: str) -> bytes:
    fields = [{"field": name, "type": "int64"} for name in names]
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": {}}).encode()


COLUMNS = (
    json_column("id", "int64", optional=False, **{f"{SOURCE}type": "BIGINT UNSIGNED"}),
    json_column(
        "total",
        "bytes",
        semantic=DECIMAL,
        **{
            "scale": "2",
            "connect.decimal.precision": "12",
            f"{SOURCE}type": "DECIMAL",
            f"{SOURCE}length": "12",
            f"{SOURCE}scale": "2",
        },
    ),
    json_column("mood", "string", semantic="io.debezium.data.Enum", allowed="glad,so so"),
)


def test_a_json_schema_describes_its_table() -> None:
    assert json_schema(json_key("id"), json_event(*COLUMNS)) == EXPECTED
    keyless = json_schema(None, json_event(*COLUMNS))
    assert keyless is not None
    assert keyless.key == ()


def test_an_event_without_schema_describes_nothing() -> None:
    assert json_schema(b'{"id": 1}', b'{"op": "c", "after": {"id": 1}}') is None
    assert json_schema(None, b'{"schema": null, "payload": {"op": "c"}}') is None


def avro_event() -> str:
    def typed(kind: str, name: str = "", **parameters: str) -> Any:
        named = {"connect.name": name} if name else {}
        return {"type": kind, "connect.parameters": parameters} | named

    fields = [
        {"name": "id", "type": typed("long", **{f"{SOURCE}type": "BIGINT UNSIGNED"})},
        {
            "name": "total",
            "default": None,
            "type": [
                "null",
                typed("bytes", DECIMAL, **COLUMNS[1]["parameters"])
                | {"scale": 2, "precision": 12, "logicalType": "decimal"},
            ],
        },
        {"name": "mood", "type": ["null", typed("string", "io.debezium.data.Enum", allowed="glad,so so")]},
    ]
    row = {"type": "record", "name": "Value", "fields": fields}
    source = {
        "type": "record",
        "name": "Source",
        "fields": [{"name": "db", "type": "string"}],
        "connect.name": "io.debezium.connector.mariadb.Source",
    }
    envelope = [
        {"name": "before", "type": ["null", row]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
    ]
    return json.dumps({"type": "record", "name": "Envelope", "namespace": "db.shop.t", "fields": envelope})


def test_an_avro_schema_describes_the_same() -> None:
    key = json.dumps({"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]})
    assert avro_schema(key, avro_event()) == EXPECTED
    assert avro_schema(None, avro_event()).key == ()


@pytest.mark.parametrize("declared", ["int; drop\x00", "a" * 2_000, "x(y)"])
def test_a_name_that_no_type_has_is_refused(declared: str) -> None:
    with pytest.raises(ChangeError, match="not a valid name"):
        json_schema(None, json_event(json_column("a", "int32", **{f"{SOURCE}type": declared})))


@pytest.mark.parametrize("told", ["x", "1e3", "9" * 11, "", "٣", "--1"])
def test_a_length_that_is_no_number_is_not_known(told: str) -> None:
    found = json_schema(None, json_event(json_column("a", "string", **{f"{SOURCE}length": told})))
    assert found is not None
    assert found.columns[0].length is None


@pytest.mark.parametrize(
    ("schema", "meaning"),
    [
        ({"precision": 12, "scale": 2}, f"{DECIMAL}(2,12)"),
        ({"precision": 12}, f"{DECIMAL}(0,12)"),
        ({"precision": 64, "scale": 2, "connect.name": DECIMAL}, f"{DECIMAL}(2)"),
    ],
)
def test_a_decimal_of_avro_itself_has_its_precision(schema: dict[str, Any], meaning: str) -> None:
    """Beside Connect's name it is the converter's default."""
    field = {"name": "v", "type": {"type": "bytes", "logicalType": "decimal"} | schema}
    node = parse_avro(json.dumps({"type": "record", "name": "Value", "fields": [field]}))
    assert isinstance(node, Record)
    assert meaning_of(node.fields["v"]) == meaning


@pytest.mark.parametrize(
    ("schema", "meaning"),
    [
        ({"type": "int", "logicalType": "date"}, "io.debezium.time.Date"),
        ({"type": "int", "logicalType": "time-millis"}, "io.debezium.time.Time"),
        ({"type": "long", "logicalType": "time-micros"}, "io.debezium.time.MicroTime"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "io.debezium.time.Timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "io.debezium.time.MicroTimestamp"),
        ({"type": "int", "logicalType": "date", "connect.name": "io.debezium.time.Year"}, "io.debezium.time.Year"),
        ({"type": "long", "logicalType": "date"}, "int64"),
        ({"type": "string", "logicalType": "uuid"}, "string"),
    ],
)
def test_a_time_of_avro_itself_has_its_unit(schema: dict[str, Any], meaning: str) -> None:
    field = {"name": "v", "type": ["null", schema]}
    node = parse_avro(json.dumps({"type": "record", "name": "Value", "fields": [field]}))
    assert isinstance(node, Record)
    assert meaning_of(node.fields["v"]) == meaning
