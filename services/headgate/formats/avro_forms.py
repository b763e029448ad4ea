"""How values of each meaning are written as Avro: the type in a schema, and the bytes of a value.

A type is what Confluent's converter writes for the same column (but for vectors, see below), so whatever reads a
connector's Avro reads this: Connect's and Debezium's names are beside the Avro type (``connect.name``,
``connect.parameters``), and the four types of Connect that Avro has itself have their ``logicalType``. Debezium's own
times have none: that converter refuses a logical type beside another type's name, and libraries that make dates of such
numbers fail on infinity.

Values come as the decoders give them: bytes as bytes or as base64, decimals as their unscaled bytes or as numbers.
Nothing is cut off or guessed: what a type does not hold is a ChangeError, without the value. One thing is rounded: a
JSON number with a point or an exponent becomes the nearest float or double, as in every reader of JSON, because that is
how connectors write these types.

The text of a schema decides its id, which is in front of each key. So the types here must never change: rows that exist
would get other keys (tests/unit/formats/avro_schemas.json has the text of each).
"""

import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from struct import Struct
from typing import Final, NamedTuple

from headgate.config.expressions import Kind
from headgate.config.moments import day_of, micros_of
from headgate.formats.change import ChangeError
from headgate.formats.meaning import DECIMAL, DEPTH_MAX, PRECISION, decimal_form

__all__ = ["INT32", "INT64", "AvroForm", "Encode", "encoded_number", "form_of", "form_of_computed"]

Encode = Callable[[object], bytes]
"""The bytes of a value that is not NULL. Raises ChangeError, or another of change.DATA_ERRORS."""

Schema = str | Sequence["Schema"] | Mapping[str, "str | int | Schema | None"]
"""A type of Avro, as JSON."""

FORMS_MAX: Final = 1_024
"""Meanings remembered. There are some fifty, and decimals and bits in each of their sizes."""

PRECISION_DEFAULT: Final = 64
"""What Confluent's converter writes for a decimal whose precision it does not know, and reads as not known."""

DIGITS_MAX: Final = 147_455
"""Of PostgreSQL's numeric: 131 072 before the point, 16 383 behind it."""


class AvroForm(NamedTuple):
    """A type of Avro, and how its values are written.

    ``bounds``: the least and the largest value, if the type is a plain integer and its values are integers.
    ``is_text``: whether the type is a plain string and its values are texts.
    """

    schema: Schema
    encode: Encode
    bounds: tuple[int, int] | None = None
    is_text: bool = False


INT32: Final = (-(2**31), 2**31 - 1)
INT64: Final = (-(2**63), 2**63 - 1)

_NUMBER_BYTES_MAX: Final = 10
"""An encoded number has up to 64 bits, and seven of them fit into a byte."""


def _packing(count: int) -> Callable[[int], bytes]:
    """Writes numbers of so many bytes. A loop over the bytes of a timestamp takes twice as long."""
    parts = [*(f"n >> {7 * place} & 127 | 128" for place in range(count - 1)), f"n >> {7 * (count - 1)}"]
    packed: Callable[[int], bytes] = eval(f"lambda n: bytes(({', '.join(parts)},))")  # noqa: S307 - made of numbers
    return packed


