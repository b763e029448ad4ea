"""Pairs of types that copy and feed convert alike, and pairs that they do not."""

import pytest

from headgate.migration.strategies.two_ways import converts_alike

ALIKE = {
    "mysql": [
        ("int(11)", "smallint(6)"),
        ("bigint(20) unsigned", "int(10)"),
        ("int(10) unsigned", "varchar(3)"),
        ("int(10) unsigned zerofill", "int(5)"),
        ("decimal(6,2)", "decimal(6,1)"),
        ("decimal(8,2) unsigned zerofill", "int(11)"),
        ("int(11)", "decimal(8,2) unsigned zerofill"),
        ("double unsigned zerofill", "float"),
        ("double", "float"),
        ("double", "decimal(6,2)"),
        ("varchar(20)", "char(5)"),
        ("text", "enum('x','y')"),
        ("enum('x','y (z)')", "enum('y (z)')"),
        ("set('a','b')", "varchar(2)"),
        ("timestamp", "datetime"),
        ("datetime(6)", "date"),
        ("varbinary(40)", "varbinary(8)"),
        ("binary(4)", "binary(8)"),
        ("varbinary(4)", "binary(2)"),
        ("decimal(6,2)", "varchar(4)"),
        ("time(3)", "time"),
    ],
    "postgres": [
        ("bigint", "smallint"),
        ("numeric(6,2)", "numeric(6,1)"),
        ("text", "character varying(3)"),
        ("text", "character(5)"),
        ("timestamp without time zone", "timestamp(0) without time zone"),
        ("timestamp(3) without time zone", "date"),
        ("jsonb", "json"),
        ("uuid", "character(36)"),
        ("boolean", "character(4)"),
        ("numeric(8,0)", "character(1)"),
        ("numeric", "character varying(1)"),
        ("numeric(3,-2)", "character varying(3)"),
    ],
}
OTHERWISE = {
    "mysql": [
        ("int(11)", "enum('0','1')"),
        ("binary(8)", "binary(4)"),
        ("binary(8)", "varbinary(7)"),
        ("binary(8)", "binary"),
        ("decimal(6,2)", "varchar(3)"),
        ("bit(1)", "int(11)"),
        ("enum('10','20')", "int(11)"),
        ("int(11)", "set('0','1')"),
        ("date", "int(11)"),
        ("datetime", "time"),
        ("datetime", "varchar(40)"),
        ("float", "decimal(20,15)"),
        ("double", "int(11)"),
        ("date", "timestamp"),
        ("int(10) unsigned zerofill", "varchar(3)"),
        ("varchar(20)", "varbinary(20)"),
        ("blob", "text"),
        ("varchar(20)", "bit(8)"),
        ("int(11)", "unheard_of"),
        ("float unsigned zerofill", "double"),
        ("float", "double unsigned zerofill"),
        ("decimal(8,2) unsigned zerofill", "bit(8)"),
        ("decimal(8,2) unsigned zerofill", "year(4)"),
        ("decimal(8,2) unsigned zerofill", "text"),
        ("double unsigned zerofill", "int(11)"),
    ],
    "postgres": [
        ("double precision", "integer"),
        ("double precision", "numeric"),
        ("timestamp with time zone", "timestamp without time zone"),
        ("timestamp with time zone", "date"),
        ("bytea", "text"),
        ("character(5)", "character varying(3)"),
        ("character(5)", "character(3)"),
        ("bit(3)", "bit(2)"),
        ("bit varying(9)", "bit varying(2)"),
        ("integer[]", "text"),
        ("integer[]", "smallint[]"),
        ("double precision", "text"),
    ],
}


@pytest.mark.parametrize(("dialect", "pair"), [(name, pair) for name, pairs in ALIKE.items() for pair in pairs])
def test_pairs_that_are_converted_alike(dialect: str, pair: tuple[str, str]) -> None:
    assert converts_alike(*pair, is_postgresql=dialect == "postgres")


@pytest.mark.parametrize(("dialect", "pair"), [(name, pair) for name, pairs in OTHERWISE.items() for pair in pairs])
def test_pairs_that_are_not(dialect: str, pair: tuple[str, str]) -> None:
    assert not converts_alike(*pair, is_postgresql=dialect == "postgres")


WIDER = {
    "mysql": [("float", "float"), ("enum('x')", "text"), ("char(5)", "varchar(9)"), ("datetime", "datetime(6)")],
    "postgres": [("integer[]", "bigint[]"), ("character(5)", "character(9)"), ("character varying(5)", "text")],
}
WIDER_OTHERWISE = {
    "mysql": [
        ("float", "double"),
        ("float unsigned zerofill", "double"),
        ("float unsigned", "double unsigned zerofill"),
        ("date", "datetime"),
        ("int(5) unsigned zerofill", "varchar(20)"),
    ],
    "postgres": [
        ("real", "double precision"),
        ("character(5)", "text"),
        ("character(5)", "character varying(9)"),
        ("bit(3)", "bit(5)"),
        ("bit(3)", "bit varying(9)"),
        ("bit varying(3)", "bit varying(9)"),
    ],
}


@pytest.mark.parametrize(("dialect", "pair"), [(name, pair) for name, pairs in WIDER.items() for pair in pairs])
def test_a_wider_type_takes_the_same(dialect: str, pair: tuple[str, str]) -> None:
    assert converts_alike(*pair, is_postgresql=dialect == "postgres", is_wider=True)


@pytest.mark.parametrize(
    ("dialect", "pair"), [(name, pair) for name, pairs in WIDER_OTHERWISE.items() for pair in pairs]
)
def test_a_wider_type_that_takes_other_values(dialect: str, pair: tuple[str, str]) -> None:
    assert not converts_alike(*pair, is_postgresql=dialect == "postgres", is_wider=True)


def test_an_enum_of_postgresql_becomes_a_text_alone() -> None:
    assert converts_alike("public.mood", "character varying(3)", is_postgresql=True, is_enum=True)
    assert not converts_alike("public.mood", "integer", is_postgresql=True, is_enum=True)
