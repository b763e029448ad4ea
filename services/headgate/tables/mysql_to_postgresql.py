"""MySQL and MariaDB → PostgreSQL: types that hold the same values, as docs/types.md has them."""

from collections.abc import Callable
from typing import Final

import msgspec

from headgate.databases.mysql.catalogue import MysqlColumn
from headgate.databases.mysql.types import MysqlType, parse_type
from headgate.databases.postgresql.types import PostgresType
from headgate.tables.mapped import Default, Mapped, Outcome, Unmapped
from headgate.tables.mysql_to_mysql import REWRITTEN, altered, has_rewritten_label, unfit

__all__ = ["to_postgresql"]

_NO_NUL: Final = "the character NUL"
_INTEGERS: Final = {
    "tinyint": ("smallint", "smallint"),
    "smallint": ("smallint", "integer"),
    "mediumint": ("integer", "integer"),
    "int": ("integer", "bigint"),
}
"""Type → what holds it, and what holds it unsigned."""

_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TEXTS: Final = ("tinytext", "text", "mediumtext", "longtext")

_TEXT: Final = Mapped(type=PostgresType(name="text"), default=Default.TEXT, lacks=_NO_NUL)

_PLAIN: Final = {
    **dict.fromkeys(_BYTES, Mapped(type=PostgresType(name="bytea"))),
    **dict.fromkeys(_TEXTS, _TEXT),
    "float": Mapped(type=PostgresType(name="real"), default=Default.NUMBER),
    "double": Mapped(type=PostgresType(name="double precision"), default=Default.NUMBER),
    "date": Mapped(type=PostgresType(name="date"), default=Default.TIME),
    "year": Mapped(type=PostgresType(name="integer"), default=Default.NUMBER),
    "json": Mapped(type=PostgresType(name="json"), lacks=_NO_NUL),
    "uuid": Mapped(type=PostgresType(name="uuid")),
}


def to_postgresql(column: MysqlColumn) -> Outcome:
    """The sink's column."""
    refused = unfit(column)
    if refused is not None:
        return refused
    found = parse_type(column.type)
    if found is None:
        return Unmapped(f"{column.type} is not a type that Headgate can create", "text")
    if column.kind == "json":
        return _PLAIN["json"]
    if found.name in _INTEGERS:
        signed, unsigned = _INTEGERS[found.name]
        return Mapped(type=PostgresType(name=unsigned if found.is_unsigned else signed), default=Default.NUMBER)
    special = _SPECIAL.get(found.name)
    outcome = _PLAIN.get(found.name) if special is None else special(found)
    if isinstance(outcome, Mapped):
        return msgspec.structs.replace(outcome, altered=altered(found))
    return outcome or Unmapped(f"{found.name} has no like in PostgreSQL")


def _bigint(found: MysqlType) -> Outcome:
    if found.is_unsigned:
        return Mapped(type=PostgresType(name="numeric", numbers=(20, 0)), default=Default.NUMBER)
    return Mapped(type=PostgresType(name="bigint"), default=Default.NUMBER)


def _decimal(found: MysqlType) -> Outcome:
    return Mapped(type=PostgresType(name="numeric", numbers=found.decimal_digits), default=Default.NUMBER)


def _characters(name: str) -> Callable[[MysqlType], Outcome]:
    def mapped(found: MysqlType) -> Outcome:
        length = found.numbers[0] if found.numbers else 1
        # PostgreSQL has no texts of length 0.
        type_ = PostgresType(name=name, numbers=(length,)) if length else PostgresType(name="text")
        return Mapped(type=type_, default=Default.TEXT, lacks=_NO_NUL)

    return mapped


def _bit(found: MysqlType) -> Outcome:
    return Mapped(type=PostgresType(name="bit", numbers=found.numbers or (1,)))


def _interval(found: MysqlType) -> Outcome:
    """A time of MySQL goes from -838 to 838 hours, one of PostgreSQL is a time of day."""
    del found
    return Mapped(type=PostgresType(name="interval"))


def _labeled(found: MysqlType) -> Outcome:
    return Unmapped(REWRITTEN, "text") if has_rewritten_label(found) else _TEXT


def _time(name: str, default: Default) -> Callable[[MysqlType], Outcome]:
    def mapped(found: MysqlType) -> Outcome:
        return Mapped(type=PostgresType(name=name, numbers=found.numbers or (0,)), default=default)

    return mapped


_SPECIAL: Final[dict[str, Callable[[MysqlType], Outcome]]] = {
    "bigint": _bigint,
    "decimal": _decimal,
    "char": _characters("character"),
    "varchar": _characters("character varying"),
    "bit": _bit,
    "time": _interval,
    "enum": _labeled,
    "set": _labeled,
    "datetime": _time("timestamp without time zone", Default.TIME),
    # A timestamp's default is shown in the time zone of the session that asks.
    "timestamp": _time("timestamp with time zone", Default.NONE),
}
