"""A ts as people write it: the number itself, or a time by RFC 3339 with its zone (``2026-11-21T17:00:00Z``).

A number is the whole ts (physical milliseconds << 18 | logical). Seconds or milliseconds given in its place would be
a ts of the first hours of 1970: refused, because that is never meant.
"""

from datetime import UTC, datetime
from typing import Final

from headgate.records.ts import TS_MAX, physical_ms, ts_of_ms

_FIRST_MS: Final = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp() * 1000)
"""No log that we can read is older: Kafka is of 2011."""


class NotATimeError(ValueError):
    """Not a ts. The message has the given value and what is allowed."""


def parse_ts(given: object) -> int:
    """The ts meant by a number, a text, or what YAML has made of a time. Raises NotATimeError."""
    if isinstance(given, str) and given.isascii() and given.isdigit():
        given = int(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return _checked(given)
    time = given
    if isinstance(given, str):
        try:
            time = datetime.fromisoformat(given)
        except ValueError:
            time = None
    if not isinstance(time, datetime):
        raise NotATimeError(
            f"{given!s} is not a valid time. Write it in RFC 3339 with a zone, like 2026-11-21T17:00:00Z, or as a "
            "ts (milliseconds since 1970 << 18)"
        )
    if time.tzinfo is None:
        raise NotATimeError(f"{given!s} has no zone. Add Z for UTC, or an offset like +01:00")
    return _checked(ts_of_ms(round(time.timestamp() * 1000)))


def _checked(ts: int) -> int:
    if physical_ms(ts) < _FIRST_MS or ts > TS_MAX:
        raise NotATimeError(
            f"{ts} is not a valid ts: its time is outside the years 2000 to {_year_of(TS_MAX)}. A ts is "
            "milliseconds since 1970 << 18, not seconds or milliseconds. You can also write an RFC 3339 time"
        )
    return ts


def _year_of(ts: int) -> int:
    return 1970 + physical_ms(ts) // (366 * 86_400_000)


def show_ts(ts: int) -> str:
    """The time a ts lies in, UTC, to the millisecond."""
    at = datetime.fromtimestamp(physical_ms(ts) / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
