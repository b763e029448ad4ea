"""Values of events and of databases as expressions take them: their type, and how they are read.

An event with a schema shows a column's type. Without one, it is the catalogue's (declared.py), and where that is not
known a value's own type, so a date that a connector writes as a number of days is an integer there. Readers raise
ChangeError, without the value.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from headgate.config.expressions import Kind
from headgate.config.moments import day_of, micros_of
from headgate.formats.change import Absent
from headgate.formats.expressions.reading import (
    Read,
    Readable,
    boolean,
    days,
    decimals,
    finite,
    present,
    texts,
    typed,
    units,
)
from headgate.formats.meaning import decimal_form

__all__ = ["kind_at_database", "read_of_database", "read_of_event", "read_of_value"]

_MEANINGS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "io.debezium.time.Year"), Kind.INTEGER),
    "boolean": Kind.BOOLEAN,
    **dict.fromkeys(
        ("string", "io.debezium.data.Uuid", "io.debezium.data.Enum", "io.debezium.data.EnumSet"), Kind.TEXT
    ),
    **dict.fromkeys(("io.debezium.time.Date", "org.apache.kafka.connect.data.Date"), Kind.DATE),
    "io.debezium.data.VariableScaleDecimal": Kind.NUMERIC,
    "io.debezium.time.ZonedTimestamp": Kind.TIMESTAMPTZ,
}
_MICROS_PER_UNIT: Final[Mapping[str, int]] = {
    "io.debezium.time.Timestamp": 1_000, "org.apache.kafka.connect.data.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1,
}  # fmt: skip

_POSTGRESQL: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), Kind.INTEGER),
    "bool": Kind.BOOLEAN,
    "numeric": Kind.NUMERIC,
    **dict.fromkeys(("text", "varchar", "uuid", "name", "citext"), Kind.TEXT),
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
    "timestamptz": Kind.TIMESTAMPTZ,
    # Values of character(n) have spaces at their end in events, and none as a text of the database.
    "bpchar": Kind.OTHER,
    **dict.fromkeys(
        (
            "float4",
            "float8",
            "money",
            "bytea",
            "json",
            "jsonb",
            "xml",
            "tsvector",
            "time",
            "timetz",
            "interval",
            "bit",
            "varbit",
        ),
        Kind.OTHER,
    ),
}
_MYSQL: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), Kind.INTEGER),
    "decimal": Kind.NUMERIC,
    **dict.fromkeys(
        ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "uuid"), Kind.TEXT
    ),
    "date": Kind.DATE,
    "datetime": Kind.TIMESTAMP,
    "timestamp": Kind.TIMESTAMPTZ,
    **dict.fromkeys(
        ("float", "double", "bit", "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "json", "time"),
        Kind.OTHER,
    ),
}
_OF_DATABASE: Final = {"postgresql": _POSTGRESQL, "mysql": _MYSQL}

_OF_VALUES: Final[Mapping[type, Kind]] = {
    type(None): Kind.NULL, str: Kind.TEXT, bool: Kind.BOOLEAN, int: Kind.INTEGER, Decimal: Kind.NUMERIC,
    Absent: Kind.NULL,
}  # fmt: skip


def read_of_event(column: str, meaning: str) -> Readable:
    """Of a column whose events have a schema. ``meaning``: its entry in Change.semantics."""
    form = decimal_form(meaning)
    if form is not None:
        return Readable(Kind.NUMERIC, decimals(column, form.scale))
    if meaning in _MICROS_PER_UNIT:
        return Readable(Kind.TIMESTAMP, units(column, _MICROS_PER_UNIT[meaning]))
    kind = _MEANINGS.get(meaning, Kind.OTHER)
    return Readable(kind, _OF_EVENTS[kind](column))


def read_of_value(column: str, type_: type) -> Readable:
    """Of a column whose events have no schema, for values of one Python type."""
    kind = _OF_VALUES.get(type_, Kind.OTHER)
    return Readable(kind, decimals(column, None) if kind is Kind.NUMERIC else present(column))


def kind_at_database(database: str, type_: str) -> Kind:
    """Of a column as the catalogue has it; UNKNOWN for a type that is not of the database itself, like an enum."""
    return Kind.OTHER if type_.startswith("_") else _OF_DATABASE[database].get(type_, Kind.UNKNOWN)


def read_of_database(column: str, database: str, type_: str) -> Readable:
    """Of a column whose values are the database's texts (or integers). Types that a user made are texts."""
    kind = kind_at_database(database, type_)
    if kind is Kind.UNKNOWN:
        return Readable(Kind.TEXT, present(column))
    read = _OF_TEXTS.get(kind)
    return Readable(kind, present(column) if read is None else texts(column, read))


_OF_EVENTS: Final[Mapping[Kind, Callable[[str], Read]]] = {
    Kind.INTEGER: lambda column: typed(column, int),
    Kind.BOOLEAN: lambda column: typed(column, bool),
    Kind.TEXT: lambda column: typed(column, str),
    Kind.NUMERIC: lambda column: decimals(column, None),
    Kind.DATE: days,
    Kind.TIMESTAMPTZ: lambda column: texts(column, lambda text: micros_of(text, zoned=True)),
    Kind.OTHER: present,
}
_OF_TEXTS: Final[Mapping[Kind, Callable[[str], object]]] = {
    Kind.INTEGER: int,
    Kind.NUMERIC: finite,
    Kind.BOOLEAN: boolean,
    Kind.DATE: day_of,
    Kind.TIMESTAMP: lambda text: micros_of(text, zoned=False),
    Kind.TIMESTAMPTZ: lambda text: micros_of(text, zoned=True, utc=True),
}
