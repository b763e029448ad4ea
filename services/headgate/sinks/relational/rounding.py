"""Values with more digits than their column keeps, which a database rounds or cuts off without an error.

A source's column gets more digits behind the point, or of a second, and its values still go into the sink's narrower
column, as other values. So what a column would not keep is refused before it is sent, in every column alike; in a key
two rows could become one.

Texts of a whole column are searched at once for one that loses something; only if there is one each is judged.
"""

import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Final

from headgate.formats.time_units import MICROS
from headgate.sinks.relational.text import LosesAny, ToText, decimal_scale
from headgate.sinks.relational.times import PER_SECOND, SECONDS_PER_DAY, NotTextError

__all__ = [
    "at_floating", "at_precision", "at_scale", "is_shown_as", "loses_digits", "loses_time", "narrowed", "rounded",
    "whole_days",
]  # fmt: skip

_FRACTION: Final = re.compile(r"\.([0-9]+)")
_MICROSECONDS: Final = re.compile(r"(-?[0-9]+) microseconds")
_MIDNIGHT: Final = re.compile(r"[T ]00:00(?::00(?:\.0+)?)?Z?\Z")
_MICROS_DIGITS: Final = 6
_SINGLE: Final = struct.Struct("<f")

SURE_CHARACTERS: Final = 15
"""Digits that every double keeps, without an exponent."""
SINGLE_DIGITS: Final = 9
DOUBLE_DIGITS: Final = 17
"""Digits that distinguish all numbers of four and of eight bytes."""
DIGITS_MAX: Final = 767
"""Digits of the longest double, written in full."""
_LONG_NUMBER: Final = re.compile(rf"[0-9.]{{{SURE_CHARACTERS + 1}}}|[eE]", re.ASCII)

Keep = Callable[[float], float]
"""What a type keeps of a number."""


def rounded(what: str) -> NotTextError:
    """The error for a value that has more of ``what`` than its column keeps."""
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
                raise rounded("more digits behind the point" if scale >= 0 else "more digits before the point")
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
            raise rounded("more digits of a second")
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
            raise rounded("a time of day, which is more")
        return text

    return checked


def is_shown_as(number: float, shown: Decimal, keep: Keep = float, *, is_decimal: bool = False) -> bool:
    """Whether ``shown`` is a text of the number, both finite: no digit of it is lost. Zeros at the end do not count.

    Programs show the same number differently: the smallest double is 5e-324 in Python and 4.9E-324 in Java. Most texts
    are the number rounded to as many digits. The shortest text that is read as the number again is sometimes its
    neighbour (1.2379401e+27, which is 2^90), and Java before 19 shows 2e23 as 1.9999999999999998E23. ``is_decimal``:
    the value is a decimal's, so the last one is another number. ``keep``: what ``number`` came from ``shown`` by.
    """
    digits = len("".join(map(str, shown.as_tuple().digits)).rstrip("0")) or 1
    if digits > DIGITS_MAX:
        return False
    near = Decimal(f"{number:.{digits - 1}e}")
    if near == shown:
        return True
    most = SINGLE_DIGITS if keep is narrowed else DOUBLE_DIGITS
    if digits <= most and abs(near - shown) == Decimal((0, (1,), shown.adjusted() - digits + 1)):
        return (digits == most and not is_decimal) or _kept(keep, float(near)) != number
    # A number of four bytes may be shown as one of eight.
    return keep is narrowed and float(shown) == number and is_shown_as(number, shown, is_decimal=is_decimal)


def narrowed(number: float) -> float:
    """What four bytes of floating point keep of the number. Raises OverflowError."""
    return float(_SINGLE.unpack(_SINGLE.pack(number))[0])


def _kept(keep: Keep, number: float) -> float:
    try:
        return keep(number)
    except OverflowError:
        return math.copysign(math.inf, number)


def at_floating(to_text: ToText, meaning: str | None, *, is_single: bool) -> tuple[ToText, LosesAny | None]:
    """For four or eight bytes of floating point: NotTextError for a number that is not one of theirs.

    With a search for texts that may not be.
    """
    if meaning == "float" or (meaning == "double" and not is_single):
        return to_text, None
    if is_single:
        return _floating(to_text, meaning, narrowed), None
    return _floating(to_text, meaning, float), _loses_double


def _is_double(value: object, text: str) -> bool:
    """Whether a look shows that it is a double's number, as most values of such columns are."""
    if type(value) is float:
        return True
    if len(text) <= SURE_CHARACTERS:
        return "e" not in text and "E" not in text
    try:
        return type(value) is str and repr(float(text)) == text
    except ValueError:
        return False


def _loses_double(column: str) -> bool:
    return _LONG_NUMBER.search(column) is not None


def _floating(to_text: ToText, meaning: str | None, keep: Keep) -> ToText:
    is_decimal = decimal_scale(meaning) is not None

    def checked(value: object) -> str:
        text = to_text(value)
        if keep is float and _is_double(value, text):
            return text
        try:
            shown = Decimal(text)
            kept = _kept(keep, float(text))
        except (ValueError, ArithmeticError):
            return text  # the server reports what is wrong with it
        if not math.isfinite(kept):
            return text
        # An integer is exact: one that was rounded shows digits that it does not have.
        if int(kept) != value if type(value) is int else not is_shown_as(kept, shown, keep, is_decimal=is_decimal):
            raise rounded("more digits")
        return text

    return checked
