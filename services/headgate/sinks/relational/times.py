"""Units of Debezium's and Kafka Connect's times, by schema name; a clock from a number."""

from functools import lru_cache
from typing import Final

__all__ = [
    "DATES",
    "MICROS",
    "MILLIS",
    "PER_SECOND",
    "SECONDS_PER_DAY",
    "NotTextError",
    "clock",
    "fraction",
    "number_of_units",
]

SECONDS_PER_DAY: Final = 86_400
MILLIS: Final = 1_000
MICROS: Final = 1_000_000
NANOS: Final = 1_000_000_000

PER_SECOND: Final = {
    "io.debezium.time.Time": MILLIS,
    "io.debezium.time.MicroTime": MICROS,
    "io.debezium.time.NanoTime": NANOS,
    "io.debezium.time.Timestamp": MILLIS,
    "io.debezium.time.MicroTimestamp": MICROS,
    "io.debezium.time.NanoTimestamp": NANOS,
    "org.apache.kafka.connect.data.Time": MILLIS,
    "org.apache.kafka.connect.data.Timestamp": MILLIS,
}
"""Units per second, by the schema's name."""

DATES: Final = frozenset({"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"})

_SECONDS_CACHED: Final = 16_384
"""Times of day kept as text: a stream's seconds repeat within a batch."""


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
    """The number and its unit; NotTextError where it is none, or where nobody says what it counts."""
    if type(value) is not int:
        raise NotTextError(f"a {type(value).__name__} is no {kind}")
    if per_second is None:
        raise NotTextError(f"a number whose schema does not say a unit of time is no {kind}")
    return value, per_second
