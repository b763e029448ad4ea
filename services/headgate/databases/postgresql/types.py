"""PostgreSQL's own types: read from the server's text, by an allow-list, and written again from their parts."""

import re
from typing import Final

import msgspec

from headgate.databases.postgresql.sql import quoted

__all__ = ["PostgresType", "parse_type"]

_NUMBERS_MAX: Final = {
    **dict.fromkeys(("smallint", "integer", "bigint", "oid", "real", "double precision", "money", "boolean"), 0),
    **dict.fromkeys(("text", "date", "bytea", "json", "jsonb", "uuid", "inet", "cidr", "macaddr", "macaddr8"), 0),
    **dict.fromkeys(("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange", "point"), 0),
    **dict.fromkeys(("character", "character varying", "bit", "bit varying", "interval"), 1),
    **dict.fromkeys(("time without time zone", "time with time zone"), 1),
    **dict.fromkeys(("timestamp without time zone", "timestamp with time zone"), 1),
    "numeric": 2,
}
"""Type, as ``format_type`` prints it → how many numbers may follow it in brackets."""

_ALIASES: Final = {
    "int": "integer",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "decimal": "numeric",
    "float4": "real",
    "float8": "double precision",
    "bool": "boolean",
    "char": "character",
    "varchar": "character varying",
    "varbit": "bit varying",
    "time": "time without time zone",
    "timetz": "time with time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
"""Other names that people write for them. The server prints none of these without quotes, but for a type of its own."""

_TYPE: Final = re.compile(
    r"(?P<head>[a-z][a-z0-9]*(?: (?!with)[a-z]+)*)(?:\((?P<numbers>-?[0-9]+(?:, ?-?[0-9]+)?)\))?"
    r"(?P<tail> with(?:out)? time zone)?(?P<array>\[\])?"
)


class PostgresType(msgspec.Struct, frozen=True, kw_only=True):
    """A type in parts. ``own`` is (schema, name) of a type that a user has created, such as an enum."""

    name: str = ""
    numbers: tuple[int, ...] = ()
    is_array: bool = False
    collation: tuple[str, str] | None = None
    own: tuple[str, str] | None = None

    @property
    def sql(self) -> str:
        """The type as a statement needs it."""
        head, space, tail = self.name.partition(" with")
        numbers = f"({','.join(map(str, self.numbers))})" if self.numbers else ""
        text = quoted(*self.own) if self.own else f"{head}{numbers}{space}{tail}"
        collation = f" COLLATE {quoted(*self.collation)}" if self.collation else ""
        return f"{text}{'[]' if self.is_array else ''}{collation}"


def parse_type(text: str) -> PostgresType | None:
    """A type as the server prints it, or as people write it; None for one that is not on the list."""
    found = _TYPE.fullmatch(text)
    if found is None:
        return None
    written = found["head"] + (found["tail"] or "")
    name = _ALIASES.get(written, written)
    numbers = tuple(int(number) for number in (found["numbers"] or "").split(",") if number)
    if len(numbers) > _NUMBERS_MAX.get(name, -1):
        return None
    return PostgresType(name=name, numbers=numbers, is_array=found["array"] is not None)
