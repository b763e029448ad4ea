"""Debezium's schema changes are read from JSON, with and without schemas, and from Avro."""

import json
from io import BytesIO
from typing import Any

import fastavro
import pytest

from headgate.formats.change import ChangeError
from headgate.formats.schema_changes import SchemaChangeDecoder, TableChange

DDL = "ALTER TABLE items DROP COLUMN a, ADD COLUMN a int"
EVENT: dict[str, Any] = {
    "source": {"name": "shop", "db": "shop", "ts_ms": 1, "server_id": 7, "file": "bin.000003", "pos": 219},
    "ts_ms": 2,
    "databaseName": "shop",
    "ddl": DDL,
    "tableChanges": [
        {"type": "ALTER", "id": '"shop"."it.ems"', "table": {"columns": [{"name": "id"}, {"name": "a"}]}},
        {"type": "DROP", "id": '"shop"."old"', "table": None},
    ],
}
FOUND = [TableChange("shop", "it.ems", ("id", "a"), DDL, (7, "bin.000003", 219))]


@pytest.mark.parametrize("event", [EVENT, {"schema": {"type": "struct"}, "payload": EVENT}])
def test_json(event: dict[str, Any]) -> None:
    assert SchemaChangeDecoder(None).decode(json.dumps(event).encode()) == FOUND


@pytest.mark.parametrize("event", [EVENT | {"ddl": None, "tableChanges": []}, None])
def test_a_record_without_a_table_changes_none(event: dict[str, Any] | None) -> None:
    assert SchemaChangeDecoder(None).decode(None if event is None else json.dumps(event).encode()) == []


@pytest.mark.parametrize(
    "value",
    [b"{", b'{"op": "c"}', json.dumps(EVENT | {"tableChanges": [{"id": '"t"', "table": {"columns": []}}]}).encode()],
)
def test_another_record_is_refused(value: bytes) -> None:
    with pytest.raises(ChangeError, match="not a schema change of Debezium"):
        SchemaChangeDecoder(None).decode(value)


COLUMN = {"type": "record", "name": "Column", "fields": [{"name": "name", "type": "string"}]}
TABLE = {
    "type": "record",
    "name": "Table",
    "fields": [{"name": "columns", "type": {"type": "array", "items": COLUMN}}],
}
CHANGE = {
    "type": "record",
    "name": "Change",
    "fields": [
        {"name": "type", "type": "string"},
        {"name": "id", "type": "string"},
        {"name": "table", "type": ["null", TABLE]},
    ],
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "server_id", "type": "long"},
        {"name": "file", "type": "string"},
        {"name": "pos", "type": "long"},
    ],
}
SCHEMA = {
    "type": "record",
    "name": "SchemaChangeValue",
    "namespace": "io.debezium.connector.mariadb",
    "fields": [
        {"name": "source", "type": SOURCE},
        {"name": "databaseName", "type": ["null", "string"]},
        {"name": "ddl", "type": ["null", "string"]},
        {"name": "tableChanges", "type": {"type": "array", "items": CHANGE}},
    ],
}


def test_avro() -> None:
    asked: list[int] = []

    def schemas(number: int) -> str:
        asked.append(number)
        return json.dumps(SCHEMA)

    written = BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(SCHEMA), EVENT)
    decoder = SchemaChangeDecoder(schemas)
    for _ in range(2):
        assert decoder.decode(b"\x00\x00\x00\x00\x05" + written.getvalue()) == FOUND
    assert asked == [5]


def test_an_avro_event_of_rows_is_refused() -> None:
    row = json.dumps({"type": "record", "name": "Envelope", "fields": [{"name": "op", "type": "string"}]})
    with pytest.raises(ChangeError, match="ddl and tableChanges"):
        SchemaChangeDecoder(lambda _: row).decode(b"\x00\x00\x00\x00\x05\x02c")
