"""Changes of a type under which a row becomes the same whether it is copied or the feed brings it.

A copied value is converted by the server from its own literal, and the feed's from an event's text, and of some pairs
of types they make different values: into an enum of MariaDB's a number goes by its place, and the text of an event as
the label. The comparison would find that before the cut-over, after the whole copy. So a change that may lose values is
done by ``online`` only between types that are listed here, and one that may not, between all but a few. Both are
measured at the servers for some types of these families (tests/integration/migration/test_pairs_of_types.py).
"""

import math
import re
from typing import Final

_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "integer", "bigint")
_TEXTS: Final = ("char", "varchar", "character varying", "tinytext", "text", "mediumtext", "longtext")
_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")

_MARIADB: Final = {
    **dict.fromkeys(_INTEGERS, "integer"),
    **dict.fromkeys(_TEXTS, "text"),
    **dict.fromkeys(_BYTES, "bytes"),
    **dict.fromkeys(("datetime", "timestamp"), "moment"),
}
_POSTGRESQL: Final = {
    **dict.fromkeys(_INTEGERS, "integer"),
    **dict.fromkeys(_TEXTS, "text"),
    **dict.fromkeys(("json", "jsonb"), "json"),
    "character": "padded",
    "double precision": "double",
    "real": "float",
}
"""Name of a type → its family; a type that is in none is one of its own."""

_ZEROFILL: Final = " zerofill"
"""Ends the types of MariaDB's numbers that are shown with leading zeros, and the families of them."""

_FILLED: Final = frozenset({"integer", "decimal"})
"""Families whose numbers make another text if they are shown with leading zeros. A float makes no text at all."""

_NUMBERS: Final = frozenset({
    "integer", "decimal", "numeric", "double", "float", *(f"{family}{_ZEROFILL}" for family in _FILLED),
})  # fmt: skip
_TEXT_FAMILIES: Final = frozenset({"text", "padded"})
_ALIKE: Final = {
    "mysql": {
        "integer": _NUMBERS | {"text", "bit", "year"},
        f"integer{_ZEROFILL}": _NUMBERS | {"bit", "year"},
        f"decimal{_ZEROFILL}": _NUMBERS,
        "decimal": _NUMBERS | {"text"},
        "double": frozenset({"decimal", "float"}),  # 2.5 is copied into an integer as 3, the server's ALTER makes it 2
        "year": _NUMBERS - {"float"},
        "text": _NUMBERS | {"enum", "set"},
        "enum": frozenset({"text"}),
        "set": frozenset({"text"}),
        "moment": frozenset({"date"}),
    },
    "postgres": {
        "integer": _NUMBERS | _TEXT_FAMILIES,
        "numeric": frozenset({"double", "float"}) | _TEXT_FAMILIES,
        "double": frozenset({"float"}),
        "timestamp without time zone": frozenset({"date"}),
        "text": frozenset({"padded"}),
        "uuid": _TEXT_FAMILIES,
        "boolean": _TEXT_FAMILIES,
        "json": _TEXT_FAMILIES,
        "enum": _TEXT_FAMILIES,
    },
}
"""Family → the others that its values may become."""

_PADDED: Final = ("padded", "padded")
"""PostgreSQL's ``character``: an event's text has the length of its type, so none fits a shorter one."""

_WIDER_OTHERWISE: Final = {
    "mysql": frozenset(
        {
            ("float", "double"),  # 0.1 is copied as 0.10000000149011612, and an event has 0.1
            ("date", "moment"),  # an event has a number of days, which no sink takes for a moment
            (f"integer{_ZEROFILL}", "text"),  # 7 is copied as '7', and the server's ALTER makes '0000000007' of it
        }
    ),
    "postgres": frozenset(
        {
            ("float", "double"),
            ("padded", "text"),  # a cast takes the blanks at the end away, and an event has them
            ("bit", "bit"),  # a cast adds zeros behind the value, and an event's must have the column's length
            ("bit", "bit varying"),  # an event is a number of bits: 001 becomes 1
            ("bit varying", "bit varying"),
        }
    ),
}
"""Families whose values are different ones by the two ways, though the new type holds all of the old one."""

_SHORTEST: Final = {"uuid": 36, "boolean": len("true")}
"""Characters that every value has at least as a text. Those of decimals depend on their scales."""

_BOUNDED: Final = ("char", "varchar", "character", "character varying", "binary", "varbinary")
"""Types of so many characters or bytes as they are declared with, 1 without a number, or any number if they vary."""

_TINY: Final = {"tinytext": 255, "tinyblob": 255}


def converts_alike(
    before: str, after: str, *, is_postgresql: bool, is_enum: bool = False, is_wider: bool = False
) -> bool:
    """Whether the copy and the feed make the same of every value that both accept; the types are the server's text.

    ``is_enum``: ``before`` is the name of an enum of PostgreSQL's. ``is_wider``: ``after`` holds all values of it.
    """
    families, dialect = (_POSTGRESQL, "postgres") if is_postgresql else (_MARIADB, "mysql")
    old = "enum" if is_enum else _family(before, families)
    new = _family(after, families)
    if is_wider:
        return (old, new) not in _WIDER_OTHERWISE[dialect]
    if (old, new) in _WIDER_OTHERWISE[dialect] or (old, new) == _PADDED or _shortest(before) > _longest(after):
        return False
    return old == new or new in _ALIKE[dialect].get(old, frozenset())


def _shortest(text: str) -> float:
    """How long every value is at least in a text or in bytes: one that never fits is cut by the copy, not by the feed.

    A ``binary(n)`` always has n bytes. PostgreSQL's NaN, which fits anywhere, is not counted as a value here.
    """
    name, numbers = _parts(text)
    if name in ("decimal", "numeric") and len(numbers) > 1 and numbers[1] > 0:
        return len("0.") + numbers[1]
    return numbers[0] if name == "binary" and numbers else _SHORTEST.get(name, 0)


def _longest(text: str) -> float:
    """How long a value may be in a text or in bytes."""
    name, numbers = _parts(text)
    if name in _BOUNDED:
        return numbers[0] if numbers else (math.inf if "var" in name else 1)
    return _TINY.get(name, math.inf)


def _parts(text: str) -> tuple[str, list[int]]:
    """A type's bare name, and the numbers in brackets."""
    name, _, rest = text.lower().partition("(")
    return name.strip(), [int(number) for number in re.findall(r"-?[0-9]+", rest.partition(")")[0])]


def _family(text: str, families: dict[str, str]) -> str:
    """Of a type such as ``int(11) unsigned``, ``timestamp(3) without time zone``; an array is of no family."""
    name, bracket, rest = text.partition("(")
    suffix = rest.rpartition(")")[2] if bracket else ""
    if text.endswith("]"):
        return text.lower()
    bare = name.lower().removesuffix(_ZEROFILL).removesuffix(" unsigned").strip()
    full = f"{bare}{suffix.lower()}" if suffix.lower().startswith((" with", " without")) else bare
    family = families.get(full, full)
    return f"{family}{_ZEROFILL}" if family in _FILLED and text.lower().endswith(_ZEROFILL) else family
