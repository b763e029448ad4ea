"""A table as its events' schemas describe it, in the form of a catalogue's, so that the same mappers create it. Pure.

The source's own types are in a schema only if the connector writes them (``column.propagate.source.type``). Without
them a column gets the widest type whose values have that schema: ``text`` for every string. What a schema does not
contain is left out: defaults, comments, unique keys, labels of enums, collations. A type whose values cannot be
distinguished from those of another one is refused.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from headgate.databases.catalogue import Product, TableForm
from headgate.databases.mysql.catalogue import MysqlColumn, MysqlDefinition, MysqlKey
from headgate.databases.mysql.types import parse_type as parse_mysql
from headgate.databases.postgresql.catalogue import PostgresColumn, PostgresDefinition, PostgresKey
from headgate.formats.column_schema import ColumnSchema, EventSchema
from headgate.formats.meaning import decimal_form
from headgate.tables.statement import Definition

__all__ = ["definition_from", "is_untold"]

_UNKNOWN: Final = "as its events describe it, without defaults, comments and unique keys"
_UNTOLD: Final = (
    f"{_UNKNOWN}. A text may be a number at the source, or have a length: set column.propagate.source.type to .* at "
    "the connector for the source's types"
)

_KEY: Final = "PRIMARY"
_NUMERIC_DIGITS_MAX: Final = 1_000
"""Of PostgreSQL's numeric. A connector writes other numbers for one without a precision."""

_TEXT_CHARACTERS_MAX: Final = 10_485_760
"""Of PostgreSQL's varchar and char. A connector writes Java's largest int for one without a length."""

_FRACTION_MAX: Final = 6
_ARRAY: Final = "array("
_BITS: Final = "io.debezium.data.Bits("
_LABELED: Final = frozenset({"io.debezium.data.Enum", "io.debezium.data.EnumSet"})

_CHANGED: Final = frozenset({"io.debezium.time.MicroDuration", "io.debezium.time.NanoDuration"})
"""Schemas of intervals whose months the connector has made days. ``interval.handling.mode=string`` keeps them."""

_COMMON: Final = {
    "int16": "smallint",
    "io.debezium.time.Date": "date",
    "org.apache.kafka.connect.data.Date": "date",
    "io.debezium.data.Json": "json",
}
_POSTGRESQL: Final = _COMMON | {
    "int32": "integer",
    "int64": "bigint",
    "float": "real",
    "double": "double precision",
    "boolean": "boolean",
    "string": "text",
    "bytes": "bytea",
    "io.debezium.time.Time": "time(3)",
    "io.debezium.time.MicroTime": "time",
    "io.debezium.time.ZonedTime": "timetz",
    "io.debezium.time.Timestamp": "timestamp(3)",
    "io.debezium.time.MicroTimestamp": "timestamp",
    "io.debezium.time.ZonedTimestamp": "timestamptz",
    "io.debezium.time.Interval": "interval",
    "org.apache.kafka.connect.data.Time": "time(3)",
    "org.apache.kafka.connect.data.Timestamp": "timestamp(3)",
    "io.debezium.data.VariableScaleDecimal": "numeric",
    "io.debezium.data.Uuid": "uuid",
    "io.debezium.data.Enum": "text",
    "io.debezium.data.geometry.Point": "point",
}
_MYSQL: Final = _COMMON | {
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "boolean": "bit(1)",
    "string": "longtext",
    "bytes": "longblob",
    "io.debezium.time.MicroTime": "time(6)",
    "io.debezium.time.Timestamp": "datetime(3)",
    "io.debezium.time.MicroTimestamp": "datetime(6)",
    "io.debezium.time.ZonedTimestamp": "timestamp(6)",
    "org.apache.kafka.connect.data.Time": "time(3)",
    "org.apache.kafka.connect.data.Timestamp": "datetime(3)",
    "io.debezium.time.Year": "year",
    "io.debezium.data.Enum": "text",
    "io.debezium.data.EnumSet": "text",
}
"""An event's schema of a column → the source's type that holds every value with such a schema."""

_NAMES: Final = {
    "bpchar": "character",
    "smallserial": "int2",
    "serial": "int4",
    "bigserial": "int8",
    "serial2": "int2",
    "serial4": "int4",
    "serial8": "int8",
    "char": '"char"',
}
"""PostgreSQL's own names, as the connector writes them → those that people write."""

_WIDER: Final = {"tinytext": "text", "text": "mediumtext", "mediumtext": "longtext"}
"""A text of bytes in an unknown character set → one that holds as many letters."""

_EXACT: Final = ("utf8mb4", "utf8mb4_bin")
"""A collation that distinguishes texts, and that MariaDB and MySQL have. It fills up with spaces, so a key that ends in
some may be refused."""


def definition_from(schema: EventSchema, table: tuple[str, str]) -> Definition | None:
    """The table, under the name ``table``; None if its database is of a kind that no mapper knows."""
    made = _OF_CONNECTOR.get(schema.connector)
    if made is None:
        return None
    is_told = all(column.declared is not None for column in schema.columns)
    return msgspec.structs.replace(made(schema, table), unknown=_UNKNOWN if is_told else _UNTOLD)


def is_untold(table: Definition) -> bool:
    """Whether events without the source's types describe the table, so that its types are the widest ones."""
    return table.unknown == _UNTOLD


