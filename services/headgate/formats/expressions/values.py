"""Values of events and of databases as expressions take them: their type, and how they are read.

An event with a schema shows a column's type. Without one, a value's own type counts, so a date that a connector writes
as a number of days is an integer there. Readers raise ChangeError, without the value.
"""

import binascii
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from headgate.config.expressions import Kind
from headgate.config.moments import day_of, micros_of
from headgate.formats.change import ABSENT, Absent, ChangeError
from headgate.formats.meaning import DECIMAL

__all__ = ["AbsentError", "Read", "Readable", "kind_at_database", "read_of_database", "read_of_event", "read_of_value"]

Read = Callable[[object], object]
"""A value of a column → the same in an expression, None for NULL."""

Readable = tuple[Kind, Read]

DECIMAL_BYTES_MAX: Final = 1_024
"""2 466 digits, which is more than expressions compute with."""

_DAYS_LEAST: Final = -2_500_000
"""Before PostgreSQL's first date. Debezium writes its infinite dates as days far before it."""

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
        ("float4", "float8", "money", "bytea", "json", "jsonb", "time", "timetz", "interval", "bit", "varbit"),
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
    if meaning.startswith(f"{DECIMAL}("):
        return Kind.NUMERIC, _decimals(column, int(meaning[len(DECIMAL) + 1 : -1]))
    if meaning in _MICROS_PER_UNIT:
        return Kind.TIMESTAMP, _units(column, _MICROS_PER_UNIT[meaning])
    kind = _MEANINGS.get(meaning, Kind.OTHER)
    return kind, _OF_EVENTS[kind](column)


def read_of_value(column: str, type_: type) -> Readable:
    """Of a column whose events have no schema, for values of one Python type."""
    kind = _OF_VALUES.get(type_, Kind.OTHER)
    if kind is Kind.NUMERIC:
        return kind, _decimals(column, None)
    return kind, _present(column)


def kind_at_database(database: str, type_: str) -> Kind:
    """Of a column as the catalogue has it; UNKNOWN for a type that is not of the database itself, like an enum."""
    return Kind.OTHER if type_.startswith("_") else _OF_DATABASE[database].get(type_, Kind.UNKNOWN)


def read_of_database(column: str, database: str, type_: str) -> Readable:
    """Of a column whose values are the database's texts (or integers). Types that a user made are texts."""
    kind = kind_at_database(database, type_)
    if kind is Kind.UNKNOWN:
        return Kind.TEXT, _present(column)
    read = _OF_TEXTS.get(kind)
    return kind, _present(column) if read is None else _texts(column, read)


def _present(column: str) -> Read:
    """The value as it is, unless the event leaves it out."""

    def read(value: object) -> object:
        if value is ABSENT:
            raise _absent(column)
        return value

    return read


def _typed(column: str, type_: type) -> Read:
    def read(value: object) -> object:
        if value is None or type(value) is type_:
            return value
        raise _absent(column) if value is ABSENT else _unfit(column)

    return read


def _texts(column: str, read_text: Callable[[str], object]) -> Read:
    def read(value: object) -> object:
        if value is None:
            return None
        if value is ABSENT:
            raise _absent(column)
        try:
            return read_text(value if isinstance(value, str) else str(value))
        except (ValueError, ArithmeticError, OverflowError):
            raise _unfit(column) from None

    return read


def _days(column: str) -> Read:
    def read(value: object) -> object:
        if value is None:
            return None
        if type(value) is int and value >= _DAYS_LEAST:
            return value
        raise _absent(column) if value is ABSENT else _unfit(column)

    return read


def _units(column: str, micros: int) -> Read:
    def read(value: object) -> object:
        if value is None:
            return None
        if type(value) is int:
            return value * micros
        raise _absent(column) if value is ABSENT else _unfit(column)

    return read


def _decimals(column: str, scale: int | None) -> Read:
    def read(value: object) -> object:
        if value is None:
            return None
        if value is ABSENT:
            raise _absent(column)
        try:
            return _decimal(value, scale)
        except (ValueError, ArithmeticError, LookupError, TypeError):
            raise _unfit(column) from None

    return read


def _decimal(value: object, scale: int | None) -> Decimal:
    """Raises ValueError, ArithmeticError, LookupError, TypeError."""
    if isinstance(value, dict):
        scale, value = value["scale"], value["value"]
        if type(scale) is not int:
            raise TypeError
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        number = Decimal(value)
    elif scale is None:
        raise TypeError
    else:
        raw = value if isinstance(value, bytes) else binascii.a2b_base64(str(value), strict_mode=True)
        if len(raw) > DECIMAL_BYTES_MAX:
            raise ValueError
        number = Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale)
    if not number.is_finite():
        raise ValueError
    return number


def _finite(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError
    return number


def _boolean(text: str) -> bool:
    if text in ("t", "true", "True", "1"):
        return True
    if text in ("f", "false", "False", "0"):
        return False
    raise ValueError


_OF_EVENTS: Final[Mapping[Kind, Callable[[str], Read]]] = {
    Kind.INTEGER: lambda column: _typed(column, int),
    Kind.BOOLEAN: lambda column: _typed(column, bool),
    Kind.TEXT: lambda column: _typed(column, str),
    Kind.NUMERIC: lambda column: _decimals(column, None),
    Kind.DATE: _days,
    Kind.TIMESTAMPTZ: lambda column: _texts(column, lambda text: micros_of(text, zoned=True)),
    Kind.OTHER: _present,
}
_OF_TEXTS: Final[Mapping[Kind, Callable[[str], object]]] = {
    Kind.INTEGER: int,
    Kind.NUMERIC: _finite,
    Kind.BOOLEAN: _boolean,
    Kind.DATE: day_of,
    Kind.TIMESTAMP: lambda text: micros_of(text, zoned=False),
    Kind.TIMESTAMPTZ: lambda text: micros_of(text, zoned=True, utc=True),
}


class AbsentError(ChangeError):
    """The expression needs a value that the event leaves out."""


def _absent(column: str) -> AbsentError:
    return AbsentError(
        f"column {column} has a large value that did not change, so the event leaves it out, and the expression needs "
        "it. Set REPLICA IDENTITY FULL at the source, or write the expression without the column"
    )


def _unfit(column: str) -> ChangeError:
    return ChangeError(f"column {column} has a value that expressions cannot read as the type of its column")
