"""Dates and timestamps in a feed's expressions, as numbers that can be compared."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

__all__ = ["EPOCH", "day_of", "micros_of"]

EPOCH: Final = date(1970, 1, 1)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MOMENT: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6}0*)?)? ?(?:Z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?)?", re.ASCII
)
"""ISO 8601 as databases write it. Python also reads weeks, other signs between the parts, and cuts off nanoseconds."""


def day_of(text: str) -> int:
    """Days since 1970. Raises ValueError."""
    if _DAY.fullmatch(text) is None:
        raise ValueError("it is not a date like 2026-01-31")
    return (date.fromisoformat(text) - EPOCH).days


def micros_of(text: str, *, zoned: bool, utc: bool = False) -> int:
    """Microseconds since 1970 of an ISO 8601 timestamp. ``utc``: one without an offset is in UTC. Raises ValueError."""
    if _MOMENT.fullmatch(text) is None:
        raise ValueError("it is not a timestamp like 2026-01-31 12:00:00, with six digits of a second at most")
    read = datetime.fromisoformat(text.replace(" ", "T", 1).replace(" ", ""))
    if read.tzinfo is None and zoned and utc:
        read = read.replace(tzinfo=UTC)
    if (read.tzinfo is not None) != zoned:
        raise ValueError("it has no offset like +00" if zoned else "it has an offset")
    wall = read.astimezone(UTC).replace(tzinfo=None) if zoned else read
    return (wall - datetime(1970, 1, 1)) // timedelta(microseconds=1)
