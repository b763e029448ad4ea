"""Registers the schemas of control records in a schema registry, under the ids that the records carry.

Values on the control topics are Avro in Confluent framing, and their schema ids are fixed in ``schemas/ids.json``
(eventlog/codec.py). So a registry must take each schema under its own id. Confluent's and Redpanda's do in the mode
IMPORT, which can be set for one empty subject at a time: a subject per schema, in that mode only until it has its
schema. Headgate itself never asks a registry for them.
"""

import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import ClassVar, Final
from urllib.parse import quote

import fastavro
import msgspec
from fastavro.schema import to_parsing_canonical_form

from headgate.config.feed import RegistrySpec
from headgate.eventlog.schema_files import SchemaVersion, schemas
from headgate.sources.registry import SchemaRegistry

__all__ = ["Registered", "RegistrationError", "Standing", "add_schemas", "standings"]

_OK: Final = 200
_NOT_FOUND: Final = 404


class RegistrationError(Exception):
    """The registry does not take a schema under our id. What was registered before stays."""

    code: ClassVar[str] = "schema-not-registered"


class Standing(StrEnum):
    """What a registry has under one of our ids."""

    REGISTERED = "registered"
    MISSING = "missing"
    TAKEN = "taken"
    """Another schema."""


class Registered(msgspec.Struct, frozen=True):
    """One of our schemas, and what the registry has under its id."""

    id: int
    record: str
    version: int
    subject: str
    standing: Standing


class _Answer(msgspec.Struct):
    schema: str


class _Problem(msgspec.Struct):
    message: str = ""


def standings(spec: RegistrySpec) -> list[Registered]:
    """What the registry has of our schemas, in the order of their ids. Raises SchemasUnavailableError."""
    registry = SchemaRegistry(spec)
    registry.check()
    return [_standing(registry, version) for version in schemas().by_id.values()]


def add_schemas(spec: RegistrySpec, found: Sequence[Registered]) -> Iterator[Registered]:
    """Register those of ``found`` that are missing, and give each once the registry has it.

    Raises RegistrationError, SchemasUnavailableError.
    """
    registry = SchemaRegistry(spec)
    for each in found:
        if each.standing is Standing.TAKEN:
            raise RegistrationError(
                f"Schema {each.id} ({each.record}) cannot be registered at {spec.url}: the registry has another schema "
                "under this id. Register in a registry of its own, or in one whose ids do not reach 1101 to 9999"
            )
    for each in found:
        if each.standing is Standing.MISSING:
            yield _registered(registry, spec, each)


def _registered(registry: SchemaRegistry, spec: RegistrySpec, each: Registered) -> Registered:
    version = schemas().by_id[each.id]
    subject = quote(each.subject, safe="")
    _expect_ok(registry.send("PUT", f"/mode/{subject}", {"mode": "IMPORT"}), each, spec, "the mode IMPORT")
    try:
        body = {"schema": _text(version), "schemaType": "AVRO", "id": version.id, "version": 1}
        _expect_ok(registry.send("POST", f"/subjects/{subject}/versions", body), each, spec, "the schema")
    finally:
        registry.send("DELETE", f"/mode/{subject}")
    now = _standing(registry, version)
    if now.standing is not Standing.REGISTERED:
        raise RegistrationError(
            f"Schema {each.id} ({each.record}) was sent to {spec.url}, which does not have it under this id. The "
            "registry must take schemas under given ids (mode IMPORT), as Confluent's and Redpanda's do"
        )
    return now


def _expect_ok(answer: tuple[int, bytes], each: Registered, spec: RegistrySpec, what: str) -> None:
    status, body = answer
    if status == _OK:
        return
    raise RegistrationError(
        f"Schema {each.id} ({each.record}) cannot be registered at {spec.url}: subject {each.subject} is refused "
        f"{what} ({status}{_said(body)}). The registry must take schemas under given ids (mode IMPORT), as Confluent's "
        "and Redpanda's do, and let this user change modes"
    )


def _said(body: bytes) -> str:
    try:
        return f": {msgspec.json.decode(body, type=_Problem).message[:200]}"
    except msgspec.DecodeError:
        return ""


def _standing(registry: SchemaRegistry, version: SchemaVersion) -> Registered:
    status, body = registry.send("GET", f"/schemas/ids/{version.id}")
    standing = Standing.MISSING if status == _NOT_FOUND else Standing.TAKEN
    if status == _OK and _canonical(_schema_in(body)) == to_parsing_canonical_form(version.parsed):
        standing = Standing.REGISTERED
    subject = f"{version.parsed['name']}.v{version.version}"
    return Registered(version.id, version.record.__name__, version.version, subject, standing)


def _schema_in(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Answer).schema
    except msgspec.DecodeError:
        return ""


def _text(version: SchemaVersion) -> str:
    """The schema as JSON, without what fastavro has added."""
    return json.dumps({name: value for name, value in version.parsed.items() if not name.startswith("__")})


def _canonical(schema: str) -> str | None:
    """Avro's canonical form, because registries write names and members in ways of their own. None: not Avro."""
    try:
        return str(to_parsing_canonical_form(fastavro.parse_schema(json.loads(schema))))
    except (ValueError, TypeError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType):
        return None
