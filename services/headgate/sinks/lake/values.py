"""Reads one value of an event for one column of a lake table, or reports why the column cannot hold it.

Nothing is rounded, cut off or guessed: a value that the column's type cannot hold exactly is refused.
"""

import math
from collections.abc import Callable
from datetime import date
from decimal import Context, Decimal
from enum import Enum, auto
from functools import partial
from typing import Final

import pyarrow as pa

from headgate.config.moments import EPOCH, day_of, micros_of
from headgate.formats.change import DATA_ERRORS, TEXT_ONLY, reason_of
from headgate.formats.connectors import MAXWELL
from headgate.formats.decimal_bytes import UNSIGNED_DIGITS, may_be_bytes
from headgate.formats.time_units import MICROS
from headgate.sinks.relational.forms import INTEGERS, NUMBERS, TextForm, without_base64
from headgate.sinks.relational.logical import ARRAY, logical_json, logical_text
from headgate.sinks.relational.rounding import is_shown_as, narrowed, whole_days
from headgate.sinks.relational.text import (
    bytes_of,
    decimal_scale,
    json_text,
    may_be_wrapped,
    not_wrapped,
    numeric,
    scalar,
    unreadable,
)
from headgate.sinks.relational.times import (
    DATES,
    OFFSET,
    TIMESTAMPS,
    NotTextError,
    infinite_date,
    infinite_timestamp,
    number_of_units,
    utc_day,
    utc_wall,
)

__all__ = ["DIGITS_MAX", "ReadValue", "is_supported", "reader_of"]

ReadValue = Callable[[object], object]

DIGITS_MAX: Final = 38
"""Of a decimal, in Delta and in Iceberg."""

_DECIMALS: Final = Context(prec=DIGITS_MAX)

_DAYS: Final = ((date.min - EPOCH).days, (date.max - EPOCH).days)
_MICROS: Final = (_DAYS[0] * 86_400 * MICROS, (_DAYS[1] + 1) * 86_400 * MICROS - 1)
"""Years 1 to 9999, which all readers have."""

_ZONED: Final = "io.debezium.time.ZonedTimestamp"
_WHOLE_DAY: Final = whole_days(lambda value: utc_day(str(value)), None)
_WORDS: Final = {"NaN": "nan", "NAN": "nan", "Infinity": "inf", "-Infinity": "-inf"} | {
    "POSITIVE_INFINITY": "inf",
    "NEGATIVE_INFINITY": "-inf",
}


def is_supported(type_: pa.DataType) -> bool:
    """Whether columns of the type can be written."""
    return (
        pa.types.is_signed_integer(type_)
        or type_ in (pa.float32(), pa.float64(), pa.bool_(), pa.date32())
        or pa.types.is_decimal(type_)
        or _is_text(type_)
        or _is_binary(type_)
        or (pa.types.is_timestamp(type_) and type_.unit == "us")
    )


def reader_of(
    type_: pa.DataType, meaning: str | None, mode: str | None, connector: str | None, decimals: str | None = None
) -> ReadValue:
    """Reads the values of one column. ``mode``: how bytes are written as text (formats.change.BINARY).

    ``connector``, ``decimals``: formats.change.CONNECTOR, DECIMALS. The reader raises NotTextError.
    """
    may_be = may_be_bytes(meaning, connector, decimals)
    numbers = without_base64(NUMBERS) if may_be else NUMBERS
    if pa.types.is_decimal(type_):
        read = partial(_decimal, type_.precision, type_.scale, decimal_scale(meaning), numbers)
        is_wide = type_.precision - type_.scale >= UNSIGNED_DIGITS
        return partial(_checked, partial(_signed, read) if is_wide and may_be_wrapped(meaning, connector) else read)
    if _is_binary(type_):
        return partial(_checked, bytes_of("binary", meaning, mode, connector))
    if pa.types.is_signed_integer(type_):
        return partial(_checked, partial(_integer, type_.bit_width, without_base64(INTEGERS) if may_be else INTEGERS))
    if pa.types.is_floating(type_):
        is_narrow = type_ == pa.float32()
        return partial(_checked, partial(_float, meaning, numbers) if is_narrow else partial(_double, numbers))
    if pa.types.is_timestamp(type_):
        zone = _Zone.NONE if type_.tz is None else _Zone.UTC if _is_in_utc(mode, connector) else _Zone.NAMED
        return partial(_checked, partial(_timestamp, TIMESTAMPS.get(meaning or ""), meaning, zone))
    return partial(_checked, _reader(type_, meaning))


class _Zone(Enum):
    """Of a column's times, and of an event's texts for it."""

    NONE = auto()
    """The column has no zone."""
    NAMED = auto()
    """The column holds instants, and so does a text with an offset."""
    UTC = auto()
    """The same. A text without an offset is in UTC."""


def _is_in_utc(mode: str | None, connector: str | None) -> bool:
    """Whether the writer's times are in UTC, and never have an offset: Canal's and TiCDC's, and Maxwell's."""
    return mode == TEXT_ONLY or connector == MAXWELL


def _checked(read: ReadValue, value: object) -> object:
    if value is None:
        return None
    try:
        return read(value)
    except NotTextError:
        raise
    except DATA_ERRORS as error:
        raise NotTextError(f"it cannot be written: {reason_of(error)}") from error


def _reader(type_: pa.DataType, meaning: str | None) -> ReadValue:
    if _is_text(type_):
        is_array = meaning is not None and meaning.startswith(ARRAY)
        return partial(_text, logical_json(meaning) if is_array else logical_text(meaning))
    return partial(_date, meaning) if type_ == pa.date32() else _boolean


def _signed(read: ReadValue, value: object) -> object:
    if type(value) is int and value < 0:
        not_wrapped(str)(value)
    return read(value)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_)) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)


