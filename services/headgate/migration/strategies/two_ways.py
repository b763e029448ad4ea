"""Changes of a type under which a row becomes the same whether it is copied or the feed brings it.

A copied value is converted by the server from its own literal, and the feed's from an event's text, and of some pairs
of types they make different values: into an enum of MariaDB's a number goes by its place, and the text of an event as
the label. The comparison would find that before the cut-over, after the whole copy. So a change that may lose values is
done by ``online`` only between types that are listed here, and one that may not, between all but float and double.
"""

from typing import Final

_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "integer", "bigint")
_TEXTS: Final = ("char", "varchar", "character", "character varying", "tinytext", "text", "mediumtext", "longtext")
_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")

_MARIADB: Final = {
    **dict.fromkeys(_INTEGERS, "integer"),
    **dict.fromkeys(_TEXTS, "text"),
    **dict.fromkeys(_BYTES, "bytes"),
    **dict.fromkeys(("date", "datetime", "timestamp"), "moment"),
}
_POSTGRESQL: Final = {
    **dict.fromkeys(_INTEGERS, "integer"),
    **dict.fromkeys(_TEXTS, "text"),
    **dict.fromkeys(("bit", "bit varying"), "bits"),
    **dict.fromkeys(("json", "jsonb"), "json"),
    "double precision": "double",
    "real": "float",
}
"""Name of a type → its family; a type that is in none is one of its own."""

_NUMBERS: Final = frozenset({"integer", "decimal", "numeric", "double", "float"})
_ALIKE: Final = {
    "mysql": {
        "integer": _NUMBERS | {"text", "bit", "year"},
        "decimal": _NUMBERS | {"text"},
        "double": _NUMBERS,
        "year": _NUMBERS - {"float"},
        "text": _NUMBERS | {"enum", "set"},
        "enum": frozenset({"text"}),
        "set": frozenset({"text"}),
    },
    "postgres": {
        "integer": _NUMBERS | {"text"},
        "numeric": frozenset({"double", "float", "text"}),
        "double": frozenset({"float"}),
        "timestamp without time zone": frozenset({"date"}),
        "uuid": frozenset({"text"}),
        "boolean": frozenset({"text"}),
        "json": frozenset({"text"}),
        "enum": frozenset({"text"}),
    },
}
"""Family → the others that its values may become."""


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
        return (old, new) != ("float", "double")  # 0.1 is copied as 0.10000000149011612, and an event has 0.1
    return old == new or new in _ALIKE[dialect].get(old, frozenset())


def _family(text: str, families: dict[str, str]) -> str:
    """Of a type such as ``int(11) unsigned``, ``timestamp(3) without time zone``; an array is of no family."""
    name, bracket, rest = text.partition("(")
    suffix = rest.rpartition(")")[2] if bracket else ""
    if text.endswith("]"):
        return text.lower()
    bare = name.lower().removesuffix(" zerofill").removesuffix(" unsigned").strip()
    full = f"{bare}{suffix.lower()}" if suffix.lower().startswith((" with", " without")) else bare
    return families.get(full, full)
