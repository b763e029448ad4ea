"""Types of MySQL and MariaDB: read from the server's text, by an allow-list, and written again from their parts."""

import re
from functools import lru_cache
from typing import Final

import msgspec

from headgate.databases.mysql.sql import literal

__all__ = ["BYTES", "GEOMETRIES", "MysqlType", "declared_in_full", "labels_of", "line_octets", "parse_type"]

GEOMETRIES: Final = frozenset(
    {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
     "geometrycollection", "geomcollection"}
)  # fmt: skip
"""Types whose values are an SRID of four bytes, the lowest first, and then the value in WKB."""

BYTES: Final = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})

_LINE_OCTETS: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year"), 256),
    **dict.fromkeys(("date", "time", "datetime", "timestamp"), 64),
    "tinytext": 1 << 8,
    "text": 1 << 16,
}
"""Type → in how many octets the text of a value may be stored, of those whose texts a column of the same type takes as
they are. Left out are bytes, floats (their texts have fewer digits), bits, JSON and what is looked up by labels; and
texts of any length."""

_CHARACTER_OCTETS: Final = 4
"""In a line, of a character in utf8mb4; one that is escaped has two. A character set of one byte stores each character
in one, so every octet of a text may be this many."""

_FIELD_OCTETS: Final = 3
"""At least: NULL's two, and a tab."""

_LENGTH: Final = re.compile(r"\((\d+)\)")

_SIGNED: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"})
"""Types that may be ``unsigned``."""

_NUMBERS_MAX: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year"), 1),
    **dict.fromkeys(("decimal", "float", "double"), 2),
    **dict.fromkeys(("char", "varchar", "binary", "varbinary", "time", "datetime", "timestamp"), 1),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob"), 0),
    **dict.fromkeys(("date", "json", "uuid", "inet4", "inet6", *GEOMETRIES), 0),
}
"""Type, as the server prints it → how many numbers may follow it in brackets."""

_ALIASES: Final = {"integer": "int", "numeric": "decimal", "dec": "decimal", "real": "double"}

_TYPE: Final = re.compile(
    r"(?P<name>[a-z]+[0-9]?)(?:\((?P<numbers>[0-9]+(?:, ?[0-9]+)?)\))?(?P<unsigned> unsigned)?(?P<zerofill> zerofill)?"
)
_CHARACTER: Final = r"""(?:[^'\\]|''|\\[0nrZ'"\\])"""
"""Of a label: servers print two quotes for one, and some characters behind a backslash; our statements a backslash."""

_LABELED: Final = re.compile(rf"(?P<name>enum|set)\('{_CHARACTER}*'(?:, ?'{_CHARACTER}*')*\)")
_LABEL: Final = re.compile(f"'({_CHARACTER}*)'")
_ESCAPE: Final = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPED: Final = {"0": "\0", "n": "\n", "r": "\r", "Z": "\x1a"}
_CHARSET: Final = re.compile("[a-z0-9_]+")
_TEXTS: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})


def line_octets(kind: str, declared: str) -> int | None:
    """How long a column's value may be in a line of a LOAD DATA; None if it is not written there by its own text."""
    if kind in ("char", "varchar") and (length := _LENGTH.search(declared)) is not None:
        return int(length[1]) * _CHARACTER_OCTETS + _FIELD_OCTETS
    octets = _LINE_OCTETS.get(kind)
    return None if octets is None else octets * _CHARACTER_OCTETS + _FIELD_OCTETS


def declared_in_full(declared: str, charset: str | None, collation: str | None) -> str:
    """A column's type with all that its values depend on."""
    return declared if charset is None else f"{declared} CHARACTER SET {charset} COLLATE {collation}"


class MysqlType(msgspec.Struct, frozen=True, kw_only=True):
    """A type in parts. ``collation`` is (character set, collation)."""

    name: str
    numbers: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    is_unsigned: bool = False
    is_zerofill: bool = False
    collation: tuple[str, str] | None = None

    @property
    def is_text(self) -> bool:
        """Whether it has a collation."""
        return self.name in _TEXTS

    @property
    def decimal_digits(self) -> tuple[int, int]:
        """Of a decimal: its digits, and how many of them are behind the point. Without numbers it is decimal(10,0)."""
        precision, *scale = self.numbers or (10,)
        return precision, scale[0] if scale else 0

    @property
    def sql(self) -> str:
        """The type as a statement needs it."""
        inside = [literal(label) for label in self.labels] or [str(number) for number in self.numbers]
        return "".join(
            (
                self.name,
                f"({','.join(inside)})" if inside else "",
                " unsigned" if self.is_unsigned else "",
                " zerofill" if self.is_zerofill else "",
                f" CHARACTER SET {self.collation[0]} COLLATE {self.collation[1]}" if self.collation else "",
            )
        )


def parse_type(text: str, charset: str | None = None, collation: str | None = None) -> MysqlType | None:
    """A type as the server prints it, or as people write it; None for one that is not on the list."""
    if text in ("boolean", "bool"):
        return MysqlType(name="tinyint", numbers=(1,))
    labeled = _LABELED.fullmatch(text)
    found = labeled or _TYPE.fullmatch(text)
    if found is None:
        return None
    name = _ALIASES.get(found["name"], found["name"])
    told = None if charset is None or collation is None or name not in _TEXTS else (charset, collation)
    if told is not None and not all(map(_CHARSET.fullmatch, told)):
        return None
    if labeled is not None:
        return MysqlType(name=name, labels=labels_of(text), collation=told)
    numbers = tuple(int(number) for number in (found["numbers"] or "").split(",") if number)
    is_signed = name in _SIGNED
    if len(numbers) > _NUMBERS_MAX.get(name, -1) or (not is_signed and (found["unsigned"] or found["zerofill"])):
        return None
    return MysqlType(
        name=name,
        numbers=numbers,
        is_unsigned=found["unsigned"] is not None,
        is_zerofill=found["zerofill"] is not None,
        collation=told,
    )


@lru_cache
def labels_of(declared: str) -> tuple[str, ...]:
    """The labels of an ``enum('a','b')`` or a ``set('a','b')``, as the server prints it."""
    return tuple(_ESCAPE.sub(_unescaped, label) for label in _LABEL.findall(declared))


def _unescaped(found: re.Match[str]) -> str:
    return "'" if found[1] is None else _ESCAPED.get(found[1], found[1])
