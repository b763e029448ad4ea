"""Converts Debezium's values into MySQL's and MariaDB's text, a column at a time.

How a value is written follows from the target column's type and, where the event had a schema, from the meaning that
the schema gives it (Change.semantics). Without a schema a number in a datetime or timestamp column is taken as by
Debezium's adaptive mode, in milliseconds up to precision 3, in microseconds above; in a time column it is in
microseconds, as the MySQL and MariaDB connectors write all times, except for times of PostgreSQL: they follow its own
column's precision, in place of which the sink's is used, and what that leaves open is refused. Instants are written in
UTC.

Bytes are sent as hexadecimal digits, bits as a number (see staging).
"""

import re
import struct
from collections.abc import Callable
from datetime import date
from functools import partial
from math import isfinite
from typing import Final

from headgate.databases.mysql.types import BYTES, GEOMETRIES, labels_of
from headgate.formats.connectors import MAXWELL
from headgate.formats.decimal_bytes import UNSIGNED_DIGITS, may_be_bytes
from headgate.formats.time_units import MICROS, MILLIS
from headgate.sinks.relational.keys import unpadded
from headgate.sinks.relational.logical import logical_json, logical_text
from headgate.sinks.relational.mysql.catalog import MysqlSinkColumn
from headgate.sinks.relational.mysql.forms import form_of, room_of
from headgate.sinks.relational.rounding import (
    at_floating,
    at_precision,
    at_scale,
    loses_digits,
    loses_time,
    whole_days,
)
from headgate.sinks.relational.text import (
    ColumnText,
    LosesAny,
    ToText,
    base64_bytes,
    bit_digits,
    bytes_of,
    decimal_scale,
    json_text,
    json_value,
    may_be_wrapped,
    not_wrapped,
    numeric,
    scalar,
    wkb_of,
)
from headgate.sinks.relational.times import (
    DATES,
    DURATION,
    DURATIONS,
    SECONDS_PER_DAY,
    TIMES,
    TIMESTAMPS,
    NotTextError,
    check_zero_date,
    clock,
    fraction,
    infinite_date,
    infinite_timestamp,
    known_unit,
    microseconds,
    number_of_units,
    utc_clock,
    utc_day,
    utc_wall,
)

__all__ = ["NUMBERS_SENT", "SENT_AS_HEX", "column_text"]

_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_FLOATS: Final = frozenset({"float", "double"})
_TIMES: Final = frozenset({"date", "time", "datetime", "timestamp"})
SENT_AS_HEX: Final = BYTES | GEOMETRIES
"""Types whose values are sent as hexadecimal digits."""
NUMBERS_SENT: Final = frozenset({"bit"})
"""Types whose values are sent as a number that is none of the type's own literals."""

_SRID_MAX: Final = 2**32 - 1
_LOWEST_FIRST: Final = b"\x01"
"""WKB begins with the order of its bytes."""
_POINT_HEAD: Final = (1, 1)
"""The order of the bytes, and the type."""
_POINT_BYTES: Final = 21
_POINT: Final = re.compile(r"\((NaN|-?Infinity|-?[\d.]+(?:e[+-]?\d+)?),(NaN|-?Infinity|-?[\d.]+(?:e[+-]?\d+)?)\)")
"""As PostgreSQL writes it, in a copied row."""

_ARRAY: Final = "array("
_NO_NULL: Final = (
    "the value is NULL, and the column is NOT NULL: the server would write the current time, or the next number. Allow "
    "NULL in the column"
)
_NOT_NUMBERS: Final = frozenset({"nan", "infinity", "-infinity", "inf", "-inf"})
_INFINITIES: Final = frozenset({"infinity", "-infinity"})
_YEAR_MIN: Final = 1901
_SINGLE_MAX: Final = 3.4028234663852886e38
_LARGE_SINGLE: Final = re.compile(r"[+-]?0*(?:3\.40|340[0-9]{36})")
_ADAPTIVE_MILLIS_PRECISION: Final = 3
MILLIS_PER_DAY: Final = SECONDS_PER_DAY * 1_000
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date.max.toordinal() - _EPOCH_ORDINAL
_DIGITS: Final = re.compile(r"\d+")
_PRECISION: Final = re.compile(r"\((\d+)\)")


