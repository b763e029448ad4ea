"""What operators of expressions compute from values that are not NULL. Errors never contain a value.

Values are bool, int (INTEGER; DATE in days and timestamps in microseconds since 1970), Decimal and str. Texts are
compared code point by code point, whatever the database's collation does. Arithmetic follows PostgreSQL, in which the
quotient of two integers is an integer, except that zeros at the end of a decimal never count.
"""

import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow, localcontext
from typing import Any, Final

from headgate.config.expressions import NUMERIC_DIGITS_MAX, Kind
from headgate.config.moments import day_of, micros_of
from headgate.formats.change import ChangeError
from headgate.formats.expressions.functions import date_text, timestamp_text

__all__ = [
    "EXACT", "cast", "divide_decimals", "divide_integers", "exact", "like", "literal", "lowered", "raised",
    "ranged",
]  # fmt: skip

EXACT: Final = Context(prec=NUMERIC_DIGITS_MAX, traps=[Inexact, Overflow, InvalidOperation, DivisionByZero])
"""For sums and products. What needs more digits is refused instead of rounded."""

_WIDE: Final = Context(prec=4 * NUMERIC_DIGITS_MAX, rounding=ROUND_HALF_UP)
_DIGIT_GROUP: Final = 4
"""PostgreSQL computes with groups of so many decimal digits, which shows in the length of a quotient."""
_QUOTIENT_DIGITS: Final = 16
MICROS_PER_DAY: Final = 86_400_000_000

_INTEGER: Final = re.compile(r"[ \t\n\r\f\v]*([+-]?[0-9]{1,40})[ \t\n\r\f\v]*")
_NUMBER: Final = re.compile(r"[ \t\n\r\f\v]*([+-]?(?:[0-9]{1,1000}(?:\.[0-9]{0,1000})?|\.[0-9]{1,1000}))[ \t\n\r\f\v]*")


def ranged(number: int, bits: int = 64) -> int:
    """An integer that a type of so many bits holds. Raises ChangeError."""
    if -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        return number
    raise ChangeError(f"the result does not fit in an integer of {bits} bits")


def divide_integers(left: int, right: int) -> int:
    """Rounded towards zero."""
    if right == 0:
        raise ChangeError("division by zero")
    quotient = abs(left) // abs(right)
    return ranged(quotient if (left < 0) == (right < 0) else -quotient)


def exact(compute: Callable[[Decimal, Decimal], Decimal]) -> Callable[[Decimal | int, Decimal | int], Decimal]:
    """A sum, difference or product, of EXACT. The function raises ChangeError where it would have to round."""

    def computed(left: Decimal | int, right: Decimal | int) -> Decimal:
        try:
            return compute(Decimal(left), Decimal(right))
        except ArithmeticError:
            raise digits_exceeded() from None

    return computed


def divide_decimals(left: Decimal | int, right: Decimal | int) -> Decimal:
    """Rounded to the digits that PostgreSQL gives: 16 that count, and no fewer behind the point than its operands."""
    if not right:
        raise ChangeError("division by zero")
    left, right = _short(Decimal(left)), _short(Decimal(right))
    scale = _scale_of_quotient(left, right)
    with localcontext(_WIDE):
        up, down = left.as_integer_ratio(), right.as_integer_ratio()
        numerator, denominator = up[0] * down[1] * 10**scale, up[1] * down[0]
        quotient, rest = divmod(abs(numerator), abs(denominator))
        quotient += 2 * rest >= abs(denominator)
        sign = -1 if (numerator < 0) != (denominator < 0) else 1
        return _short(Decimal(sign * quotient).scaleb(-scale, _WIDE))


def _scale_of_quotient(left: Decimal, right: Decimal) -> int:
    """See select_div_scale in PostgreSQL's numeric.c."""
    (left_weight, left_digit), (right_weight, right_digit) = _first_group(left), _first_group(right)
    weight = left_weight - right_weight - (left_digit <= right_digit)
    scale = _QUOTIENT_DIGITS - weight * _DIGIT_GROUP
    return min(max(scale, _scale(left), _scale(right), 0), NUMERIC_DIGITS_MAX)


def _first_group(value: Decimal) -> tuple[int, int]:
    """Weight and value of the first group of digits that is not zero."""
    if not value:
        return 0, 0
    weight = value.adjusted() // _DIGIT_GROUP
    return weight, int(abs(value).scaleb(-weight * _DIGIT_GROUP, _WIDE))


def _scale(value: Decimal) -> int:
    return max(0, -int(value.as_tuple().exponent))


