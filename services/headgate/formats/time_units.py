"""Units of numbers that are timestamps, where no schema shows what they count."""

from typing import Final

__all__ = ["INFINITIES_US", "MICROS", "MILLIS", "other_unit"]

MILLIS: Final = 1_000
MICROS: Final = 1_000_000

INFINITIES_US: Final = {9_223_372_036_825_200_000: "infinity", -9_223_372_036_832_400_000: "-infinity"}
"""What the PostgreSQL driver, and so Debezium, has for infinite timestamps, in microseconds."""

_INFINITIES_MS: Final = frozenset(number // 1000 for number in INFINITIES_US)

# Where a number without schema may be milliseconds or microseconds: what is a day of 1970 in one unit and of the
# years 1973 to 2286 in the other, and what is beyond the year 9999 in one of them.
_DOUBTFUL_MICROS: Final = range(10**11, 10**13)
_MILLIS_MAX: Final = 253_402_300_799_999
# The year 2000 in nanoseconds. A number of microseconds that large is a time after the year 31000.
_NANOS_LIKELY: Final = 946_684_800_000_000_000


def other_unit(number: int, per_second: int) -> str | None:
    """What a number is likely to count, if it is not the unit that its column's precision implies.

    Milliseconds, in a column of microseconds, would be in the first four months of 1970; microseconds, in a column of
    milliseconds, after the year 9999; nanoseconds in either far beyond that.
    """
    if per_second == MICROS:
        if number > _NANOS_LIKELY and number not in INFINITIES_US:
            return "nanoseconds"
        return "milliseconds" if number in _DOUBTFUL_MICROS or number in _INFINITIES_MS else None
    if per_second == MILLIS and number > _MILLIS_MAX and number not in _INFINITIES_MS:
        return "microseconds"
    return None
