"""The registry's client against a real registry."""

import json

import pytest
import urllib3

from fixtures.registry_server import OF_SOURCE
from headgate.config.registry_spec import RegistrySpec
from headgate.formats.change import ChangeError
from headgate.formats.decoding import SchemasUnavailableError
from headgate.formats.schema_registry import UNKNOWN_SECONDS, SchemaRegistry
from headgate_lab.embedded.registry import EmbeddedRegistry

pytestmark = pytest.mark.integration

SCHEMA = '{"type":"record","name":"row","fields":[{"name":"x","type":"long"}]}'


def register(url: str, subject: str, body: object) -> int:
    answer = urllib3.request("POST", f"{url}/subjects/{subject}/versions", json=body, timeout=30)
    assert answer.status == 200, answer.data
    return int(answer.json()["id"])


def test_a_registered_schema_is_found_and_another_is_not(schema_registry: EmbeddedRegistry) -> None:
    now = [0.0]
    client = SchemaRegistry(RegistrySpec(url=schema_registry.url), OF_SOURCE, lambda: now[0])
    client.check()
    assert json.loads(client.schema(register(schema_registry.url, "r-value", {"schema": SCHEMA}))) == json.loads(SCHEMA)
    with pytest.raises(SchemasUnavailableError, match="is retried"):
        client.schema(987_654)
    now[0] += UNKNOWN_SECONDS
    with pytest.raises(ChangeError, match="schema id 987654 is unknown"):
        client.schema(987_654)


def test_a_schema_of_another_type_is_refused(schema_registry: EmbeddedRegistry) -> None:
    body = {"schema": 'syntax = "proto3"; message Row { int64 x = 1; }', "schemaType": "PROTOBUF"}
    client = SchemaRegistry(RegistrySpec(url=schema_registry.url), OF_SOURCE)
    with pytest.raises(ChangeError, match="of type PROTOBUF, not AVRO"):
        client.schema(register(schema_registry.url, "p-value", body))


@pytest.mark.parametrize("path", ["/apis/ccompat/v7/nothing", "/nothing", ""])
def test_an_address_on_which_there_is_no_registry(schema_registry: EmbeddedRegistry, path: str) -> None:
    url = schema_registry.url.removesuffix("/apis/ccompat/v7") + path
    with pytest.raises(SchemasUnavailableError, match="cannot be used"):
        SchemaRegistry(RegistrySpec(url=url), OF_SOURCE).check()
