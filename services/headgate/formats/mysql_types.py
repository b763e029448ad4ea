"""The meaning of Canal-JSON's strings by the column's MySQL type: ``varbinary(16)``, ``enum('a','b')``.

Canal and TiCDC write every value as a string (NULL as null). Most are what a sink reads anyway: numbers (decimals keep
their digits, unsigned ones their size), dates, times, JSON. The others are made into what they are:

- binary types hold bytes, written as ISO-8859-1: bytes again; MySQL's log has ``binary(n)`` without the zero bytes at
  its end, which every value of that type has up to its width;
- ``bit(1)`` is a boolean, any other bit field a number: its bytes, the least first, as Debezium has them;
- ``enum`` and ``set`` are numbers (an index from 1, a mask). Where the type lists its labels they are looked up. Where
  it does not (TiCDC writes only ``enum`` unless its sink URI has ``content-compatible=true``), the number stays one.
"""

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

Reader = Callable[[str], object]

_BINARY: Final = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_TYPE: Final = re.compile(r"\s*(?P<kind>[a-z]+)\s*(?:\((?P<arguments>.*)\))?", re.IGNORECASE | re.DOTALL)
_LABEL: Final = re.compile(r"\s*'((?:[^'\\]|''|\\.)*+)'\s*(?:,|\Z)", re.DOTALL)
_WIDTH: Final = re.compile(r"[0-9]{1,9}")
_ESCAPE: Final = re.compile(r"\\(.)|''", re.DOTALL)

DIGITS_MAX: Final = 20
"""Of 2^64 - 1: bit fields, enums and sets have 64 bits at most."""

BITS_MAX: Final = 64
"""Of a bit field, and labels of a set."""

BINARY_BYTES_MAX: Final = 255
"""Of ``binary(n)``."""

TYPES_CACHED: Final = 16_384
"""Declarations kept, of up to CACHED_CHARACTERS_MAX each. A thousand tables have fewer."""

CACHED_CHARACTERS_MAX: Final = 1_024
LONG_TYPES_CACHED: Final = 16
"""Declarations kept that are longer: enums of many labels, up to a megabyte each."""

LABEL_CHARACTERS_MAX: Final = 255
"""MySQL's longest label. Each value that refers to a label becomes a text of its length."""


class NotAValueError(ValueError):
    """A text that is not a value of its column's type."""


def _bytes(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise NotAValueError(
            f"binary data is written as ISO-8859-1, but character {error.start} is not of it"
        ) from error


def _padded(width: int, text: str) -> bytes:
    return _bytes(text).ljust(width, b"\0")


def _number(text: str, kind: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX:
        return int(text)
    raise NotAValueError(f"the value is not a number, as a {kind} needs it")


def _bits(length: int | None, text: str) -> object:
    number = _number(text, "bit field")
    if length is not None and length > BITS_MAX:
        raise NotAValueError(f"a bit field of {length} bits; there are none above {BITS_MAX}")
    if length == 1 and number <= 1:
        return bool(number)
    return number.to_bytes(max(((length or number.bit_length()) + 7) // 8, (number.bit_length() + 7) // 8, 1), "little")


def _enum(labels: tuple[str, ...], known: frozenset[str], text: str) -> object:
    if text in known and not text.isdigit():
        return text  # some versions of Canal write the label
    number = _number(text, "enum")
    if not labels:
        return number
    if number > len(labels):
        raise NotAValueError(f"the value is a label's number beyond the {len(labels)} that the enum has")
    return labels[number - 1] if number else ""  # MySQL keeps what was not a label as the empty one, number 0


def _set(labels: tuple[str, ...], text: str) -> object:
    if labels and not text.isdigit() and all(part in labels for part in text.split(",")):
        return text
    mask = _number(text, "set") if text else 0
    if not labels:
        return mask
    if mask >> len(labels):
        raise NotAValueError(f"the value is a mask beyond the {len(labels)} labels that the set has")
    return ",".join(label for place, label in enumerate(labels) if mask >> place & 1)


def _labels(arguments: str | None) -> tuple[str, ...]:
    """The labels of an enum or set, one after the other, so that the time it takes grows with the text's length."""
    labels: list[str] = []
    rest, at = arguments or "", 0
    while at < len(rest):
        match = _LABEL.match(rest, at)
        if match is None:
            raise NotAValueError("its type is not a list of labels in quotes")
        label = _ESCAPE.sub(lambda escape: escape[1] or "'", match[1])
        if len(label) > LABEL_CHARACTERS_MAX:
            raise NotAValueError(f"its type has a label of more than {LABEL_CHARACTERS_MAX} characters")
        labels.append(label)
        at = match.end()
    return tuple(labels)


def reader_of(declared: str) -> Reader | None:
    """How a value of this type is read from its text; None where the text is the value. Raises NotAValueError."""
    return _kept(declared) if len(declared) <= CACHED_CHARACTERS_MAX else _kept_long(declared)


def _reader_of(declared: str) -> Reader | None:
    match = _TYPE.match(declared)
    kind = match["kind"].lower() if match else ""
    arguments = match["arguments"] if match else None
    if kind == "binary" and arguments and _WIDTH.fullmatch(arguments) and int(arguments) <= BINARY_BYTES_MAX:
        return partial(_padded, int(arguments))
    if kind in _BINARY:
        return _bytes
    if kind == "bit":
        return partial(_bits, int(arguments) if arguments and _WIDTH.fullmatch(arguments) else None)
    if kind == "enum":
        labels = _labels(arguments)
        return partial(_enum, labels, frozenset(labels))
    if kind == "set":
        labels = _labels(arguments)
        if len(labels) > BITS_MAX:
            raise NotAValueError(f"a set of {len(labels)} labels; there are none above {BITS_MAX}")
        return partial(_set, labels)
    return None


_kept: Final = lru_cache(maxsize=TYPES_CACHED)(_reader_of)
_kept_long: Final = lru_cache(maxsize=LONG_TYPES_CACHED)(_reader_of)