_PACKED: Final = tuple(_packing(max(1, (bits + 6) // 7)) for bits in range(7 * _NUMBER_BYTES_MAX + 1))
"""Number of bits → the function that writes numbers with so many."""


def encoded_number(number: int) -> bytes:
    """An int or a long of Avro: zig-zag, seven bits to a byte, the lowest first."""
    rest = (number << 1) ^ (number >> 63)
    return _PACKED[rest.bit_length()](rest)


def _wrong(value: object, expected: str) -> ChangeError:
    return ChangeError(f"the value is of type {type(value).__name__}, and its schema describes {expected}")


def _integer(bounds: tuple[int, int], value: object) -> bytes:
    if type(value) is not int:
        raise _wrong(value, "an integer")
    if not bounds[0] <= value <= bounds[1]:
        raise ChangeError(f"the number is not between {bounds[0]} and {bounds[1]}, which its schema describes")
    return encoded_number(value)


def _boolean(value: object) -> bytes:
    if type(value) is not bool:
        raise _wrong(value, "a boolean")
    return b"\x01" if value else b"\x00"


def _text(value: object) -> bytes:
    if type(value) is not str:
        raise _wrong(value, "a text")
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise ChangeError("the text has half of a surrogate pair, so it is not UTF-8") from None
    return encoded_number(len(data)) + data


def _bytes(value: object) -> bytes:
    data = _raw(value)
    return encoded_number(len(data)) + data


def _raw(value: object) -> bytes:
    """Bytes as they are, or from base64, as Kafka Connect's JSON converter writes them."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise _wrong(value, "bytes")
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except ValueError:  # binascii.Error among them
        raise ChangeError("the text is not base64, and its schema describes bytes") from None


_FLOATS: Final = {"float": Struct("<f"), "double": Struct("<d")}
_WORDS: Final = {
    "NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf,
    "POSITIVE_INFINITY": math.inf, "NEGATIVE_INFINITY": -math.inf,
}  # fmt: skip


def _float(kind: str, value: object) -> bytes:
    number = _WORDS.get(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
        raise _wrong(value, f"a {kind}")
    try:
        found = float(number)
        packed = _FLOATS[kind].pack(found)
    except OverflowError:
        raise ChangeError(f"the number is larger than a {kind}") from None
    if type(number) is float:
        return packed
    (held,) = _FLOATS[kind].unpack(packed)
    if isinstance(number, int) and held != number:
        raise ChangeError(f"the number has more digits than a {kind}")
    if math.isinf(held) and isinstance(number, Decimal) and number.is_finite():
        raise ChangeError(f"the number is larger than a {kind}")
    if not held and number:
        raise ChangeError(f"the number is smaller than a {kind}, and not zero")
    return packed


def _unscaled(number: int) -> bytes:
    """As few bytes as hold it, the highest first, as Java's BigInteger writes them."""
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _decimal(scale: int, precision: int, bytes_safe: int, value: object) -> bytes:
    """``bytes_safe``: so many never have more digits than the precision."""
    raw = _scaled(value, scale) if isinstance(value, int | Decimal) else _raw(value)
    length = len(raw)
    if not length:
        raise ChangeError("a decimal of no bytes is not a number")
    if length > bytes_safe and abs(int.from_bytes(raw, "big", signed=True)) >= 10**precision:
        raise ChangeError(f"the decimal has more than the {precision} digits that its schema describes")
    return encoded_number(length) + raw


def _scaled(value: int | Decimal, scale: int) -> bytes:
    """A number's unscaled bytes (decimal.format=NUMERIC). No digit behind the scale is lost."""
    if isinstance(value, bool):
        raise _wrong(value, "a decimal")
    sign, digits, exponent = _parts_of(Decimal(value))
    moved = exponent + scale
    if moved > 0:
        digits += (0,) * moved
    elif moved < 0:
        if any(digits[moved:]):
            raise ChangeError(
                f"the decimal has more than the {scale} digits behind the point that its schema describes"
            )
        digits = digits[:moved] or (0,)
    return _unscaled(int(Decimal((sign, digits, 0))))


def _parts_of(value: Decimal) -> tuple[int, tuple[int, ...], int]:
    """Sign, digits and exponent of a number that a database could hold."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ChangeError("NaN and infinities do not exist in a decimal")
    if abs(value.adjusted()) > DIGITS_MAX or len(digits) > DIGITS_MAX or abs(exponent) > DIGITS_MAX:
        raise ChangeError("the decimal has more digits than any database holds")
    return sign, digits, exponent


def _variable(value: object) -> bytes:
    """A decimal with its own scale, from Debezium's object or from a number."""
    if isinstance(value, Decimal) or type(value) is int:
        sign, digits, exponent = _parts_of(Decimal(value))
        return _integer(INT32, -exponent) + _bytes(_unscaled(int(Decimal((sign, digits, 0)))))
    fields = _fields_of(value, ("scale", "value"), "a decimal with its scale")
    raw = _raw(fields["value"])
    if not raw:
        raise ChangeError("a decimal of no bytes is not a number")
    return _integer(INT32, fields["scale"]) + _bytes(raw)


def _fields_of(value: object, names: Sequence[str], expected: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _wrong(value, expected)
    if not set(value) <= set(names):
        raise ChangeError(f"the value is not {expected}: it has other fields than {', '.join(names)}")
    return {name: value.get(name) for name in names}


def _optional(encode: Encode, value: object) -> bytes:
    return b"\x00" if value is None else b"\x02" + encode(value)


def _array(encode: Encode, value: object) -> bytes:
    """One block, and an empty one behind it."""
    if not isinstance(value, list):
        raise _wrong(value, "a list")
    if not value:
        return b"\x00"
    return b"".join((encoded_number(len(value)), *map(encode, value), b"\x00"))


def _map(encode: Encode, value: object) -> bytes:
    if not isinstance(value, dict):
        raise _wrong(value, "an object")
    if not value:
        return b"\x00"
    items = (part for name, each in value.items() for part in (_text(name), encode(each)))
    return b"".join((encoded_number(len(value)), *items, b"\x00"))


def _record(fields: Mapping[str, Encode], expected: str, value: object) -> bytes:
    found = _fields_of(value, tuple(fields), expected)
    return b"".join([encode(found[name]) for name, encode in fields.items()])


def _sparse(value: object) -> bytes:
    fields = _fields_of(value, ("dimensions", "vector"), "a sparse vector")
    return _integer(_INT16, fields["dimensions"]) + _array(_pair, list(_items_of(fields["vector"])))


def _items_of(value: object) -> Sequence[object]:
    if isinstance(value, dict):
        return list(value.items())
    if not isinstance(value, list):
        raise _wrong(value, "a list of pairs")
    return value


def _pair_of(value: object) -> tuple[object, object]:
    """Kafka Connect writes a map whose keys are numbers as a list: of pairs, in Avro of records."""
    if isinstance(value, dict) and value.keys() == {"key", "value"}:
        return value["key"], value["value"]
    if isinstance(value, list | tuple) and len(value) == 2:
        return value[0], value[1]
    raise _wrong(value, "a pair of place and number")


def _pair(value: object) -> bytes:
    place, number = _pair_of(value)
    return _integer(_INT16, place) + _float("double", number)


_INT16: Final = (-(2**15), 2**15 - 1)


def _plain(schema: Schema, bounds: tuple[int, int]) -> AvroForm:
    return AvroForm(schema, partial(_integer, bounds), bounds)


_OF_CONNECT: Final[Mapping[str, AvroForm]] = {
    "int8": _plain({"type": "int", "connect.type": "int8"}, (-(2**7), 2**7 - 1)),
    "int16": _plain({"type": "int", "connect.type": "int16"}, _INT16),
    "int32": _plain("int", INT32),
    "int64": _plain("long", INT64),
    "float": AvroForm("float", partial(_float, "float")),
    "double": AvroForm("double", partial(_float, "double")),
    "boolean": AvroForm("boolean", _boolean),
    "string": AvroForm("string", _text, is_text=True),
    "bytes": AvroForm("bytes", _bytes),
    "map": AvroForm({"type": "map", "values": ["null", "string"]}, partial(_map, partial(_optional, _text))),
}
"""Connect's plain types. Of a map only hstore's is known: texts, or NULL."""

_VERSION: Final[dict[str, int | Schema]] = {"connect.version": 1}
"""Of every type that has a name, in Connect and in Debezium."""


def _named(name: str, plain: str, **beside: int | Schema) -> AvroForm:
    """A plain type with a name."""
    form = _OF_CONNECT[plain]
    return form._replace(schema={"type": form.schema, **beside, **_VERSION, "connect.name": name})


def _struct(name: str, fields: Mapping[str, AvroForm], encode: Encode) -> AvroForm:
    namespace, _, last = name.rpartition(".")
    listed: list[Schema] = [
        {"name": field, "type": form.schema} | ({"default": None} if isinstance(form.schema, list) else {})
        for field, form in fields.items()
    ]
    schema: dict[str, int | Schema] = {"type": "record", "name": last, "namespace": namespace, "fields": listed}
    return AvroForm(schema | _VERSION | {"connect.name": name}, encode)


def _or_null(form: AvroForm) -> AvroForm:
    return AvroForm(["null", form.schema], partial(_optional, form.encode))


def _of_fields(name: str, fields: Mapping[str, AvroForm], expected: str) -> AvroForm:
    return _struct(name, fields, partial(_record, {field: form.encode for field, form in fields.items()}, expected))


_WKB: Final = {"wkb": _OF_CONNECT["bytes"], "srid": _or_null(_OF_CONNECT["int32"])}
_PAIR: Final[dict[str, Schema]] = {
    "type": "record", "name": "MapEntry", "namespace": "io.confluent.connect.avro",
    "fields": [{"name": "key", "type": _OF_CONNECT["int16"].schema}, {"name": "value", "type": "double"}],
}  # fmt: skip
"""How Confluent's converter writes an entry of a map whose keys are numbers."""

VARIABLE: Final = "io.debezium.data.VariableScaleDecimal"
_DATE: Final = "io.debezium.time.Date"
_MICRO_TIMESTAMP: Final = "io.debezium.time.MicroTimestamp"
_ZONED: Final = "io.debezium.time.ZonedTimestamp"

_OF_NAMES: Final[Mapping[str, AvroForm]] = {
    "org.apache.kafka.connect.data.Date": _named("org.apache.kafka.connect.data.Date", "int32", logicalType="date"),
    "org.apache.kafka.connect.data.Time": _named(
        "org.apache.kafka.connect.data.Time", "int32", logicalType="time-millis"
    ),
    "org.apache.kafka.connect.data.Timestamp": _named(
        "org.apache.kafka.connect.data.Timestamp", "int64", logicalType="timestamp-millis"
    ),
    **{
        name: _named(name, "int32")
        for name in (_DATE, "io.debezium.time.Time", "io.debezium.time.Year")
    },
    **{
        name: _named(name, "int64")
        for name in (
            "io.debezium.time.MicroTime", "io.debezium.time.NanoTime", "io.debezium.time.Timestamp", _MICRO_TIMESTAMP,
            "io.debezium.time.NanoTimestamp", "io.debezium.time.MicroDuration", "io.debezium.time.NanoDuration",
        )
    },
    **{
        name: _named(name, "string")
        for name in (
            _ZONED, "io.debezium.time.ZonedTime", "io.debezium.time.Interval", "io.debezium.time.IsoDate",
            "io.debezium.time.IsoTime", "io.debezium.time.IsoTimestamp", "io.debezium.data.Enum",
            "io.debezium.data.EnumSet", "io.debezium.data.Json", "io.debezium.data.Ltree", "io.debezium.data.Tsvector",
            "io.debezium.data.Uuid", "io.debezium.data.Xml",
        )
    },
    VARIABLE: _struct(VARIABLE, {"scale": _OF_CONNECT["int32"], "value": _OF_CONNECT["bytes"]}, _variable),
    "io.debezium.data.geometry.Point": _of_fields(
        "io.debezium.data.geometry.Point",
        {"x": _OF_CONNECT["double"], "y": _OF_CONNECT["double"], "wkb": _or_null(_OF_CONNECT["bytes"]),
         "srid": _or_null(_OF_CONNECT["int32"])},
        "a point",
    ),
    **{
        name: _of_fields(name, _WKB, "a geometry")
        for name in ("io.debezium.data.geometry.Geometry", "io.debezium.data.geometry.Geography")
    },
    **{
        name: AvroForm(
            {"type": "array", "items": ["null", kind], **_VERSION, "connect.name": name},
            partial(_array, partial(_optional, partial(_float, kind))),
        )
        for name, kind in (("io.debezium.data.DoubleVector", "double"), ("io.debezium.data.FloatVector", "float"))
    },
    "io.debezium.data.SparseVector": _struct(
        "io.debezium.data.SparseVector",
        {"dimensions": _OF_CONNECT["int16"], "vector": AvroForm({"type": "array", "items": _PAIR}, _pair)},
        _sparse,
    ),
}  # fmt: skip
"""Types with a name, of Connect and of Debezium, that need nothing beside it.

Numbers of vectors may be null here, other than in Debezium's schemas: Avro's own library for Java (1.12.0, in
Apicurio's converter 2.6.13) reads an array of doubles that may not be null as floats.
"""

_BITS: Final = "io.debezium.data.Bits("
_ARRAY: Final = "array("


@lru_cache(maxsize=FORMS_MAX)
def form_of(meaning: str, depth: int = 0) -> AvroForm:
    """How values with this meaning (see Change.semantics) are written. Raises ChangeError."""
    found = _OF_CONNECT.get(meaning) or _OF_NAMES.get(meaning)
    if found is not None:
        return found
    decimal = decimal_form(meaning)
    if decimal is not None:
        return _decimals(decimal.scale, decimal.precision)
    if meaning.startswith(_BITS):
        name, length = meaning[:-1].split("(")
        return _named(name, "bytes", **{"connect.parameters": {"length": length}})
    if meaning.startswith(_ARRAY) and depth < DEPTH_MAX:
        items = form_of(meaning[len(_ARRAY) : -1], depth + 1)
        return AvroForm(
            {"type": "array", "items": ["null", items.schema]}, partial(_array, partial(_optional, items.encode))
        )
    raise ChangeError(f"values of type {meaning} cannot be written as Avro. Leave the column out (columns.exclude)")


def _decimals(scale: int, precision: int | None) -> AvroForm:
    """A scale that Avro's decimals do not have is in Connect's parameters only."""
    digits = PRECISION_DEFAULT if precision is None else precision
    known = {} if precision is None else {PRECISION: str(precision)}
    beside: dict[str, int | Schema] = {}
    if 0 <= scale <= digits:
        beside = {"scale": scale, "precision": digits, "logicalType": "decimal"}
    form = _named(DECIMAL, "bytes", **beside, **{"connect.parameters": {"scale": str(scale)} | known})
    return form._replace(encode=partial(_decimal, scale, digits, int(10**digits).bit_length() // 8))


def _day(value: object) -> bytes:
    return _integer(INT32, day_of(_of_text(value)))


def _micros(value: object) -> bytes:
    return _integer(INT64, micros_of(_of_text(value), zoned=False))


def _instant(value: object) -> bytes:
    return _text(_of_text(value).replace(" ", "T").removesuffix("+00") + "Z")


def _of_text(value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(value, "a date or a time as a text")
    return value


_OF_KINDS: Final[Mapping[Kind, AvroForm]] = {
    Kind.TEXT: _OF_CONNECT["string"],
    Kind.BOOLEAN: _OF_CONNECT["boolean"],
    Kind.INTEGER: _OF_CONNECT["int64"],
    Kind.NUMERIC: _OF_NAMES[VARIABLE],
    Kind.DATE: _OF_NAMES[_DATE]._replace(encode=_day, bounds=None),
    Kind.TIMESTAMP: _OF_NAMES[_MICRO_TIMESTAMP]._replace(encode=_micros, bounds=None),
    Kind.TIMESTAMPTZ: _OF_NAMES[_ZONED]._replace(encode=_instant, is_text=False),
}


def form_of_computed(kind: str) -> AvroForm:
    """The same of a computed column, whose dates and times are texts (formats/expressions/computed.py)."""
    found = _OF_KINDS.get(Kind(kind))
    if found is None:
        raise ChangeError(f"the type of a computed column is {kind}, which has no type of Avro. Use CAST")
    return found
