"""Registers the schemas of control records in a schema registry, under the ids that the records carry.

Values on the control topics are Avro in Confluent framing, and their schema ids are fixed in ``schemas/ids.json``
(eventlog/codec.py). So a registry must take each schema under its own id. Confluent's and Redpanda's do in the mode
IMPORT, which can be set for one empty subject at a time: a subject per schema, in that mode only until it has its
schema. Headgate itself never asks a registry for them.
"""

import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import ClassVar
from urllib.parse import quote

import fastavro
import msgspec
from fastavro.schema import to_parsing_canonical_form

from headgate.config.registry_spec import RegistryOptions, RegistrySpec
from headgate.eventlog.schema_files import SchemaVersion, schemas
from headgate.formats.schema_registry import NOT_FOUND, OK, SchemaAnswer, SchemaRegistry, decoded, problem_said

__all__ = ["Registered", "RegistrationError", "RegistrationState", "add_schemas", "standings"]


class RegistrationError(Exception):
    """The registry does not take a schema under our id. What was registered before stays."""

    code: ClassVar[str] = "schema-not-registered"


class RegistrationState(StrEnum):
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
    standing: RegistrationState


def standings(spec: RegistrySpec, options: RegistryOptions) -> list[Registered]:
    """What the registry has of our schemas, in the order of their ids.

    Raises RegistrationError, SchemasUnavailableError.
    """
    registry = SchemaRegistry(spec, options)
    registry.check()
    return [_standing(registry, version) for version in schemas().by_id.values()]


def add_schemas(spec: RegistrySpec, options: RegistryOptions, found: Sequence[Registered]) -> Iterator[Registered]:
    """Register those of ``found`` that are missing, and give each once the registry has it.

    Raises RegistrationError, SchemasUnavailableError.
    """
    registry = SchemaRegistry(spec, options)
    for each in found:
        if each.standing is RegistrationState.TAKEN:
            raise RegistrationError(
                f"Schema {each.id} ({each.record}) cannot be registered at {spec.url}: the registry has another schema "
                "under this id. Register in a registry of its own, or in one whose ids do not reach 1101 to 9999"
            )
    for each in found:
        if each.standing is RegistrationState.MISSING:
            yield _registered(registry, spec, each)


def _registered(registry: SchemaRegistry, spec: RegistrySpec, each: Registered) -> Registered:
    version = schemas().by_id[each.id]
    subject = quote(each.subject, safe="")
    _expect_ok(registry.send("PUT", f"/mode/{subject}", {"mode": "IMPORT"}), each, spec, "the mode IMPORT")
    try:
        body = {"schema": _text(version), "schemaType": "AVRO", "id": version.id, "version": 1}
        _expect_ok(registry.send("POST", f"/subjects/{subject}/versions", body), each, spec, "the schema")
    finally:
        reset = registry.send("DELETE", f"/mode/{subject}")
    _expect_ok(reset, each, spec, "the end of the mode IMPORT")
    now = _standing(registry, version)
    if now.standing is not RegistrationState.REGISTERED:
        raise RegistrationError(
            f"Schema {each.id} ({each.record}) was sent to {spec.url}, which does not have it under this id. The "
            "registry must take schemas under given ids (mode IMPORT), as Confluent's and Redpanda's do"
        )
    return now


def _expect_ok(answer: tuple[int, bytes], each: Registered, spec: RegistrySpec, what: str) -> None:
    status, body = answer
    if status == OK:
        return
    raise RegistrationError(
        f"Schema {each.id} ({each.record}) cannot be registered at {spec.url}: subject {each.subject} is refused "
        f"{what} ({status}{problem_said(status, body)}). The registry must take schemas under given ids (mode IMPORT), "
        "as Confluent's and Redpanda's do, and let this user change modes"
    )


def _standing(registry: SchemaRegistry, version: SchemaVersion) -> Registered:
    status, body = registry.send("GET", f"/schemas/ids/{version.id}")
    if status not in (OK, NOT_FOUND):
        raise RegistrationError(
            f"The registry answered {status} for schema {version.id}{problem_said(status, body)}, so what it has under "
            "this id is not known. Nothing was registered under it. Try again when the registry answers"
        )
    standing = RegistrationState.MISSING
    if status == OK:
        known = decoded(body, SchemaAnswer)
        is_ours = known is not None and _canonical(known.schema) == to_parsing_canonical_form(version.parsed)
        standing = RegistrationState.REGISTERED if is_ours else RegistrationState.TAKEN
    subject = f"{version.parsed['name']}.v{version.version}"
    return Registered(version.id, version.record.__name__, version.version, subject, standing)


def _text(version: SchemaVersion) -> str:
    """The schema as JSON, without what fastavro has added."""
    return json.dumps({name: value for name, value in version.parsed.items() if not name.startswith("__")})


def _canonical(schema: str) -> str | None:
    """Avro's canonical form, because registries write names and members in ways of their own. None: not Avro."""
    try:
        return str(to_parsing_canonical_form(fastavro.parse_schema(json.loads(schema))))
    except (ValueError, TypeError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType):
        return None
