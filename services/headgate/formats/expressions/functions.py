"""What functions of expressions compute, as PostgreSQL does. Operands are not NULL. Pure."""

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from headgate.config.expressions import NUMERIC_DIGITS_MAX, Kind
from headgate.config.moments import EPOCH
from headgate.formats.change import ChangeError

__all__ = [
    "DATE_FIELDS", "FUNCTIONS", "date_text", "extracting", "instant_text", "rounding", "timestamp_text", "truncating",
]  # fmt: skip

_WIDE: Final = Context(prec=4 * NUMERIC_DIGITS_MAX, rounding=ROUND_HALF_UP)
_EPOCH: Final = datetime(1970, 1, 1)
SPACE: Final = " "
"""All that TRIM takes away. Other white space stays, as in PostgreSQL."""


def _substr(text: str, start: int, length: int | None = None) -> str:
    """Characters from ``start`` on, which counts from 1 and may be before the text."""
    if length is None:
        return text[max(start, 1) - 1 :]
    if length < 0:
        raise ChangeError("SUBSTR: the length is negative")
    return text[max(start, 1) - 1 : max(start + length - 1, 0)]


def _right(text: str, characters: int) -> str:
    """So many at the end; of a negative number, all but so many at the beginning."""
    return text[max(len(text) - characters, 0) :] if characters >= 0 else text[-characters:]


def _replaced(text: str, old: str, new: str) -> str:
    return text.replace(old, new) if old else text


def _split_part(text: str, delimiter: str, number: int) -> str:
    """A part, counted from 1, or from the end with a negative number; empty where there are not so many."""
    if number == 0:
        raise ChangeError("SPLIT_PART: the number of the part is 0. It counts from 1, or from -1 at the end")
    parts = text.split(delimiter) if delimiter else [text]
    place = number - 1 if number > 0 else len(parts) + number
    return parts[place] if 0 <= place < len(parts) else ""


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "left": lambda text, characters: text[:characters],
    "length": len,
    "ltrim": lambda text: text.lstrip(SPACE),
    "replace": _replaced,
    "right": _right,
    "rtrim": lambda text: text.rstrip(SPACE),
    "split_part": _split_part,
    "substr": _substr,
    "trim": lambda text: text.strip(SPACE),
}


def rounding(digits: int) -> Callable[[Decimal | int], Decimal]:
    """To so many digits behind the point, halves away from zero."""
    last = Decimal(1).scaleb(-digits)

    def rounded(number: Decimal | int) -> Decimal:
        number = Decimal(number)
        exponent = number.as_tuple().exponent
        if isinstance(exponent, int) and exponent >= -digits:
            return number
        return number.quantize(last, ROUND_HALF_UP, _WIDE)

    return rounded


def _wall(micros: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise _year() from None


def _micros(wall: datetime) -> int:
    return (wall - _EPOCH) // timedelta(microseconds=1)


def _day(days: int) -> date:
    try:
        return EPOCH + timedelta(days=days)
    except OverflowError:
        raise _year() from None


def _year() -> ChangeError:
    return ChangeError("the date's year has more than four digits, or is before year 1")


def date_text(days: int) -> str:
    """As PostgreSQL writes a date. Raises ChangeError for a year that has no four digits."""
    return _day(days).isoformat()


def timestamp_text(micros: int) -> str:
    """As PostgreSQL writes a timestamp, without zeros at its end. Raises ChangeError."""
    text = _wall(micros).isoformat(SPACE)
    return text.rstrip("0") if "." in text else text


def instant_text(micros: int) -> str:
    """A timestamp with time zone, in UTC. Raises ChangeError."""
    return timestamp_text(micros) + "+00"


_MIDNIGHT: Final = {"hour": 0, "minute": 0, "second": 0, "microsecond": 0}


def _first_day(wall: datetime, unit: str) -> datetime:
    """The day that a unit of a day or more begins with."""
    match unit:
        case "year":
            return wall.replace(month=1, day=1)
        case "quarter":
            return wall.replace(month=wall.month - (wall.month - 1) % 3, day=1)
        case "month":
            return wall.replace(day=1)
        case "week":
            return wall - timedelta(days=wall.weekday())
    return wall


def truncating(unit: str) -> Callable[[int], int]:
    """To the beginning of the unit. The function raises ChangeError."""
    smaller = list(_MIDNIGHT)[list(_MIDNIGHT).index(unit) + 1 :] if unit in _MIDNIGHT else []

    def truncated(micros: int) -> int:
        wall = _wall(micros)
        if smaller:
            return _micros(wall.replace(**dict.fromkeys(smaller, 0)))  # type: ignore[arg-type]
        try:
            return _micros(_first_day(wall, unit).replace(**_MIDNIGHT))  # type: ignore[arg-type]
        except OverflowError:
            raise _year() from None

    return truncated


_OF_DAY: Final[Mapping[str, Callable[[date], int]]] = {
    "year": lambda day: day.year,
    "quarter": lambda day: (day.month + 2) // 3,
    "month": lambda day: day.month,
    "week": lambda day: day.isocalendar().week,
    "day": lambda day: day.day,
    "dow": lambda day: day.isoweekday() % 7,
    "isodow": lambda day: day.isoweekday(),
    "doy": lambda day: day.timetuple().tm_yday,
}
"""Fields of dates, and of timestamps."""

DATE_FIELDS: Final = frozenset(_OF_DAY)


def extracting(field: str, kind: Kind) -> Callable[[int], Decimal]:
    """A field of a date or a timestamp. The function raises ChangeError."""
    of_day = _OF_DAY.get(field)
    if of_day is not None:
        read: Callable[[int], date] = _day if kind is Kind.DATE else _wall
        return lambda value: Decimal(of_day(read(value)))
    if field == "second":
        return lambda micros: Decimal(micros % 60_000_000).scaleb(-6)
    return (lambda micros: Decimal(_wall(micros).hour)) if field == "hour" else _minute


def _minute(micros: int) -> Decimal:
    return Decimal(_wall(micros).minute)