def _short(value: Decimal) -> Decimal:
    """Without zeros at its end. Raises ChangeError for more digits than are computed with."""
    if not value:
        return Decimal(0)
    if abs(value.adjusted()) > NUMERIC_DIGITS_MAX or len(value.as_tuple().digits) > NUMERIC_DIGITS_MAX:
        raise digits_exceeded()
    return value.normalize(EXACT)


def digits_exceeded() -> ChangeError:
    """What is refused instead of rounded."""
    return ChangeError(f"a decimal has more than {NUMERIC_DIGITS_MAX} digits")


def like(pattern: str) -> Callable[[str], bool]:
    r"""Whether a text matches a pattern of LIKE, with ``\`` before a character that stands for itself."""
    pieces, escaped = [""], False
    for character in pattern:
        if escaped or character not in "%_\\":
            pieces[-1] += re.escape(character)
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "."
    if len(pieces) > 1:
        # Atomic, so that the time does not grow with a power of the text's length: the first place is always right.
        between = "".join(f"(?>.*?{piece})" for piece in pieces[1:-1] if piece)
        expression = f"{pieces[0]}{between}.*{pieces[-1]}"
    else:
        expression = pieces[0]
    match = re.compile(expression, re.DOTALL).fullmatch
    return lambda text: match(text) is not None


def lowered(text: str) -> str:
    """Each character that has one small letter."""
    return text.lower() if text.isascii() else "".join(map(_single_lower, text))


def raised(text: str) -> str:
    """Each character that has one capital letter."""
    return text.upper() if text.isascii() else "".join(map(_single_upper, text))


def _single_lower(character: str) -> str:
    found = character.lower()
    return found if len(found) == 1 else character


def _single_upper(character: str) -> str:
    found = character.upper()
    return found if len(found) == 1 else character


def literal(kind: Kind, text: str) -> object:
    """A literal's value."""
    return _LITERALS[kind](text)


_LITERALS: Final[Mapping[Kind, Callable[[str], object]]] = {
    Kind.BOOLEAN: lambda text: text == "true",
    Kind.INTEGER: int,
    Kind.NUMERIC: Decimal,
    Kind.TEXT: str,
    Kind.DATE: day_of,
    Kind.TIMESTAMP: lambda text: micros_of(text, zoned=False),
    Kind.TIMESTAMPTZ: lambda text: micros_of(text, zoned=True),
    Kind.NULL: lambda _: None,
}


def cast(given: Kind, to: Kind, precision: int | None, scale: int) -> Callable[[Any], object]:
    """How a value that is not NULL becomes one of another type. The function raises ChangeError."""
    if to is Kind.INTEGER:
        return _to_integer(precision or 64)
    if to is Kind.NUMERIC:
        return _to_numeric(precision, scale)
    return _CONVERTED.get((given, to), lambda value: value)


_CONVERTED: Final[Mapping[tuple[Kind, Kind], Callable[[Any], object]]] = {
    (Kind.BOOLEAN, Kind.TEXT): lambda value: "true" if value else "false",
    (Kind.INTEGER, Kind.TEXT): str,
    (Kind.NUMERIC, Kind.TEXT): lambda value: f"{_short(value):f}",
    (Kind.DATE, Kind.TEXT): date_text,
    (Kind.TIMESTAMP, Kind.TEXT): timestamp_text,
    (Kind.DATE, Kind.TIMESTAMP): lambda value: value * MICROS_PER_DAY,
    (Kind.TIMESTAMP, Kind.DATE): lambda value: value // MICROS_PER_DAY,
}


def _to_integer(bits: int) -> Callable[[Any], object]:
    def integer(value: Any) -> int:
        if isinstance(value, str):
            found = _INTEGER.fullmatch(value)
            if found is None:
                raise ChangeError("CAST to an integer: the text is not an integer")
            return ranged(int(found[1]), bits)
        if isinstance(value, Decimal):
            if value.adjusted() > _QUOTIENT_DIGITS + 4:
                return ranged(1 << 64, bits)
            return ranged(int(value.to_integral_value(ROUND_HALF_UP)), bits)
        return ranged(int(value), bits)

    return integer


def _to_numeric(precision: int | None, scale: int) -> Callable[[Any], object]:
    def numeric(value: Any) -> Decimal:
        if isinstance(value, str):
            found = _NUMBER.fullmatch(value)
            if found is None:
                raise ChangeError("CAST to NUMERIC: the text is not a number")
            value = Decimal(found[1])
        number = Decimal(value)
        if precision is None:
            return number
        if number and number.adjusted() >= precision - scale:
            raise ChangeError(f"CAST to NUMERIC({precision},{scale}): the number has more digits before the point")
        number = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE)
        if number and number.adjusted() >= precision - scale:
            raise ChangeError(f"CAST to NUMERIC({precision},{scale}): the number has more digits before the point")
        return number

    return numeric
