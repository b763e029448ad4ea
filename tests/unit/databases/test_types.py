"""Types are read by an allow-list, and written again from their parts: no text of a database gets into a statement."""

import pytest

from headgate.databases.mysql import types as mysql
from headgate.databases.postgresql import types as postgresql


@pytest.mark.parametrize(
    "text",
    [
        "smallint", "numeric", "numeric(12,2)", "numeric(5,-2)", "double precision", "character varying(20)",
        "character(5)", "time(3) without time zone", "timestamp with time zone", "timestamp(0) with time zone[]",
        "bit varying(10)", "text[]", "interval(3)", "tstzrange", "macaddr8",
    ],
)  # fmt: skip
def test_a_type_of_postgresql_comes_back_as_the_server_wrote_it(text: str) -> None:
    found = postgresql.parse_type(text)
    assert found is not None
    assert found.sql == text


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("varchar(20)", "character varying(20)"),
        ("timestamptz(3)", "timestamp(3) with time zone"),
        ("decimal(10, 2)", "numeric(10,2)"),
        ("int[]", "integer[]"),
    ],
)
def test_types_of_postgresql_as_people_write_them(text: str, becomes: str) -> None:
    found = postgresql.parse_type(text)
    assert found is not None
    assert found.sql == becomes


@pytest.mark.parametrize(
    "text",
    [
        "public.mood", '"text"', "hstore", "text; DROP TABLE t", "text)", "text\n", "numeric(1,2,3)", "text(3)",
        "text[][]", "integer) INHERITS (secret", "numeric(10,2) DEFAULT 1", "", "TEXT", "interval year to month",
        "time with", "xml",
    ],
)  # fmt: skip
def test_any_other_text_is_no_type_of_postgresql(text: str) -> None:
    assert postgresql.parse_type(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "tinyint(1)", "int(10) unsigned", "bigint(20) unsigned zerofill", "decimal(12,2) unsigned", "float", "bit(10)",
        "varchar(20)", "longblob", "datetime(6)", "timestamp", "year(4)", "enum('glad','so, so','it''s')",
        "set('a','b')", "json", "uuid", "point", "enum('')",
    ],
)  # fmt: skip
def test_a_type_of_mysql_comes_back_as_the_server_wrote_it(text: str) -> None:
    found = mysql.parse_type(text)
    assert found is not None
    assert found.sql.replace("\\'", "''") == text


def test_a_text_of_mysql_keeps_its_collation() -> None:
    found = mysql.parse_type("varchar(20)", "latin1", "latin1_bin")
    assert found is not None
    assert found.sql == "varchar(20) CHARACTER SET latin1 COLLATE latin1_bin"
    assert mysql.parse_type("varchar(20)", "latin1", "latin1_bin; x") is None
    assert mysql.parse_type("int(11)", "latin1", "latin1_bin") == mysql.MysqlType(name="int", numbers=(11,))


@pytest.mark.parametrize(
    "text",
    [
        "int(11) /* x */", "varchar(20) COMPRESSED", "enum('a'", "enum('a') NULL", "enum(1)", "set()", "text unsigned",
        "INT", "datetime(6) DEFAULT now()", "vector(3)", "date(3)", "enum('a','b'); DROP TABLE t; -- ')", "int\n",
        r"enum('a\')", r"enum('a\b')",
    ],
)  # fmt: skip
def test_any_other_text_is_no_type_of_mysql(text: str) -> None:
    assert mysql.parse_type(text) is None


@pytest.mark.parametrize("label", ["", "'", "''", "\\", "\\'", "a,b", "','", "\0\n\r\x1a", '"', "ü€", "%(x)s", "\t"])
def test_any_label_is_read_as_it_was_written(label: str) -> None:
    written = mysql.MysqlType(name="enum", labels=("a", label, "b"))
    assert mysql.parse_type(written.sql) == written


def test_a_label_is_written_as_one_literal() -> None:
    found = mysql.parse_type(r"enum('it''s','back\\slash','line\n')")
    assert found is not None
    assert found.labels == ("it's", "back\\slash", "line\n")
    assert found.sql == r"enum('it\'s','back\\slash','line\n')"
