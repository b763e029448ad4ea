"""Whether every value of one type is the same value of another: such a change needs no permission.

Types are as the servers write them: ``information_schema`` at MariaDB, ``format_type`` at PostgreSQL. They share few
names, and where they do, the same holds at both. What is not known to hold every value may lose one.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

_TYPE: Final = re.compile(
    r"^([a-z][a-z0-9 ]*?)\s*(?:\((.*)\))?\s*(unsigned|without time zone|with time zone)?(?:\s+zerofill)?$", re.DOTALL
)
_WORD: Final = re.compile(r"'((?:[^']|'')*)'")

_INTEGERS: Final = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "integer": 4, "bigint": 8}
_DIGITS: Final = {1: 3, 2: 5, 3: 8, 4: 10, 8: 20}
"""Of an integer of so many bytes, without its sign."""

_FLOATS: Final = {"float": 4, "real": 4, "double": 8, "double precision": 8}
_EXACT_BYTES: Final = {4: 2, 8: 4}
"""Integers of up to so many bytes are exact in a float of that size."""

_TEXTS: Final = {"tinytext": 2**8, "text": 2**16, "mediumtext": 2**24, "longtext": 2**32}
_BLOBS: Final = {"tinyblob": 2**8, "blob": 2**16, "mediumblob": 2**24, "longblob": 2**32}
_VARYING: Final = {"varchar": "char", "character varying": "character"}
_TIMES: Final = frozenset({"datetime", "timestamp", "time"})
_BITS: Final = {"bit": 1, "bit varying": 2**40}
"""Kind → how many there are where no number is written."""

_OTHERS: Final = frozenset({("date", "datetime"), ("year", "smallint"), ("year", "int")})
_LABEL_MAX: Final = 63
"""Characters of a word of PostgreSQL's enums, which is a name."""

_PRECISION: Final = 6
"""Of PostgreSQL's times where none is written; MariaDB's is 0."""


class _Type(msgspec.Struct, frozen=True):
    """``name`` is without its arguments; ``suffix`` is what follows them."""

    name: str
    arguments: str | None
    suffix: str

    @property
    def number(self) -> int | None:
        """The one argument, if it is a number."""
        return int(self.arguments) if self.arguments is not None and self.arguments.isdigit() else None

    @property
    def words(self) -> tuple[str, ...]:
        """Of an enum or a set."""
        return tuple(_WORD.findall(self.arguments or ""))


def loss(before: str, after: str, *, is_enum: bool = False) -> str | None:
    """Why a value of the one type may not be one of the other; None if it always is.

    ``is_enum``: ``before`` is the name of an enum of PostgreSQL's.
    """
    # Words of an enum are the only thing in which case matters.
    if before == after or (before.lower() == after.lower() and "'" not in before):
        return None
    old, new = _read(before), _read(after)
    if is_enum and new is not None and _holds_text(_LABEL_MAX, new):
        return None
    if old is not None and new is not None:
        if old.name == new.name and old.name in ("enum", "set"):
            is_longer = new.words[: len(old.words)] == old.words
            return None if is_longer else "its words are reordered or fewer"
        if _holds(old, new):
            return None
    return f"{before} becomes {after}"


def _read(text: str) -> _Type | None:
    found = _TYPE.match(text.strip() if "'" in text else text.strip().lower())
    return None if found is None else _Type(found.group(1), found.group(2), found.group(3) or "")


def _holds(old: _Type, new: _Type) -> bool:
    kinds: tuple[tuple[bool, Callable[[_Type, _Type], bool]], ...] = (
        (old.name in _INTEGERS, _holds_integer),
        (old.name in _FLOATS, _holds_float),
        (old.name in ("decimal", "numeric"), _holds_decimal),
        (old.name in ("enum", "set"), lambda old, new: _holds_text(_longest(old), new)),
        (_is_text(old.name), _holds_characters),
        (old.name in ("binary", "varbinary") or old.name in _BLOBS, _holds_bytes),
        (old.name in _TIMES, _holds_time),
        (old.name in _BITS, _holds_bits),
    )
    found = next((holds for is_kind, holds in kinds if is_kind), None)
    return found(old, new) if found is not None else (old.name, new.name) in _OTHERS


