"""What rows that are older than a column have in it at the source, from the source's catalogue. Pure.

PostgreSQL keeps the value with which a column was added (``attmissingval``), also where the default is another one by
now. MySQL and MariaDB show only the present default, which is the value unless it was changed since.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from headgate.databases.catalogue import Product
from headgate.databases.mysql.catalogue import MysqlColumn
from headgate.databases.mysql.sql import literal as mysql_literal
from headgate.databases.postgresql.catalogue import PostgresColumn
from headgate.databases.postgresql.sql import literal as postgresql_literal
from headgate.sinks.creating import LakeType
from headgate.tables.constants import default_text
from headgate.tables.mapped import Default, Mapped
from headgate.tables.statement import room_of

__all__ = ["FirstValue", "UnknownValue", "first_value"]

_BOOLEANS: Final = {"t": "true", "f": "false"}
"""How PostgreSQL prints them, and how a statement has them."""


class FirstValue(msgspec.Struct, frozen=True):
    """``sql``: what follows DEFAULT at the sink, of a lake the text alone; None where those rows have NULL."""

    sql: str | None


class UnknownValue(msgspec.Struct, frozen=True):
    """Why no constant is known to be what those rows have."""

    reason: str


def first_value(
    column: PostgresColumn | MysqlColumn, mapped: Mapped, source: Product, sink: Product, missing: str | None
) -> FirstValue | UnknownValue:
    """The value for existing rows. ``missing``: the one with which PostgreSQL's column was added, if recorded."""
    expression = _expression(column, missing)
    if isinstance(expression, UnknownValue):
        return expression
    if expression is None:
        return FirstValue(None)
    takes = _of_lake(column, mapped.type) if isinstance(mapped.type, LakeType) else mapped.default
    text = default_text(expression, source, takes, _LITERALS.get(sink, mysql_literal), room=room_of(mapped))
    if text is None:
        return UnknownValue("their value is not a constant that the sink's column can have as its default")
    return FirstValue(text)


_LITERALS: Final[Mapping[Product, Callable[[str], str]]] = {Product.POSTGRESQL: postgresql_literal, Product.LAKE: str}

_NUMBERS: Final = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})
_TEXTS: Final = frozenset({"text", "varchar", "char", "tinytext", "mediumtext", "longtext", "enum"})
"""Bare types of columns whose constants are the texts that events have. PostgreSQL's ``char`` is called bpchar."""


def _of_lake(column: PostgresColumn | MysqlColumn, type_: LakeType) -> Default:
    """Which constants are known to be the same value in a lake's column."""
    if type_.name in _NUMBERS:
        return Default.NUMBER
    if type_.name == "boolean":
        return Default.BOOLEAN
    if type_.name in ("date", "timestamp_ntz"):
        return Default.TIME
    is_text = column.kind in _TEXTS or (isinstance(column, PostgresColumn) and column.is_enum)
    return Default.TEXT if type_.name == "string" and is_text else Default.NONE


def _expression(column: PostgresColumn | MysqlColumn, missing: str | None) -> UnknownValue | str | None:
    """The value in the source's words, None for NULL."""
    if column.is_identity:
        return UnknownValue("the source counts it up, so each of those rows has a number of its own")
    if column.generated is not None:
        return UnknownValue("the source computes it, so each of those rows may have another value")
    if isinstance(column, MysqlColumn):
        is_unknown = column.default is None and not column.is_nullable
        why = "it is NOT NULL at the source, and its current default may differ from the value of those rows"
        return UnknownValue(why) if is_unknown else column.default
    if missing is not None:
        is_boolean = column.base == "boolean"
        return _BOOLEANS.get(missing, missing) if is_boolean else f"{postgresql_literal(missing)}::text"
    # A default that was set after the column was added is not that of older rows. It is, where the table was rewritten.
    is_unknown = column.default is not None and column.is_nullable
    why = "it has a default, but the source's catalogue does not show whether those rows have it"
    return UnknownValue(why) if is_unknown else column.default
