"""Intervals in columns that keep only some fields: ``interval year to month`` makes ``P1M3D`` one month, silently."""

import re
from typing import Final

from headgate.sinks.relational.rounding import rounded
from headgate.sinks.relational.text import ToText

__all__ = ["at_field"]

_SECOND: Final = 1_000_000
_MONTHS: Final = {"year": 12, "y": 12, "month": 1, "mon": 1, "m": 1}
_DAYS: Final = {"week": 7, "w": 7, "day": 1, "d": 1}
_MICROS: Final = {
    **dict.fromkeys(("hour", "th"), 3_600 * _SECOND), **dict.fromkeys(("minute", "min", "tm"), 60 * _SECOND),
    **dict.fromkeys(("second", "sec", "ts"), _SECOND), "microsecond": 1,
}  # fmt: skip
"""Units as texts of intervals name them; those of ISO 8601 behind its T begin with a t."""

_ITEM: Final = re.compile(r"([+-]?[0-9]+)(?:\.([0-9]+))?\s*([a-z]+)")
_CLOCK: Final = re.compile(r"([+-]?)([0-9]+):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?")
_OF_TIME: Final = re.compile("([hms])")
_MICROS_DIGITS: Final = 6

_KEPT: Final = {"year": (12, 0, 0), "month": (1, 0, 0), "day": (1, 1, 0), "hour": (1, 1, 3_600 * _SECOND),
                "minute": (1, 1, 60 * _SECOND)}  # fmt: skip
"""The last field of a column → the months, days and microseconds that its values are multiples of; 0: has none."""


def at_field(to_text: ToText, kind: str) -> ToText:
    """NotTextError for an interval with a field that a column of this type drops."""
    kept = _KEPT.get(kind.rpartition(" ")[2])
    if kept is None:  # all of them, or all down to seconds
        return to_text

    def checked(value: object) -> str:
        text = to_text(value)
        if any(part % unit if unit else part for part, unit in zip(_parts(text), kept, strict=True)):
            raise rounded("smaller fields")
        return text

    return checked


def _parts(text: str) -> tuple[int, int, int]:
    """Months, days and microseconds, which the server keeps apart. Of another text than an interval's, any."""
    months = days = micros = 0
    text = text.lower()
    if text.startswith("p"):
        date, _, time = text[1:].partition("t")
        text = date + " " + _OF_TIME.sub(r"t\1 ", time)
    for sign, hours, minutes, seconds, fraction in _CLOCK.findall(text):
        whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds or 0)
        micros += (-1 if sign == "-" else 1) * (whole * _SECOND + _fraction(fraction))
    for digits, fraction, unit in _ITEM.findall(text):
        name = unit.removesuffix("s") if len(unit) > len("ts") else unit
        number = int(digits)
        months += number * _MONTHS.get(name, 0)
        days += number * _DAYS.get(name, 0)
        micros += number * _MICROS.get(name, 0) + (-1 if digits[0] == "-" else 1) * _fraction(fraction)
    return months, days, micros


def _fraction(digits: str) -> int:
    return int(digits[:_MICROS_DIGITS].ljust(_MICROS_DIGITS, "0")) if digits else 0