def _is_binary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_)) or pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_)


def _integer(bits: int, form: TextForm, value: object) -> int:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        value = int(_taken(value, form, f"number of {bits} bits"))
    if type(value) is not int:
        raise unreadable(value, f"integer of {bits} bits")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise NotTextError(f"the number does not fit into {bits} bits. Give the column a wider type")
    return value


def _taken(text: str, form: TextForm, kind: str) -> str:
    """The text of a number, as Canal and TiCDC write all of them. Raises NotTextError."""
    if not form.takes(text):
        raise NotTextError(f"the text is not a {kind}, which takes {form.expected}. {form.advice}")
    return text


def _decimal(precision: int, places: int, scale: int | None, form: TextForm, value: object) -> Decimal:
    kind = f"decimal({precision},{places})"
    if isinstance(value, bool | float):
        raise unreadable(value, kind)
    text = numeric(scale, value)
    form = form if isinstance(value, str) else NUMBERS
    found = Decimal(text if text in _WORDS else _taken(text, form, kind))
    if not found.is_finite():
        raise NotTextError(f"NaN and infinities do not exist in {kind}. Give the column the type double or string")
    if found and found.adjusted() >= precision - places:
        raise NotTextError(f"the number has more digits before the point than {kind}. Give the column a wider type")
    if found and not _fits(found, places):
        raise NotTextError(f"the number has more digits behind the point than {kind}. Give the column a wider type")
    # pyarrow reads a decimal with hundreds of zeros behind the point as 0.
    return found.quantize(Decimal((0, (1,), -places)), context=_DECIMALS)


def _fits(found: Decimal, places: int) -> bool:
    """Whether no digit is further behind the point, zeros aside."""
    _, digits, exponent = found.as_tuple()
    ended = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return isinstance(exponent, int) and -(exponent + ended) <= places


def _text(by_meaning: Callable[[object], str] | None, value: object) -> str:
    if by_meaning is not None:
        return by_meaning(value)
    if isinstance(value, bytes):
        raise unreadable(value, "string")
    if isinstance(value, bool):
        return "true" if value else "false"
    text = json_text(value) if isinstance(value, dict | list) else scalar("string", value)
    text.encode()  # half a surrogate pair is not a text
    return text


def _double(form: TextForm, value: object) -> float:
    value = _number(value, form, "double")
    number = _floating(value, "double")
    if isinstance(value, Decimal) and not is_shown_as(number, value):
        raise NotTextError("the number has more digits than a double. Give the column a decimal type or string")
    return number


def _float(meaning: str | None, form: TextForm, value: object) -> float:
    value = _number(value, form, "float")
    number = _floating(value, "float")
    try:
        narrow = narrowed(number)
    except OverflowError:
        raise NotTextError("the number is larger than a float. Give the column the type double") from None
    is_same = meaning == "float" or not math.isfinite(number) or (narrow == number and isinstance(value, float))
    if not is_same and not is_shown_as(narrow, Decimal(str(value)), narrowed):
        raise NotTextError("the number has more digits than a float. Give the column the type double")
    return number


def _number(value: object, form: TextForm, kind: str) -> object:
    return Decimal(_taken(value, form, kind)) if isinstance(value, str) and value not in _WORDS else value


def _floating(value: object, kind: str) -> float:
    if isinstance(value, str) and value in _WORDS:
        return float(_WORDS[value])
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise unreadable(value, kind)
    number = float(value)
    if isinstance(value, int) and int(number) != value:
        raise NotTextError(f"the number has more digits than a {kind}. Give the column a decimal type or string")
    return number


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise unreadable(value, "boolean")


def _date(meaning: str | None, value: object) -> int:
    if isinstance(value, str):
        try:
            return day_of(_WHOLE_DAY(value))
        except ValueError:
            raise NotTextError("the text is not a date of the years 1 to 9999") from None
    if type(value) is not int or meaning not in (None, *DATES):
        raise unreadable(value, "date")
    if infinite_date(value) is not None or not _DAYS[0] <= value <= _DAYS[1]:
        raise NotTextError("the date is infinite, or not in the years 1 to 9999. Give the column the type string")
    return value


def _timestamp(per_second: int | None, meaning: str | None, zone: _Zone, value: object) -> int:
    if isinstance(value, str):
        return _time_of(value, needs_offset=zone is _Zone.NAMED)
    if zone is not _Zone.NONE and meaning not in (None, _ZONED):
        raise NotTextError("a time without a zone is not an instant. Give the column a timestamp type without zone")
    number, unit = number_of_units(per_second, value, "timestamp")
    if infinite_timestamp(number, unit) is not None:
        raise NotTextError("the timestamp is infinite. Give the column the type string")
    micros, rest = divmod(number * MICROS, unit)
    return _in_years(micros, has_rest=rest != 0)


def _time_of(text: str, *, needs_offset: bool) -> int:
    if needs_offset and not (text.endswith("Z") or OFFSET.search(text)):
        raise NotTextError(
            "the text has no offset, so it is not an instant. Give the column a timestamp type without zone"
        )
    wall = utc_wall(text)
    whole, _, fraction = wall.partition(".")
    digits = fraction.rstrip("0")
    try:
        micros = micros_of(whole, zoned=False)
    except ValueError:
        raise NotTextError("the text is not a time of the years 1 to 9999") from None
    return _in_years(micros + int(digits[:6].ljust(6, "0")), has_rest=len(digits) > 6)


def _in_years(micros: int, *, has_rest: bool) -> int:
    if has_rest:
        raise NotTextError("the time has nanoseconds, and the column has microseconds. Give it the type string")
    if not _MICROS[0] <= micros <= _MICROS[1]:
        raise NotTextError("the time is not in the years 1 to 9999. Give the column the type string")
    return micros
