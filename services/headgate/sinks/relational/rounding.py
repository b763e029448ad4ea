"""Values with more digits than their column keeps, which a database rounds or cuts off without an error.

A source's column gets more digits behind the point, or of a second, and its values still go into the sink's narrower
column, as other values. So what a column would not keep is refused before it is sent, in every column alike; in a key
two rows could become one.

Texts of a whole column are searched at once for one that loses something; only if there is one each is judged.
"""

import math
import re
import struct
from decimal import Decimal, InvalidOperation
from typing import Final

from headgate.formats.time_units import MICROS
from headgate.sinks.relational.text import LosesAny, ToText
from headgate.sinks.relational.times import PER_SECOND, SECONDS_PER_DAY, NotTextError

__all__ = ["at_precision", "at_scale", "loses_digits", "loses_time", "single_precision", "whole_days"]

_FRACTION: Final = re.compile(r"\.([0-9]+)")
_MICROSECONDS: Final = re.compile(r"(-?[0-9]+) microseconds")
_MIDNIGHT: Final = re.compile(r"[T ]00:00(?::00(?:\.0+)?)?Z?\Z")
_MICROS_DIGITS: Final = 6
_SINGLE: Final = struct.Struct("<f")
_SINGLE_DIGITS: Final = (6, 7, 8, 9, 17, 5, 4, 3, 2, 1)
"""The likely ones first; 17 where a number of four bytes was written as one of eight."""


def _rounded(what: str) -> NotTextError:
    return NotTextError(
        f"the value has {what} than the column keeps: the database would round it or cut it off, and could take two "
        "keys for one. Give the column the source's precision"
    )


def loses_digits(digits: int, *, has_exponents: bool = False) -> LosesAny | None:
    """Whether a text loses something in a column of so many digits behind the point; None: each is judged by itself.

    What an exponent comes to is not searched for: a text with one may lose something (``has_exponents``).
    """
    if digits < 0:
        return None
    find = re.compile(rf"\.[0-9]{{{digits}}}[0-9]*[1-9]", re.ASCII).search

    def found(column: str) -> bool:
        return find(column) is not None or (has_exponents and ("e" in column or "E" in column))

    return found


def loses_time(column: str) -> bool:
    """Whether any text of a date has a time of day."""
    return ":" in column


def at_scale(to_text: ToText, scale: int) -> ToText:
    """For decimals: NotTextError for a number with digits that a column of this scale rounds away."""

    def checked(value: object) -> str:
        text = to_text(value)
        try:
            _, digits, exponent = Decimal(text).as_tuple()
        except InvalidOperation:
            return text  # the server reports what is wrong with it
        if isinstance(exponent, int):
            lost = -scale - exponent
            if lost > 0 and any(digits[-lost:]):
                raise _rounded("more digits behind the point" if scale >= 0 else "more digits before the point")
        return text

    return checked


def at_precision(to_text: ToText, digits: int, meaning: str | None) -> ToText:
    """For times and intervals: NotTextError for more digits of a second than the column has."""
    unit = 10 ** max(_MICROS_DIGITS - digits, 0)
    holds_numbers = PER_SECOND.get(meaning or "", MICROS) <= 10**digits

    def checked(value: object) -> str:
        text = to_text(value)
        if holds_numbers and type(value) is int:
            return text
        found = _FRACTION.search(text)
        if found is not None:
            is_lost = bool(found[1][digits:].strip("0"))
        else:
            counted = _MICROSECONDS.fullmatch(text) if unit > 1 else None
            is_lost = counted is not None and int(counted[1]) % unit != 0
        if is_lost:
            raise _rounded("more digits of a second")
        return text

    return checked


def whole_days(to_text: ToText, meaning: str | None) -> ToText:
    """For dates: NotTextError for a time of day, which a date loses."""
    per_day = PER_SECOND.get(meaning or "", 0) * SECONDS_PER_DAY

    def checked(value: object) -> str:
        text = to_text(value)
        if isinstance(value, str):
            is_timed = ":" in value and _MIDNIGHT.search(value) is None
        else:
            is_timed = per_day != 0 and isinstance(value, int) and value % per_day != 0
        if is_timed:
            raise _rounded("a time of day, which is more")
        return text

    return checked


def single_precision(to_text: ToText) -> ToText:
    """For four bytes of floating point: NotTextError for a number that is not one of its numbers."""

    def checked(value: object) -> str:
        text = to_text(value)
        try:
            number = float(text)
            kept = _SINGLE.unpack(_SINGLE.pack(number))[0]
        except (ValueError, OverflowError):
            return text  # the server reports what is wrong with it
        # A real is printed with as many digits as distinguish it from its neighbours, the smallest ones with few.
        if not math.isnan(kept) and not any(float(f"{kept:.{digits}g}") == number for digits in _SINGLE_DIGITS):
            raise _rounded("more digits")
        return text

    return checked
