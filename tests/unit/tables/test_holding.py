"""Whether a type holds every value of another one: what is known, and what is not."""

import pytest

from headgate.databases.mysql.types import parse_type as parse_mysql
from headgate.databases.postgresql.types import parse_type as parse_postgresql
from headgate.tables.holding import Holding, holding


@pytest.mark.parametrize(
    ("wanted", "found", "told"),
    [
        ("integer", "bigint", "holds"),
        ("integer", "smallint", "loses"),
        ("oid", "integer", "loses"),
        ("oid", "bigint", "holds"),
        ("integer", "numeric(9)", "loses"),
        ("integer", "numeric(10)", "holds"),
        ("integer", "double precision", "holds"),
        ("integer", "real", "loses"),
        ("bigint", "double precision", "loses"),
        ("real", "double precision", "holds"),
        ("double precision", "real", "loses"),
        ("double precision", "numeric(9,2)", "loses"),
        ("numeric(10)", "numeric(10,0)", "holds"),
        ("numeric(10,2)", "numeric(12,2)", "holds"),
        ("numeric(10,2)", "numeric(12,1)", "loses"),
        ("numeric(10,2)", "bigint", "loses"),
        ("numeric(10,2)", "double precision", "holds"),
        ("numeric(17,2)", "double precision", "loses"),
        ("numeric(5,5)", "numeric(3,5)", "loses"),
        ("numeric", "numeric(10,2)", "loses"),
        ("numeric(10,2)", "numeric", "holds"),
        ("char(3)", "text", "holds"),
        ("char(3)", "varchar(3)", "holds"),
        ("char", "char(1)", "holds"),
        ("varchar(3)", "char(9)", "unknown"),
        ("varchar(9)", "char(3)", "loses"),
        ("varchar", "text", "holds"),
        ("text", "varchar(9)", "loses"),
        ("bit", "bit(1)", "holds"),
        ("bit(2)", "bit(3)", "unknown"),
        ("bit(2)", "bit varying(2)", "holds"),
        ("bit varying", "bit varying(9)", "loses"),
        ("timestamp", "timestamp(6)", "holds"),
        ("timestamp", "timestamp(3)", "loses"),
        ("timestamp", "date", "loses"),
        ("date", "timestamp", "holds"),
        ("timestamp", "timestamptz", "unknown"),
        ("interval", "interval(3)", "loses"),
        ("json", "jsonb", "holds"),
        ("text", "jsonb", "unknown"),
        ("uuid", "uuid", "holds"),
        ("integer", "date", "unknown"),
        ("text[]", "text", "loses"),
        ("text", "text[]", "loses"),
        ("integer[]", "bigint[]", "holds"),
    ],
)
def test_postgresql(wanted: str, found: str, told: str) -> None:
    there, mine = parse_postgresql(found), parse_postgresql(wanted)
    assert there is not None
    assert mine is not None
    assert holding(there, mine) is Holding(told)


@pytest.mark.parametrize(
    ("wanted", "found", "told"),
    [
        ("int", "int(11)", "holds"),
        ("int unsigned", "int(11)", "loses"),
        ("int", "int(10) unsigned", "loses"),
        ("int unsigned", "bigint", "holds"),
        ("tinyint(1)", "smallint", "holds"),
        ("year", "year(4)", "holds"),
        ("decimal(10)", "decimal(10,0)", "holds"),
        ("decimal", "decimal(10,0)", "holds"),
        ("decimal(10,2) unsigned", "decimal(12,2)", "holds"),
        ("decimal(10,2)", "decimal(10,2) unsigned", "loses"),
        ("float", "double", "holds"),
        ("double unsigned", "double", "holds"),
        ("double", "double(10,2)", "loses"),
        ("float(53)", "double", "holds"),
        ("char", "char(1)", "holds"),
        ("char(3)", "varchar(3)", "holds"),
        ("varchar(255)", "text", "holds"),
        ("varchar(200)", "tinytext", "unknown"),
        ("varchar(300)", "tinytext", "loses"),
        ("longtext", "text", "loses"),
        ("text", "text", "holds"),
        ("text", "varchar(9)", "loses"),
        ("binary", "binary(1)", "holds"),
        ("binary(2)", "binary(3)", "unknown"),
        ("varbinary(2)", "blob", "holds"),
        ("longblob", "blob", "loses"),
        ("bit", "bit(1)", "holds"),
        ("bit(1)", "bit(8)", "holds"),
        ("datetime(0)", "datetime", "holds"),
        ("datetime(6)", "datetime", "loses"),
        ("enum('a','b')", "enum('b','c','a')", "holds"),
        ("enum('a','b')", "enum('a')", "loses"),
        ("set('a','b')", "enum('a','b')", "unknown"),
        ("enum('a','bb')", "varchar(2)", "holds"),
        ("enum('a','bb')", "varchar(1)", "loses"),
        ("set('a','bb')", "varchar(3)", "loses"),
        ("varchar(9)", "enum('a')", "unknown"),
        ("json", "longtext", "holds"),
        ("point", "point", "holds"),
        ("point", "geometry", "unknown"),
    ],
)
def test_mysql(wanted: str, found: str, told: str) -> None:
    there, mine = parse_mysql(found), parse_mysql(wanted)
    assert there is not None
    assert mine is not None
    assert holding(there, mine) is Holding(told)


def test_types_of_two_kinds_of_databases_are_not_compared() -> None:
    there, mine = parse_mysql("int"), parse_postgresql("bigint")
    assert there is not None
    assert mine is not None
    assert holding(there, mine) is Holding.UNKNOWN
