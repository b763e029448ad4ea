"""An Avro schema as Kafka Connect's converters write it: a tree of what to read, and what its columns mean.

Connect's own types and Debezium's semantic types have no place in Avro: the converters put them beside the Avro type as
``connect.name``, ``connect.type`` and ``connect.parameters``. The meaning of a column is described in the same words as
that of a JSON event with schema (``Change.semantics``), so nothing behind the decoder knows which of the two it was.

``logicalType`` has the same in Avro's own words. It counts where the converter writes no ``connect.name``
(``connect.meta.data=false``). The plain value (days, unscaled bytes) is what the sinks read.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from fastavro.schema import SchemaParseException, parse_schema

from headgate.formats.change import ChangeError
from headgate.formats.meaning import DECIMAL, DEPTH_MAX, PRECISION, array_of, named, parametrised

NODES_MAX: Final = 26_000
"""Types in a schema: a table of 4 096 columns that may be null, before and after, has 24 600. Compiling that many takes
four seconds and 300 MB."""

TEXT_CHARACTERS_MAX: Final = 2 * 1024 * 1024
"""Of a schema's JSON: one for a table of 4 096 columns has 260 000 with short names and defaults."""

LEVELS_MAX: Final = 4 * DEPTH_MAX
"""JSON within JSON for DEPTH_MAX types within types, where each is written as ``{"type": {"type": …}}`` in a union."""

FIXED_BYTES_MAX: Final = 1024 * 1024
"""Kafka's own limit for a message, unless a topic raises it. Longer values do not come as ``fixed``."""

SYMBOL_CHARACTERS_MAX: Final = 255
"""MySQL's longest label of an enum. A symbol is written in full for each byte that refers to it, so this bounds how
much longer than its event a row can be."""
_LOGICAL: Final = {
    ("int", "date"): "io.debezium.time.Date",
    ("int", "time-millis"): "io.debezium.time.Time",
    ("long", "time-micros"): "io.debezium.time.MicroTime",
    ("long", "timestamp-millis"): "io.debezium.time.Timestamp",
    ("long", "timestamp-micros"): "io.debezium.time.MicroTimestamp",
    ("long", "local-timestamp-millis"): "io.debezium.time.Timestamp",
    ("long", "local-timestamp-micros"): "io.debezium.time.MicroTimestamp",
}
"""Avro's type and logical type → the name that Debezium has for the same number."""

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
    """The tree of a schema's JSON. Raises ChangeError for what is not an Avro schema that a converter writes."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ChangeError(f"it has {len(text)} characters; a schema of a table has {TEXT_CHARACTERS_MAX} at most")
    try:
        known: dict[str, Any] = {}
        parsed = parse_schema(msgspec.json.decode(text), named_schemas=known, _write_hint=False)
    except (SchemaParseException, msgspec.MsgspecError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ChangeError(f"it is not a valid Avro schema: {type(error).__name__}: {error}") from error
    try:
        return _Walk(known).node(parsed, 0)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ChangeError):
            raise
        raise ChangeError(
            f"it is not an Avro schema that a converter writes: {type(error).__name__}: {error}"
        ) from error


def columns_with_defaults(text: str) -> frozenset[str]:
    """Columns that may be NULL and have a default, by an envelope's schema: see debezium_schema. Raises DATA_ERRORS."""
    envelope = msgspec.json.decode(text)
    parts = {field["name"]: field["type"] for field in envelope["fields"]}
    # The row's record is written out where it is first used, and named where it is used again.
    branches = [
        branch for name in ("before", "after") for branch in _branches(parts.get(name)) if isinstance(branch, dict)
    ]
    columns: Sequence[Any] = next((branch["fields"] for branch in branches if branch.get("type") == "record"), [])
    return frozenset(column["name"] for column in columns if _is_null_defaulted(column))


def _branches(schema: Any) -> Sequence[Any]:
    return schema if isinstance(schema, list) else [schema]


def _is_null_defaulted(column: dict[str, Any]) -> bool:
    branches = _branches(column["type"])
    connect = [branch.get("connect.default") for branch in branches if isinstance(branch, dict)]
    return "null" in branches and any(default is not None for default in (column.get("default"), *connect))


class _Walk:
    def __init__(self, known: dict[str, Any]) -> None:
        self._known = known
        self._left = NODES_MAX
        self._level = 0

    def node(self, schema: Any, depth: int) -> AvroType:
        """``schema`` as fastavro has checked it: names are full, what they stand for is in ``known``."""
        self._left -= 1
        self._level += 1
        if self._left < 0 or depth > DEPTH_MAX or self._level > LEVELS_MAX:
            raise ChangeError(f"its schema is nested more than {DEPTH_MAX} deep, or refers to itself, or is too large")
        try:
            return self._node(schema, depth)
        finally:
            self._level -= 1

    def _node(self, schema: Any, depth: int) -> AvroType:  # noqa: PLR0911 - one case per type
        if isinstance(schema, list):
            return Union(branches=tuple(self.node(branch, depth) for branch in schema))
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return Primitive(schema, connect=_PRIMITIVES[schema])
            schema = self._known[schema]
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
                if not _has_bytes(items):
                    raise ChangeError("its schema has an array of values that take no bytes, as many as it likes")
                return Array(items, connect=connect or array_of(meaning_of(items)))
            case "map":
                return Map(self.node(schema["values"], depth + 1), connect=connect or "map")
            case "enum":
                return Enum(_symbols(schema["symbols"]), connect=connect or "string")
            case "fixed":
                return Fixed(_size(schema["size"]), connect=connect or "bytes")
            case _ if kind in _PRIMITIVES:
                return Primitive(kind, connect=connect or named(schema.get("connect.type", _PRIMITIVES[kind])))
            case _:
                return self.node(kind, depth)  # {"type": "the.name.of.a.record"}


def _has_bytes(node: AvroType) -> bool:
    """Whether a value of this type takes at least one byte."""
    match node:
        case Record():
            return any(map(_has_bytes, node.fields.values()))
        case Fixed():
            return node.size > 0
        case _:
            return not _is_null(node)


def _symbols(symbols: Sequence[str]) -> tuple[str, ...]:
    if any(len(symbol) > SYMBOL_CHARACTERS_MAX for symbol in symbols):
        raise ChangeError(f"its schema has a symbol of more than {SYMBOL_CHARACTERS_MAX} characters")
    return tuple(symbols)


def _size(size: object) -> int:
    if type(size) is not int or not 0 <= size <= FIXED_BYTES_MAX:
        raise ChangeError(f"its schema has a fixed type whose size is not a number of bytes up to {FIXED_BYTES_MAX}")
    return size


def _connect_name(schema: dict[str, Any]) -> str | None:
    name = schema.get("connect.name")
    native: dict[str, object] = {}
    if name is None and schema.get("logicalType") == "decimal":
        # Beside Connect's name, the converter writes 64 for a precision that it does not know.
        name, native = DECIMAL, {PRECISION: schema.get("precision")}
    if name is None:
        return _LOGICAL.get((str(schema["type"]), str(schema.get("logicalType"))))
    # connect.parameters has texts, Avro's own decimal has its scale beside it, and 0 if it has none.
    said = {"scale": 0, "length": 0, **native, **schema, **(schema.get("connect.parameters") or {})}
    return parametrised(named(name), said) or name


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
