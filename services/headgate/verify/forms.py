"""Texts of databases as values that can be compared: two spellings of one value have the same form.

Databases of different kinds write the same value differently (t and 1, 1.5e+19 and 1.5e19, 001 and 1). Two of one kind
may too, where a connector keeps a number's value and not its scale (22.0000 and 22).
"""

import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, Final

import msgspec

from headgate.formats.json_values import PARSE_ERRORS
from headgate.sinks.relational.rounding import is_shown_as, narrowed

Form = Callable[[str], Any]
"""A text's value. Two texts are equal exactly if their forms are."""

Forms = tuple[Form, Form]
"""The same of each side, the source's first."""


class Nature(StrEnum):
    """What a column's text is, as far as databases write it differently."""

    NUMBER = "number"
    SINGLE = "single"
    """A float of 32 bits."""
    DOUBLE = "double"
    BITS = "bits"
    INSTANT = "instant"
    TIME = "time"
    """A time of day, or a length of hours."""
    INTERVAL = "interval"
    """A length of time that may have months."""
    JSON = "json"
    JSON_VALUE = "json value"
    """A document without its spelling: jsonb."""
    TEXT = "text"
    PADDED = "padded"
    """A text of a fixed length: a cast takes the spaces at its end, and an event has them."""
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    """Pairs of texts (hstore), which a connector writes as JSON."""
    ZONED = "zoned"
    """A time of day with an offset, which a connector writes in UTC."""
    ANY = "any"
    """A column of texts whose values may be of any type: the other side knows which."""
    OTHER = "other"


_NUMBERS: Final = frozenset({Nature.NUMBER, Nature.SINGLE, Nature.DOUBLE})
_TIMES: Final = frozenset({Nature.TIME, Nature.INTERVAL})
_DOCUMENTS: Final = frozenset({Nature.JSON, Nature.JSON_VALUE})
_TEXTS: Final = frozenset({Nature.TEXT, Nature.PADDED, Nature.OTHER})
_WRITTEN: Final = _NUMBERS | _TIMES | _TEXTS | _DOCUMENTS | {Nature.INSTANT}
"""What a column of texts holds as the other database writes it (docs/types.md)."""

_ALIKE: Final = (_NUMBERS, _TIMES, _DOCUMENTS, frozenset({Nature.BITS, Nature.NUMBER}))
"""Natures whose values have one form."""

_NOT_IN_ANY: Final = frozenset({Nature.ARRAY, Nature.MAP, Nature.INTERVAL, Nature.ZONED})
"""What a lake's column of texts has as the event had it, and its database writes otherwise."""

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""As databases print one. NaN and the infinities have one spelling."""

_DIGITS_OF_BITS: Final = re.compile("[01]+")

JSON_DIGITS_MAX: Final = 4_000
"""Digits of an integer in JSON: the parser takes no more than 4 300."""

_TIME: Final = re.compile(r"(?:(-?\d+) days? ?)?(?:(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?")


def is_comparable(one: Nature, other: Nature) -> bool:
    """Whether texts of the two can be of one value. If not, a difference between them has no meaning."""
    natures = {one, other}
    if one is other:
        return True
    if Nature.ANY in natures:
        return not natures & _NOT_IN_ANY
    if any(natures <= alike for alike in _ALIKE):
        return True
    return bool(natures & _TEXTS) and natures <= (_WRITTEN if Nature.OTHER not in natures else _TEXTS)


def has_other_texts(one: Nature, other: Nature) -> bool:
    """Whether one text stands for two values in them: bits ``10`` are the number 2."""
    return {one, other} == {Nature.BITS, Nature.NUMBER}


def forms_of(one: Nature, other: Nature, *, same_kind: bool) -> Forms | None:
    """How a text of the source's column is compared with one of the target's; None if as they are."""
    if has_other_texts(one, other):
        return (_counted, _number) if one is Nature.BITS else (_number, _counted)
    form = form_of(one, other, same_kind=same_kind)
    return None if form is None else (form, form)


def form_of(one: Nature, other: Nature, *, same_kind: bool) -> Form | None:
    """How the texts of two columns are compared; None if as they are. ``same_kind``: of databases that write alike.

    Not of bits beside a number, whose texts are not alike: see forms_of.
    """
    if Nature.ANY in (one, other):
        one = other = other if one is Nature.ANY else one
    natures = {one, other}
    if natures <= _NUMBERS:
        floating = _FLOATING.get(frozenset(natures))
        return _number if floating is None else floating
    if one is other and same_kind:
        return None
    if natures == {Nature.BITS}:
        return _bits
    if natures <= _TIMES:
        return _time
    if natures <= _DOCUMENTS:
        return _json
    # In a column of texts a value is written as its own type is.
    written = natures - {Nature.TEXT} or {Nature.TEXT}
    return _FORMS.get(next(iter(written))) if len(written) == 1 else None


def _number(text: str) -> Any:
    """Exact, however many digits it has: a Decimal's comparison rounds nothing, unlike its arithmetic."""
    if _NUMBER.fullmatch(text) is None:
        return text
    try:
        return Decimal(text)
    except InvalidOperation:
        return text


