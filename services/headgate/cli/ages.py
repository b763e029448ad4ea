"""Times and durations as people read and write them: ``3 min ago`` and ``2.5 h`` instead of milliseconds."""

from typing import Final

TIMES: Final = frozenset(
    {
        "added_ms",
        "announced_ms",
        "append_ms",
        "approved_ms",
        "cutover_after_ms",
        "ended_ms",
        "left_ms",
        "live_ms",
        "paused_since_ms",
        "quarantined_ms",
        "ready_ms",
        "reported_ms",
        "stage_ms",
        "started_ms",
        "throttle_until_ms",
        "throttled_ms",
        "waiting_ms",
    }
)
"""Fields of rows and facts that are milliseconds since 1970. 0 means that it has not happened."""

DURATIONS: Final = frozenset({"lag_ms", "retention_ms"})
"""Fields that are lengths of time, in milliseconds. A negative one is shown as it is."""

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_PRECISE_MAX: Final = 10
"""Below so many of a unit its tenth matters: 1.5 h is not 1 h."""


def duration(ms: float) -> str:
    """``95 ms``, ``3.2 s``, ``42 s``, ``2.5 h``: one unit, and a tenth of it where that matters."""
    for unit, size in _UNITS:
        if ms >= size:
            count = ms / size
            text = f"{count:.1f}".removesuffix(".0") if count < _PRECISE_MAX else str(int(count))
            return f"{text} {unit}"
    return f"{ms:.0f} ms"


def parse_duration(text: str) -> int:
    """``30d``, ``2.5 h``, ``90min`` or ``45s`` in milliseconds. Raises ValueError."""
    given = text.strip()
    for unit, size in _UNITS:
        count = given.removesuffix(unit).strip()
        if count != given and count.replace(".", "", 1).isdecimal() and count.isascii():
            return round(float(count) * size)
    units = ", ".join(unit for unit, _ in _UNITS)
    raise ValueError(f"{text!r} is not a length of time. Write a number and one of {units}, such as 30d")


def age(now_ms: int, then_ms: int) -> str:
    """How long ago, for people: clocks of different machines are compared, so never for a decision."""
    return duration(max(0, now_ms - then_ms))


def moment(now_ms: int, then_ms: int) -> str:
    """A time as a distance from now: ``3 min ago`` or ``in 2 h``."""
    return f"in {duration(then_ms - now_ms)}" if then_ms > now_ms else f"{age(now_ms, then_ms)} ago"
