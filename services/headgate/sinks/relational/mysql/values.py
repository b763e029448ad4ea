"""Debezium values → what MySQL and MariaDB read, a column at a time.

How a value is written follows from the target column's type and, where the event had a schema, from what the schema
says the value means (Change.semantics). Without a schema a number in a datetime or timestamp column is taken as
Debezium's adaptive mode writes it, in milliseconds up to precision 3, in microseconds above; in a time column it is in
microseconds, as the MySQL and MariaDB connectors write all times, but for times of PostgreSQL: they follow its own
column's precision, for which the sink's stands, and what that leaves open is refused. Instants are written in UTC.

Bytes are sent as hexadecimal digits, bits as a number (see staging).
"""

import re
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Final

from headgate.sinks.relational.keys import unpadded
from headgate.sinks.relational.logical import logical_json, logical_text
from headgate.sinks.relational.mysql.catalog import Column
from headgate.sinks.relational.text import (
    MAXWELL,
    UNSIGNED_DIGITS,
    ColumnText,
    ToText,
    base64_bytes,
    bytes_of,
    decimal_scale,
    json_text,
    json_value,
    may_be_wrapped,
    not_wrapped,
    numeric,
    scalar,
)
from headgate.sinks.relational.times import (
    DATES,
    DURATION,
    MICROS,
    MILLIS,
    OFFSET,
    PER_SECOND,
    SECONDS_PER_DAY,
    NotTextError,
    clock,
    fraction,
    infinite_date,
    infinite_timestamp,
    known_unit,
    microseconds,
    number_of_units,
    utc_clock,
    utc_wall,
)

__all__ = ["BYTES", "GEOMETRIES", "NUMBERS_SENT", "column_text"]

_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})
_FLOATS: Final = frozenset({"float", "double"})
_TIMES: Final = frozenset({"date", "time", "datetime", "timestamp"})
BYTES: Final = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
"""Types whose values are sent as hexadecimal digits."""
NUMBERS_SENT: Final = frozenset({"bit"})
"""Types whose values are sent as a number that is none of the type's own literals."""
GEOMETRIES: Final = frozenset(
    {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
     "geometrycollection", "geomcollection"}
)  # fmt: skip
"""Types that are refused."""

_ARRAY: Final = "array("
_NOT_NUMBERS: Final = frozenset({"nan", "infinity", "-infinity", "inf", "-inf"})
_INFINITIES: Final = frozenset({"infinity", "-infinity"})
_BITS_BYTES_MAX: Final = 8
_ADAPTIVE_MILLIS_PRECISION: Final = 3
MILLIS_PER_DAY: Final = SECONDS_PER_DAY * 1_000
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date.max.toordinal() - _EPOCH_ORDINAL
_DIGITS: Final = re.compile(r"\d+")
_PRECISION: Final = re.compile(r"\((\d+)\)")


def _missing(text: str) -> NotTextError:
    return NotTextError(f"there is no {text} in MySQL and MariaDB: filter such rows, or use a text column")


def _existing(text: str) -> str:
    if text.lower() in _NOT_NUMBERS:
        raise _missing(text)
    return text


def _set(value: object) -> str:
    """Labels with commas between, or a list of them, as Maxwell has it."""
    if isinstance(value, list):
        return ",".join(_text("set", label) for label in value)
    return _text("set", value)


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


def _bits(value: object) -> str:
    if isinstance(value, bool | int):
        return str(int(value))
    raw = base64_bytes(value, "bit").rstrip(b"\x00")  # the lowest byte comes first
    if len(raw) > _BITS_BYTES_MAX:
        raise NotTextError(f"{len(raw) * 8} bits are more than a bit column has")
    return str(int.from_bytes(raw, "little"))


def _day(days: int) -> str:
    infinity = infinite_date(days)
    if infinity is not None:
        raise _missing(infinity)
    try:
        return date.fromordinal(days + _EPOCH_ORDINAL).isoformat()
    except (ValueError, OverflowError) as error:
        raise NotTextError(f"day {days} since 1970 is outside the years 1 to 9999 that the column holds") from error


def _date(meaning: str | None, value: object) -> str:
    if isinstance(value, str):
        return utc_wall(value).split(" ")[0] if OFFSET.search(value) else value
    if type(value) is not int:
        raise NotTextError(f"a {type(value).__name__} is no date")
    if meaning is not None and meaning not in DATES:
        per_second = PER_SECOND.get(meaning)
        if per_second is None:
            raise NotTextError(f"a number whose schema says {meaning} is no date")
        value //= per_second * SECONDS_PER_DAY
    return _day(value)


def _time(per_second: int | None, value: object) -> str:
    if isinstance(value, str):
        return utc_clock(value)
    number, unit = number_of_units(per_second, value, "time")
    seconds, part = divmod(abs(number), unit)
    return ("-" if number < 0 else "") + clock(seconds) + fraction(part, unit)


def _time_of_postgresql(is_fine: bool | None, value: object) -> str:
    """A time of day: microseconds above precision 3 (``is_fine``), else milliseconds; None: nobody says."""
    if type(value) is not int or is_fine:
        return _time(MICROS, value)
    if value > MILLIS_PER_DAY or is_fine is None:
        raise NotTextError(
            f"whether {value} counts milliseconds or microseconds depends on the source column's precision, which this "
            "sink column's does not tell: give it that of the source (time is time(6) there), or use events with schema"
        )
    return _time(MILLIS, value)