def _double(text: str) -> Any:
    """As a 64-bit float; each database prints enough digits to distinguish two of them."""
    if _NUMBER.fullmatch(text) is None:
        return text
    value = float(text)
    return value if math.isfinite(value) else _number(text)


def _exactly_double(text: str) -> Any:
    """The same, beside a number with more digits than a double has: what a double would round is itself."""
    value, exact = _double(text), _number(text)
    return value if isinstance(value, float) and is_shown_as(value, exact) else exact


def _single(text: str) -> Any:
    """What a float of 32 bits makes of it: one database prints 0.1, another one all digits that a double has.

    A number that is none of its numbers is itself.
    """
    value, exact = _double(text), _number(text)
    if not isinstance(value, float):
        return value
    try:
        kept = narrowed(value)
    except OverflowError:
        return exact
    return kept if is_shown_as(kept, exact, narrowed) else exact


def _bits(text: str) -> str:
    return text.lstrip("0") or "0"


def _counted(text: str) -> Any:
    """The number that bits stand for. ``bit(1)`` is one, too, which a connector writes as a boolean."""
    return Decimal(int(text, 2)) if _DIGITS_OF_BITS.fullmatch(text) else text


def _instant(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _time(text: str) -> Any:
    """Microseconds; the text itself if it has more than days and a time."""
    found = _TIME.fullmatch(text)
    if found is None or not text:
        return text
    days, sign, hours, minutes, seconds, fraction = found.groups()
    total = (int(hours or 0) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    micros = total * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return int(days or 0) * 86_400_000_000 + (-micros if sign else micros)


def _padded(text: str) -> str:
    return text.rstrip(" ")


def _json(text: str) -> str:
    """Without spaces, with names in order, and numbers by value: jsonb has 1e2 as 100."""
    try:
        return _JSON_OUT.encode(_JSON_IN.decode(text)).decode()
    except (*PARSE_ERRORS, RecursionError):
        return text


def _json_number(text: str) -> int | Decimal:
    """One with a point or an exponent, without zeros at its end. Raises ArithmeticError."""
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - JSON has no NaN and no infinity
    kept = "".join(map(str, digits)).rstrip("0")
    exponent += len(digits) - len(kept)
    if not kept:
        return 0
    if exponent >= 0 and len(kept) + exponent <= JSON_DIGITS_MAX:
        return int(kept + "0" * exponent) * (-1 if sign else 1)
    return Decimal((sign, tuple(map(int, kept)), exponent))


_JSON_IN: Final = msgspec.json.Decoder(float_hook=_json_number)
_JSON_OUT: Final = msgspec.json.Encoder(decimal_format="number", order="deterministic")


def _logical(text: str) -> Any:
    """A number, or a truth value: a column of texts has it in words."""
    return _number({"true": "1", "false": "0"}.get(text, text))


_FLOATING: Final[dict[frozenset[Nature], Form]] = {
    frozenset({Nature.DOUBLE}): _double,
    frozenset({Nature.DOUBLE, Nature.NUMBER}): _exactly_double,
    **{frozenset({Nature.SINGLE, other}): _single for other in _NUMBERS},
}
"""How numbers are compared of which at least one is floating."""

_FORMS: Final[dict[Nature, Form]] = {
    Nature.NUMBER: _logical,
    Nature.SINGLE: _single,
    Nature.DOUBLE: _double,
    Nature.INSTANT: _instant,
    Nature.TIME: _time,
    Nature.INTERVAL: _time,
    Nature.JSON: _json,
    Nature.JSON_VALUE: _json,
    Nature.PADDED: _padded,
}
"""How texts of one nature are compared with those of another kind of database, or of a column of texts."""
