"""The columns of a table that a feed computes (``columns.set``), as its definition would have them. Pure."""

from collections.abc import Mapping
from typing import Final

from headgate.config.columns import ColumnOptions
from headgate.config.expressions import Call, ExpressionError, Kind, parse_expression
from headgate.databases.mysql.catalogue import MysqlColumn
from headgate.databases.mysql.types import parse_type as parse_mysql
from headgate.databases.postgresql.catalogue import PostgresColumn
from headgate.databases.postgresql.types import parse_type
from headgate.formats.expressions.computed import check_computed
from headgate.formats.expressions.declared import SourceColumn
from headgate.formats.expressions.values import kind_at_database
from headgate.tables.statement import Definition

__all__ = ["computed_mysql", "computed_postgresql", "kinds_of", "source_columns"]

_CATALOGUE: Final = {
    "smallint": "int2", "integer": "int4", "bigint": "int8", "boolean": "bool", "character varying": "varchar",
    "character": "bpchar", "timestamp without time zone": "timestamp", "timestamp with time zone": "timestamptz",
    "real": "float4", "double precision": "float8", "time without time zone": "time", "time with time zone": "timetz",
    "bit varying": "varbit",
}  # fmt: skip
"""A type as PostgreSQL shows it → its name in the catalogue."""

_UNKNOWN: Final = "a result whose type only events show"
"""In the place of a type: no mapper knows it, so the feed must choose one."""

_POSTGRESQL: Final[Mapping[Kind, str]] = {
    Kind.BOOLEAN: "boolean", Kind.INTEGER: "bigint", Kind.NUMERIC: "numeric", Kind.TEXT: "text", Kind.DATE: "date",
    Kind.TIMESTAMP: "timestamp without time zone", Kind.TIMESTAMPTZ: "timestamp with time zone",
}  # fmt: skip
_MYSQL: Final[Mapping[Kind, str]] = {
    Kind.BOOLEAN: "tinyint(1)", Kind.INTEGER: "bigint(20)", Kind.NUMERIC: "decimal(65,30)", Kind.TEXT: "longtext",
    Kind.DATE: "date", Kind.TIMESTAMP: "datetime(6)", Kind.TIMESTAMPTZ: "timestamp(6)",
}  # fmt: skip
_POSTGRESQL_FRACTION: Final = 6
"""Digits behind the second of a timestamp without a precision."""
_MILLIS_DIGITS: Final = 3
"""Connectors write a timestamp of so many in milliseconds, a finer one in microseconds."""
_DECIMAL_DIGITS_MAX: Final = 65
_DECIMAL_SCALE_MAX: Final = 38
"""Of MariaDB's DECIMAL. A NUMERIC with more is created as one without a precision."""


def kinds_of(table: Definition) -> dict[str, Kind]:
    """The types of the table's columns in expressions."""
    return {column.name: _kind(column) for column in table.form.columns}


def _kind(column: PostgresColumn | MysqlColumn) -> Kind:
    """UNKNOWN where the events decide: a connector may write tinyint(1) as a boolean."""
    if isinstance(column, PostgresColumn):
        found = parse_type(column.base)
        if column.is_enum or found is None:
            return Kind.TEXT if column.is_enum else Kind.UNKNOWN
        return Kind.OTHER if found.is_array else kind_at_database("postgresql", _CATALOGUE.get(found.name, found.name))
    return Kind.UNKNOWN if column.type.startswith("tinyint(1)") else kind_at_database("mysql", column.kind)


def source_columns(table: Definition) -> dict[str, SourceColumn]:
    """The same with what values of events are read by."""
    return {column.name: _source_column(column) for column in table.form.columns}


def _source_column(column: PostgresColumn | MysqlColumn) -> SourceColumn:
    kind = _kind(column)
    if isinstance(column, PostgresColumn):
        found = parse_type(column.base)
        numbers, is_unsigned, digits = (() if found is None else found.numbers), False, _POSTGRESQL_FRACTION
    else:
        declared = parse_mysql(column.type)
        numbers = () if declared is None else declared.numbers
        is_unsigned, digits = declared is not None and declared.is_unsigned and declared.name == "bigint", 0
    if kind is Kind.NUMERIC and numbers:
        return SourceColumn(kind, scale=numbers[1] if len(numbers) > 1 else 0)
    if kind is Kind.TIMESTAMP:
        return SourceColumn(kind, is_fine=(numbers[0] if numbers else digits) > _MILLIS_DIGITS)
    return SourceColumn(kind, is_unsigned=is_unsigned)


def computed_postgresql(table: Definition, columns: ColumnOptions) -> tuple[PostgresColumn, ...]:
    """The computed columns at a PostgreSQL like the source's. All may be NULL."""
    return tuple(
        PostgresColumn(
            number=-number, name=name, type=type_, kind=_CATALOGUE.get(type_, type_), is_nullable=True, default=None,
            generated=None, is_identity=False, collation=None, base=type_, is_enum=False, identity="", generation="",
            collation_number=0, is_deterministic=True,
        )
        for number, (name, type_) in enumerate(_types(table, columns, _POSTGRESQL).items(), 1)
    )  # fmt: skip


def computed_mysql(table: Definition, columns: ColumnOptions) -> tuple[MysqlColumn, ...]:
    """The computed columns at a MySQL or MariaDB like the source's. All may be NULL."""
    return tuple(
        MysqlColumn(
            number=-number, name=name, type=type_, kind=type_.partition("(")[0], is_nullable=True, default=None,
            generated=None, is_identity=False,
            charset="utf8mb4" if type_ == "longtext" else None,
            collation="utf8mb4_bin" if type_ == "longtext" else None,
        )
        for number, (name, type_) in enumerate(_types(table, columns, _MYSQL).items(), 1)
    )  # fmt: skip


def _types(table: Definition, columns: ColumnOptions, types: Mapping[Kind, str]) -> dict[str, str]:
    kinds = kinds_of(table)
    return {name: _type(text, kinds, types) for name, text in columns.set.items()}


def _type(text: str, kinds: Mapping[str, Kind], types: Mapping[Kind, str]) -> str:
    try:
        kind = check_computed(text, kinds)
    except ExpressionError:  # the feed was checked: since then the source's table was altered
        return _UNKNOWN
    expression = parse_expression(text)
    if isinstance(expression, Call) and expression.of == "cast" and expression.precision is not None:
        digits, scale = expression.precision, expression.scale
        if kind is Kind.NUMERIC and digits <= _DECIMAL_DIGITS_MAX and scale <= _DECIMAL_SCALE_MAX:
            return f"{'numeric' if types is _POSTGRESQL else 'decimal'}({digits},{scale})"
    return types.get(kind, _UNKNOWN)
