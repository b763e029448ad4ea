"""Keys that differ at the source and are equal at the sink: such rows would overwrite each other without an error.

Two kinds of column do that. A *collation* that ignores case, or that takes ``a`` and ``a `` for the same, finds another
row's key where the source has a new one: sinks compare such columns byte by byte as well, and check after each merge
that every row is there under its own key. A *type* keeps no trace of how a key was written (``uuid`` knows no case, a
decimal has no more digits than its scale, ``char`` no spaces at its end): there the value is judged before it is sent.
It must be written in the one way that the type's own values are written, and the column must keep all of it.

Decimals are compared as numbers, as a decimal column of the source compares them: 1.0 and 1.00 are one key.
"""

import math
import re
import struct
from decimal import Decimal, InvalidOperation
from typing import Final

from headgate.sinks.relational.text import ToText
from headgate.sinks.relational.times import PER_SECOND, SECONDS_PER_DAY, NotTextError

_FRACTION: Final = re.compile(r"\.([0-9]+)")


class FoldedKeysError(Exception):
    """Two keys of the source are one to the sink, whose collation or type does not distinguish them."""


def _rounded(what: str) -> NotTextError:
    return NotTextError(
        f"the key has {what} than the column keeps, so two keys could become the same row. Give the column the "
        "source's precision"
    )


def at_scale(to_text: ToText, scale: int) -> ToText:
    """For a decimal key: NotTextError for a number with digits that a column of this scale rounds away."""

    def checked(value: object) -> str:
        text = to_text(value)
        try:
            _, digits, exponent = Decimal(text).as_tuple()
        except InvalidOperation:
            return text  # the server reports what is wrong with it
        if isinstance(exponent, int):
            lost = -scale - exponent
            if lost > 0 and any(digits[-lost:]):
                raise _rounded("more digits behind the point")
        return text

    return checked


def at_precision(to_text: ToText, digits: int) -> ToText:
    """For a key that is a time: NotTextError for more digits of a second than the column has."""

    def checked(value: object) -> str:
        text = to_text(value)
        found = _FRACTION.search(text)
        if found is not None and found[1][digits:].strip("0"):
            raise _rounded("more digits of a second")
        return text

    return checked


def whole_days(to_text: ToText, meaning: str | None) -> ToText:
    """For a key that is a date: NotTextError for a time of day, which a date loses."""
    per_day = PER_SECOND.get(meaning or "", 0) * SECONDS_PER_DAY

    def checked(value: object) -> str:
        text = to_text(value)
        is_timed = ":" in value if isinstance(value, str) else per_day and isinstance(value, int) and value % per_day
        if is_timed:
            raise _rounded("a time of day, which is more")
        return text

    return checked


def single_precision(to_text: ToText) -> ToText:
    """For a key of four bytes of floating point: NotTextError for a number that is not one of its numbers."""

    def checked(value: object) -> str:
        text = to_text(value)
        try:
            number = float(text)
            kept = struct.unpack("f", struct.pack("f", number))[0]
        except (ValueError, OverflowError):
            return text  # the server reports what is wrong with it
        # A real is printed with six to nine digits, as many as distinguish it from its neighbours.
        if not math.isnan(kept) and not any(float(f"{kept:.{digits}g}") == number for digits in (6, 7, 8, 9, 17)):
            raise _rounded("more digits")
        return text

    return checked


def unpadded(to_text: ToText, pad: str, width: int) -> ToText:
    """For a key column of ``width`` characters that cuts ``pad`` off the end, or fills up with it, before it compares.

    A source column of the same kind and width sends values without padding or of the full width. A value that ends
    with padding and has another length comes from a column that distinguishes ``a`` and ``a ``: NotTextError.
    """

    def checked(value: object) -> str:
        text = to_text(value)
        if text.endswith(pad) and len(text) != width:
            raise NotTextError(
                "the key ends with padding (spaces, or zero bytes), which a column of fixed width does not "
                "preserve. Give the sink's column a type of variable width"
            )
        return text

    return checked
