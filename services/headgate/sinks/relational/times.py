"""Units of Debezium's and Kafka Connect's times, by schema name; dates, clocks and instants as text.

One rule for values with an offset in columns that have no zone, in every database: what is stored is the wall time in
UTC, as the connectors themselves write instants.
"""

import re
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Final

from headgate.formats.time_units import INFINITIES_US, MICROS, MILLIS, other_unit

SECONDS_PER_DAY: Final = 86_400
NANOS: Final = 1_000_000_000

TIMES: Final = {
    "io.debezium.time.Time": MILLIS,
    "io.debezium.time.MicroTime": MICROS,
    "io.debezium.time.NanoTime": NANOS,
    "org.apache.kafka.connect.data.Time": MILLIS,
}
"""Units per second of times of day, by the schema's name."""

TIMESTAMPS: Final = {
    "io.debezium.time.Timestamp": MILLIS,
    "io.debezium.time.MicroTimestamp": MICROS,
    "io.debezium.time.NanoTimestamp": NANOS,
    "org.apache.kafka.connect.data.Timestamp": MILLIS,
}
"""The same of timestamps."""

DATES: Final = frozenset({"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"})
DURATION: Final = "io.debezium.time.MicroDuration"
DURATIONS: Final = {DURATION: MICROS, "io.debezium.time.NanoDuration": NANOS}
PER_SECOND: Final = TIMES | TIMESTAMPS | DURATIONS
"""Units per second of everything that counts time, by the schema's name."""

OFFSET: Final = re.compile(r"[:T]\d+(?:\.\d+)?[+-]\d")
"""Found in every text of a time with an offset other than Z, and in no other text of a time."""

_SECONDS_CACHED: Final = 16_384
"""Times of day kept as text: a stream's seconds repeat within a batch."""

# The largest and the smallest number that a connector has for a time: what it cannot count becomes one of them.
_SATURATED: Final = frozenset({2**63 - 1, -(2**63)})

# What Debezium makes of PostgreSQL's infinite dates: from the log, the server's own numbers for them (2^31 - 1 and
# -2^31, counted from 2000) past the end of 32 bits; from a snapshot, the driver's numbers cut to 32 bits.
_INFINITE_DAYS: Final = {
    -2_147_472_692: "infinity",
    -622_191_234: "infinity",
    -2_147_472_691: "-infinity",
    -625_821_272: "-infinity",
}

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_DAYS_0000_TO_1970: Final = 719_468
_DAYS_IN_400_YEARS: Final = 146_097
_YEAR_MAX: Final = 9999
_ISO: Final = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d(?::\d\d(?P<fraction>\.\d+)?)?)(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?"
)
_ZERO_DATE: Final = re.compile(r"0000-\d\d-\d\d|\d{4}-00-\d\d|\d{4}-\d\d-00")
_ISO_DAY: Final = re.compile(r"[+-]?\d{4,9}-\d\d-\d\dZ?")
_CLOCK: Final = re.compile(
    r"(?P<hour>\d\d):(?P<minute>\d\d)(?P<rest>(?::\d\d(?:\.\d+)?)?)(?:Z|(?P<sign>[+-])(?P<h>\d\d)(?::?(?P<m>\d\d))?)"
)


class NotTextError(ValueError):
    """A value of a kind that the column cannot take."""


