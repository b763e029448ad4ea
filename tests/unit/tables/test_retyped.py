"""Which changes of a column's type may have changed its values at the source."""

import pytest

from headgate.databases.catalogue import Product
from headgate.tables.retyped import may_have_other_values


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("numeric(10,2)", "numeric(12,4)"),
        ("numeric(10,2)", "numeric"),
        ("integer", "bigint"),
        ("integer", "text"),
        ("uuid", "character varying"),
        ("character varying(10)", "character varying(20)"),
        ("timestamp(3) without time zone", "timestamp(6) without time zone"),
    ],
)
def test_postgresql_keeps_every_value(before: str, now: str) -> None:
    assert not may_have_other_values(Product.POSTGRESQL, before, now)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("numeric(10,2)", "numeric(10,1)"),
        ("bigint", "integer"),
        ("text", "integer"),
        ("character varying(20)", "character varying(10)"),
        ("timestamp(6) without time zone", "timestamp(3) without time zone"),
        ("timestamp without time zone", "timestamp with time zone"),
        ("integer[]", "text"),
        ("mood", "text"),
        ("text", "jsonb"),
        ("real", "double precision"),
    ],
)
def test_postgresql_may_have_changed_a_value(before: str, now: str) -> None:
    assert may_have_other_values(Product.POSTGRESQL, before, now)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("int(11)", "int"),
        ("int(11)", "bigint(20)"),
        ("int(10) unsigned", "bigint(20)"),
        ("decimal(10,2)", "decimal(12,4)"),
        ("decimal(10,2)", "varchar(67)"),
        ("varchar(10)", "varchar(20)"),
        ("enum('a','b')", "enum('a','b','c')"),
        ("bigint(20)", "text"),
        ("year(4)", "year"),
        ("geometrycollection", "geomcollection"),
        ("datetime /* mariadb-5.3 */", "datetime"),
        ("text", "text /*M!100301 COMPRESSED*/"),
    ],
)
def test_mariadb_keeps_every_value(before: str, now: str) -> None:
    assert not may_have_other_values(Product.MARIADB, before, now)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("decimal(10,2)", "decimal(10,1)"),
        ("int(11)", "int(10) unsigned"),
        ("int(5) unsigned zerofill", "int(10) unsigned"),
        ("decimal(10,2)", "varchar(66)"),
        ("varchar(20)", "varchar(10)"),
        ("datetime(6)", "datetime"),
        ("datetime(6) /* mariadb-5.3 */", "datetime"),
        ("varchar(20)", "varchar(10) /*M!100301 COMPRESSED*/"),
        ("enum('a','b')", "enum('b','a')"),
        ("float", "double"),
    ],
)
def test_mariadb_may_have_changed_a_value(before: str, now: str) -> None:
    assert may_have_other_values(Product.MARIADB, before, now)
