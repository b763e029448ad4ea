"""Pairs of types that copy and feed convert alike, and pairs that they do not."""

import pytest

from headgate.migration.strategies.two_ways import converts_alike

ALIKE = {
    "mysql": [
        ("int(11)", "smallint(6)"),
        ("bigint(20) unsigned", "int(10)"),
        ("int(10) unsigned zerofill", "varchar(3)"),
        ("decimal(6,2)", "decimal(6,1)"),
        ("double", "float"),
        ("varchar(20)", "char(5)"),
        ("text", "enum('x','y')"),
        ("enum('x','y (z)')", "enum('y (z)')"),
        ("set('a','b')", "varchar(2)"),
        ("timestamp", "datetime"),
        ("datetime(6)", "date"),
        ("varbinary(40)", "varbinary(8)"),
        ("time(3)", "time"),
    ],
    "postgres": [
        ("bigint", "smallint"),
        ("numeric(6,2)", "numeric(6,1)"),
        ("text", "character varying(3)"),
        ("character(5)", "text"),
        ("timestamp without time zone", "timestamp(0) without time zone"),
        ("timestamp(3) without time zone", "date"),
        ("jsonb", "json"),
        ("bit varying(9)", "bit(3)"),
    ],
}
OTHERWISE = {
    "mysql": [
        ("int(11)", "enum('0','1')"),
        ("bit(1)", "int(11)"),
        ("enum('10','20')", "int(11)"),
        ("int(11)", "set('0','1')"),
        ("date", "int(11)"),
        ("datetime", "time"),
        ("datetime", "varchar(40)"),
        ("float", "decimal(20,15)"),
        ("varchar(20)", "varbinary(20)"),
        ("blob", "text"),
        ("varchar(20)", "bit(8)"),
        ("int(11)", "unheard_of"),
    ],
    "postgres": [
        ("double precision", "integer"),
        ("double precision", "numeric"),
        ("timestamp with time zone", "timestamp without time zone"),
        ("timestamp with time zone", "date"),
        ("bytea", "text"),
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


def test_a_wider_type_takes_other_values_from_a_float_alone() -> None:
    assert not converts_alike("float", "double", is_postgresql=False, is_wider=True)
    assert not converts_alike("real", "double precision", is_postgresql=True, is_wider=True)
    assert converts_alike("float", "float", is_postgresql=False, is_wider=True)
    assert converts_alike("enum('x')", "text", is_postgresql=False, is_wider=True)
    assert converts_alike("integer[]", "bigint[]", is_postgresql=True, is_wider=True)


def test_an_enum_of_postgresql_becomes_a_text_alone() -> None:
    assert converts_alike("public.mood", "character varying(3)", is_postgresql=True, is_enum=True)
    assert not converts_alike("public.mood", "integer", is_postgresql=True, is_enum=True)