def _missing(text: str) -> NotTextError:
    return NotTextError(f"MySQL and MariaDB cannot store {text}. Filter such rows, or use a text column")


def _existing(text: str) -> str:
    if text.lower() in _NOT_NUMBERS:
        raise _missing(text)
    return text


def _label(labels: tuple[str, ...], value: object) -> str:
    """One label of an enum. The server would take any other number for the place of a label."""
    text = _text("enum", value)
    if text not in labels:
        raise NotTextError(
            f"the value is not one of the column's {len(labels)} labels. ALTER the column to have all labels of the "
            "source's. (The empty label that MySQL keeps for an invalid value cannot be written)"
        )
    return text


def _set(labels: tuple[str, ...], in_key: bool, value: object) -> str:
    """Labels with commas between, or a list of them, as Maxwell has it."""
    items = [_text("set", label) for label in value] if isinstance(value, list) else _text("set", value).split(",")
    if items == [""]:
        items = []
    if not set(items) <= set(labels):
        raise NotTextError(
            f"the value has a label that is not one of the {len(labels)} of the column. ALTER the column to have all "
            "labels of the source's"
        )
    if in_key and items != [label for label in labels if label in items]:
        raise NotTextError(
            "a set that is part of a key must have its labels once and in the column's order, because the "
            "column does not distinguish other orders. Give the column a text type"
        )
    return ",".join(items)


def _year(value: object) -> str:
    """A year of four digits. The server would complete one of fewer digits, and take 0 for 2000."""
    if type(value) is int and (value == 0 or value >= _YEAR_MIN):
        return f"{value:04d}"
    if isinstance(value, str):
        return value
    raise NotTextError("the value is not a year: the column has 0000 and the years 1901 to 2155")


def _single(value: object) -> str:
    """A number for four bytes of floating point."""
    text = _existing(scalar("float", value))
    if _LARGE_SINGLE.match(text) is None:
        return text
    try:
        kept = abs(struct.unpack("f", struct.pack("f", float(text)))[0])
    except (ValueError, OverflowError):
        return text  # out of range: the server reports it
    # The shortest text of the largest number is a little above it, which the server refuses.
    return text if kept != _SINGLE_MAX else f"{'-' if text.startswith('-') else ''}{_SINGLE_MAX!r}"


def _number(kind: str, value: object) -> str:
    return _existing(scalar(kind, value))


def _decimal(scale: int | None, value: object) -> str:
    return _existing(numeric(scale, value))


