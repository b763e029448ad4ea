"""Numbers that count days or parts of seconds → the texts PostgreSQL reads as dates and times.

Units are those of Debezium's and Kafka Connect's schema names; ``J2440588`` is 1970-01-01 as a Julian day.
"""

from functools import lru_cache
from typing import Final

__all__ = ["NotTextError", "days_text", "time_text", "timestamp_text", "unit_per_second"]

_JULIAN_1970: Final = 2_440_588
_SECONDS_PER_DAY: Final = 86_400
_MILLIS: Final = 1_000
_MICROS: Final = 1_000_000
_NANOS: Final = 1_000_000_000

_PER_SECOND: Final = {
    "io.debezium.time.Time": _MILLIS,
    "io.debezium.time.MicroTime": _MICROS,
    "io.debezium.time.NanoTime": _NANOS,
    "io.debezium.time.Timestamp": _MILLIS,
    "io.debezium.time.MicroTimestamp": _MICROS,
    "io.debezium.time.NanoTimestamp": _NANOS,
    "org.apache.kafka.connect.data.Time": _MILLIS,
    "org.apache.kafka.connect.data.Timestamp": _MILLIS,
}
_DATES: Final = frozenset({"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"})
_ADAPTIVE_MILLIS_PRECISION: Final = 3

# What the PostgreSQL driver, and so Debezium, has for infinite timestamps, in microseconds.
_INFINITY_US: Final = 9_223_372_036_825_200_000
_MINUS_INFINITY_US: Final = -9_223_372_036_832_400_000

_SECONDS_CACHED: Final = 16_384
"""Times of day kept as text: a stream's seconds repeat within a batch."""


class NotTextError(ValueError):
    """A value of a kind that the column cannot take."""


def unit_per_second(meaning: str | None, precision: int | None) -> int | None:
    """Units per second of a time or timestamp; None where a schema says that its numbers are no times."""
    if meaning is not None:
        return _PER_SECOND.get(meaning)
    return _MILLIS if precision is not None and precision <= _ADAPTIVE_MILLIS_PRECISION else _MICROS


def days_text(meaning: str | None, value: object) -> str:
    """A date: days since 1970, or a text as it is."""
    if isinstance(value, str):
        return value
    if type(value) is not int:
        raise NotTextError(f"a {type(value).__name__} is no date")
    if meaning is not None and meaning not in _DATES:
        per_second = _PER_SECOND.get(meaning)
        if per_second is None:
            raise NotTextError(f"a number whose schema says {meaning} is no date")
        value //= per_second * _SECONDS_PER_DAY
    return f"J{value + _JULIAN_1970}"


@lru_cache(maxsize=_SECONDS_CACHED)
def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _fraction(part: int, per_second: int) -> str:
    if part == 0:
        return ""
    if per_second == _MICROS:
        return f".{part:06d}"
    return f".{part:03d}" if per_second == _MILLIS else f".{part:09d}"


def _checked(per_second: int | None, value: object, kind: str) -> tuple[int, int]:
    if type(value) is not int:
        raise NotTextError(f"a {type(value).__name__} is no {kind}")
    if per_second is None:
        raise NotTextError(f"a number whose schema does not say a unit of time is no {kind}")
    return value, per_second


def time_text(per_second: int | None, zone: str, value: object) -> str:
    """A time of day in units since midnight, or a text as it is."""
    if isinstance(value, str):
        return value
    number, unit = _checked(per_second, value, "time")
    if number < 0:
        raise NotTextError(f"{number} is before midnight, which is no time of day")
    seconds, part = divmod(number, unit)
    return _clock(seconds) + _fraction(part, unit) + zone


def timestamp_text(per_second: int | None, zone: str, value: object) -> str:
    """A timestamp in units since 1970, UTC, or a text: ISO 8601 with any year, as Java writes it."""
    if isinstance(value, str):
        return _iso(value) if value[:1] in ("-", "+") else value
    number, unit = _checked(per_second, value, "timestamp")
    if number * _MICROS // unit in (_INFINITY_US, _MINUS_INFINITY_US):
        return "infinity" if number > 0 else "-infinity"
    seconds, part = divmod(number, unit)
    days, second = divmod(seconds, _SECONDS_PER_DAY)
    return f"J{days + _JULIAN_1970} {_clock(second)}{_fraction(part, unit)}{zone}"


def _iso(text: str) -> str:
    """Java's signed years: +12345-01-01T… is year 12345, -0043-03-15T… is 44 BC (year 0 is 1 BC)."""
    if not text[1:2].isdecimal():
        return text  # -infinity
    year, dash, rest = text[1:].partition("-")
    if text[0] == "+":
        return f"{year}{dash}{rest}"
    return f"{int(year) + 1:04d}{dash}{rest} BC"
