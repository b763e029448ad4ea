"""Texts of databases as values that can be compared: two spellings of one value have the same form.

Databases of different kinds write the same value differently (t and 1, 1.5e+19 and 1.5e19, 001 and 1). Two of one kind
may too, where a connector keeps a number's value and not its scale (22.0000 and 22).
"""

import re
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, Final

import msgspec

Form = Callable[[str], Any]
"""A text's value. Two texts are equal exactly if their forms are."""


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


def form_of(one: Nature, other: Nature, *, same_kind: bool) -> Form | None:
    """How the texts of two columns are compared; None if as they are. ``same_kind``: of databases that write alike."""
    if Nature.ANY in (one, other):
        one = other = other if one is Nature.ANY else one
    natures = {one, other}
    if natures <= _NUMBERS:
        return _single if Nature.SINGLE in natures else _double if Nature.DOUBLE in natures else _number
    if one is other and same_kind:
        return None
    if natures <= {Nature.BITS, Nature.NUMBER} and Nature.BITS in natures:
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
    try:
        value = Decimal(text)
    except InvalidOperation:
        return text
    return value if value.is_finite() else str(value)


def _double(text: str) -> Any:
    """As a 64-bit float; each database prints enough digits to distinguish two of them."""
    try:
        value = float(text)
    except ValueError:
        return text
    return value if value == value else "NaN"  # noqa: PLR0124 - NaN is not equal to itself


def _single(text: str) -> Any:
    """What a float of 32 bits makes of it: one database prints 0.1, another one all digits that a double has."""
    value = _double(text)
    if isinstance(value, str):
        return value
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return value


def _bits(text: str) -> str:
    return text.lstrip("0") or "0"


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
    try:
        return msgspec.json.encode(msgspec.json.decode(text), order="deterministic").decode()
    except msgspec.MsgspecError:
        return text


def _logical(text: str) -> Any:
    """A number, or a truth value: a column of texts has it in words."""
    return _number({"true": "1", "false": "0"}.get(text, text))


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