def _instant(per_second: int | None, value: object, *, said: bool) -> str:
    if isinstance(value, str):
        if value in _INFINITIES:
            raise _missing(value)
        return utc_wall(value)  # the server says what it thinks of any other form
    number, unit = number_of_units(per_second, value, "timestamp")
    if not said:
        known_unit(number, unit)
    seconds, part = divmod(number, unit)
    days, second = divmod(seconds, SECONDS_PER_DAY)
    infinity = infinite_timestamp(number, unit) if days > _LAST_DAY or days < -_LAST_DAY else None
    if infinity is not None:
        raise _missing(infinity)
    return f"{_day(days)} {clock(second)}{fraction(part, unit)}"


def _refused_geometry(kind: str, value: object) -> str:
    del value
    raise NotTextError(f"columns of type {kind} are not supported: leave the column out (column.exclude.list)")


def _is_fine(column: Column) -> bool | None:
    """Whether a time column has parts below a millisecond; None where it was declared without a precision."""
    precision = _PRECISION.search(column.declared)
    return None if precision is None else int(precision[1]) > _ADAPTIVE_MILLIS_PRECISION


def _unit(column: Column, meaning: str | None) -> int | None:
    """Units per second of a number in this column; None where a schema says that it is no time."""
    if meaning is not None:
        return MICROS if meaning == DURATION and column.kind == "time" else PER_SECOND.get(meaning)
    if column.kind == "time":
        return MICROS
    precision = _PRECISION.search(column.declared)
    return 1_000 if precision is None or int(precision[1]) <= _ADAPTIVE_MILLIS_PRECISION else MICROS


def _converter(column: Column, meaning: str | None, connector: str | None, binary: str | None) -> tuple[ToText, bool]:  # noqa: PLR0911 - one case per type
    """How a value becomes text, and whether strings already are that text."""
    kind = column.kind
    if kind in _INTEGERS or kind in _FLOATS:
        if meaning == DURATION:
            return microseconds, False
        scale = decimal_scale(meaning)  # bigint.unsigned.handling.mode=precise
        if scale is not None:
            return partial(_decimal, scale), False
        return partial(_number, kind), kind in _INTEGERS
    if kind == "decimal":
        scale = decimal_scale(meaning)
        return partial(_decimal, scale), False
    if kind in BYTES:
        return partial(_hex, bytes_of(kind, meaning, binary)), False
    if kind in NUMBERS_SENT:
        return _bits, False
    if kind in _TIMES:
        return _time_converter(column, meaning, connector), kind == "date"
    if kind == "set":
        return _set, True
    if kind in GEOMETRIES:
        return partial(_refused_geometry, kind), False
    if kind == "json" or (meaning is not None and meaning.startswith(_ARRAY)):
        return logical_json(meaning), True
    logical = logical_text(meaning)
    return (partial(_text, kind), True) if logical is None else (logical, False)


def _time_converter(column: Column, meaning: str | None, connector: str | None) -> ToText:
    kind = column.kind
    if kind == "date":
        return partial(_date, meaning)
    if kind != "time":
        return partial(_instant, _unit(column, meaning), said=meaning is not None)
    if meaning is None and connector == "postgresql":
        return partial(_time_of_postgresql, _is_fine(column))
    return partial(_time, _unit(column, meaning))


def _holds_unsigned(column: Column) -> bool:
    """Whether the column takes every ``bigint unsigned``."""
    if column.kind == "decimal":
        digits = [int(number) for number in _DIGITS.findall(column.declared)]
        return bool(digits) and digits[0] - sum(digits[1:2]) >= UNSIGNED_DIGITS
    return column.kind == "bigint" and "unsigned" in column.declared


def column_text(
    column: Column,
    meaning: str | None,
    connector: str | None = None,
    binary: str | None = None,
    *,
    in_key: bool = False,
) -> ColumnText:
    """The writer for a column, given what its values mean (None without a schema) and who says so.

    ``connector`` and ``binary``: see ``changes.change.CONNECTOR`` and ``BINARY``. ``in_key``: the column is part of the
    table's key.
    """
    if column.kind == "json" and connector == MAXWELL:
        return ColumnText(json_value)
    to_text, strings_are_text = _converter(column, meaning, connector, binary)
    if in_key and column.kind in ("char", "binary"):
        pad, each = (" ", 1) if column.kind == "char" else ("00", 2)
        return ColumnText(unpadded(to_text, pad, each * int(_DIGITS.findall(column.declared)[0])))
    if may_be_wrapped(meaning, connector) and _holds_unsigned(column):
        return ColumnText(not_wrapped(to_text), strings_are_text=strings_are_text)
    integers_are_text = (column.kind in _INTEGERS or column.kind == "decimal") and decimal_scale(meaning) is None
    return ColumnText(
        to_text,
        strings_are_text=strings_are_text,
        integers_are_text=integers_are_text and meaning != DURATION,
        doubtful=OFFSET if column.kind == "date" else None,
    )