def _text(kind: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json_text(value)
    return scalar(kind, value)


def _hex(read: Callable[[object], bytes], value: object) -> str:
    return read(value).hex()


def _bits(width: int, meaning: str | None, value: object) -> str:
    if meaning == "string":
        number = int(bit_digits(value, "bit"), 2)
    elif isinstance(value, bool | int):
        number = int(value)
    else:
        number = int.from_bytes(base64_bytes(value, "bit"), "little")  # the lowest byte comes first
    if number < 0 or number.bit_length() > width:
        raise NotTextError(
            f"the value needs {'a sign' if number < 0 else f'{number.bit_length()} bits'}, and the column has {width} "
            "bits. Give the column the source's width"
        )
    return str(number)


def _day(days: int) -> str:
    infinity = infinite_date(days)
    if infinity is not None:
        raise _missing(infinity)
    try:
        return date.fromordinal(days + _EPOCH_ORDINAL).isoformat()
    except (ValueError, OverflowError) as error:
        raise NotTextError("the date is outside the years 1 to 9999 that the column holds") from error


def _date(meaning: str | None, value: object) -> str:
    if isinstance(value, str):
        check_zero_date(value)
        return utc_day(value)
    if type(value) is not int:
        raise NotTextError(f"a {type(value).__name__} is not a date")
    if meaning is not None and meaning not in DATES:
        per_second = TIMESTAMPS.get(meaning)
        if per_second is None:
            raise NotTextError(f"a number whose schema is {meaning} is not a date")
        value //= per_second * SECONDS_PER_DAY
    return _day(value)


def _time(per_second: int | None, value: object) -> str:
    if isinstance(value, str):
        return utc_clock(value)
    number, unit = number_of_units(per_second, value, "time")
    seconds, part = divmod(abs(number), unit)
    return ("-" if number < 0 else "") + clock(seconds) + fraction(part, unit)


def _time_of_postgresql(is_fine: bool | None, value: object) -> str:
    """A time of day: microseconds above precision 3 (``is_fine``), else milliseconds; None: unknown."""
    if type(value) is not int or is_fine:
        return _time(MICROS, value)
    if value > MILLIS_PER_DAY or is_fine is None:
        raise NotTextError(
            "whether the value counts milliseconds or microseconds depends on the source column's precision, and "
            "this sink column has another one. Give it the source's precision (time is time(6) there), or use events "
            "with schema"
        )
    return _time(MILLIS, value)


def _instant(per_second: int | None, value: object, *, said: bool) -> str:
    if isinstance(value, str):
        if value in _INFINITIES:
            raise _missing(value)
        check_zero_date(value)
        return utc_wall(value)  # the server reports what is wrong with any other form
    number, unit = number_of_units(per_second, value, "timestamp")
    if not said:
        known_unit(number, unit)
    seconds, part = divmod(number, unit)
    days, second = divmod(seconds, SECONDS_PER_DAY)
    infinity = infinite_timestamp(number, unit) if days > _LAST_DAY or days < -_LAST_DAY else None
    if infinity is not None:
        raise _missing(infinity)
    return f"{_day(days)} {clock(second)}{fraction(part, unit)}"


def _geometry(value: object) -> str:
    """As the server keeps it: an SRID and WKB, in hexadecimal digits. Bytes, of a copied row, are that already."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str) and (point := _POINT.fullmatch(value)):
        value = {"wkb": struct.pack("<BIdd", *_POINT_HEAD, float(point[1]), float(point[2]))}
    wkb, srid = wkb_of(value, "geometry")
    if not 0 <= srid <= _SRID_MAX:
        raise NotTextError(f"the geometry's SRID is {srid}, which MySQL and MariaDB cannot keep")
    if wkb[:1] != _LOWEST_FIRST:
        raise NotTextError("the geometry's bytes are in an order that MySQL and MariaDB do not keep")
    if len(wkb) == _POINT_BYTES and not all(map(isfinite, struct.unpack("<5x2d", wkb))):
        raise _missing("a point at infinity or NaN")
    return f"{srid.to_bytes(4, 'little').hex()}{wkb.hex()}"


def _is_fine(column: MysqlSinkColumn) -> bool | None:
    """Whether a time column has parts below a millisecond; None where it was declared without a precision."""
    precision = _PRECISION.search(column.declared)
    return None if precision is None else int(precision[1]) > _ADAPTIVE_MILLIS_PRECISION


def _unit(column: MysqlSinkColumn, meaning: str | None) -> int | None:
    """Units per second of a number in this column; None if a schema declares that it is not a time."""
    if meaning is not None:
        return (TIMES | DURATIONS if column.kind == "time" else TIMESTAMPS).get(meaning)
    if column.kind == "time":
        return MICROS
    precision = _PRECISION.search(column.declared)
    return 1_000 if precision is None or int(precision[1]) <= _ADAPTIVE_MILLIS_PRECISION else MICROS


def _converter(  # noqa: PLR0911 - one case per type
    column: MysqlSinkColumn, meaning: str | None, connector: str | None, binary: str | None, *, in_key: bool
) -> tuple[ToText, bool]:
    """How a value becomes text, and whether strings already are that text."""
    kind = column.kind
    if kind == "year":
        return _year, True
    if kind in _INTEGERS or kind in _FLOATS or kind == "decimal":
        if meaning == DURATION:
            return microseconds, False
        scale = decimal_scale(meaning)  # of integers: bigint.unsigned.handling.mode=precise
        if scale is not None or kind == "decimal":
            return partial(_decimal, scale), scale is None
        return (_single, False) if kind == "float" else (partial(_number, kind), True)
    if kind in BYTES:
        return partial(_hex, bytes_of(kind, meaning, binary, connector)), False
    if kind in NUMBERS_SENT:
        return partial(_bits, _width(column), meaning), False
    if kind in _TIMES:
        return _time_converter(column, meaning, connector), True
    if kind == "enum":
        return partial(_label, labels_of(column.declared)), False
    if kind == "set":
        return partial(_set, labels_of(column.declared), in_key), False
    if kind in GEOMETRIES:
        return _geometry, False
    if kind == "json" or (meaning is not None and meaning.startswith(_ARRAY)):
        return logical_json(meaning), True
    logical = logical_text(meaning)
    return (partial(_text, kind), True) if logical is None else (logical, False)


def _width(column: MysqlSinkColumn) -> int:
    digits = _DIGITS.search(column.declared)
    return int(digits[0]) if digits is not None else 1


def _time_converter(column: MysqlSinkColumn, meaning: str | None, connector: str | None) -> ToText:
    kind = column.kind
    if kind == "date":
        return partial(_date, meaning)
    if kind != "time":
        return partial(_instant, _unit(column, meaning), said=meaning is not None)
    if meaning is None and connector == "postgresql":
        return partial(_time_of_postgresql, _is_fine(column))
    return partial(_time, _unit(column, meaning))


def _holds_unsigned(column: MysqlSinkColumn) -> bool:
    """Whether the column takes every ``bigint unsigned``."""
    if column.kind == "decimal":
        digits = [int(number) for number in _DIGITS.findall(column.declared)]
        return bool(digits) and digits[0] - sum(digits[1:2]) >= UNSIGNED_DIGITS
    return column.kind == "bigint" and "unsigned" in column.declared


def column_text(
    column: MysqlSinkColumn,
    meaning: str | None,
    connector: str | None = None,
    binary: str | None = None,
    decimals: str | None = None,
    *,
    in_key: bool = False,
    rounds: bool = False,
) -> ColumnText:
    """The writer for a column, given what its values mean (None without a schema) and from which connector.

    ``connector``, ``binary``, ``decimals``: see CONNECTOR, BINARY, DECIMALS of formats.change. ``in_key``: the column
    is part of the table's key. ``rounds``: outside of keys a value may have more digits than the column keeps.
    """
    if column.kind == "json" and connector == MAXWELL:
        return ColumnText(json_value)
    to_text, strings_are_text = _converter(column, meaning, connector, binary, in_key=in_key)
    is_number = column.kind in _INTEGERS or column.kind == "decimal"
    integers_are_text = is_number and decimal_scale(meaning) is None and meaning != DURATION
    if may_be_wrapped(meaning, connector) and _holds_unsigned(column):
        to_text, integers_are_text = not_wrapped(to_text), False
    form = form_of(column.kind, in_key=in_key, may_be_bytes=may_be_bytes(meaning, connector, decimals))
    kept: ToText = to_text
    loses_any: LosesAny | None = None
    if in_key or not rounds:
        kept, loses_any = _kept_text(column, to_text, meaning, in_key=in_key)
    return ColumnText(
        kept,
        strings_are_text=strings_are_text and (kept is to_text or loses_any is not None),
        integers_are_text=integers_are_text,
        form=form,
        loses_any=loses_any,
        room=room_of(column.kind, column.declared, column.charset),
        no_null=_NO_NULL if column.replaces_null else None,
    )


def _kept_text(
    column: MysqlSinkColumn, to_text: ToText, meaning: str | None, *, in_key: bool
) -> tuple[ToText, LosesAny | None]:
    """The same without values that the column would change, and a search for texts that it would."""
    kind = column.kind
    numbers = [int(number) for number in _DIGITS.findall(column.declared)]
    if in_key and kind in ("char", "binary"):
        pad, each = (" ", 1) if kind == "char" else ("00", 2)
        return unpadded(to_text, pad, each * numbers[0]), None
    if kind in _INTEGERS or kind == "decimal":
        scale = numbers[1] if kind == "decimal" and len(numbers) > 1 else 0
        told = decimal_scale(meaning)
        if told is not None and told <= scale:
            return to_text, None
        return at_scale(to_text, scale), loses_digits(scale, has_exponents=True)
    if kind == "date":
        return whole_days(to_text, meaning), loses_time
    if kind in _TIMES:
        digits = numbers[0] if numbers else 0
        return at_precision(to_text, digits, meaning), loses_digits(digits)
    return at_floating(to_text, meaning, is_single=kind == "float") if kind in _FLOATS else (to_text, None)
