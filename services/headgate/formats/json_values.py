"""Parsing of JSON events whose numbers keep every digit.

A number with a point or an exponent may be a decimal (``decimal.format=NUMERIC`` of Kafka Connect's JSON converter,
or any writer that does not quote its decimals), and a double has only 17 digits. So such numbers become Decimal,
everywhere in a row or key. Integers are exact by themselves. Without such numbers in an event this costs nothing.
"""

from decimal import Decimal
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

PARSE_ERRORS: Final = (
    msgspec.MsgspecError,
    UnicodeDecodeError,
    ArithmeticError,  # an exponent beyond the 18 digits that Decimal has for it
)
"""What an exact decoder raises for bytes that are not a JSON value of its type."""


def exact_decoder(type_: type[T]) -> "msgspec.json.Decoder[T]":
    """A decoder that gives Decimal where JSON has a number with a point or an exponent."""
    return msgspec.json.Decoder(type_, float_hook=Decimal)
