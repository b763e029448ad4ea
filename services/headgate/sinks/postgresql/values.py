"""Debezium values → PostgreSQL's COPY text, a column at a time.

How a value is written follows from the target column's type and, where the event had a schema, from what the schema
says the value means (Change.semantics). Without a schema a time's unit is taken from the target column, as Debezium's
adaptive mode chooses it: precision 0 to 3 in milliseconds, above that, or without one, in microseconds. Dates are
written as Julian days, which PostgreSQL reads and which know no first or last year.

A column at a time, because a row at a time costs four times as much: strings that need no escape are found by one
search through the whole column.
"""

import binascii
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

import msgspec

from headgate.sinks.postgresql.times import NotTextError, days_text, time_text, timestamp_text, unit_per_second

__all__ = ["ColumnText", "NotTextError", "column_text"]

NULL: Final = "\\N"
_NULL_MARK: Final = "\x1e"
_DIVIDER: Final = "\x1f"
_SIGNS: Final = ("+", "-")

_INTEGERS: Final = frozenset({"smallint", "integer", "bigint", "oid"})
_FLOATS: Final = frozenset({"real", "double precision"})
_JSON: Final = frozenset({"json", "jsonb"})
_BITS: Final = frozenset({"bit", "bit varying"})
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal("
_BITS_MEANING: Final = "io.debezium.data.Bits("
_ARRAY_MEANING: Final = "array("
_ESCAPES: Final = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_TYPE: Final = re.compile(r"(?P<head>[^(]*?)\s*(?:\((?P<modifier>[\d,-]+)\))?(?P<tail>[^([]*)(?P<array>(?:\[\])*)\Z")

ToText = Callable[[object], str]


def _escape(text: str) -> str:
    for plain, escaped in _ESCAPES:
        if plain in text:
            text = text.replace(plain, escaped)
    return text


def _unreadable(value: object, kind: str) -> NotTextError:
    return NotTextError(f"a {type(value).__name__} cannot be written to a column of type {kind}")


def _base64(value: object, kind: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return binascii.a2b_base64(value, strict_mode=True)
        except ValueError as error:
            raise NotTextError(
                f"{value[:40]!r} is not base64, as {kind} needs it (set the connector's binary.handling.mode=bytes)"
            ) from error
    raise _unreadable(value, kind)


def _scalar(kind: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return ("t" if value else "f") if kind == "boolean" else str(int(value))
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    raise _unreadable(value, kind)


def _text(kind: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind == "point" and isinstance(value, dict) and {"x", "y"} <= value.keys():
        return f"({value['x']!r},{value['y']!r})"
    return _scalar(kind, value)


def _json(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _numeric(scale: int | None, value: object) -> str:
    if isinstance(value, dict) and value.keys() == {"scale", "value"}:  # io.debezium.data.VariableScaleDecimal
        return _numeric(int(value["scale"]), value["value"])
    if scale is None or not isinstance(value, str | bytes):
        return _scalar("numeric", value)
    unscaled = int.from_bytes(_base64(value, "a decimal"), "big", signed=True)
    return f"{unscaled}e{-scale}"


def _bytea(value: object) -> str:
    return "\\x" + _base64(value, "bytea").hex()


def _bits(kind: str, length: int | None, value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    digits = f"{int.from_bytes(_base64(value, kind), 'little'):b}"
    return digits if length is None else digits.zfill(length)


def _interval(value: object) -> str:
    return f"{value} microseconds" if type(value) is int else _scalar("interval", value)


def _array(element: ToText, value: object) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise _unreadable(value, "array")
    items = []
    for item in value:
        if item is None:
            items.append("NULL")
        elif isinstance(item, list):
            items.append(_array(element, item))
        else:
            text = element(item).replace("\\", "\\\\").replace('"', '\\"')
            items.append(f'"{text}"')
    return "{" + ",".join(items) + "}"


class _Type(msgspec.Struct, frozen=True):
    """A type as ``format_type`` prints it, taken apart: ``numeric(10,2)[]`` → numeric, 10, array."""

    kind: str
    modifier: int | None
    array: bool

    @classmethod
    def parse(cls, declared: str) -> "_Type":
        match = _TYPE.match(declared)
        if match is None:
            return cls(declared, None, array=False)
        modifier = match["modifier"]
        kind = match["head"] + match["tail"]
        return cls(kind, int(modifier.split(",")[0]) if modifier else None, array=bool(match["array"]))


def _converter(column: _Type, meaning: str | None) -> tuple[ToText, bool]:  # noqa: PLR0911 - one case per type
    """How a value becomes text, and whether strings already are that text."""
    kind, modifier = column.kind, column.modifier
    if kind in _INTEGERS or kind in _FLOATS or kind == "boolean":
        return partial(_scalar, kind), True
    if kind in ("numeric", "money"):
        scale = int(meaning[len(_DECIMAL) : -1]) if meaning is not None and meaning.startswith(_DECIMAL) else None
        return partial(_numeric, scale), scale is None
    if kind == "bytea":
        return _bytea, False
    if kind in _BITS:
        width = modifier
        if meaning is not None and meaning.startswith(_BITS_MEANING) and kind == "bit varying":
            width = None
        return partial(_bits, kind, width), False
    if kind == "date":
        return partial(days_text, meaning), True
    if kind.startswith("timestamp"):
        zone = "+00" if kind.endswith("with time zone") else ""
        return partial(timestamp_text, unit_per_second(meaning, modifier), zone), True
    if kind.startswith("time"):
        zone = "+00" if kind.endswith("with time zone") else ""
        return partial(time_text, unit_per_second(meaning, modifier), zone), True
    if kind == "interval" or kind.startswith("interval "):
        return _interval, True
    if kind in _JSON:
        return _json, True
    return partial(_text, kind), True


class ColumnText:
    """Writes the values of one column as COPY fields."""

    def __init__(self, declared: str, meaning: str | None) -> None:
        column = _Type.parse(declared)
        if column.array:
            inner = None
            if meaning is not None and meaning.startswith(_ARRAY_MEANING):
                inner = meaning[len(_ARRAY_MEANING) : -1]
            element, _ = _converter(column, inner)
            self._to_text: ToText = partial(_array, element)
            self._strings_are_text = True
        else:
            self._to_text, self._strings_are_text = _converter(column, meaning)
        self._signed_years = column.kind.startswith("timestamp") and not column.array
        self._integers_are_text = column.kind in _INTEGERS | _FLOATS | {"numeric"} and not column.array
        if meaning is not None and meaning.startswith(_DECIMAL):
            self._integers_are_text = False

    def field(self, value: object) -> str:
        """One value; NotTextError if the column cannot take it."""
        return NULL if value is None else _escape(self._to_text(value))

    def fields(self, values: Sequence[object], types: set[type]) -> Sequence[str]:
        """All values of a part of the column; ``types`` are (at least) the types that occur."""
        kinds = types - {type(None)}
        nulls = len(kinds) < len(types)
        if kinds == {str} and self._strings_are_text:
            fields = self._escape_all(values, nulls=nulls)
            if fields is not None:
                return fields
        elif kinds == {int} and self._integers_are_text:
            return [NULL if value is None else str(value) for value in values] if nulls else list(map(str, values))
        field = self.field
        return [field(value) for value in values]

    def _escape_all(self, values: Sequence[object], *, nulls: bool) -> Sequence[str] | None:
        """Strings and nulls as fields, by searching them all at once; None where they need a look one by one."""
        strings: Any = [_NULL_MARK if value is None else value for value in values] if nulls else values
        column = _DIVIDER.join(strings)
        if column.count(_DIVIDER) != len(values) - 1 or column.count(_NULL_MARK) != (
            values.count(None) if nulls else 0
        ):
            return None  # the marks occur in the data
        if self._signed_years and (column.startswith(_SIGNS) or any(_DIVIDER + sign in column for sign in _SIGNS)):
            return None
        escaped = _escape(column)
        if nulls:
            escaped = escaped.replace(_NULL_MARK, NULL)
        elif escaped is column:
            return values  # type: ignore[return-value]
        return escaped.split(_DIVIDER)


def column_text(declared: str, meaning: str | None) -> ColumnText:
    """The writer for a column of type ``declared``, given what its values mean (None without a schema)."""
    return ColumnText(declared, meaning)
