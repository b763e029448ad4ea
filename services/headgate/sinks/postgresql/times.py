"""Numbers that count days or parts of seconds → the texts PostgreSQL reads as dates and times.

Units are those of Debezium's and Kafka Connect's schema names; ``J2440588`` is 1970-01-01 as a Julian day.
"""

from typing import Final

from headgate.sinks.relational.times import (
    DATES,
    MICROS,
    PER_SECOND,
    SECONDS_PER_DAY,
    NotTextError,
    clock,
    fraction,
    number_of_units,
)

__all__ = ["days_text", "time_text", "timestamp_text", "unit_per_second"]

_JULIAN_1970: Final = 2_440_588
_MILLIS: Final = 1_000
_ADAPTIVE_MILLIS_PRECISION: Final = 3

# What the PostgreSQL driver, and so Debezium, has for infinite timestamps, in microseconds.
_INFINITY_US: Final = 9_223_372_036_825_200_000
_MINUS_INFINITY_US: Final = -9_223_372_036_832_400_000


def unit_per_second(meaning: str | None, precision: int | None) -> int | None:
    """Units per second of a time or timestamp; None where a schema says that its numbers are no times."""
    if meaning is not None:
        return PER_SECOND.get(meaning)
    return _MILLIS if precision is not None and precision <= _ADAPTIVE_MILLIS_PRECISION else MICROS


def days_text(meaning: str | None, value: object) -> str:
    """A date: days since 1970, or a text as it is."""
    if isinstance(value, str):
        return value
    if type(value) is not int:
        raise NotTextError(f"a {type(value).__name__} is no date")
    if meaning is not None and meaning not in DATES:
        per_second = PER_SECOND.get(meaning)
        if per_second is None:
            raise NotTextError(f"a number whose schema says {meaning} is no date")
        value //= per_second * SECONDS_PER_DAY
    return f"J{value + _JULIAN_1970}"


def time_text(per_second: int | None, zone: str, value: object) -> str:
    """A time of day in units since midnight, or a text as it is."""
    if isinstance(value, str):
        return value
    number, unit = number_of_units(per_second, value, "time")
    if number < 0:
        raise NotTextError(f"{number} is before midnight, which is no time of day")
    seconds, part = divmod(number, unit)
    return clock(seconds) + fraction(part, unit) + zone


def timestamp_text(per_second: int | None, zone: str, value: object) -> str:
    """A timestamp in units since 1970, UTC, or a text: ISO 8601 with any year, as Java writes it."""
    if isinstance(value, str):
        return _iso(value) if value[:1] in ("-", "+") else value
    number, unit = number_of_units(per_second, value, "timestamp")
    if number * MICROS // unit in (_INFINITY_US, _MINUS_INFINITY_US):
        return "infinity" if number > 0 else "-infinity"
    seconds, part = divmod(number, unit)
    days, second = divmod(seconds, SECONDS_PER_DAY)
    return f"J{days + _JULIAN_1970} {clock(second)}{fraction(part, unit)}{zone}"


def _iso(text: str) -> str:
    """Java's signed years: +12345-01-01T… is year 12345, -0043-03-15T… is 44 BC (year 0 is 1 BC)."""
    if not text[1:2].isdecimal():
        return text  # -infinity
    year, dash, rest = text[1:].partition("-")
    if text[0] == "+":
        return f"{year}{dash}{rest}"
    return f"{int(year) + 1:04d}{dash}{rest} BC"