def _holds_integer(old: _Type, new: _Type) -> bool:
    size = _INTEGERS[old.name]
    if new.name in _INTEGERS:
        if old.suffix == new.suffix:
            return _INTEGERS[new.name] >= size
        return old.suffix == "unsigned" and _INTEGERS[new.name] > size
    if new.name in ("numeric", "decimal"):
        digits, _, scale = (new.arguments or f"{2**40},0").partition(",")
        return new.suffix != "unsigned" and int(digits) - int(scale or 0) >= _DIGITS[size]
    if new.name in _FLOATS:
        return new.arguments is None and not _drops_sign(old, new) and size <= _EXACT_BYTES[_FLOATS[new.name]]
    return _holds_text(_DIGITS[size] + 1, new)


def _drops_sign(old: _Type, new: _Type) -> bool:
    """Whether negative numbers do not fit any more."""
    return new.suffix == "unsigned" and old.suffix != "unsigned"


def _holds_float(old: _Type, new: _Type) -> bool:
    is_plain = old.arguments is None and new.arguments is None and not _drops_sign(old, new)
    return is_plain and new.name in _FLOATS and _FLOATS[new.name] >= _FLOATS[old.name]


def _holds_bits(old: _Type, new: _Type) -> bool:
    return new.name in (old.name, "bit varying") and _size(new, _BITS[new.name]) >= _size(old, _BITS[old.name])


def _holds_decimal(old: _Type, new: _Type) -> bool:
    if new.name != old.name or _drops_sign(old, new):
        return False
    if new.arguments is None or old.arguments is None:
        return new.arguments is None
    (old_digits, _, old_scale), (new_digits, _, new_scale) = old.arguments.partition(","), new.arguments.partition(",")
    scales = int(old_scale or 0), int(new_scale or 0)
    return scales[1] >= scales[0] and int(new_digits) - scales[1] >= int(old_digits) - scales[0]


def _is_text(name: str) -> bool:
    return name in _TEXTS or name in _VARYING or name in _VARYING.values()


def _longest(old: _Type) -> int:
    """Characters of an enum's longest word, or of a set that has them all."""
    lengths = [len(word.replace("''", "'")) for word in old.words]
    return max(lengths) if old.name == "enum" else sum(lengths) + len(lengths) - 1


def _holds_text(characters: int, new: _Type) -> bool:
    """Whether plain characters fit: a column of a fixed length cuts blanks off, so it does not count."""
    if new.name in _TEXTS:
        return _TEXTS[new.name] > 4 * characters
    return new.name in _VARYING and _size(new, 2**40) >= characters


def _holds_characters(old: _Type, new: _Type) -> bool:
    if old.name in _TEXTS:
        return new.name == old.name or (new.name in _TEXTS and _TEXTS[new.name] >= _TEXTS[old.name])
    if new.name in ("text", "mediumtext", "longtext"):
        return True  # a varchar of MariaDB has at most as many bytes as a text
    if new.name not in _VARYING and not (old.name == new.name and old.name in _VARYING.values()):
        return new.name in _TEXTS and _TEXTS[new.name] > 4 * _size(old, 2**40)
    return _size(new, 2**40 if new.name in _VARYING else 1) >= _size(old, 2**40 if old.name in _VARYING else 1)


def _holds_bytes(old: _Type, new: _Type) -> bool:
    length = _BLOBS.get(old.name, _size(old, 1) + 1)
    if new.name in _BLOBS:
        return _BLOBS[new.name] >= length
    return new.name == "varbinary" and old.name not in _BLOBS and _size(new, 1) + 1 >= length


def _holds_time(old: _Type, new: _Type) -> bool:
    if (old.name, old.suffix) != (new.name, new.suffix):
        return False
    usual = _PRECISION if old.suffix else 0
    return _size(new, usual) >= _size(old, usual)


def _size(one: _Type, usual: int) -> int:
    return usual if one.number is None else one.number
