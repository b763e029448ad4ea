"""The columns that an event's schema describes, for creating the table at a sink.

Decoders keep only what a value cannot be read without (``Change.semantics``). This reads a schema whole: whether a
column may be NULL, and which type it has at the source, if the connector writes it beside the column
(``column.propagate.source.type``). It is read once, from one event, and never for a row.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from headgate.formats.avro_schema import parse_avro
from headgate.formats.change import CONNECTOR, ChangeError
from headgate.formats.debezium_avro import envelope_meanings
from headgate.formats.debezium_schema import envelope_semantics
from headgate.formats.meaning import named

__all__ = ["ColumnSchema", "EventSchema", "avro_schema", "json_schema"]

_TYPE: Final = "__debezium.source.column.type"
_LENGTH: Final = "__debezium.source.column.length"
_SCALE: Final = "__debezium.source.column.scale"
_PRECISION: Final = "connect.decimal.precision"
_LABELS: Final = "allowed"

_NUMBER_CHARACTERS_MAX: Final = 10
"""Of a length or a scale: Java's largest int has ten digits."""

_LABELS_CHARACTERS_MAX: Final = 1024 * 1024
"""Of all labels of an enum together: 65 535 of them at MySQL, with 16 characters each."""


class ColumnSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A column. ``meaning`` is its entry in ``Change.semantics``.

    ``declared``, ``length`` and ``scale`` are the source's type, if the connector writes it. ``labels``: those of an
    enum or a set, in one text with commas between them.
    """

    name: str
    meaning: str
    is_optional: bool
    declared: str | None = None
    length: int | None = None
    scale: int | None = None
    precision: int | None = None
    labels: str | None = None


class EventSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A table as its events describe it. ``key``: the columns of the event's key; empty if it has none."""

    connector: str
    columns: tuple[ColumnSchema, ...]
    key: tuple[str, ...] = ()


def json_schema(key: bytes | None, value: bytes) -> EventSchema | None:
    """The schema of a Debezium JSON event, None for an event without one. Raises one of DATA_ERRORS."""
    schema = _schema_of(value)
    if schema is None:
        return None
    meanings = envelope_semantics(schema)
    (after,) = (part for part in schema["fields"] if part["field"] == "after")
    columns = tuple(
        _column(
            column["field"],
            meanings[column["field"]],
            column.get("parameters") or {},
            is_optional=column.get("optional") is True,
        )
        for column in after["fields"]
    )
    of_key = None if key is None else _schema_of(key)
    names = () if of_key is None else tuple(str(field["field"]) for field in of_key["fields"])
    return EventSchema(connector=meanings.get(CONNECTOR, ""), columns=columns, key=names)


def _schema_of(data: bytes) -> dict[str, Any] | None:
    parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    if parts.keys() != {"schema", "payload"}:
        return None
    return msgspec.json.decode(parts["schema"], type=dict[str, Any] | None)


def avro_schema(key: str | None, value: str) -> EventSchema:
    """The same from the texts of Avro schemas. Raises one of DATA_ERRORS."""
    meanings = envelope_meanings(parse_avro(value))
    parts = {field["name"]: field["type"] for field in msgspec.json.decode(value)["fields"]}
    columns = tuple(
        _column(
            field["name"],
            meanings[field["name"]],
            next((branch.get("connect.parameters") or {} for branch in _objects(field["type"])), {}),
            is_optional="null" in _branches(field["type"]),
        )
        for field in _row_fields(parts)
    )
    of_key: dict[str, Any] = {} if key is None else msgspec.json.decode(key)
    names = tuple(str(field["name"]) for field in of_key.get("fields", ()))
    return EventSchema(connector=meanings.get(CONNECTOR, ""), columns=columns, key=names)


def _row_fields(parts: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The row's columns. Its record is written out where it is first used, and named where it is used again."""
    for name in ("before", "after"):
        for branch in _objects(parts.get(name)):
            if branch.get("type") == "record":
                fields: Sequence[Mapping[str, Any]] = branch["fields"]
                return fields
    raise ChangeError("the event's schema describes no columns")


def _branches(schema: object) -> Sequence[object]:
    return schema if isinstance(schema, list) else [schema]


def _objects(schema: object) -> Sequence[Mapping[str, Any]]:
    return [branch for branch in _branches(schema) if isinstance(branch, dict)]


def _column(name: str, meaning: str, parameters: Mapping[str, object], *, is_optional: bool) -> ColumnSchema:
    declared, labels = parameters.get(_TYPE), parameters.get(_LABELS)
    return ColumnSchema(
        name=name,
        meaning=meaning,
        is_optional=is_optional,
        declared=None if declared is None else named(declared),
        length=_number(parameters.get(_LENGTH)),
        scale=_number(parameters.get(_SCALE)),
        precision=_number(parameters.get(_PRECISION)),
        labels=labels if isinstance(labels, str) and len(labels) <= _LABELS_CHARACTERS_MAX else None,
    )


def _number(told: object) -> int | None:
    """A parameter's number; None for one that is missing, or is none."""
    text = str(told) if isinstance(told, str | int) else ""
    is_number = text.removeprefix("-").isdecimal() and text.isascii() and len(text) <= _NUMBER_CHARACTERS_MAX
    return int(text) if is_number else None