def _postgresql(schema: EventSchema, table: tuple[str, str]) -> Definition:
    key = PostgresKey(
        name=_KEY,
        columns=schema.key,
        is_primary=True,
        finds_rows=True,
        is_valid=True,
        is_immediate=True,
        has_own_operators=False,
    )
    columns = tuple(_postgresql_column(number, column, schema.key) for number, column in enumerate(schema.columns, 1))
    return PostgresDefinition(
        product=Product.POSTGRESQL,
        schema=table[0],
        table=table[1],
        form=TableForm(columns, (key,) if schema.key else ()),
    )


def _postgresql_column(number: int, column: ColumnSchema, key: tuple[str, ...]) -> PostgresColumn:
    type_ = _postgresql_type(column)
    return PostgresColumn(
        number=number,
        name=column.name,
        type=type_,
        base=type_,
        kind=type_,
        is_nullable=column.is_optional and column.name not in key,
        default=None,
        generated=None,
        is_identity=False,
        collation=None,
        is_enum=False,
        identity="",
        generation="",
        collation_number=0,
        is_deterministic=True,
    )


def _postgresql_type(column: ColumnSchema) -> str:
    """The type as people write it, or words that no mapper understands."""
    if column.meaning in _CHANGED or column.declared is None:
        return _told(column, _POSTGRESQL, "numeric")
    if column.meaning in _LABELED:
        return "text"
    name = column.declared.lower()
    element = name.removeprefix("_")
    if element != name:
        # The length is not that of the elements. A char without one would lose characters.
        return f"{element if element == 'bpchar' else _NAMES.get(element, element)}[]"
    return _sized(_NAMES.get(name, name), column)


def _sized(name: str, column: ColumnSchema) -> str:
    length, scale = column.length, column.scale
    match name:
        case "character" | "varchar":
            if length is not None and 0 < length <= _TEXT_CHARACTERS_MAX:
                return f"{name}({length})"
            return "text" if name == "character" else name
        case "numeric":
            if length is None or scale is None or not 0 < length <= _NUMERIC_DIGITS_MAX:
                return name
            return f"numeric({length},{scale})" if abs(scale) <= _NUMERIC_DIGITS_MAX else name
        case "bit":
            return f"bit{column.meaning.removeprefix(_BITS[:-1])}" if column.meaning.startswith(_BITS) else name
        case _:
            return name


def _told(column: ColumnSchema, types: dict[str, str], decimal: str) -> str:
    """The widest type whose values have such a schema."""
    meaning = column.meaning
    if meaning.startswith(_ARRAY) and types is _POSTGRESQL:
        element = meaning.removeprefix(_ARRAY).removesuffix(")")
        # Of an enum, a snapshot's array may be NULL in the place of its values.
        return f"{types[element]}[]" if element in types and element not in _LABELED else meaning
    form = decimal_form(meaning)
    if form is not None:
        return decimal if column.precision is None else f"{decimal}({column.precision},{form.scale})"
    return types.get(meaning, meaning)


def _mysql(schema: EventSchema, table: tuple[str, str]) -> Definition:
    key = MysqlKey(name=_KEY, columns=schema.key, is_primary=True, finds_rows=True, prefixed=())
    columns = tuple(_mysql_column(number, column, schema.key) for number, column in enumerate(schema.columns, 1))
    return MysqlDefinition(
        product=Product.MYSQL if schema.connector == "mysql" else Product.MARIADB,
        schema=table[0],
        table=table[1],
        form=TableForm(columns, (key,) if schema.key else ()),
    )


def _mysql_column(number: int, column: ColumnSchema, key: tuple[str, ...]) -> MysqlColumn:
    type_ = _mysql_type(column)
    found = parse_mysql(type_)
    charset, collation = _EXACT if found is not None and found.is_text else (None, None)
    return MysqlColumn(
        number=number,
        name=column.name,
        type=type_,
        kind=type_.partition("(")[0].partition(" ")[0],
        is_nullable=column.is_optional and column.name not in key,
        default=None,
        generated=None,
        is_identity=False,
        collation=collation,
        charset=charset,
    )


def _mysql_type(column: ColumnSchema) -> str:
    """The type as people write it, or words that no mapper understands."""
    if column.declared is None:
        return _told(column, _MYSQL, "decimal")
    if column.meaning == "io.debezium.data.Json":
        return "json"
    if column.meaning in _LABELED:
        # The labels' list does not show which of its commas are part of a label.
        is_plain = column.labels is not None and not set("\\'") & set(column.labels)
        return "text" if is_plain else f"{column.declared.lower()} with unknown labels"
    name, space, rest = column.declared.lower().partition(" ")
    return f"{_WIDER.get(name, name)}{_numbers(name, column)}{space}{rest}"


def _numbers(name: str, column: ColumnSchema) -> str:
    length, scale = column.length, column.scale
    match name:
        case "char" | "varchar" | "binary" | "varbinary" | "bit":
            return "" if length is None else f"({length})"
        case "time" | "datetime" | "timestamp":
            return f"({length})" if length is not None and 0 < length <= _FRACTION_MAX else ""
        case "decimal" | "numeric":
            return "" if length is None else f"({length},{scale or 0})"
        case "float" | "double":
            return "" if length is None or scale is None else f"({length},{scale})"
        case _:
            return ""


_OF_CONNECTOR: Final[dict[str, Callable[[EventSchema, tuple[str, str]], Definition]]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
}
"""Debezium's name of a connector → the table of its database."""
