"""Converts counts of days or fractions of seconds into the texts of PostgreSQL's dates and times.

Units are those of Debezium's and Kafka Connect's schema names; ``J2440588`` is 1970-01-01 as a Julian day.
"""

from collections.abc import Callable, Mapping
from typing import Final

from headgate.formats.time_units import MICROS
from headgate.sinks.relational.times import (
    DATES,
    OFFSET,
    SECONDS_PER_DAY,
    TIMESTAMPS,
    NotTextError,
    check_zero_date,
    clock,
    fraction,
    infinite_date,
    infinite_timestamp,
    known_unit,
    number_of_units,
    utc_clock,
    utc_day,
    utc_wall,
)

_JULIAN_1970: Final = 2_440_588
_MILLIS: Final = 1_000
_ADAPTIVE_MILLIS_PRECISION: Final = 3
_FIRST_DAY: Final = -_JULIAN_1970
_LAST_DAY: Final = 2_145_042_905
"""4714-11-24 BC and 5874897-12-31, counted from 1970: the first and the last date that PostgreSQL has."""
_LAST_TIMESTAMP_DAY: Final = 106_762_952
"""294276-12-31: the day of its last timestamp."""
_INFINITY_DAY: Final = 106_751_991
"""The day of the number that stands for infinity; that for minus infinity is before the first day."""


def unit_per_second(meaning: str | None, precision: int | None, units: Mapping[str, int]) -> int | None:
    """Units per second of a time or timestamp, by ``units``; None if a schema declares that its numbers are not one."""
    if meaning is not None:
        return units.get(meaning)
    return _MILLIS if precision is not None and precision <= _ADAPTIVE_MILLIS_PRECISION else MICROS


def days_text(meaning: str | None, value: object) -> str:
    """A date: days since 1970, or a text, of a timestamp its day."""
    if isinstance(value, str):
        check_zero_date(value)
        day = utc_day(_without_offset(value, utc_wall))
        return _iso(day.split("T")[0]) if day[:1] in ("-", "+") else day
    if type(value) is not int:
        raise NotTextError(f"a {type(value).__name__} is not a date")
    if meaning is not None and meaning not in DATES:
        per_second = TIMESTAMPS.get(meaning)
        if per_second is None:
            raise NotTextError(f"a number whose schema is {meaning} is not a date")
        value //= per_second * SECONDS_PER_DAY
    if not _FIRST_DAY <= value <= _LAST_DAY:
        infinity = infinite_date(value)
        if infinity is None:
            raise NotTextError("the date is outside the years 4714 BC to 5874897 that the column holds")
        return infinity
    return f"J{value + _JULIAN_1970}"


def time_text(per_second: int | None, zone: str, value: object) -> str:
    """A time of day in units since midnight, or a text as it is."""
    if isinstance(value, str):
        return value if zone else _without_offset(value, utc_clock)
    number, unit = number_of_units(per_second, value, "time")
    if number < 0:
        raise NotTextError("the value is before midnight, which is not a time of day")
    seconds, part = divmod(number, unit)
    return clock(seconds) + fraction(part, unit) + zone


def timestamp_text(per_second: int | None, zone: str, value: object, *, said: bool = True) -> str:
    """A timestamp in units since 1970, UTC, or a text: ISO 8601 with any year, as Java writes it.

    ``zone`` is empty for a column without: a text with an offset becomes the wall time in UTC, which the server would
    not make of it. ``said``: that ``per_second`` comes from a schema, not from the column's precision.
    """
    if isinstance(value, str):
        check_zero_date(value)
        text = value if zone else _without_offset(value, utc_wall)
        return _iso(text) if text[:1] in ("-", "+") else text
    number, unit = number_of_units(per_second, value, "timestamp")
    if not said:
        known_unit(number, unit)
    seconds, part = divmod(number, unit)
    days, second = divmod(seconds, SECONDS_PER_DAY)
    if not _FIRST_DAY <= days < _INFINITY_DAY:
        infinity = infinite_timestamp(number, unit)
        if infinity is not None:
            return infinity
        if not _FIRST_DAY <= days <= _LAST_TIMESTAMP_DAY:
            raise NotTextError("the date is outside the years 4714 BC to 294276 that the column holds")
    return f"J{days + _JULIAN_1970} {clock(second)}{fraction(part, unit)}{zone}"


def _without_offset(text: str, in_utc: Callable[[str], str]) -> str:
    """A text whose offset PostgreSQL would drop, in UTC; NotTextError for a form that we cannot read."""
    if OFFSET.search(text) is None:
        return text
    moved = in_utc(text)
    if OFFSET.search(moved) is not None:
        raise NotTextError(
            "the value has an offset, but the column has no zone. Only YYYY-MM-DDThh:mm:ss±hh:mm can be stored there"
        )
    return moved


def _iso(text: str) -> str:
    """Java's signed years: +12345-01-01T… is year 12345, -0043-03-15T… is 44 BC (year 0 is 1 BC)."""
    if not text[1:2].isdecimal():
        return text  # -infinity
    year, dash, rest = text[1:].partition("-")
    if text[0] == "+":
        return f"{year}{dash}{rest}"
    return f"{int(year) + 1:04d}{dash}{rest} BC"
