"""Converts Debezium's values into PostgreSQL's COPY text, a column at a time.

How a value is written follows from the target column's type and, where the event had a schema, from the meaning that
the schema gives it (Change.semantics). Without a schema a time's unit is taken from the target column, as Debezium's
adaptive mode chooses it: precision 0 to 3 in milliseconds, above that, or without one, in microseconds; but all times
of day that come from MySQL or MariaDB are in microseconds. Dates are
written as Julian days, which PostgreSQL reads and which know no first or last year.

A column at a time, because a row at a time costs four times as much: strings that need no escape are found by one
search through the whole column.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Final

import msgspec

from headgate.formats.connectors import MAXWELL, is_of_mysql
from headgate.formats.decimal_bytes import UNSIGNED_DIGITS, may_be_bytes
from headgate.formats.time_units import MICROS
from headgate.sinks.relational.keys import unpadded
from headgate.sinks.relational.logical import logical_json, logical_text
from headgate.sinks.relational.postgresql.arrays import array_text
from headgate.sinks.relational.postgresql.extensions import converter_of_extension
from headgate.sinks.relational.postgresql.forms import CONTAINER_FORM, form_of, room_of
from headgate.sinks.relational.postgresql.intervals import at_field
from headgate.sinks.relational.postgresql.times import days_text, time_text, timestamp_text, unit_per_second
from headgate.sinks.relational.rounding import (
    at_floating,
    at_precision,
    at_scale,
    loses_digits,
    loses_time,
    whole_days,
)
from headgate.sinks.relational.text import (
    DECIMAL,
    ColumnText,
    LosesAny,
    ToText,
    base64_bytes,
    bit_digits,
    bytes_of,
    decimal_scale,
    json_value,
    may_be_wrapped,
    not_wrapped,
    numeric,
    scalar,
)
from headgate.sinks.relational.times import (
    DATES,
    DURATION,
    PER_SECOND,
    TIMES,
    TIMESTAMPS,
    NotTextError,
    fraction,
    microseconds,
    number_of_units,
    utc_clock,
)

_INTEGERS: Final = frozenset({"smallint", "integer", "bigint"})
_INTEGERS_END: Final = 2**63
"""Above all of their values: a decimal with a large exponent is not written out."""
_TEXTS: Final = frozenset({"text", "character varying", "character"})
_UNSIGNED: Final = frozenset({"oid", "xid", "xid8", "cid"})
"""Types that read a negative number as a large one."""
_FLOATS: Final = frozenset({"real", "double precision"})
_DECIMALS: Final = frozenset({"numeric", "money"})
_JSON: Final = frozenset({"json", "jsonb"})
_BITS: Final = frozenset({"bit", "bit varying"})
_BITS_MEANING: Final = "io.debezium.data.Bits("
_ARRAY_MEANING: Final = "array("
MICROS_DIGITS: Final = 6
"""Digits of a second that a time keeps whose column declares no precision."""
_NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_TYPE: Final = re.compile(r"(?P<head>[^(]*?)\s*(?:\((?P<modifier>[\d,-]+)\))?(?P<tail>[^([]*)(?P<array>(?:\[\])*)\Z")


def _text(kind: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind in _UNSIGNED and type(value) is int and value < 0:
        raise NotTextError(f"the value is negative, and a column of type {kind} would store another number")
    if kind in _TEXTS and isinstance(value, dict | list):
        raise NotTextError(
            f"a {type(value).__name__} cannot be written to a column of type {kind}. Give the column the type jsonb, "
            "or, for a list, that of an array"
        )
    if kind == "point" and isinstance(value, dict) and {"x", "y"} <= value.keys():
        return f"({scalar(kind, value['x'])},{scalar(kind, value['y'])})"
    return scalar(kind, value)


def _integer(kind: str, value: object) -> str:
    if isinstance(value, Decimal) and value.is_finite() and abs(value) < _INTEGERS_END and value == int(value):
        return str(int(value))  # 5.0, which the server does not read as an integer
    return scalar(kind, value)


def _money(scale: int | None, value: object) -> str:
    text = numeric(scale, value)
    if text in _NOT_FINITE:  # the server has no error of its own for it, and blames the statement
        raise NotTextError(f"a column of type money cannot store {text}. Filter such rows, or use a numeric column")
    return text


def _bytea(read: Callable[[object], bytes], value: object) -> str:
    return "\\x" + read(value).hex()


def _bits(kind: str, length: int | None, meaning: str | None, value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if meaning == "string":
        return bit_digits(value, kind)
    if type(value) is int and value >= 0:  # Maxwell's
        digits = f"{value:b}"
    else:
        digits = f"{int.from_bytes(base64_bytes(value, kind), 'little'):b}"
    return digits if length is None else digits.zfill(length)


def _unit_of_interval(meaning: str | None) -> int | None:
    """Units per second of a number in a column of intervals, which also hold times of MySQL; integers are microseconds.

    None if a schema describes it as something else.
    """
    if meaning in TIMESTAMPS or meaning in DATES:
        return None
    return PER_SECOND.get(meaning or "", MICROS)


def _interval(meaning: str | None, value: object) -> str:
    if isinstance(value, str):
        return utc_clock(value)
    number, unit = number_of_units(_unit_of_interval(meaning), value, "interval")
    micros, rest = divmod(number * MICROS, unit)
    if rest == 0:
        return f"{micros} microseconds"
    seconds, part = divmod(abs(number), unit)
    return f"{'-' if number < 0 else ''}{seconds}{fraction(part, unit)} seconds"


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


def _converter(column: _Type, meaning: str | None, connector: str | None, binary: str | None) -> tuple[ToText, bool]:  # noqa: C901, PLR0911 - one case per type
    """How a value becomes text, and whether strings already are that text."""
    kind, modifier = column.kind, column.modifier
    scale = decimal_scale(meaning)
    if kind == "money":
        return partial(_money, scale), False
    if scale is not None and (
        kind in _INTEGERS | _UNSIGNED | _FLOATS | _DECIMALS
    ):  # integers: bigint.unsigned.handling.mode=precise
        return partial(numeric, scale), False
    if kind in _INTEGERS and meaning == DURATION:
        return microseconds, False
    if kind in _INTEGERS or kind in _FLOATS or kind == "boolean":
        return partial(_integer if kind in _INTEGERS else scalar, kind), True
    if kind in _DECIMALS:
        return partial(numeric, None), True
    if kind == "bytea":
        return partial(_bytea, bytes_of(kind, meaning, binary, connector)), False
    if kind in _BITS:
        width = modifier
        if meaning is not None and meaning.startswith(_BITS_MEANING) and kind == "bit varying":
            width = None
        return partial(_bits, kind, width, meaning), False
    if kind == "date" or kind.startswith("time"):
        return _time_converter(column, meaning, connector), True
    if kind == "interval" or kind.startswith("interval "):
        return partial(_interval, meaning), True
    if (of_extension := converter_of_extension(kind)) is not None:
        return of_extension, False
    if kind in _JSON:
        return (json_value, False) if connector == MAXWELL else (logical_json(meaning), True)
    logical = logical_text(meaning)
    return (partial(_text, kind), True) if logical is None else (logical, False)


def _time_converter(column: _Type, meaning: str | None, connector: str | None) -> ToText:
    kind = column.kind
    if kind == "date":
        return partial(days_text, meaning)
    zone = "+00" if kind.endswith("with time zone") else ""
    unit = unit_per_second(meaning, column.modifier, TIMESTAMPS if kind.startswith("timestamp") else TIMES)
    if kind.startswith("timestamp"):
        return partial(timestamp_text, unit, zone, said=meaning is not None)
    return partial(time_text, MICROS if meaning is None and is_of_mysql(connector) else unit, zone)


def _kept_text(column: _Type, to_text: ToText, meaning: str | None, *, in_key: bool) -> tuple[ToText, LosesAny | None]:
    """The same without values that the column would change, and a search for texts that it would."""
    kind, modifier = column.kind, column.modifier
    if in_key and kind == "character" and modifier is not None:
        return unpadded(to_text, " ", modifier), None
    if kind == "numeric" and modifier is not None:
        told = decimal_scale(meaning)
        if told is not None and told <= column.scale:
            return to_text, None
        return at_scale(to_text, column.scale), loses_digits(column.scale, has_exponents=True)
    if kind == "date":
        return whole_days(to_text, meaning), loses_time
    if kind.startswith(("time", "interval")):
        digits = MICROS_DIGITS if modifier is None else modifier
        of_fields = at_field(to_text, kind)
        return at_precision(of_fields, digits, meaning), loses_digits(digits) if of_fields is to_text else None
    return at_floating(to_text, meaning, is_single=kind == "real") if kind in _FLOATS else (to_text, None)


def column_text(
    declared: str,
    meaning: str | None,
    connector: str | None = None,
    binary: str | None = None,
    decimals: str | None = None,
    *,
    in_key: bool = False,
    holds_times: bool = False,
    rounds: bool = False,
) -> ColumnText:
    """The writer for a column of type ``declared``, given its values' meaning (None without a schema) and connector.

    ``connector``, ``binary``, ``decimals``: see CONNECTOR, BINARY, DECIMALS of formats.change. ``in_key``: the column
    is part of the table's key. ``holds_times``: a part of the type is a date or a time, which its name may not show.
    ``rounds``: outside of keys a value may have more digits than the column keeps.
    """
    column = _Type.parse(declared)
    if column.array:
        inner = None
        if meaning is not None and meaning.startswith(_ARRAY_MEANING):
            inner = meaning[len(_ARRAY_MEANING) : -1]
        element = _scalar_text(
            column, inner, connector, binary, decimals, in_key=in_key, holds_times=holds_times, rounds=rounds
        )
        return ColumnText(partial(array_text, element), strings_are_text=not element.checks_strings)
    return _scalar_text(
        column, meaning, connector, binary, decimals, in_key=in_key, holds_times=holds_times, rounds=rounds
    )


def _scalar_text(
    column: _Type,
    meaning: str | None,
    connector: str | None,
    binary: str | None,
    decimals: str | None,
    *,
    in_key: bool,
    holds_times: bool,
    rounds: bool,
) -> ColumnText:
    to_text, strings_are_text = _converter(column, meaning, connector, binary)
    integers_are_text = column.kind in _INTEGERS | _FLOATS | {"numeric"} and not (
        meaning is not None and (meaning.startswith(DECIMAL) or meaning == DURATION)
    )
    if may_be_wrapped(meaning, connector) and column.kind == "numeric" and column.holds_unsigned and not column.array:
        to_text, integers_are_text = not_wrapped(to_text), False
    form = (
        None
        if column.kind in _BITS
        else form_of(column.kind, in_key=in_key, may_be_bytes=may_be_bytes(meaning, connector, decimals))
    )
    if form is None and holds_times and column.kind not in _BITS:
        form = CONTAINER_FORM
    kept: ToText = to_text
    loses_any: LosesAny | None = None
    if in_key or not rounds:
        kept, loses_any = _kept_text(column, to_text, meaning, in_key=in_key)
    keeps_integers = kept is to_text or (column.kind == "numeric" and column.scale >= 0)
    return ColumnText(
        kept,
        strings_are_text=strings_are_text and (kept is to_text or loses_any is not None),
        integers_are_text=integers_are_text and keeps_integers,
        form=form,
        loses_any=loses_any,
        room=room_of(column.kind, column.modifier),
    )
