"""Readers of values, of which those of events and of databases are made. They raise ChangeError, without the value."""

import binascii
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Final, NamedTuple

from headgate.config.expressions import Kind
from headgate.formats.change import ABSENT, ChangeError

__all__ = [
    "AbsentError", "Read", "Readable", "absent", "boolean", "days", "decimals", "finite", "present",
    "texts", "typed", "unfit", "units",
]  # fmt: skip

Read = Callable[[object], object]
"""A value of a column → the same in an expression, None for NULL."""


class Readable(NamedTuple):
    """A column's type, and how its values are read.

    ``checks_all``: also values that are of the type already must be given to ``read``.
    """

    kind: Kind
    read: Read
    checks_all: bool = False


DECIMAL_BYTES_MAX: Final = 1_024
"""2 466 digits, which is more than expressions compute with."""

_ALL_DIGITS: Final = Context(prec=3 * DECIMAL_BYTES_MAX)
"""Python's own context rounds to 28 digits, also where only the point moves."""

_DAYS_LEAST: Final = -2_500_000
"""Before PostgreSQL's first date. Debezium writes its infinite dates as days far before it."""
_DAYS_MOST: Final = 2_145_042_905
"""PostgreSQL's last date. A larger number is milliseconds, of a column that was a timestamp before."""


def present(column: str) -> Read:
    """The value as it is, unless the event leaves it out."""

    def read(value: object) -> object:
        if value is ABSENT:
            raise absent(column)
        return value

    return read


def typed(column: str, type_: type) -> Read:
    """A value of this Python type."""

    def read(value: object) -> object:
        if value is None or type(value) is type_:
            return value
        raise absent(column) if value is ABSENT else unfit(column)

    return read


def texts(column: str, read_text: Callable[[str], object]) -> Read:
    """A text that ``read_text`` reads, which raises ValueError or ArithmeticError for another one."""

    def read(value: object) -> object:
        if value is None:
            return None
        if value is ABSENT:
            raise absent(column)
        try:
            return read_text(value if isinstance(value, str) else str(value))
        except (ValueError, ArithmeticError, OverflowError):
            raise unfit(column) from None

    return read


def days(column: str) -> Read:
    """A number of days since 1970."""

    def read(value: object) -> object:
        if value is None:
            return None
        if type(value) is int and _DAYS_LEAST <= value <= _DAYS_MOST:
            return value
        raise absent(column) if value is ABSENT else unfit(column)

    return read


def units(column: str, micros: int) -> Read:
    """A number of units of so many microseconds since 1970."""

    def read(value: object) -> object:
        if value is None:
            return None
        if type(value) is int:
            return value * micros
        raise absent(column) if value is ABSENT else unfit(column)

    return read


def decimals(column: str, scale: int | None) -> Read:
    """A number, one with its own scale, or bytes (base64 in JSON) with this one, if it is known."""

    def read(value: object) -> object:
        if value is None:
            return None
        if value is ABSENT:
            raise absent(column)
        try:
            return _decimal(value, scale)
        except (ValueError, ArithmeticError, LookupError, TypeError):
            raise unfit(column) from None

    return read


def _decimal(value: object, scale: int | None) -> Decimal:
    """Raises ValueError, ArithmeticError, LookupError, TypeError."""
    if isinstance(value, dict):
        scale, value = value["scale"], value["value"]
        if type(scale) is not int:
            raise TypeError
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        number = Decimal(value)
    elif scale is None:
        raise TypeError
    else:
        raw = value if isinstance(value, bytes) else binascii.a2b_base64(str(value), strict_mode=True)
        if len(raw) > DECIMAL_BYTES_MAX:
            raise ValueError
        number = Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale, _ALL_DIGITS)
    if not number.is_finite():
        raise ValueError
    return number


def finite(text: str) -> Decimal:
    """A decimal's text. Raises ValueError, ArithmeticError."""
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError
    return number


def boolean(text: str) -> bool:
    """A boolean's text. Raises ValueError."""
    if text in ("t", "true", "True", "1"):
        return True
    if text in ("f", "false", "False", "0"):
        return False
    raise ValueError


class AbsentError(ChangeError):
    """The expression needs a value that the event leaves out."""


def absent(column: str) -> AbsentError:
    """The error for a column that the event leaves out."""
    return AbsentError(
        f"column {column} has a large value that did not change, so the event leaves it out, and the expression needs "
        "it. Set REPLICA IDENTITY FULL at the source, or write the expression without the column"
    )


def unfit(column: str, advice: str = "") -> ChangeError:
    """The error for a value that is not one of its column's type."""
    return ChangeError(f"column {column} has a value that expressions cannot read as the type of its column{advice}")