@lru_cache(maxsize=_SECONDS_CACHED)
def clock(seconds: int) -> str:
    """Seconds since midnight as hh:mm:ss; the hours may be more than two digits."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def fraction(part: int, per_second: int) -> str:
    """Parts of a second behind the point, or nothing."""
    if part == 0:
        return ""
    if per_second == MICROS:
        return f".{part:06d}"
    return f".{part:03d}" if per_second == MILLIS else f".{part:09d}"


def number_of_units(per_second: int | None, value: object, kind: str) -> tuple[int, int]:
    """The number and its unit; NotTextError if it is not one, or if its unit is unknown."""
    if type(value) is not int:
        raise NotTextError(f"a {type(value).__name__} is not a {kind}")
    if per_second is None:
        raise NotTextError(
            f"the event's schema does not describe the number as a value of type {kind}. Give the column the "
            "source's type"
        )
    if value in _SATURATED:
        raise NotTextError(
            f"the value is the largest that the connector can write, and it also writes it for every later {kind}, "
            "so the source's value is not known (in PostgreSQL a timestamp after the year 294246, an interval "
            "above 292 277 years)"
        )
    return value, per_second


def microseconds(value: object) -> str:
    """An interval in a column of integers, or anywhere else, as the number it came as."""
    return str(number_of_units(MICROS, value, "interval")[0])


def known_unit(number: int, per_second: int) -> None:
    """NotTextError if a number without schema is likely to count another unit than the column's precision implies."""
    seen = other_unit(number, per_second)
    if seen is not None:
        raise NotTextError(
            f"the value seems to count {seen}, which does not match the sink column's precision. Give the column the "
            "source's precision and leave the connector's time.precision.mode at adaptive, or use events with schema"
        )


def infinite_timestamp(number: int, per_second: int) -> str | None:
    """``infinity`` or ``-infinity``, if that is what a PostgreSQL connector means by the number."""
    return INFINITIES_US.get(number * MICROS // per_second)


def infinite_date(days: int) -> str | None:
    """``infinity`` or ``-infinity``, if that is what a PostgreSQL connector means by the number of days."""
    return _INFINITE_DAYS.get(days)


def iso_day(days: int) -> str:
    """Days since 1970 as ISO 8601: years of four digits, others with a sign (year 0 is 1 BC)."""
    try:
        return date.fromordinal(days + _EPOCH_ORDINAL).isoformat()
    except (ValueError, OverflowError):
        pass
    # In years that begin in March, so that a leap day is the last one of its year.
    era, day = divmod(days + _DAYS_0000_TO_1970, _DAYS_IN_400_YEARS)
    of_era = (day - day // 1460 + day // 36524 - day // 146096) // 365
    of_year = day - (365 * of_era + of_era // 4 - of_era // 100)
    month = (5 * of_year + 2) // 153
    year = era * 400 + of_era + (month >= 10)
    shown = f"{year:+d}" if year > _YEAR_MAX else f"{'-' if year < 0 else ''}{abs(year):04d}"
    return f"{shown}-{(month + 2) % 12 + 1:02d}-{of_year - (153 * month + 2) // 5 + 1:02d}"


def utc_wall(text: str) -> str:
    """ISO 8601 with or without an offset → the wall time in UTC, ``day time``. Any other text as it is."""
    match = _ISO.fullmatch(text)
    if match is None:
        return text
    if match["zone"] in (None, "Z"):
        return f"{match['day']} {match['time']}"
    whole = text if match["fraction"] is None else text.replace(match["fraction"], "", 1)
    try:
        moved = datetime.fromisoformat(whole).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise NotTextError("the value is not a time that the column holds") from error
    return f"{moved.date().isoformat()} {moved:%H:%M:%S}{match['fraction'] or ''}"


def check_zero_date(text: str) -> None:
    """Raise NotTextError for a zero date of MySQL's, whole or in part, which is not a date anywhere else."""
    if _ZERO_DATE.match(text) is not None:
        raise NotTextError(
            "a zero date is not a date: years, months and days begin at 1. Make it NULL at the source, or give the "
            "column a text type"
        )


def utc_day(text: str) -> str:
    """The day of an ISO 8601 date or timestamp, in UTC if it has an offset. Any other text as it is."""
    if _ISO_DAY.fullmatch(text) is not None:
        return text.removesuffix("Z")
    return utc_wall(text).split(" ")[0] if _ISO.fullmatch(text) is not None else text


def utc_clock(text: str) -> str:
    """A time of day with an offset → that in UTC. Any other text as it is."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        return text
    minutes = int(match["h"] or 0) * 60 + int(match["m"] or 0)
    moved = (int(match["hour"]) * 60 + int(match["minute"]) + (minutes if match["sign"] == "-" else -minutes)) % 1440
    if not minutes:
        return f"{match['hour']}:{match['minute']}{match['rest']}"
    return f"{moved // 60:02d}:{moved % 60:02d}{match['rest']}"
