"""Debezium values → PostgreSQL's COPY text, a column at a time.

How a value is written follows from the target column's type and, where the event had a schema, from what the schema
says the value means (Change.semantics). Without a schema a time's unit is taken from the target column, as Debezium's
adaptive mode chooses it: precision 0 to 3 in milliseconds, above that, or without one, in microseconds; but all times
of day that come from MySQL or MariaDB are in microseconds. Dates are
written as Julian days, which PostgreSQL reads and which know no first or last year.

A column at a time, because a row at a time costs four times as much: strings that need no escape are found by one
search through the whole column.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from headgate.sinks.relational.keys import unpadded
from headgate.sinks.relational.logical import logical_json, logical_text
from headgate.sinks.relational.postgresql.times import days_text, time_text, timestamp_text, unit_per_second
from headgate.sinks.relational.text import (
    DECIMAL,
    FIELD_BEGINS,
    INFINITE_DECIMAL,
    MAXWELL,
    UNSIGNED_DIGITS,
    ColumnText,
    ToText,
    base64_bytes,
    bytes_of,
    check_element,
    decimal_scale,
    is_of_mysql,
    json_value,
    may_be_wrapped,
    not_wrapped,
    numeric,
    scalar,
    unreadable,
)
from headgate.sinks.relational.times import DURATION, MICROS, OFFSET, NotTextError, microseconds

__all__ = ["column_text"]

_SIGNED: Final = re.compile(rf"{FIELD_BEGINS}[+-]")
_SIGNED_OR_OFFSET: Final = re.compile(rf"{FIELD_BEGINS}[+-]|{OFFSET.pattern}")

_INTEGERS: Final = frozenset({"smallint", "integer", "bigint", "oid"})
_FLOATS: Final = frozenset({"real", "double precision"})
_DECIMALS: Final = frozenset({"numeric", "money"})
_JSON: Final = frozenset({"json", "jsonb"})
_BITS: Final = frozenset({"bit", "bit varying"})
_BITS_MEANING: Final = "io.debezium.data.Bits("
_ARRAY_MEANING: Final = "array("
_NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_TYPE: Final = re.compile(r"(?P<head>[^(]*?)\s*(?:\((?P<modifier>[\d,-]+)\))?(?P<tail>[^([]*)(?P<array>(?:\[\])*)\Z")


def _text(kind: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind == "point" and isinstance(value, dict) and {"x", "y"} <= value.keys():
        return f"({scalar(kind, value['x'])},{scalar(kind, value['y'])})"
    return scalar(kind, value)


def _money(scale: int | None, value: object) -> str:
    text = numeric(scale, value)
    if text in _NOT_FINITE:  # the server has no error of its own for it, and blames the statement
        raise NotTextError(f"there is no {text} in a column of type money: filter such rows, or use a numeric column")
    return text


def _bytea(read: Callable[[object], bytes], value: object) -> str:
    return "\\x" + read(value).hex()


def _bits(kind: str, length: int | None, value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if type(value) is int and value >= 0:  # Maxwell's
        digits = f"{value:b}"
    else:
        digits = f"{int.from_bytes(base64_bytes(value, kind), 'little'):b}"
    return digits if length is None else digits.zfill(length)


def _interval(value: object) -> str:
    return f"{microseconds(value)} microseconds" if type(value) is int else scalar("interval", value)


def _array(element: ToText, value: object) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise unreadable(value, "array")
    items = []
    for item in value:
        if item is None:
            items.append("NULL")
        elif isinstance(item, list):
            items.append(_array(element, item))
        else:
            check_element(item)
            text = element(item).replace("\\", "\\\\").replace('"', '\\"')
            items.append(f'"{text}"')
    return "{" + ",".join(items) + "}"


class _Type(msgspec.Struct, frozen=True):
    """A type as ``format_type`` prints it, taken apart: ``numeric(10,2)[]`` → numeric, 10, 2, array."""

    kind: str
    modifier: int | None
    array: bool
    scale: int = 0

    @classmethod
    def parse(cls, declared: str) -> "_Type":
        match = _TYPE.match(declared)
        if match is None:
            return cls(declared, None, array=False)
        modifier = match["modifier"]
        kind = match["head"] + match["tail"]
        first, _, second = (modifier or "").partition(",")
        return cls(kind, int(first) if first else None, array=bool(match["array"]), scale=int(second or 0))

    @property
    def holds_unsigned(self) -> bool:
        """Whether a numeric takes every ``bigint unsigned``."""
        return self.modifier is None or self.modifier - self.scale >= UNSIGNED_DIGITS


def _converter(column: _Type, meaning: str | None, connector: str | None, binary: str | None) -> tuple[ToText, bool]:  # noqa: PLR0911 - one case per type
    """How a value becomes text, and whether strings already are that text."""
    kind, modifier = column.kind, column.modifier
    scale = decimal_scale(meaning)
    if kind == "money":
        return partial(_money, scale), False
    if scale is not None and (
        kind in _INTEGERS or kind in _FLOATS or kind in _DECIMALS
    ):  # integers: bigint.unsigned.handling.mode=precise
        return partial(numeric, scale), False
    if kind in _INTEGERS and meaning == DURATION:
        return microseconds, False
    if kind in _INTEGERS or kind in _FLOATS or kind == "boolean":
        return partial(scalar, kind), True
    if kind in _DECIMALS:
        return partial(numeric, None), True
    if kind == "bytea":
        return partial(_bytea, bytes_of(kind, meaning, binary)), False
    if kind in _BITS:
        width = modifier
        if meaning is not None and meaning.startswith(_BITS_MEANING) and kind == "bit varying":
            width = None
        return partial(_bits, kind, width), False
    if kind == "date" or kind.startswith("time"):
        return _time_converter(column, meaning, connector), True
    if kind == "interval" or kind.startswith("interval "):
        return _interval, True
    if kind in _JSON:
        return (json_value, False) if connector == MAXWELL else (logical_json(meaning), True)
    logical = logical_text(meaning)
    return (partial(_text, kind), True) if logical is None else (logical, False)


def _time_converter(column: _Type, meaning: str | None, connector: str | None) -> ToText:
    kind = column.kind
    if kind == "date":
        return partial(days_text, meaning)
    zone = "+00" if kind.endswith("with time zone") else ""
    unit = unit_per_second(meaning, column.modifier)
    if kind.startswith("timestamp"):
        return partial(timestamp_text, unit, zone, said=meaning is not None)
    return partial(time_text, MICROS if meaning is None and is_of_mysql(connector) else unit, zone)


def _doubtful(kind: str) -> re.Pattern[str] | None:
    """What strings of a column of this type are looked at one by one for: the server would misread them."""
    if kind in _DECIMALS:
        return INFINITE_DECIMAL
    if kind.startswith("timestamp"):
        return _SIGNED if kind.endswith("with time zone") else _SIGNED_OR_OFFSET
    return OFFSET if kind in ("date", "time without time zone") else None


def column_text(
    declared: str, meaning: str | None, connector: str | None = None, binary: str | None = None, *, in_key: bool = False
) -> ColumnText:
    """The writer for a column of type ``declared``, given what its values mean (None without a schema) and who says so.

    ``connector`` and ``binary``: see ``changes.change.CONNECTOR`` and ``BINARY``. ``in_key``: the column is part of the
    table's key.
    """
    column = _Type.parse(declared)
    if column.array:
        inner = None
        if meaning is not None and meaning.startswith(_ARRAY_MEANING):
            inner = meaning[len(_ARRAY_MEANING) : -1]
        element, _ = _converter(column, inner, connector, binary)
        return ColumnText(partial(_array, element), strings_are_text=True)
    to_text, strings_are_text = _converter(column, meaning, connector, binary)
    if in_key and column.kind == "character" and column.modifier is not None:
        return ColumnText(unpadded(to_text, " ", column.modifier))
    if may_be_wrapped(meaning, connector) and column.kind == "numeric" and column.holds_unsigned:
        return ColumnText(not_wrapped(to_text), strings_are_text=strings_are_text)
    return ColumnText(
        to_text,
        strings_are_text=strings_are_text,
        integers_are_text=column.kind in _INTEGERS | _FLOATS | {"numeric"}
        and not (meaning is not None and (meaning.startswith(DECIMAL) or meaning == DURATION)),
        doubtful=_doubtful(column.kind),
    )
