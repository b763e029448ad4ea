"""MySQL and MariaDB → tables of a lake: types that hold the same values, as docs/types.md has them."""

from collections.abc import Callable
from typing import Final

import msgspec

from headgate.databases.mysql.catalogue import MysqlColumn
from headgate.databases.mysql.types import MysqlType, parse_type
from headgate.sinks.creating import LakeType
from headgate.tables.mapped import Mapped, Outcome, Unmapped
from headgate.tables.mysql_to_mysql import REWRITTEN, altered, has_rewritten_label, unfit
from headgate.tables.postgresql_to_lake import STRING, decimal

__all__ = ["to_lake"]

_INTEGERS: Final = {
    "tinyint": ("tinyint", "smallint"),
    "smallint": ("smallint", "int"),
    "mediumint": ("int", "int"),
    "int": ("int", "bigint"),
}
"""Type → what holds it, and what holds it unsigned."""

_PLAIN: Final = {
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), Mapped(type=LakeType(name="binary"))
    ),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json", "uuid", "time"), STRING),
    "float": Mapped(type=LakeType(name="float")),
    "double": Mapped(type=LakeType(name="double")),
    "date": Mapped(type=LakeType(name="date")),
    "datetime": Mapped(type=LakeType(name="timestamp_ntz")),
    "timestamp": Mapped(type=LakeType(name="timestamp")),
    "year": Mapped(type=LakeType(name="int")),
}
"""A ``time`` goes from -838 to 838 hours, so it is not a time of day."""


def to_lake(column: MysqlColumn) -> Outcome:
    """The sink's column."""
    refused = unfit(column)
    if refused is not None:
        return refused
    if column.kind == "json":
        return STRING
    found = parse_type(column.type)
    if found is None:
        return Unmapped(f"{column.type} is not a type that Headgate can create", "string")
    if found.name in _INTEGERS:
        signed, unsigned = _INTEGERS[found.name]
        return Mapped(type=LakeType(name=unsigned if found.is_unsigned else signed))
    special = _SPECIAL.get(found.name)
    outcome = _PLAIN.get(found.name) if special is None else special(found)
    if isinstance(outcome, Mapped):
        return msgspec.structs.replace(outcome, altered=altered(found))
    return outcome or Unmapped(f"a lake has no like of {found.name}", "string")


def _bigint(found: MysqlType) -> Outcome:
    return decimal(20, 0) if found.is_unsigned else Mapped(type=LakeType(name="bigint"))


def _decimal(found: MysqlType) -> Outcome:
    return decimal(*found.decimal_digits)


def _bit(found: MysqlType) -> Outcome:
    return Mapped(type=LakeType(name="boolean")) if found.numbers in ((), (1,)) else STRING


def _labeled(found: MysqlType) -> Outcome:
    return Unmapped(REWRITTEN, "string") if has_rewritten_label(found) else STRING


_SPECIAL: Final[dict[str, Callable[[MysqlType], Outcome]]] = {
    "bigint": _bigint,
    "decimal": _decimal,
    "bit": _bit,
    "enum": _labeled,
    "set": _labeled,
}
"""Types whose numbers or labels decide."""
