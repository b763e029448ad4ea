"""MySQL and MariaDB → MySQL and MariaDB: the same types, to the width that a number is shown with."""

from typing import Final

from headgate.databases.catalogue import Product
from headgate.databases.mysql.catalogue import MysqlColumn
from headgate.databases.mysql.types import GEOMETRIES, MysqlType, parse_type
from headgate.tables.mapped import Default, LeftOut, Mapped, Outcome, Unmapped

__all__ = ["NUMBERS", "REWRITTEN", "altered", "has_rewritten_label", "same_type", "unfit"]

REWRITTEN: Final = "the connector adds backslashes to labels where one of them has a backslash, a quote or a comma"

NUMBERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year"})
_REWRITES: Final = ("\\", "'", ",")
_TEXTS: Final = frozenset({"char", "varchar", "enum", "set"})
_TIMES: Final = frozenset({"date", "time", "datetime"})
"""A timestamp's default is shown in the time zone of the session that asks, so it is left out."""

_OLD_DAYS: Final = (
    "zero dates, dates with a zero in them, the year 0, and the years 1 to 99 unless the connector has "
    "enable.time.adjuster=false"
)
_ALTERED: Final = {
    "date": _OLD_DAYS,
    "datetime": f"{_OLD_DAYS}; 1582-10-05 to 1582-10-14 of the connector's snapshot",
    "timestamp": "0000-00-00 00:00:00",
}
"""Type → the few values of it that the connector changes. (``sources/connector_warnings.py`` has ``year``.)"""

_STOPS: Final = frozenset({"inet4", "inet6"})
_OF_MARIADB: Final = frozenset({"uuid"})
_OF_ONE_PRODUCT: Final = ("_0900_", "_nopad_", "uca1400")
"""Parts of collations' names that only one of the two has."""


def same_type(column: MysqlColumn, source: Product, sink: Product) -> Outcome:
    """The sink's column."""
    if column.kind in _STOPS:
        return _stops(column)
    found = parse_type(column.type, column.charset, column.collation)
    if column.kind == "json":
        return Mapped(type=MysqlType(name="json"))
    if found is None:
        return Unmapped(f"{column.type} is not a type that Headgate can create", "longtext")
    if has_rewritten_label(found):
        return Unmapped(REWRITTEN, found.sql.partition(" CHARACTER")[0])
    if source is not sink:
        return _other_product(found, sink)
    return Mapped(type=found, default=_default(found), altered=altered(found))


def altered(found: MysqlType) -> str:
    """Which values of the type the connector changes, empty if it changes none."""
    return _ALTERED.get(found.name, "")


def has_rewritten_label(found: MysqlType) -> bool:
    """Whether the connector's snapshot and its log write one of the labels differently."""
    return any(mark in label for label in found.labels for mark in _REWRITES)


def unfit(column: MysqlColumn) -> LeftOut | None:
    """Why the column cannot be replicated to a sink that is not MySQL or MariaDB, None if it can."""
    if column.kind in GEOMETRIES:
        return LeftOut(f"{column.kind} is only supported at sinks of MySQL and MariaDB", arrives=True)
    return _stops(column) if column.kind in _STOPS else None


def _stops(column: MysqlColumn) -> LeftOut:
    return LeftOut(f"the connector stops at a column of type {column.kind}. Exclude the table, or alter the column")


def _other_product(found: MysqlType, sink: Product) -> Outcome:
    """MySQL has no uuid, and of the collations the two have only older ones in common."""
    if found.name in _OF_MARIADB:
        return Unmapped(f"{sink} has no {found.name}", "char(36)")
    collation = found.collation[1] if found.collation else ""
    if any(part in collation for part in _OF_ONE_PRODUCT):
        return Unmapped(f"{sink} has no collation {collation}", found.sql.partition(" CHARACTER")[0])
    return Mapped(type=found, default=_default(found), altered=altered(found))


def _default(found: MysqlType) -> Default:
    if found.name in NUMBERS:
        return Default.NUMBER
    if found.name in _TEXTS:
        return Default.TEXT
    return Default.TIME if found.name in _TIMES else Default.NONE
