"""Topics in Avro as Kafka Connect reads them: by Apicurio's converter, whose schemas and values are Confluent's.

It is a program of others in a Java process, as a Debezium JDBC sink has it in front.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from fixtures.registry_server import RegistryServer
from headgate.formats.avro_rows import forms_of, row_schema
from headgate.formats.debezium_schema import key_semantics
from headgate.formats.json_values import exact_decoder
from headgate.provisioning import artifacts
from headgate.provisioning.java import find_java
from headgate.provisioning.jvm import Jvm
from support.avro_values import EXACT

pytestmark = pytest.mark.integration

HEAD = b"\x00\x00\x00\x00\x07"
OPTIONS = {"as-confluent": "true", "headers.enabled": "false", "use-id": "contentId"}


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    jars = [*artifacts.ensure("kafka"), *artifacts.ensure("avro-converter")]
    made = Jvm(find_java(), jars, ["-Xmx256m"], tmp_path_factory.mktemp("java") / "log")
    yield made
    made.close()


def as_json(java: Jvm, schema: str, record: bytes) -> Any:
    """The record in Connect's JSON, which has the schema beside the payload, once its converter has read it."""

    def made(kind: Any, **options: str) -> Any:
        given = java.view.java.util.HashMap()
        for name, value in options.items():
            given.put(name, value)
        converter = kind()
        converter.configure(given, False)
        return converter

    with RegistryServer() as registry:
        registry.answer = lambda handler: _send(handler, schema if handler.path.endswith("/7") else "[]")
        options = {f"apicurio.registry.{name}": value for name, value in OPTIONS.items()}
        avro = made(
            java.view.io.apicurio.registry.utils.converter.AvroConverter,
            **options | {"apicurio.registry.url": f"{registry.url}/apis/registry/v2"},
        )
        found = avro.toConnectData("copy.orders", record)
        json = made(java.view.org.apache.kafka.connect.json.JsonConverter, **{"schemas.enable": "true"})
        written = bytes(json.fromConnectData("copy.orders", found.schema(), found.value()))
    return msgspec.json.decode(written, type=dict[str, msgspec.Raw])


def _send(handler: Any, text: str) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    handler.wfile.write(text.encode())


def test_connect_reads_every_type_with_its_name_and_every_value(java: Jvm) -> None:
    """In one row, so named types are used more than once. What Connect has read is written again, to the same bytes."""
    meanings = {"id": "int64"} | {f"c{number}": meaning for number, (meaning, _) in enumerate(EXACT)}
    row: dict[str, Any] = {"id": 1} | {f"c{number}": value for number, (_, value) in enumerate(EXACT)}
    schema = row_schema("copy.my-shop.orders", "Value", forms_of(meanings), frozenset({"id"}))
    for each in (row, {"id": 2} | dict.fromkeys(list(row)[1:])):
        record = schema.write(HEAD, each)
        parts = as_json(java, schema.text, record)
        described = msgspec.json.decode(parts["schema"])
        assert key_semantics(described) == meanings
        assert described["name"] == "copy.my_shop.orders.Value"
        assert [field["optional"] for field in described["fields"]] == [False] + [True] * len(EXACT)
        read = exact_decoder(dict[str, object]).decode(parts["payload"])
        forms = forms_of(meanings)
        there = {name: None if value is None else forms[name].encode(value) for name, value in each.items()}
        assert {name: None if value is None else forms[name].encode(value) for name, value in read.items()} == there
