"""Avro bodies from our structs at a third of fastavro's time: a writer per schema, made once, of small functions.

An owner's first dispatch writes two records a table, and a general writer has to find out for each value again what a
schema said long ago (which branch of a union, which name of an enum). What is written is what fastavro would write,
for every value our structs can hold (tested against it); what a field cannot hold is refused. Our schemas use a part of
Avro only: records, nullable fields, enums, arrays, maps, and plain values; ``compile_writer`` refuses any other.
"""

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

__all__ = ["UnwritableSchemaError", "compile_writer"]

Put = Callable[[Any, bytearray], None]
"""Appends a value's bytes. Raises ValueError or TypeError for one that the schema does not hold."""

LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1

_DOUBLE: Final = struct.Struct("<d")


class UnwritableSchemaError(Exception):
    """A schema uses a part of Avro that our records do not; the message says which."""


def compile_writer(schema: Any) -> Put:
    """The writer of one parsed schema. Raises UnwritableSchemaError."""
    return _compile(schema, {})


def _put_long(value: Any, out: bytearray) -> None:
    if not LONG_MIN <= value <= LONG_MAX:
        raise ValueError(f"{value} does not fit into 64 bits")
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _put_bytes(value: bytes, out: bytearray) -> None:
    _put_long(len(value), out)
    out += value


def _put_string(value: Any, out: bytearray) -> None:
    raw = value.encode()
    if len(raw) < 64:
        out.append(len(raw) << 1)
    else:
        _put_long(len(raw), out)
    out += raw


def _put_boolean(value: Any, out: bytearray) -> None:
    if value is not True and value is not False:
        raise TypeError(f"{value!r} is no boolean")
    out.append(value)


def _put_double(value: Any, out: bytearray) -> None:
    out += _DOUBLE.pack(value)


_PLAIN: Final[dict[str, Put]] = {
    "long": _put_long,
    "int": _put_long,
    "string": _put_string,
    "bytes": _put_bytes,
    "boolean": _put_boolean,
    "double": _put_double,
}


def _compile(schema: Any, named: dict[str, Put]) -> Put:
    if isinstance(schema, list):
        return _nullable(schema, named)
    kind = schema if isinstance(schema, str) else schema["type"]
    known = _PLAIN.get(kind) or named.get(kind)
    if known is not None:
        return known
    make = _COMPOUND.get(kind)
    if make is None:
        raise UnwritableSchemaError(f"no record of ours has a field of type {schema!r}")
    return make(schema, named)


def _nullable(branches: list[Any], named: dict[str, Put]) -> Put:
    if len(branches) != 2 or branches[0] != "null":
        raise UnwritableSchemaError(f"a union is null or one other type, not {branches!r}")
    put = _compile(branches[1], named)

    def put_nullable(value: Any, out: bytearray) -> None:
        if value is None:
            out.append(0)
        else:
            out.append(2)
            put(value, out)

    return put_nullable


def _record(schema: Any, named: dict[str, Put]) -> Put:
    names = [field["name"] for field in schema["fields"]]
    puts = [_compile(field["type"], named) for field in schema["fields"]]
    if len(names) == 1:
        read, put = attrgetter(names[0]), puts[0]
        return named.setdefault(schema["name"], lambda value, out: put(read(value), out))
    read_all = attrgetter(*names)

    def put_record(value: Any, out: bytearray) -> None:
        for put_field, part in zip(puts, read_all(value), strict=True):
            put_field(part, out)

    return named.setdefault(schema["name"], put_record)


def _enum(schema: Any, named: dict[str, Put]) -> Put:
    places = {symbol: place << 1 for place, symbol in enumerate(schema["symbols"])}
    if len(places) > 64:
        raise UnwritableSchemaError(f"enum {schema['name']} has more than 64 symbols")

    def put_enum(value: Any, out: bytearray) -> None:
        try:
            out.append(places[value])
        except KeyError:
            raise ValueError(f"{value!r} is none of {', '.join(places)}") from None

    return named.setdefault(schema["name"], put_enum)


def _array(schema: Any, named: dict[str, Put]) -> Put:
    put = _compile(schema["items"], named)

    def put_array(value: Any, out: bytearray) -> None:
        if value:
            _put_long(len(value), out)
            for item in value:
                put(item, out)
        out.append(0)

    return put_array


def _map(schema: Any, named: dict[str, Put]) -> Put:
    """Keys are text in Avro; ours are text, or numbers written in decimal."""
    put = _compile(schema["values"], named)

    def put_map(value: Any, out: bytearray) -> None:
        if value:
            _put_long(len(value), out)
            for key, item in value.items():
                _put_string(key if isinstance(key, str) else str(key), out)
                put(item, out)
        out.append(0)

    return put_map


_COMPOUND: Final[dict[str, Callable[[Any, dict[str, Put]], Put]]] = {
    "record": _record,
    "enum": _enum,
    "array": _array,
    "map": _map,
}
