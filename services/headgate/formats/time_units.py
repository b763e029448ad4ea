"""Units of numbers that are timestamps, where no schema shows what they count."""

from typing import Final

__all__ = ["INFINITIES_US", "MICROS", "MILLIS", "other_unit"]

MILLIS: Final = 1_000
MICROS: Final = 1_000_000

INFINITIES_US: Final = {9_223_372_036_825_200_000: "infinity", -9_223_372_036_832_400_000: "-infinity"}
"""What the PostgreSQL driver, and so Debezium, has for infinite timestamps, in microseconds."""

_INFINITIES_MS: Final = frozenset(number // 1000 for number in INFINITIES_US)

# Milliseconds of the years 1 to 2286. In microseconds they would be from January of 1968 to April of 1970.
_LIKELY_MILLIS: Final = range(-62_135_596_800_000, 10**13)
_LAST_MILLIS: Final = 253_402_300_799_999
"""The end of the year 9999. In microseconds it would be in January of 1978."""
# Days of the years 1 to 9999. In milliseconds they would be the twelve minutes before 1970 and 49 minutes behind it.
_LIKELY_DAYS: Final = range(-719_162, 2_932_897)
# The year 2000 in nanoseconds. A number of microseconds that large is a time after the year 31000.
_LIKELY_NANOS: Final = 946_684_800_000_000_000


def other_unit(number: int, per_second: int) -> str | None:
    """What a number may count, if it is not the unit that its column's precision implies.

    The event may be from before its column got another precision, or another type, or from a connector with another
    time.precision.mode. What is not noticed would be a likely time in both: microseconds from 1968 to 1978 in a column
    of milliseconds, and nanoseconds before the year 2000.
    """
    if number == 0 or number in (INFINITIES_US if per_second == MICROS else _INFINITIES_MS):
        return None
    if per_second == MICROS:
        if number in _LIKELY_MILLIS or number in _INFINITIES_MS:
            return "milliseconds"
        return "nanoseconds" if number > _LIKELY_NANOS else None
    if number in _LIKELY_DAYS:
        return "days"
    return None if _LIKELY_MILLIS.start <= number <= _LAST_MILLIS else "microseconds"
