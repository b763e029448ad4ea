"""Which types hold every value of another one, and more."""

import pytest

from headgate.databases.mysql.types import parse_type as parse_mysql
from headgate.databases.postgresql.types import parse_type as parse_postgresql
from headgate.sinks.creating import parse_lake_type
from headgate.tables.widening import holds_labels, is_wider

LAKE = [
    ("tinyint", "smallint"), ("smallint", "int"), ("int", "bigint"), ("int", "decimal(10,0)"), ("float", "double"),
    ("decimal(9,2)", "decimal(12,2)"), ("decimal(9,2)", "decimal(12,4)"),
]  # fmt: skip
OTHER_IN_LAKES = [
    ("bigint", "double"), ("date", "timestamp_ntz"), ("timestamp_ntz", "timestamp"), ("int", "string"),
    ("decimal(9,2)", "decimal(9,4)"), ("bigint", "decimal(18,0)"), ("double", "decimal(38,10)"),
]  # fmt: skip
POSTGRESQL = [
    ("smallint", "integer"), ("integer", "bigint"), ("integer", "numeric(10,0)"), ("bigint", "numeric"),
    ("varchar(9)", "varchar(10)"), ("varchar(9)", "varchar"), ("varchar(9)", "text"), ("numeric(9,2)", "numeric(10,2)"),
    ("numeric(9,2)", "numeric(10,3)"), ("numeric(9,2)", "numeric"), ("timestamp(3)", "timestamp"),
    ("timestamptz(0)", "timestamptz(3)"), ("time(0)", "time(6)"), ("varbit(3)", "varbit"),
]  # fmt: skip
MYSQL = [
    ("tinyint(4)", "smallint(6)"), ("int(11)", "bigint(20)"), ("int(10) unsigned", "bigint(20)"),
    ("int(10) unsigned", "bigint(20) unsigned"), ("int(11)", "decimal(10,0)"), ("varchar(9)", "varchar(10)"),
    ("varchar(9)", "text"), ("text", "longtext"), ("char(2)", "char(3)"), ("decimal(9,2)", "decimal(10,2)"),
    ("enum('a')", "enum('a','b')"), ("enum('a','c')", "enum('a','b','c')"), ("set('a')", "set('a','b')"),
    ("datetime", "datetime(3)"), ("varbinary(9)", "varbinary(10)"), ("varbinary(9)", "blob"), ("blob", "longblob"),
]  # fmt: skip
NEITHER = [
    ("numeric(9,2)", "numeric(9,3)"), ("integer", "text"), ("integer", "numeric(9,0)"), ("date", "timestamp"),
    ("integer", "real"), ("real", "double precision"), ("json", "jsonb"), ("integer[]", "bigint[]"),
    ("char(2)", "text"), ("text", "text"),
]  # fmt: skip
NEITHER_MYSQL = [
    ("int(11)", "bigint(20) unsigned"), ("int(11)", "int(10) unsigned"), ("int(11)", "int(4)"),
    ("enum('a','b')", "enum('b','a','c')"), ("enum('a')", "set('a','b')"), ("varchar(20000)", "text"),
    ("float", "double"), ("date", "datetime"), ("binary(2)", "binary(3)"), ("text", "blob"),
    ("decimal(9,2)", "decimal(10,2) unsigned"), ("int(5) unsigned zerofill", "bigint(20)"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), POSTGRESQL)
def test_a_type_of_postgresql_that_is_wider(old: str, new: str) -> None:
    first, second = parse_postgresql(old), parse_postgresql(new)
    assert first is not None
    assert second is not None
    assert (is_wider(second, first), is_wider(first, second)) == (True, False)


@pytest.mark.parametrize(("old", "new"), LAKE)
def test_a_type_of_a_lake_that_is_wider(old: str, new: str) -> None:
    first, second = parse_lake_type(old), parse_lake_type(new)
    assert first is not None
    assert second is not None
    assert (is_wider(second, first), is_wider(first, second)) == (True, False)


@pytest.mark.parametrize(("old", "new"), OTHER_IN_LAKES)
def test_a_type_of_a_lake_that_is_another_one(old: str, new: str) -> None:
    first, second = parse_lake_type(old), parse_lake_type(new)
    assert first is not None
    assert second is not None
    assert not is_wider(second, first)


@pytest.mark.parametrize(("old", "new"), MYSQL)
def test_a_type_of_mysql_that_is_wider(old: str, new: str) -> None:
    first, second = parse_mysql(old), parse_mysql(new)
    assert first is not None
    assert second is not None
    assert (is_wider(second, first), is_wider(first, second)) == (True, False)


@pytest.mark.parametrize(("old", "new"), NEITHER)
def test_types_of_postgresql_of_which_neither_is(old: str, new: str) -> None:
    first, second = parse_postgresql(old), parse_postgresql(new)
    assert first is not None
    assert second is not None
    assert (is_wider(second, first), is_wider(first, second)) == (False, False)


@pytest.mark.parametrize(("old", "new"), NEITHER_MYSQL)
def test_types_of_mysql_of_which_neither_is(old: str, new: str) -> None:
    first, second = parse_mysql(old), parse_mysql(new)
    assert first is not None
    assert second is not None
    assert (is_wider(second, first), is_wider(first, second)) == (False, False)


def test_labels_are_added_anywhere_and_never_moved() -> None:
    assert holds_labels(("x", "a", "b"), ("a", "b"))
    assert not holds_labels(("b", "a", "x"), ("a", "b"))
    assert not holds_labels(("a", "x"), ("a", "b"))
