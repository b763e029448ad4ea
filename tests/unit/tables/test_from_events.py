"""Tables that events describe: their types are the source's where the connector writes them, and never too narrow."""

import pytest

from headgate.databases.catalogue import Product
from headgate.formats.column_schema import ColumnSchema, EventSchema
from headgate.tables.from_events import definition_from
from headgate.tables.statement import CreateTable, RefusedTable, table_statement

DECIMAL = "org.apache.kafka.connect.data.Decimal"


def column(  # noqa: PLR0917 - a type in brackets, as people write it
    meaning: str,
    declared: str | None = None,
    length: int | None = None,
    scale: int | None = None,
    labels: str | None = None,
    precision: int | None = None,
) -> ColumnSchema:
    return ColumnSchema(
        name="c",
        meaning=meaning,
        is_optional=True,
        declared=declared,
        length=length,
        scale=scale,
        labels=labels,
        precision=precision,
    )


def mapped(connector: str, told: ColumnSchema) -> str | None:
    """The type of the same kind of database, None if the column is refused."""
    found = definition_from(EventSchema(connector=connector, columns=(told,)), ("shop", "t"))
    assert found is not None
    made = table_statement(found, found.product)
    if isinstance(made, RefusedTable):
        return None
    line = made.statements[0].splitlines()[1].strip()
    return line.split(" ", 1)[1].removesuffix(" NULL")


EXACT = " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


@pytest.mark.parametrize(
    ("told", "becomes"),
    [
        (column("int64", "BIGSERIAL", 19, 0), "bigint"),
        (column("string", "NUMERIC", 12, 2), "numeric(12,2)"),
        (column("string", "NUMERIC", 0, 0), "numeric"),
        (column("string", "NUMERIC", 131089, 0), "numeric"),
        (column("string", "VARCHAR", 20), "character varying(20)"),
        (column("string", "VARCHAR", 2147483647), "character varying"),
        (column("string", "BPCHAR", 5), "character(5)"),
        (column("string", "BPCHAR", 2147483647), "text"),
        (column("string", "INET"), "inet"),
        (column("io.debezium.time.ZonedTimestamp", "TIMESTAMPTZ", 35, 6), "timestamp with time zone"),
        (column("io.debezium.time.Timestamp", "TIMESTAMP", 29, 3), "timestamp without time zone"),
        (column("io.debezium.data.Bits(10)", "BIT", 10), "bit(10)"),
        (column("boolean", "BIT", 1), "bit"),
        (column("array(int32)", "_INT4"), "integer[]"),
        (column("array(string)", "_VARCHAR", 9), "character varying[]"),
        (column("io.debezium.data.Enum", "MOOD", labels="glad"), "text"),
        (column("string", "CHAR", 1), None),
        (column("array(string)", "_BPCHAR", 5), None),
        (column("string", "CITEXT"), None),
        (column("io.debezium.data.Bits(10)", "VARBIT", 10), None),
        (column("io.debezium.time.ZonedTime", "TIMETZ"), None),
        (column("array(io.debezium.data.Enum)", "_MOOD"), None),
        (column("io.debezium.time.MicroDuration", "INTERVAL"), None),
        (column("int16"), "smallint"),
        (column("string"), "text"),
        (column(f"{DECIMAL}(2)", precision=12), "numeric(12,2)"),
        (column(f"{DECIMAL}(2)"), "numeric"),
        (column("array(io.debezium.time.Date)"), "date[]"),
        (column("io.debezium.data.Bits(10)"), None),
        (column("array(io.debezium.data.Enum)"), None),
        (column("map"), None),
    ],
)  # fmt: skip
def test_from_postgresql(told: ColumnSchema, becomes: str | None) -> None:
    assert mapped("postgresql", told) == becomes


@pytest.mark.parametrize(
    ("told", "becomes"),
    [
        (column("int64", "INT UNSIGNED"), "int unsigned"),
        (column("int64", "INT UNSIGNED ZEROFILL", 5), "int unsigned zerofill"),
        (column("int16", "TINYINT", 1), "tinyint"),
        (column("string", "DECIMAL", 12, 2), "decimal(12,2)"),
        (column("string", "DECIMAL UNSIGNED", 65), "decimal(65,0) unsigned"),
        (column("string", "VARCHAR", 20), f"varchar(20){EXACT}"),
        (column("double", "FLOAT", 7, 2), "float(7,2)"),
        (column("float", "FLOAT"), "float"),
        (column("string", "TINYTEXT"), f"text{EXACT}"),
        (column("string", "TEXT"), f"mediumtext{EXACT}"),
        (column("string", "LONGTEXT"), f"longtext{EXACT}"),
        (column("bytes", "VARBINARY", 9), "varbinary(9)"),
        (column("io.debezium.time.MicroTimestamp", "DATETIME", 6), "datetime(6)"),
        (column("io.debezium.time.Timestamp", "DATETIME"), "datetime"),
        (column("io.debezium.time.MicroTime", "TIME", 3), "time(3)"),
        (column("io.debezium.data.Json", "JSON"), "json"),
        (column("io.debezium.data.Enum", "ENUM", 1, labels="glad,so so"), f"text{EXACT}"),
        (column("io.debezium.data.EnumSet", "SET", 5, labels=r"a\,b,c"), None),
        (column("io.debezium.data.Enum", "ENUM", 1), None),
        (column("io.debezium.data.geometry.Geometry", "GEOMETRY"), "geometry"),
        (column("string", "INET6"), None),
        (column("string"), f"longtext{EXACT}"),
        (column("boolean"), "bit(1)"),
        (column(f"{DECIMAL}(2)", precision=12), "decimal(12,2)"),
        (column("io.debezium.time.Year"), "year"),
        (column("io.debezium.data.Bits(10)"), None),
    ],
)
@pytest.mark.parametrize("connector", ["mariadb", "mysql"])
def test_from_mysql(connector: str, told: ColumnSchema, becomes: str | None) -> None:
    assert mapped(connector, told) == becomes


def test_a_key_is_not_null_and_what_is_unknown_is_told() -> None:
    told = column("int64", "INT8")
    found = definition_from(EventSchema(connector="postgresql", columns=(told,), key=("c",)), ("shop", "t"))
    assert found is not None
    made = table_statement(found, Product.POSTGRESQL)
    assert isinstance(made, CreateTable)
    assert made.statements == (
        'CREATE TABLE IF NOT EXISTS "shop"."t" (\n  "c" bigint NOT NULL,\n  PRIMARY KEY ("c")\n)',
    )
    assert made.notes == ("as its events describe it, without defaults, comments and unique keys",)
    untold = definition_from(EventSchema(connector="postgresql", columns=(column("string"),)), ("shop", "t"))
    assert untold is not None
    assert "column.propagate.source.type" in untold.unknown


def test_a_connector_of_another_database_is_not_known() -> None:
    assert definition_from(EventSchema(connector="sqlserver", columns=(column("int64"),)), ("shop", "t")) is None
