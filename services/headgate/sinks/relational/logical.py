"""Converts values by their schema into readable text, for columns of text and of JSON.

A connector sends a decimal as bytes, a date as a number of days: in a column of its own type a sink knows what that
is, in a column of text only the schema does. Without a schema such values arrive as they are.
"""

from functools import partial
from typing import Final

import msgspec

from headgate.sinks.relational.text import (
    DECIMAL,
    ToText,
    base64_bytes,
    decimal_scale,
    json_text,
    scalar,
    scale_in,
    unscaled_digits,
)
from headgate.sinks.relational.times import (
    DATES,
    DURATIONS,
    SECONDS_PER_DAY,
    TIMES,
    TIMESTAMPS,
    NotTextError,
    clock,
    fraction,
    infinite_date,
    infinite_timestamp,
    iso_day,
    number_of_units,
    utc_clock,
    utc_day,
    utc_wall,
)

FILLED_MAX: Final = 1_024
"""Zeros that are added to a value as its schema demands. More of them would let a few bytes of an event become a
text that fills a worker's memory; connectors send all bytes of a bit string, so only ``bit varying`` without a length
asks for more."""

_VARIABLE: Final = "io.debezium.data.VariableScaleDecimal"
_BITS: Final = "io.debezium.data.Bits("
ARRAY: Final = "array("


def logical_text(meaning: str | None) -> ToText | None:
    """How values with this meaning are written as text; None where they are texts or numbers that stand for themselves.

    Decimals as ``-1234.50``, dates and timestamps as ISO 8601 with a space between, intervals as ``hh:mm:ss``, bits as
    zeros and ones.
    """
    if meaning is None:
        return None
    if _is_decimal(meaning):
        return partial(_decimal, decimal_scale(meaning))
    if meaning.startswith(_BITS):
        return partial(_bits, int(meaning[len(_BITS) : -1]))
    return _TIMES.get(meaning)


def logical_json(meaning: str | None) -> ToText:
    """How values with this meaning are written as JSON: decimals as numbers, others, in arrays, as texts."""
    if meaning is None:
        return json_text
    if _is_decimal(meaning):
        return partial(_decimal, decimal_scale(meaning))
    if not meaning.startswith(ARRAY):
        return json_text
    inner = meaning[len(ARRAY) : -1]
    element = logical_text(inner)
    return json_text if element is None else partial(_json_array, element, _is_decimal(inner))


def _is_decimal(meaning: str) -> bool:
    return meaning == _VARIABLE or meaning.startswith(DECIMAL)


def _json_array(element: ToText, is_number: bool, value: object) -> str:
    if not isinstance(value, list):
        return json_text(value)
    texts = [None if item is None else element(item) for item in value]
    raw = [msgspec.Raw(text.encode()) if is_number and text is not None else text for text in texts]
    return msgspec.json.encode(raw).decode()


def _decimal(scale: int | None, value: object) -> str:
    if isinstance(value, dict) and value.keys() == {"scale", "value"}:
        return _decimal(scale_in(value), value["value"])
    if scale is None or not isinstance(value, str | bytes):
        return scalar("numeric", value)
    signed = unscaled_digits(scale, value)
    if abs(scale) > len(signed) + FILLED_MAX:
        return f"{signed}e{-scale}"
    digits = signed.removeprefix("-").rjust(scale + 1, "0")
    sign = "-" if signed.startswith("-") else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale > 0 else f"{signed}{'0' * -scale}"


def _bits(length: int, value: object) -> str:
    if isinstance(value, str | bytes):
        raw = base64_bytes(value, "bits")
        if length > len(raw) * 8 + FILLED_MAX:
            raise NotTextError(
                f"{len(raw)} bytes do not match the {length} bits that the event's schema declares. Give the sink's "
                "column the type bit varying, or the source's column a length"
            )
        return f"{int.from_bytes(raw, 'little'):b}".zfill(length)
    return scalar("bits", value)


def _day(value: object) -> str:
    if type(value) is not int:
        return scalar("date", value)
    return infinite_date(value) or iso_day(value)


def _iso_day(value: object) -> str:
    return utc_day(value) if isinstance(value, str) else scalar("date", value)


def _iso_time(value: object) -> str:
    return utc_clock(value) if isinstance(value, str) else scalar("time", value)


def _iso_timestamp(value: object) -> str:
    return utc_wall(value) if isinstance(value, str) else scalar("timestamp", value)


def _timestamp(value: object, per_second: int) -> str:
    if isinstance(value, str):
        return value
    number, unit = number_of_units(per_second, value, "timestamp")
    seconds, part = divmod(number, unit)
    days, second = divmod(seconds, SECONDS_PER_DAY)
    return infinite_timestamp(number, unit) or f"{iso_day(days)} {clock(second)}{fraction(part, unit)}"


def _duration(value: object, per_second: int) -> str:
    if isinstance(value, str):
        return value
    number, unit = number_of_units(per_second, value, "time")
    seconds, part = divmod(abs(number), unit)
    return ("-" if number < 0 else "") + clock(seconds) + fraction(part, unit)


_TIMES: Final[dict[str, ToText]] = {
    **{name: partial(_timestamp, per_second=per_second) for name, per_second in TIMESTAMPS.items()},
    **{name: partial(_duration, per_second=per_second) for name, per_second in (TIMES | DURATIONS).items()},
    **dict.fromkeys(DATES, _day),
    "io.debezium.time.IsoDate": _iso_day,
    "io.debezium.time.IsoTime": _iso_time,
    "io.debezium.time.IsoTimestamp": _iso_timestamp,
}
