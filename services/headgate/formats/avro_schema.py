"""An Avro schema as Kafka Connect's converters write it: a tree of what to read, and what its columns mean.

Connect's own types and Debezium's semantic types have no place in Avro: the converters put them beside the Avro type as
``connect.name``, ``connect.type`` and ``connect.parameters``. The meaning of a column is told in the same words as that
of a JSON event with schema (``Change.semantics``), so nothing behind the decoder knows which of the two it was.

``logicalType`` is passed over: what it says is in ``connect.name`` too, and the plain value (days, unscaled bytes) is
what the sinks read.
"""

from typing import Any, Final

import msgspec
from fastavro.schema import SchemaParseException, parse_schema

from headgate.formats.change import ChangeError

__all__ = [
    "Array",
    "AvroType",
    "Enum",
    "Exactly",
    "Fixed",
    "Map",
    "Primitive",
    "Record",
    "Union",
    "meaning_of",
    "optional_part",
    "parse_avro",
]

DEPTH_MAX: Final = 9
"""Types within types. Connect's have no end of their own, but Python has one for loops within loops (20)."""

NODES_MAX: Final = 50_000
"""A table of 4 096 columns, before and after, has a third of that: what is larger is no schema of a table."""

_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_PARAMETER: Final = {_DECIMAL: "scale", "io.debezium.data.Bits": "length"}
_PRIMITIVES: Final = {
    "null": "null",
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "string": "string",
}
"""Avro's word → Connect's, as a JSON schema has it."""


class _Type(msgspec.Struct, frozen=True, kw_only=True):
    """``connect``: the type in Connect's words: a semantic name, or a plain type."""

    connect: str = ""


class Primitive(_Type, frozen=True):
    """One of Avro's eight."""

    kind: str


class Fixed(_Type, frozen=True):
    """So many bytes."""

    size: int


class Enum(_Type, frozen=True):
    """A number that stands for a word."""

    symbols: tuple[str, ...]


class Array(_Type, frozen=True):
    """Values of one type."""

    items: "AvroType"


class Map(_Type, frozen=True):
    """Values by name."""

    values: "AvroType"


class Union(_Type, frozen=True):
    """One of several types; its number comes first."""

    branches: "tuple[AvroType, ...]"


class Record(_Type, frozen=True):
    """Fields in order, one behind the other with nothing between."""

    name: str
    fields: "dict[str, AvroType]"


class Exactly(_Type, frozen=True):
    """A value that is to have these bytes; never in a schema, but put into its place by a reader."""

    data: bytes


AvroType = Primitive | Fixed | Enum | Array | Map | Union | Record | Exactly


def parse_avro(text: str) -> AvroType:
    """The tree of a schema's JSON. Raises ChangeError for what is no Avro schema, or none that a converter writes."""
    try:
        named: dict[str, Any] = {}
        parsed = parse_schema(msgspec.json.decode(text), named_schemas=named, _write_hint=False)
    except (SchemaParseException, msgspec.MsgspecError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ChangeError(f"it is no Avro schema: {type(error).__name__}: {error}") from error
    return _Walk(named).node(parsed, 0)


class _Walk:
    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._left = NODES_MAX

    def node(self, schema: Any, depth: int) -> AvroType:  # noqa: PLR0911 - one case per type
        """``schema`` as fastavro has checked it: names are full, what they stand for is in ``named``."""
        self._left -= 1
        if self._left < 0 or depth > DEPTH_MAX:
            raise ChangeError(f"its schema is nested more than {DEPTH_MAX} deep, or refers to itself, or is too large")
        if isinstance(schema, list):
            return Union(branches=tuple(self.node(branch, depth) for branch in schema))
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return Primitive(schema, connect=_PRIMITIVES[schema])
            schema = self._named[schema]
        kind = schema["type"]
        if not isinstance(kind, str):  # {"type": {"type": …}}
            return self.node(kind, depth)
        connect = _connect_name(schema)
        match kind:
            case "record" | "error":
                fields = {field["name"]: self.node(field["type"], depth + 1) for field in schema["fields"]}
                return Record(schema["name"], fields, connect=connect or "struct")
            case "array":
                items = self.node(schema["items"], depth + 1)
                return Array(items, connect=connect or f"array({meaning_of(items)})")
            case "map":
                return Map(self.node(schema["values"], depth + 1), connect=connect or "map")
            case "enum":
                return Enum(tuple(schema["symbols"]), connect=connect or "string")
            case "fixed":
                return Fixed(schema["size"], connect=connect or "bytes")
            case _ if kind in _PRIMITIVES:
                return Primitive(kind, connect=connect or str(schema.get("connect.type", _PRIMITIVES[kind])))
            case _:
                return self.node(kind, depth)  # {"type": "the.name.of.a.record"}


def _connect_name(schema: dict[str, Any]) -> str | None:
    name = schema.get("connect.name")
    if name is None and schema.get("logicalType") == "decimal":
        name = _DECIMAL
    if not isinstance(name, str) or name not in _PARAMETER:
        return name if isinstance(name, str) else None
    parameter = _PARAMETER[name]
    value = (schema.get("connect.parameters") or {}).get(parameter, schema.get(parameter, 0))
    if not str(value).lstrip("-").isdigit():
        raise ChangeError(f"its schema says {parameter} {value!r} of a {name}")
    return f"{name}({value})"


def optional_part(node: AvroType) -> AvroType:
    """The type of a field that may be null: of its union, the one branch that is not null; else the type itself."""
    if isinstance(node, Union):
        there = [branch for branch in node.branches if not _is_null(branch)]
        if len(there) == 1:
            return there[0]
    return node


def _is_null(node: AvroType) -> bool:
    return isinstance(node, Primitive) and node.kind == "null"


def meaning_of(node: AvroType) -> str:
    """What a column of this type means, in the words of ``Change.semantics``."""
    return optional_part(node).connect or "struct"
